//! Propagation of trace contexts between requests and `tracing` spans.

use std::{fmt, sync::Arc};

use tracing::Span;

use super::TraceContext;

/// Connects `tracing` spans with a distributed trace. Requests that are sent to servers inside a
/// span then carry the span's position in the trace.
///
/// The default methods do not use spans. If a request arrived with a trace context, they send each
/// server a [child](TraceContext::child) of this context. If it arrived without one, they send
/// none. A tracer that records spans can send the trace context of the span instead. With the
/// feature `opentelemetry`, the type `OpenTelemetry` does so.
pub trait Propagate: Send + Sync {
    /// Makes the span of a request a child of `incoming`, the trace context that the request
    /// arrived with. If spans of requests are disabled, `span` is the span of the run that the
    /// request starts.
    ///
    /// Called before the span is entered for the first time.
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        let _ = (incoming, span);
    }

    /// Returns the trace context to send to a server that is called inside `span`, or `None` to
    /// send none.
    ///
    /// `incoming` is the trace context of the request that created the span. The span is
    /// [disabled](Span::is_none) if no subscriber records it.
    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        let _ = span;
        incoming.map(TraceContext::child)
    }
}

/// The tracing settings of a request. They travel with the request and override the defaults.
#[derive(Clone, Default)]
pub(crate) struct Tracing {
    pub(crate) propagate: Option<Arc<dyn Propagate>>,
    pub(crate) contents: bool,
    pub(crate) metrics: bool,
    /// The view that the request was sent to.
    pub(crate) view: Option<Arc<str>>,
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
