//! The distributed trace of a request. Spans in this process continue the trace, and requests to
//! servers forward it.

use std::sync::Arc;

use tracing::Span;

use super::{Context, Propagate, TraceContext, trace::is_baggage};

// === impl Context ===

impl Context {
    /// Returns the trace position that the client sent in the `_meta` of the request ([SEP-414]),
    /// or `None` if the position is missing or malformed.
    ///
    /// [SEP-414]: https://modelcontextprotocol.io/seps/414-request-meta
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        if self.meta.is_empty() { None } else { TraceContext::read(&self.meta) }
    }

    /// Sets the trace position in `_meta`, or removes it if `trace` is `None`. Also removes a
    /// malformed `baggage`.
    pub(super) fn set_trace(&mut self, trace: Option<&TraceContext>) {
        // Accesses `_meta` mutably only to change an entry: mutable access would copy the shared
        // map.
        match trace {
            Some(trace) => trace.write(&mut self.meta),
            // A `tracestate` is meaningless without its `traceparent`.
            None => ["traceparent", "tracestate"].into_iter().for_each(|key| self.remove_meta(key)),
        }
        if !self.meta.get_baggage().is_some_and(is_baggage) {
            self.remove_meta("baggage");
        }
    }

    fn remove_meta(&mut self, key: &str) {
        if self.meta.contains_key(key) {
            self.meta.remove(key);
        }
    }

    /// Makes `span` a child of the request's trace position, and sets `_meta` to the position of
    /// the span.
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

    /// Makes the span of a run a child of the request's trace position. Does nothing if the run is
    /// already inside a span that is a child of that position.
    pub(crate) fn continue_trace_in_run(&self, span: &Span) {
        if !self.is_in_span
            && let Some(propagate) = self.propagate()
            && let Some(incoming) = self.trace()
        {
            propagate.extract(&incoming, span);
        }
    }

    /// Sets the trace position in `_meta` to that of `span`, so that requests made in this context
    /// become children of the span.
    #[inline]
    pub(crate) fn call_within(&mut self, span: &Span) {
        if self.is_untraced(span) {
            return;
        }
        self.pass_on(self.trace().as_ref(), span);
    }

    /// Returns `true` if neither the client nor the server traces the request. Most requests are
    /// untraced.
    #[inline]
    fn is_untraced(&self, span: &Span) -> bool {
        self.meta.is_empty() && self.propagate().is_none() && span.is_none()
    }

    fn pass_on(&mut self, incoming: Option<&TraceContext>, span: &Span) {
        let outgoing = match self.propagate() {
            Some(propagate) => propagate.inject(incoming, span),
            None => incoming.map(TraceContext::child),
        };
        self.set_trace(outgoing.as_ref());
        self.is_in_span |= !span.is_none();
    }

    /// Returns `true` if the request's spans are to record the arguments and results of tools.
    pub(crate) fn is_traced_with_contents(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.contents)
    }

    /// Returns `true` if metrics are to be recorded for the request and its inner requests.
    pub(crate) fn is_measured(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.metrics)
    }

    /// Returns the name of the view that the request was sent to, or `None` if it was sent to no
    /// view.
    pub(crate) fn view(&self) -> Option<&Arc<str>> {
        self.tracing.as_ref()?.view.as_ref()
    }

    fn propagate(&self) -> Option<&dyn Propagate> {
        self.tracing.as_ref()?.propagate.as_deref()
    }
}
