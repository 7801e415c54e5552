//! The layer that creates a span for each request, and propagates its trace context.

use std::sync::Arc;

use tower_layer::Layer;

use super::{Propagate, Trace, names::KnownNames};
use crate::message::Tracing;

/// A layer that creates a `tracing` span for each request, and sends the trace context of the span
/// to backends, so that their spans belong to the same trace.
///
/// A [`StackLayer`](crate::stack::StackLayer) always has a `TraceLayer` as its outermost layer,
/// even if you do not add one. Spans are created only if a subscriber enables them. By default,
/// they do not contain arguments and results. [`Propagate`] describes which trace contexts backends
/// receive.
///
/// See the [module docs](crate::trace) for an example, and for a list of all spans.
#[derive(Clone, Debug, Default)]
pub struct TraceLayer {
    tracing: Tracing,
    /// The tool names that spans and metrics may contain before a server has listed the tools.
    tools: Vec<Arc<str>>,
}

// === impl TraceLayer ===

impl TraceLayer {
    /// Creates a layer whose spans do not contain arguments and results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how trace contexts are propagated: from incoming requests to spans, and from spans to
    /// the requests that backends receive. This includes the requests that composites and other
    /// tools send while they run.
    #[must_use]
    pub fn propagate(mut self, propagate: impl Propagate + 'static) -> Self {
        self.tracing.propagate = Some(Arc::new(propagate));
        self
    }

    /// Sets whether spans contain the arguments and results of tool calls
    /// (`gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`), the URIs of resources
    /// (`mcp.resource.uri`) and error messages (`otel.status_description`). Defaults to `false`.
    ///
    /// **Arguments, results and URIs in spans may be secret, and are sent to all destinations of
    /// spans**, such as logs and exporters. Spans do not contain the values that a
    /// [`redact`](crate::redact) layer removes from results, or any arguments and results larger
    /// than 8 KiB. All other contents are recorded unchanged.
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

    /// Sets the name of the view that receives the requests. A view offers the same backends at
    /// another URL path, such as `/team-a`, with its own layers and composites. Spans, metrics and
    /// [events](crate::observe::Event::view) contain the name. Defaults to no name.
    ///
    /// Use only a small number of different names, because each name is a value of a metric label.
    /// In the views of a configuration file, [`Config::trace`](crate::config::Config::trace) sets
    /// the name to the path of the view.
    #[must_use]
    pub fn view(mut self, name: impl Into<Arc<str>>) -> Self {
        self.tracing.view = Some(name.into());
        self
    }

    /// Adds the names of tools that are known to exist. Spans and metrics may contain these names
    /// immediately. All other tool names must first be listed by a server.
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
