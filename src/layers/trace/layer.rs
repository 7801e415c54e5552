//! The layer that creates a span for each request and propagates its trace context.

use std::sync::Arc;

use tower_layer::Layer;

use super::{Propagate, Trace, names::KnownNames};
use crate::message::Tracing;

/// A layer that creates a `tracing` span for each request, and propagates the trace context of the
/// span to backends.
///
/// A [`StackLayer`](crate::stack::StackLayer) always has a trace layer as its outermost layer, even
/// if none was set. By default, a span does not contain arguments and results, and is only created
/// if a subscriber enables it. Backends receive the trace context as documented at [`Propagate`].
///
/// See the [module docs](crate::trace) for a list of the spans and for an example.
#[derive(Clone, Debug, Default)]
pub struct TraceLayer {
    tracing: Tracing,
    /// The names of tools that are known to exist before a server has listed any tools.
    tools: Vec<Arc<str>>,
}

// === impl TraceLayer ===

impl TraceLayer {
    /// Creates a layer that traces without arguments and results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how trace contexts are propagated from requests to spans and to backends.
    ///
    /// The setting also affects everything that a request starts, such as the branches of
    /// composites and the calls that tools make while they handle the request.
    #[must_use]
    pub fn propagate(mut self, propagate: impl Propagate + 'static) -> Self {
        self.tracing.propagate = Some(Arc::new(propagate));
        self
    }

    /// Sets whether spans contain the arguments and results of tools
    /// (`gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`), the URIs of resources
    /// (`mcp.resource.uri`) and the messages of errors (`otel.status_description`). Defaults to
    /// `false`.
    ///
    /// **These contents may be secret, and go wherever spans go**: to the log and to exporters. The
    /// only values left out are those that [`redact`](crate::redact) removes from results, and
    /// arguments and results of more than 8 KiB.
    #[must_use]
    pub const fn contents(mut self, contents: bool) -> Self {
        self.tracing.contents = contents;
        self
    }

    /// Sets whether [metrics](crate::metrics) are recorded for requests, and for the runs of
    /// composites that they start. Defaults to `false`.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn metrics(mut self, metrics: bool) -> Self {
        self.tracing.metrics = metrics;
        self
    }

    /// Sets the name of the view that the requests are sent to. Spans, metrics and
    /// [events](crate::observe::Event::view) contain it. By default, they contain no view.
    ///
    /// Use only a few different names: each is a label of metrics.
    /// [`Config::trace`](crate::config::Config::trace) sets the path of each view of a file.
    #[must_use]
    pub fn view(mut self, name: impl Into<Arc<str>>) -> Self {
        self.tracing.view = Some(name.into());
        self
    }

    /// Adds names of tools that are known to exist, so that spans and metrics may contain them.
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
