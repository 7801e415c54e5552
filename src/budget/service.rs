use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    Rules,
    charge::{Asked, Charges, Charging},
};
use crate::message::{Refusal, Reply, Request};

/// Middleware that [`BudgetLayer`](super::BudgetLayer) puts in front of a service.
///
/// It is ready when `S` is. While a store elsewhere is asked, the `S` that was ready
/// is kept for the call; a call that is refused gives it back.
#[derive(Clone)]
pub struct Budgeted<S> {
    rules: Option<Arc<Rules>>,
    inner: S,
}

pin_project! {
    /// Response future of [`Budgeted`].
    pub struct ResponseFuture<S, F> {
        #[pin]
        state: State<S, F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        // Fields are dropped in their order: what is given back is so when the call
        // has ended.
        Forwarded {
            #[pin]
            reply: F,
            charges: Option<Charges>,
        },
        Asking { waiting: Option<Box<Waiting<S>>> },
        Answered { reply: Option<Reply> },
    }
}

/// A call that waits for a store.
struct Waiting<S> {
    rules: Option<Arc<Rules>>,
    asked: Asked,
    charging: Charging,
    ready: S,
    request: Request,
}

/// How far a call has come.
enum Step {
    /// All is reserved.
    Charged(Charges),
    Asking(Charging, Asked),
}

// === impl Budgeted ===

impl<S> Budgeted<S> {
    pub(super) const fn new(rules: Option<Arc<Rules>>, inner: S) -> Self {
        Self { rules, inner }
    }

    /// The service behind the budgets.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone> Budgeted<S> {
    /// The service that is ready; what stays in its place is not.
    fn take_ready(&mut self) -> S {
        let later = self.inner.clone();
        mem::replace(&mut self.inner, later)
    }
}

impl<S> Service<Request> for Budgeted<S>
where
    S: Service<Request, Response = Reply> + Clone,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request) -> Self::Future {
        let is_charged = self.rules.is_some() || request.context().account().is_some();
        let state = if request.is_malformed() {
            drop(self.take_ready());
            State::answered(Reply::malformed(request.method()))
        } else if is_charged && request.tool_call().is_some() {
            let rules = self.rules.as_deref();
            if rules.is_some_and(Rules::charge_runs) {
                request.context_mut().begin_run();
            }
            let step = Charging::begin(rules, &request)
                .and_then(|charging| Step::next(charging, rules, &request));
            match step {
                Ok(Step::Charged(charges)) => {
                    State::Forwarded { reply: self.inner.call(request), charges: Some(charges) }
                }
                Ok(Step::Asking(charging, asked)) => {
                    let (rules, ready) = (self.rules.clone(), self.take_ready());
                    let waiting = Box::new(Waiting { rules, asked, charging, ready, request });
                    State::Asking { waiting: Some(waiting) }
                }
                Err(refusal) => {
                    drop(self.take_ready());
                    State::answered(refusal.into())
                }
            }
        } else {
            State::Forwarded { reply: self.inner.call(request), charges: None }
        };
        ResponseFuture { state }
    }
}

impl<S: fmt::Debug> fmt::Debug for Budgeted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgeted").field("rules", &self.rules).field("inner", &self.inner).finish()
    }
}

// === impl Step ===

impl Step {
    fn next(
        mut charging: Charging,
        rules: Option<&Rules>,
        request: &Request,
    ) -> Result<Self, Refusal> {
        Ok(match charging.go_on(rules, request)? {
            None => Self::Charged(charging.done()),
            Some(asked) => Self::Asking(charging, asked),
        })
    }
}

// === impl ResponseFuture ===

impl<S, F> State<S, F> {
    const fn answered(reply: Reply) -> Self {
        Self::Answered { reply: Some(reply) }
    }
}

impl<S> Future for ResponseFuture<S, S::Future>
where
    S: Service<Request, Response = Reply>,
{
    type Output = Result<Reply, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Forwarded { reply, charges } => {
                    let reply = ready!(reply.poll(cx));
                    // What could not be answered gives back what it holds.
                    if let (Some(charges), Ok(reply)) = (charges.take(), &reply) {
                        charges.settle(reply);
                    }
                    return Poll::Ready(reply);
                }
                StateProj::Asking { waiting: asking } => {
                    let waiting = asking.as_mut().expect("polled after completion");
                    let reserved = ready!(waiting.asked.as_mut().poll(cx));
                    let Waiting { rules, mut charging, mut ready, request, .. } =
                        *asking.take().expect("it is there");
                    let step = charging
                        .answered(rules.as_deref(), reserved, &request)
                        .and_then(|()| Step::next(charging, rules.as_deref(), &request));
                    match step {
                        Ok(Step::Charged(charges)) => {
                            State::Forwarded { reply: ready.call(request), charges: Some(charges) }
                        }
                        Ok(Step::Asking(charging, asked)) => {
                            let waiting = Waiting { rules, asked, charging, ready, request };
                            State::Asking { waiting: Some(Box::new(waiting)) }
                        }
                        Err(refusal) => State::answered(refusal.into()),
                    }
                }
                StateProj::Answered { reply } => {
                    return Poll::Ready(Ok(reply.take().expect("polled after completion")));
                }
            };
            state.set(next);
        }
    }
}

impl<S, F> fmt::Debug for ResponseFuture<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
