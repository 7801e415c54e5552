//! The trait [`Intercept`], which rules for requests and replies implement, and the service
//! [`Intercepted`], which applies such a rule.

use std::{
    fmt,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use crate::message::{Reply, Request};

/// A rule that inspects or rewrites requests and their replies. A rule cannot wait. Wrap a service
/// in [`Intercepted`] to apply a rule to it.
///
/// An [`Intercepted`] clones its rule for each request whose reply the rule
/// [inspects](Self::awaits_reply). To make cloning cheap, store the settings of the rule in a
/// single `Arc`. See the [module docs](crate::intercept) for an example.
pub trait Intercept: Clone {
    /// State that [`on_request`](Self::on_request) returns for a request, and that
    /// [`on_reply`](Self::on_reply) receives together with the reply, for example the name of the
    /// called tool.
    type Memo;

    /// Inspects or rewrites a request before it is forwarded. To reply without forwarding the
    /// request, return `Break` with the reply.
    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Self::Memo>;

    /// Returns `true` if [`on_reply`](Self::on_reply) must be called with the reply to a request.
    /// `memo` is the state that [`on_request`](Self::on_request) returned for the request. Defaults
    /// to `true`.
    ///
    /// Return `false` from `awaits_reply` if `on_reply` would do nothing. The service then stores
    /// no state while the request is processed.
    fn awaits_reply(&self, memo: &Self::Memo) -> bool {
        let _ = memo;
        true
    }

    /// Inspects or rewrites the reply to a request that was forwarded, before the client receives
    /// it.
    fn on_reply(&self, memo: Self::Memo, reply: &mut Reply) {
        let _ = (memo, reply);
    }
}

/// A service that applies the rule `I` to the requests and replies of the inner service `S`.
///
/// An `Intercepted` is ready when `S` is ready. [`on_request`](Intercept::on_request) runs
/// synchronously within `call`. [`on_reply`](Intercept::on_reply) runs when `S` has returned a
/// reply. It does not run if `S` returns an error or if the response future is dropped.
///
/// If the rule replies to a request without forwarding it, `S` stays ready until the `Intercepted`
/// is called again or dropped. In this state, `S` may occupy a slot of a concurrency limit.
/// Therefore, drop clones of the `Intercepted` that you no longer use.
///
/// An `Intercepted` replies with an error to a [malformed](Request::is_malformed) request, whose
/// parameters rmcp cannot parse. The rule does not see the request.
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
    // Each layer moves the nested futures of all layers behind it. This future is therefore as
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

/// A rule that waits for the reply to a forwarded request. Contains the memo that the rule has
/// returned for this request.
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
        // Services behind this service might interpret a malformed request differently than the
        // rule.
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
    /// Creates a future that resolves to the reply of a forwarded request. Used if the rule does
    /// not inspect the reply.
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
