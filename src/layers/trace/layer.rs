//! The layer that creates a span for each request and propagates its context.

use std::sync::Arc;

use tower_layer::Layer;

use super::{Propagate, Trace, names::KnownNames};
use crate::message::Tracing;

/// Creates a span for each request, and propagates its context.
///
/// It is the outermost layer of a [`StackLayer`](crate::stack::StackLayer), even if it was not
/// set. By default, spans are created without arguments and results if a subscriber enables
/// them, and backends receive the trace context as documented at [`Propagate`].
///
/// See the [module docs](crate::trace) for the spans, and for an example.
#[derive(Clone, Debug, Default)]
pub struct TraceLayer {
    tracing: Tracing,
    /// The tools that are known to exist.
    tools: Vec<Arc<str>>,
}

// === impl TraceLayer ===

impl TraceLayer {
    /// Creates a layer that traces without arguments and results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the propagation of trace contexts.
    ///
    /// It applies to everything that the request leads to: the branches of composites, and the
    /// calls that tools make within it.
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
    /// **All of these may be secret, and go wherever spans go**: to the log and to exporters.
    /// Only values that [`redact`](crate::redact) removes from results are never in spans.
    /// Arguments and results of more than 8 KiB are omitted.
    #[must_use]
    pub const fn contents(mut self, contents: bool) -> Self {
        self.tracing.contents = contents;
        self
    }

    /// Sets whether requests, and the runs that they lead to, are
    /// [measured](crate::metrics). Defaults to `false`.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn metrics(mut self, metrics: bool) -> Self {
        self.tracing.metrics = metrics;
        self
    }

    /// Adds the names of tools that are known to exist.
    pub(crate) fn tools<'t>(mut self, tools: impl IntoIterator<Item = &'t str>) -> Self {
        self.tools.extend(tools.into_iter().map(Arc::from));
        self
    }
}

impl<S> Layer<S> for TraceLayer {
    type Service = Trace<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let Tracing { propagate, contents, metrics } = &self.tracing;
        let is_default = propagate.is_none() && !contents && !metrics;
        let tracing = (!is_default).then(|| Arc::new(self.tracing.clone()));
        Trace::new(inner, tracing, KnownNames::of_tools(&self.tools))
    }
}
