use std::sync::Arc;

use tower_layer::Layer;

use super::{Propagate, Trace, names::KnownNames};
use crate::message::Tracing;

/// Gives each request a span, and tells others of it.
///
/// It is the outermost layer of a [`StackLayer`](crate::stack::StackLayer), also where it
/// was not set: by default there are spans without arguments and results, where a
/// subscriber wants them, and who is called is told as [`Propagate`] says.
///
/// See the [module docs](crate::trace) for the spans, and for an example.
#[derive(Clone, Debug, Default)]
pub struct TraceLayer {
    tracing: Tracing,
    /// The tools that there are in any case.
    tools: Vec<Arc<str>>,
}

// === impl TraceLayer ===

impl TraceLayer {
    /// Traces without arguments and results.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what others are told of spans.
    ///
    /// It holds for all that the request leads to: the branches of composites, and what
    /// tools call within it.
    #[must_use]
    pub fn propagate(mut self, propagate: impl Propagate + 'static) -> Self {
        self.tracing.propagate = Some(Arc::new(propagate));
        self
    }

    /// Sets whether spans have what tools are called with and what they answer
    /// (`gen_ai.tool.call.arguments`, `gen_ai.tool.call.result`), the URIs of resources
    /// (`mcp.resource.uri`) and the texts of errors (`otel.status_description`); they have
    /// not by default.
    ///
    /// **All of it may be secret, and goes wherever spans go**: to the log, and to whom they
    /// are exported. Only what [`redact`](crate::redact) takes out of results is in no span.
    /// Arguments and results of more than 8 KiB are left out.
    #[must_use]
    pub const fn contents(mut self, contents: bool) -> Self {
        self.tracing.contents = contents;
        self
    }

    /// Sets whether requests are [measured](crate::metrics), and the runs that they lead to;
    /// they are not by default.
    #[cfg(feature = "metrics")]
    #[must_use]
    pub const fn metrics(mut self, metrics: bool) -> Self {
        self.tracing.metrics = metrics;
        self
    }

    /// Names tools that there are in any case.
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
