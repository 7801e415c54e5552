//! Propagation of trace contexts between requests and spans.

use std::{fmt, sync::Arc};

use tracing::Span;

use super::{Context, TraceContext};

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

// === impl Context ===

impl Context {
    /// Continues the trace of the request with a span for the request.
    #[inline]
    pub(crate) fn continue_trace(&mut self, span: &Span) {
        if self.is_untraced(span) {
            return;
        }
        self.continue_trace_in(span);
    }

    fn continue_trace_in(&mut self, span: &Span) {
        let incoming = self.trace();
        if let Some(propagate) = self.propagate()
            && let Some(incoming) = &incoming
        {
            propagate.extract(incoming, span);
        }
        self.pass_on(incoming.as_ref(), span);
    }

    /// Makes the span of a run a child of the request's trace position, unless an outer span
    /// already is one.
    pub(crate) fn continue_trace_in_run(&self, span: &Span) {
        if !self.is_in_span
            && let Some(propagate) = self.propagate()
            && let Some(incoming) = self.trace()
        {
            propagate.extract(&incoming, span);
        }
    }

    /// Sends the trace context of the span with requests made in this context.
    #[inline]
    pub(crate) fn call_within(&mut self, span: &Span) {
        if self.is_untraced(span) {
            return;
        }
        self.pass_on(self.trace().as_ref(), span);
    }

    /// Returns `true` if neither the client nor the server traces the request, as usual.
    #[inline]
    fn is_untraced(&self, span: &Span) -> bool {
        self.meta.is_empty() && self.tracing.is_none() && span.is_none()
    }

    fn pass_on(&mut self, incoming: Option<&TraceContext>, span: &Span) {
        let outgoing = match self.propagate() {
            Some(propagate) => propagate.inject(incoming, span),
            None => incoming.map(TraceContext::child),
        };
        self.set_trace(outgoing.as_ref());
        self.is_in_span |= !span.is_none();
    }

    /// Returns `true` if spans of the request record arguments and results of tools.
    pub(crate) fn is_traced_with_contents(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.contents)
    }

    /// Returns `true` if metrics are recorded for the request and its inner requests.
    pub(crate) fn is_measured(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.metrics)
    }

    fn propagate(&self) -> Option<&dyn Propagate> {
        self.tracing.as_ref()?.propagate.as_deref()
    }
}
