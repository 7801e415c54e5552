//! The layer that creates a span for each request, and propagates its trace context.

use std::sync::Arc;

use tower_layer::Layer;

use super::{Propagate, Trace, names::KnownNames};
use crate::message::Tracing;

/// A layer that creates a `tracing` span for each request, and sends the trace context of the span
/// to backends, so that their spans belong to the same trace.
///
/// A [`StackLayer`](crate::stack::StackLayer) always has a trace layer as its outermost layer, even
/// if you set none. By default, spans do not contain arguments and results, and are created only if
/// a subscriber enables them. See [`Propagate`] for the trace contexts that backends receive.
///
/// See the [module docs](crate::trace) for a list of all spans, and for an example.
#[derive(Clone, Debug, Default)]
pub struct TraceLayer {
    tracing: Tracing,
    /// The names of tools that are known to exist, even if no server has listed them yet.
    tools: Vec<Arc<str>>,
}

// === impl TraceLayer ===

impl TraceLayer {
    /// Creates a layer whose spans do not contain arguments and results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how trace contexts are propagated from requests to spans, and from spans to backends.
    ///
    /// The setting also applies to the calls that result from a request, such as the branches of a
    /// composite and the calls that a tool makes during the request.
    #[must_use]
    pub fn propagate(mut self, propagate: impl Propagate + 'static) -> Self {
        self.tracing.propagate = Some(Arc::new(propagate));
        self
    }

    /// Sets whether spans contain the arguments and results of tool calls
    /// (`gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`), the URIs of resources
    /// (`mcp.resource.uri`) and error messages (`otel.status_description`). Defaults to `false`.
    ///
    /// **These contents may be secret, and are sent wherever spans are sent**, such as to logs and
    /// exporters. Spans omit only the values that [`redact`](crate::redact) removes from results,
    /// and arguments and results larger than 8 KiB.
    #[must_use]
    pub const fn contents(mut self, contents: bool) -> Self {
        self.tracing.contents = contents;
        self
    }

    /// Sets whether [metrics](crate::metrics) are recorded for requests, and for the composite runs
    /// that requests start. Defaults to `false`.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn metrics(mut self, metrics: bool) -> Self {
        self.tracing.metrics = metrics;
        self
    }

    /// Sets the name of the view to which requests are sent. Spans, metrics and
    /// [events](crate::observe::Event::view) contain this name. Defaults to no name.
    ///
    /// Use only a small number of names, because each name is the value of a metric label. For the
    /// views of a configuration file, [`Config::trace`](crate::config::Config::trace) sets the path
    /// of the view.
    #[must_use]
    pub fn view(mut self, name: impl Into<Arc<str>>) -> Self {
        self.tracing.view = Some(name.into());
        self
    }

    /// Adds the names of tools that are known to exist. Spans and metrics may then contain these
    /// names before a server has listed the tools.
    pub(crate) fn tools<'t>(mut self, tools: impl IntoIterator<Item = &'t str>) -> Self {
        self.tools.extend(tools.into_iter().map(Arc::from));
        self
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let Tracing { propagate, contents, metrics, view } = &self.tracing;
        let is_default = propagate.is_none() && !contents && !metrics && view.is_none();
        let tracing = (!is_default).then(|| Arc::new(self.tracing.clone()));
        Trace::new(inner, tracing, KnownNames::of_tools(&self.tools))
    }
}
