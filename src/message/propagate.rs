//! The interface between distributed trace contexts of requests and `tracing` spans.

use std::{fmt, sync::Arc};

use tracing::Span;

use super::TraceContext;

/// Connects `tracing` spans with a distributed trace, so that the spans of the client, this process
/// and the servers belong to the same trace.
///
/// The default methods ignore spans: if a request arrived with a trace context, each called server
/// receives a [child](TraceContext::child) of this context. An implementation that records spans
/// can send the trace context of the current span instead, as `OpenTelemetry` (feature
/// `opentelemetry`) does.
pub trait Propagate: Send + Sync {
    /// Makes a span a child of `incoming`, the trace context with which a request arrived. `span`
    /// is the span of the request or, if request spans are disabled, the span of the composite run
    /// that the request starts.
    ///
    /// `extract` is called before `span` is entered for the first time.
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        let _ = (incoming, span);
    }

    /// Returns the trace context to send in a request to a server. `span` is the span in which the
    /// request is made. If this method returns `None`, no trace context is sent.
    ///
    /// `incoming` is the trace context with which the client's request arrived. If no subscriber
    /// records the span, `span` is [disabled](Span::is_none).
    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        let _ = span;
        incoming.map(TraceContext::child)
    }
}

/// The tracing settings of a request. They are stored in its context, and override the default
/// settings.
#[derive(Clone, Default)]
pub(crate) struct Tracing {
    pub(crate) propagate: Option<Arc<dyn Propagate>>,
    pub(crate) contents: bool,
    pub(crate) metrics: bool,
    /// The name of the view through which the client sent the request. `None` if the client used no
    /// view.
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
