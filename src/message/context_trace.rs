//! The trace of a request, continued in spans and passed to the servers that it calls.

use tracing::Span;

use super::{Context, Propagate, TraceContext, trace::is_baggage};

// === impl Context ===

impl Context {
    /// Returns the trace position of the request in its `_meta` ([SEP-414]), or `None` if it is
    /// missing or malformed.
    ///
    /// [SEP-414]: https://modelcontextprotocol.io/seps/414-request-meta
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        if self.meta.is_empty() { None } else { TraceContext::read(&self.meta) }
    }

    /// Sets the trace position in `_meta` and removes malformed entries.
    pub(super) fn set_trace(&mut self, trace: Option<&TraceContext>) {
        // Mutable access only for entries that change: branches share the rest.
        match trace {
            Some(trace) => trace.write(&mut self.meta),
            // A `tracestate` belongs to its `traceparent`.
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
