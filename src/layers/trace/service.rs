//! The service that creates spans and metrics for requests.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;
use tracing::Span;

use super::{
    names::{KnownNames, is_fit},
    span,
};
use crate::{
    message::{ItemKind, Reply, Request, Tracing},
    spans::End,
};

/// Middleware that creates a span for each request to the wrapped service. Created by
/// [`TraceLayer`](super::TraceLayer). `Trace` is ready when the wrapped service is ready.
#[derive(Clone, Debug)]
pub struct Trace<S> {
    inner: S,
    tracing: Option<Arc<Tracing>>,
    names: Arc<KnownNames>,
}

pin_project! {
    /// Response future of [`Trace`].
    pub struct ResponseFuture<F> {
        #[pin]
        reply: F,
        watched: Option<Box<ObservedRequest>>,
    }
}

/// A request that is traced or measured. If this value is dropped before the reply arrives, the
/// request is recorded as canceled. If a panic caused the drop, it is recorded as panicked.
struct ObservedRequest {
    span: Span,
    begun: Instant,
    method: &'static str,
    /// The called tool or the requested prompt. `None` if the request refers to neither, or if the
    /// name is too long or contains control characters.
    target: Option<(ItemKind, String)>,
    names: Arc<KnownNames>,
    contents: bool,
    metrics: bool,
    view: Option<Arc<str>>,
    has_ended: bool,
}

// === impl Trace ===

impl<S> Trace<S> {
    pub(super) fn new(inner: S, tracing: Option<Arc<Tracing>>, names: KnownNames) -> Self {
        Self { inner, tracing, names: Arc::new(names) }
    }

    /// Returns the tracing settings of all requests. `None` if the default settings apply.
    pub(crate) const fn tracing(&self) -> Option<&Arc<Tracing>> {
        self.tracing.as_ref()
    }

    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S> Service<Request> for Trace<S>
where
    S: Service<Request, Response = Reply>,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, mut request: Request) -> Self::Future {
        if let Some(tracing) = &self.tracing {
            request.context_mut().tracing = Some(tracing.clone());
        }
        let span = span::server(&request, &self.names);
        request.context_mut().continue_trace(&span);
        if span.is_none() && !request.context().is_measured() {
            drop(span);
            return ResponseFuture { reply: self.inner.call(request), watched: None };
        }
        let watched = Box::new(ObservedRequest::new(span, &request, self.names.clone()));
        let reply = watched.span.in_scope(|| self.inner.call(request));
        ResponseFuture { reply, watched: Some(watched) }
    }
}

// === impl ResponseFuture ===

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Reply, E>>,
{
    type Output = Result<Reply, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        // Take the observed request out of the future while polling, so that a panic drops and
        // records it.
        let Some(mut watched) = this.watched.take() else { return this.reply.poll(cx) };
        let reply = watched.span.in_scope(|| this.reply.poll(cx));
        match &reply {
            Poll::Ready(reply) => watched.answer(reply.as_ref().ok()),
            Poll::Pending => *this.watched = Some(watched),
        }
        reply
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

// === impl ObservedRequest ===

impl ObservedRequest {
    fn new(span: Span, request: &Request, names: Arc<KnownNames>) -> Self {
        let (method, target) = span::operation(request);
        Self {
            span,
            begun: Instant::now(),
            method,
            // Drop a name that is not safe to record, because it never becomes known.
            target: target
                .filter(|(_, name)| is_fit(name))
                .map(|(kind, name)| (kind, name.to_owned())),
            names,
            contents: request.context().is_traced_with_contents(),
            metrics: request.context().is_measured(),
            view: request.context().view().cloned(),
            has_ended: false,
        }
    }

    /// Records the outcome of the request in its span and in the metrics. `reply` is `None` if the
    /// service returned an error.
    fn answer(&mut self, reply: Option<&Reply>) {
        let Some(reply) = reply else { return self.end(&End::UNANSWERED) };
        let end = End::of_reply(reply);
        self.names.learn_listed(reply);
        // Do not record the name after a failure, because some servers report a missing tool as a
        // failed call.
        if let Some((kind, name)) = &self.target
            && end.status != "failed"
        {
            self.names.learn(*kind, name);
        }
        if self.contents && !self.span.is_none() {
            span::record_answer(&self.span, reply, &end);
        }
        self.end(&end);
    }

    fn end(&mut self, end: &End) {
        self.has_ended = true;
        end.record(&self.span);
        if self.metrics {
            let target = self.target.as_ref().map(|(kind, name)| (*kind, &**name));
            let known = target.filter(|(kind, name)| self.names.knows(*kind, name));
            let (took, view) = (self.begun.elapsed(), self.view.as_deref());
            crate::metrics::served(self.method, known, end, took, view);
        }
    }
}

impl Drop for ObservedRequest {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(&if std::thread::panicking() { End::PANICKED } else { End::CANCELLED });
        }
    }
}
