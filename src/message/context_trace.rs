//! The distributed trace of a request, which spans of this process and requests to servers
//! continue.

use std::sync::Arc;

use tracing::Span;

use super::{Context, Propagate, TraceContext, trace::is_baggage};

// === impl Context ===

impl Context {
    /// Returns the trace context that the client sent in the `_meta` of the request ([SEP-414]).
    /// Returns `None` if there is none, or if it is malformed.
    ///
    /// [SEP-414]: https://modelcontextprotocol.io/seps/414-request-meta
    #[must_use]
    pub fn trace(&self) -> Option<TraceContext> {
        if self.meta.is_empty() { None } else { TraceContext::read(&self.meta) }
    }

    /// Replaces the trace context in `_meta`, or removes it if `trace` is `None`. Also removes a
    /// malformed `baggage`.
    pub(super) fn set_trace(&mut self, trace: Option<&TraceContext>) {
        // `_meta` is accessed mutably only if an entry changes, because mutable access would copy
        // the shared map.
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

    /// Makes `span` a child of the client's trace context. Then replaces the trace context in
    /// `_meta` with that of `span`, for requests to servers.
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

    /// Makes `span`, the span of a run, a child of the client's trace context. Does nothing if
    /// another span of this process already contains the request.
    pub(crate) fn continue_trace_in_run(&self, span: &Span) {
        if !self.is_in_span
            && let Some(propagate) = self.propagate()
            && let Some(incoming) = self.trace()
        {
            propagate.extract(&incoming, span);
        }
    }

    /// Replaces the trace context in `_meta` with that of `span`. Requests to servers then become
    /// children of `span`.
    #[inline(always)]
    pub(crate) fn call_within(&mut self, span: &Span) {
        if self.is_untraced(span) {
            return;
        }
        self.call_within_traced(span);
    }

    #[inline(never)]
    fn call_within_traced(&mut self, span: &Span) {
        self.pass_on(self.trace().as_ref(), span);
    }

    /// Returns `true` if there is nothing to trace, as for most requests: no `_meta`, no
    /// propagation, and a disabled span.
    #[inline(always)]
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

    /// Returns `true` if spans contain the arguments and results of tool calls.
    pub(crate) fn is_traced_with_contents(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.contents)
    }

    /// Returns `true` if metrics are recorded for this request and its nested requests.
    pub(crate) fn is_measured(&self) -> bool {
        self.tracing.as_ref().is_some_and(|tracing| tracing.metrics)
    }

    /// Returns the view that the client used, such as `/team-a`: a path of the server with
    /// composites and layers of its own. Returns `None` if the client used no view.
    pub(crate) fn view(&self) -> Option<&Arc<str>> {
        self.tracing.as_ref()?.view.as_ref()
    }

    fn propagate(&self) -> Option<&dyn Propagate> {
        self.tracing.as_ref()?.propagate.as_deref()
    }
}
