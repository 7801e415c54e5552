//! Connects the trace contexts of requests with `tracing` spans.

use std::{fmt, sync::Arc};

use tracing::Span;

use super::TraceContext;

/// Connects `tracing` spans with a distributed trace, so that the spans of the client, of this
/// process and of the servers belong to the same trace.
///
/// The default methods ignore spans: each called server receives a [child](TraceContext::child) of
/// the client's trace context. Implementations that record spans can send the trace context of the
/// current span instead, like `OpenTelemetry` (feature `opentelemetry`).
pub trait Propagate: Send + Sync {
    /// Makes `span` a child of `incoming`, the client's trace context. `span` is the span of the
    /// request or, if request spans are disabled, of the composite run that the request starts.
    ///
    /// `extract` is called before `span` is entered for the first time.
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        let _ = (incoming, span);
    }

    /// Returns the trace context for a request to a server. `span` is the span in which the request
    /// is made. If the method returns `None`, no trace context is sent.
    ///
    /// `incoming` is the client's trace context. `span` is [disabled](Span::is_none) if no
    /// subscriber records it.
    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        let _ = span;
        incoming.map(TraceContext::child)
    }
}

/// The tracing settings of a request, which are part of its context.
#[derive(Clone, Default)]
pub(crate) struct Tracing {
    pub(crate) propagate: Option<Arc<dyn Propagate>>,
    pub(crate) contents: bool,
    pub(crate) metrics: bool,
    /// The view that the client used, such as `/team-a`: a path of the server with composites and
    /// layers of its own. `None` if the client used no view.
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
