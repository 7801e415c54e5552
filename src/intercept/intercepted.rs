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
/// Every request clones the rule, so keep its settings behind one `Arc`.
///
/// See the [module docs](crate::intercept) for an example.
pub trait Intercept: Clone {
    /// What the request step remembers for the reply step.
    type Memo;

    /// Inspects or rewrites a request; `Break` answers it without the inner service.
    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Self::Memo>;

    /// Inspects or rewrites the reply to a request that was forwarded.
    fn on_reply(&self, memo: Self::Memo, reply: &mut Reply) {
        let _ = (memo, reply);
    }
}

/// Applies the rule `I` in front of the service `S`.
///
/// It is ready when `S` is. A request that the rule answers leaves `S` as ready as
/// it was, until it is called or dropped: do not keep a clone that you do not use
/// above a service that admits few at a time. A
/// [malformed](Request::is_malformed) request is answered with an error.
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
    #[project = StateProj]
    enum State<I: Intercept, F> {
        Forwarded {
            rule: I,
            memo: Option<I::Memo>,
            #[pin]
            reply: F,
        },
        Answered { reply: Option<Reply> },
    }
}

// === impl Intercepted ===

impl<I, S> Intercepted<I, S> {
    /// Puts `rule` in front of `inner`.
    pub const fn new(rule: I, inner: S) -> Self {
        Self { rule, inner }
    }

    /// The service behind the rule.
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

    fn call(&mut self, request: Request) -> Self::Future {
        ResponseFuture::new(self.rule.clone(), request, |request| self.inner.call(request))
    }
}

// === impl ResponseFuture ===

impl<I, F, E> Future for ResponseFuture<I, F>
where
    I: Intercept,
    F: Future<Output = Result<Reply, E>>,
{
    type Output = Result<Reply, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Forwarded { rule, memo, reply } => {
                let mut reply = ready!(reply.poll(cx))?;
                let memo = memo.take().expect("polled after completion");
                rule.on_reply(memo, &mut reply);
                Poll::Ready(Ok(reply))
            }
            StateProj::Answered { reply } => {
                Poll::Ready(Ok(reply.take().expect("polled after completion")))
            }
        }
    }
}

impl<I: Intercept, F> ResponseFuture<I, F> {
    /// Shows a request to the rule, and forwards it unless that answers it.
    ///
    /// It takes the rule, so that one that was made for this request is not cloned.
    pub(super) fn new(rule: I, mut request: Request, forward: impl FnOnce(Request) -> F) -> Self {
        // A rule takes it for something else than who is behind might.
        if request.is_malformed() {
            let reply = Some(Reply::malformed(request.method()));
            return Self { state: State::Answered { reply } };
        }
        let state = match rule.on_request(&mut request) {
            ControlFlow::Continue(memo) => {
                State::Forwarded { rule, memo: Some(memo), reply: forward(request) }
            }
            ControlFlow::Break(reply) => State::Answered { reply: Some(reply) },
        };
        Self { state }
    }

    /// Whether the rule has answered, without the service.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.state, State::Answered { .. })
    }
}

impl<I: Intercept, F> fmt::Debug for ResponseFuture<I, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
