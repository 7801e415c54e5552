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
/// It is cloned for each request whose reply it [awaits](Self::awaits_reply), so keep
/// its settings behind one `Arc`.
///
/// See the [module docs](crate::intercept) for an example.
pub trait Intercept: Clone {
    /// What the request step remembers for the reply step.
    type Memo;

    /// Inspects or rewrites a request; `Break` answers it without the inner service.
    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Self::Memo>;

    /// Whether the reply is shown to the rule, given what it remembers of the request.
    /// Default: it is.
    ///
    /// Where it is not, nothing is kept while the request is answered.
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
    // Futures of layers are in each other, and moved by each layer. So this one is as
    // small as it can be: see `stack::tests`.
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

/// A rule that is shown the reply.
pub(super) struct Awaiting<I: Intercept> {
    pub(super) rule: I,
    pub(super) memo: I::Memo,
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

    #[inline]
    fn call(&mut self, mut request: Request) -> Self::Future {
        // A rule takes it for something else than who is behind might.
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
    /// A request that the rule is done with.
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
