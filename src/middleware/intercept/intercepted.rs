//! The trait of interception rules, and the service that applies them.

use std::{
    fmt,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::message::{Reply, Request};

/// A rule for the requests and replies that pass through [`Intercepted`].
///
/// It is cloned for each request whose reply it [awaits](Self::awaits_reply), so keep its
/// settings in one `Arc`.
///
/// See the [module docs](crate::intercept) for an example.
pub trait Intercept: Clone {
    /// State passed from [`on_request`](Self::on_request) to [`on_reply`](Self::on_reply).
    type Memo;

    /// Inspects or rewrites a request; `Break` answers it without the inner service.
    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Self::Memo>;

    /// Returns `true` if the rule needs the reply, given the memo of the request. Defaults to
    /// `true`.
    ///
    /// If it does not, no state is kept while the request is processed.
    fn awaits_reply(&self, memo: &Self::Memo) -> bool {
        let _ = memo;
        true
    }

    /// Inspects or rewrites the reply to a request that was forwarded.
    fn on_reply(&self, memo: Self::Memo, reply: &mut Reply) {
        let _ = (memo, reply);
    }
}

/// Applies the rule `I` in front of the service `S`.
///
/// It is ready when `S` is. [`on_request`](Intercept::on_request) runs in `call`, and
/// [`on_reply`](Intercept::on_reply) when the future of `S` has returned a reply; not if it
/// returned an error, and not if the future is dropped.
///
/// If the rule answers a request, `S` stays ready, and keeps a permit of a concurrency limit below,
/// until it is called again or dropped: drop clones that are no longer used. A
/// [malformed](Request::is_malformed) request is answered with an error before the rule sees it.
#[derive(Clone, Debug)]
pub struct Intercepted<I, S> {
    rule: I,
    inner: S,
}

pin_project! {
    /// Response future of [`Intercepted`].
    pub struct ResponseFuture<I: Intercept, F> {
        #[pin]
        state: State<I, F>,
    }
}

pin_project! {
    // The futures of layers are nested, and moved by each layer. So this one is kept as
    // small as possible: see `stack::tests`.
    #[project = StateProj]
    enum State<I: Intercept, F> {
        Forwarded {
            awaiting: Option<Awaiting<I>>,
            #[pin]
            reply: F,
        },
        Answered { reply: Option<Reply> },
    }
}

/// A rule that awaits the reply, with its memo.
pub(super) struct Awaiting<I: Intercept> {
    pub(super) rule: I,
    pub(super) memo: I::Memo,
}

// === impl Intercepted ===

impl<I, S> Intercepted<I, S> {
    /// Wraps `inner` with `rule`.
    pub const fn new(rule: I, inner: S) -> Self {
        Self { rule, inner }
    }

    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<I, S> Service<Request> for Intercepted<I, S>
where
    I: Intercept,
    S: Service<Request, Response = Reply>,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<I, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, mut request: Request) -> Self::Future {
        // The inner services might read a malformed request differently than the rule does.
        if request.is_malformed() {
            return ResponseFuture::answered(Reply::malformed(request.method()));
        }
        match self.rule.on_request(&mut request) {
            ControlFlow::Continue(memo) => {
                if !self.rule.awaits_reply(&memo) {
                    drop(memo);
                    return ResponseFuture::passed(self.inner.call(request));
                }
                let awaiting = Some(Awaiting { rule: self.rule.clone(), memo });
                ResponseFuture::forwarded(awaiting, self.inner.call(request))
            }
            ControlFlow::Break(reply) => ResponseFuture::answered(reply),
        }
    }
}

// === impl ResponseFuture ===

impl<I, F, E> Future for ResponseFuture<I, F>
where
    I: Intercept,
    F: Future<Output = Result<Reply, E>>,
{
    type Output = Result<Reply, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Forwarded { awaiting, reply } => {
                let mut reply = ready!(reply.poll(cx))?;
                if let Some(Awaiting { rule, memo }) = awaiting.take() {
                    rule.on_reply(memo, &mut reply);
                }
                Poll::Ready(Ok(reply))
            }
            StateProj::Answered { reply } => {
                Poll::Ready(Ok(reply.take().expect("polled after completion")))
            }
        }
    }
}

impl<I: Intercept, F> ResponseFuture<I, F> {
    /// Creates the future of a request whose reply the rule does not await.
    #[inline]
    pub(super) const fn passed(reply: F) -> Self {
        Self { state: State::Forwarded { awaiting: None, reply } }
    }

    #[inline]
    pub(super) const fn forwarded(awaiting: Option<Awaiting<I>>, reply: F) -> Self {
        Self { state: State::Forwarded { awaiting, reply } }
    }

    pub(super) const fn answered(reply: Reply) -> Self {
        Self { state: State::Answered { reply: Some(reply) } }
    }
}

impl<I: Intercept, F> fmt::Debug for ResponseFuture<I, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
