//! What others are told of spans.

use std::{fmt, sync::Arc};

use tracing::Span;

use super::{Context, TraceContext};

/// Decides which place in which trace a span is, for those who are called within it.
///
/// By itself, each who is called is told a place of its own below that of the request,
/// and none if the request came with none. A tracer that records spans knows better:
/// for OpenTelemetry, `OpenTelemetry` does this, with the feature of that name. One that
/// implements neither method changes nothing.
pub trait Propagate: Send + Sync {
    /// Makes the span of a request a child of the place that the request comes from; where
    /// nobody wants spans of requests, the span of a run that is called by one.
    ///
    /// Nobody has entered the span before.
    fn extract(&self, incoming: &TraceContext, span: &Span) {
        let _ = (incoming, span);
    }

    /// What somebody is told who is called within the span; nothing, if there is no trace.
    ///
    /// `incoming` is what the request said by which the span came to be. The span is
    /// [disabled](Span::is_none) if no subscriber wants it.
    fn inject(&self, incoming: Option<&TraceContext>, span: &Span) -> Option<TraceContext> {
        let _ = span;
        incoming.map(TraceContext::child)
    }
}

/// How a request is traced, other than by default; it travels with the request.
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

    /// Puts the span of a run into the trace that the request comes from, if no span around
    /// it is there.
    pub(crate) fn continue_trace_in_run(&self, span: &Span) {
        if !self.is_in_span
            && let Some(propagate) = self.propagate()
            && let Some(incoming) = self.trace()
        {
            propagate.extract(&incoming, span);
        }
    }

    /// Makes it tell of the span to those who are called within it.
    #[inline]
    pub(crate) fn call_within(&mut self, span: &Span) {
        if self.is_untraced(span) {
            return;
        }
        self.pass_on(self.trace().as_ref(), span);
    }

    /// Whether neither the client nor the server traces the request, as most are.
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

    /// Whether spans of the request have what tools are called with and answer.
    pub(crate) fn is_traced_with_contents(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.contents)
    }

    /// Whether the request, and what it leads to, is measured.
    pub(crate) fn is_measured(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.metrics)
    }

    fn propagate(&self) -> Option<&dyn Propagate> {
        self.tracing.as_ref()?.propagate.as_deref()
    }
}
