//! Propagation of trace contexts between requests and spans.

use std::{fmt, sync::Arc};

use tracing::Span;

use super::TraceContext;

/// Maps spans to positions in traces, and passes these to the servers called within a span.
///
/// By default, each callee gets a new position below that of the request, and none if the request
/// came with none. A tracer that records spans can do better: `OpenTelemetry` implements this for
/// OpenTelemetry, with the feature of that name. An implementation without methods keeps the
/// default.
pub trait Propagate: Send + Sync {
    /// Makes the span of a request a child of the request's trace position; if spans of requests
    /// are disabled, the span of the run that the request calls.
    ///
    /// The span has not been entered before.
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        let _ = (incoming, span);
    }

    /// Returns the trace context to send to a callee within the span; `None` if there is no trace.
    ///
    /// `incoming` is the trace context of the request that created the span. The span is
    /// [disabled](Span::is_none) if no subscriber wants it.
    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        let _ = span;
        incoming.map(TraceContext::child)
    }
}

/// Tracing settings that travel with a request; they override the default.
#[derive(Clone, Default)]
pub(crate) struct Tracing {
    pub(crate) propagate: Option<Arc<dyn Propagate>>,
    pub(crate) contents: bool,
    pub(crate) metrics: bool,
}

impl<P: Propagate + ?Sized> Propagate for Arc<P> {
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        (**self).extract(incoming, span);
    }

    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        (**self).inject(incoming, span)
    }
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing")
            .field("propagate", &self.propagate.is_some())
            .field("contents", &self.contents)
            .field("metrics", &self.metrics)
            .finish()
    }
}
