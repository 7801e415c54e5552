//! Connects the trace contexts of requests with `tracing` spans.

use std::{fmt, sync::Arc};

use tracing::Span;

use super::TraceContext;

/// Connects `tracing` spans with a distributed trace, so that the spans of the client, this process
/// and the servers belong to the same trace.
///
/// The default methods do not use spans. If a request arrived with a trace context, each server
/// receives a [child](TraceContext::child) of this context. If it arrived without a trace context,
/// servers receive none. A tracer that records spans can send the trace context of the span
/// instead. The type `OpenTelemetry`, available with the feature `opentelemetry`, does so.
pub trait Propagate: Send + Sync {
    /// Makes the span of a request a child of `incoming`, the trace context with which the request
    /// arrived. If spans of requests are disabled, `span` is the span of the run that the request
    /// starts.
    ///
    /// This method is called before the span is entered for the first time.
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        let _ = (incoming, span);
    }

    /// Returns the trace context to send to a server that is called inside `span`. If this method
    /// returns `None`, no trace context is sent.
    ///
    /// `incoming` is the trace context of the request that created the span. If no subscriber
    /// records the span, `span` is [disabled](Span::is_none).
    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        let _ = span;
        incoming.map(TraceContext::child)
    }
}

/// The tracing settings of a request, which travel with the request and override the defaults.
#[derive(Clone, Default)]
pub(crate) struct Tracing {
    pub(crate) propagate: Option<Arc<dyn Propagate>>,
    pub(crate) contents: bool,
    pub(crate) metrics: bool,
    /// The name of the view to which the request was sent.
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
