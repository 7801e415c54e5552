//! The service that charges tool calls to budgets.

use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::metering::{CallPhase, Charged, Charges, Charging, StoreReply};
use crate::{
    message::{Reply, Request, is_unsent},
    readiness::take_ready,
};

/// Middleware that charges tool calls to budgets before it forwards them to the wrapped service.
/// Created by [`BudgetLayer`](super::BudgetLayer).
///
/// `Budgeted` is ready when the wrapped service is ready. While a tool call waits for a budget
/// store, it occupies the capacity that the wrapped service has reserved for it, such as a slot of
/// a concurrency limit. If the store rejects the call, `Budgeted` releases the capacity.
#[derive(Clone)]
pub struct Budgeted<S> {
    /// The settings of the layer and its open budgets. `None` if the layer has neither budgets nor
    /// costs.
    charged: Option<Arc<Charged>>,
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
        // Fields are dropped in order. The call must be dropped before its reservations are
        // settled.
        Forwarded {
            #[pin]
            reply: F,
            charges: Charges,
        },
        Asking { waiting: Option<Box<Waiting<S>>> },
        Answered { reply: Option<Reply> },
    }
}

/// A tool call that waits for the reply of a budget store.
struct Waiting<S> {
    charged: Option<Arc<Charged>>,
    store_reply: StoreReply,
    charging: Charging,
    ready: S,
    request: Request,
}

// === impl Budgeted ===

impl<S> Budgeted<S> {
    pub(super) const fn new(charged: Option<Arc<Charged>>, inner: S) -> Self {
        Self { charged, inner }
    }

    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S> Service<Request> for Budgeted<S>
where
    S: Service<Request, Response = Reply, Error: 'static> + Clone,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        let is_charged = self.charged.is_some() || request.context().account().is_some();
        if request.is_malformed() {
            drop(take_ready(&mut self.inner));
            return ResponseFuture { state: State::answered(Reply::malformed(request.method())) };
        }
        if is_charged && request.tool_call().is_some() {
            return ResponseFuture { state: self.charge(request) };
        }
        let reply = self.inner.call(request);
        ResponseFuture { state: State::Forwarded { reply, charges: Charges::default() } }
    }
}

impl<S> Budgeted<S>
where
    S: Service<Request, Response = Reply> + Clone,
{
    /// Reserves the budgets of a tool call. Forwards the call immediately if all stores have
    /// granted their reservations, and rejects it if a store has denied one. Otherwise, waits for
    /// the stores.
    fn charge(&mut self, mut request: Request) -> State<S, S::Future> {
        let charged = self.charged.as_deref();
        if charged.is_some_and(|charged| charged.rules.charge_runs()) {
            request.context_mut().begin_run();
        }
        match Charging::begin(charged, &request) {
            Ok(CallPhase::Charged(charges)) => {
                State::Forwarded { reply: self.inner.call(request), charges }
            }
            Ok(CallPhase::Asking(charging, store_reply)) => {
                let (charged, ready) = (self.charged.clone(), take_ready(&mut self.inner));
                let waiting = Box::new(Waiting { charged, store_reply, charging, ready, request });
                State::Asking { waiting: Some(waiting) }
            }
            Err(refusal) => {
                drop(take_ready(&mut self.inner));
                State::answered(refusal.into())
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Budgeted<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.charged.as_ref().map(|charged| &charged.rules);
        f.debug_struct("Budgeted").field("rules", &rules).field("inner", &self.inner).finish()
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
    S: Service<Request, Response = Reply, Error: 'static>,
{
    type Output = Result<Reply, S::Error>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProj::Forwarded { reply, charges } => {
                    if charges.is_empty() {
                        return reply.poll(cx);
                    }
                    charges.forwarded();
                    let reply = ready!(reply.poll(cx));
                    let charges = mem::take(charges);
                    match &reply {
                        Ok(reply) => charges.settle(reply),
                        Err(error) if is_unsent(error) => charges.give_back(),
                        // The tool may have run, so dropping the reservations charges the
                        // estimates.
                        Err(_) => drop(charges),
                    }
                    return Poll::Ready(reply);
                }
                StateProj::Asking { waiting: asking } => {
                    let waiting = asking.as_mut().expect("polled after completion");
                    let reserved = ready!(waiting.store_reply.as_mut().poll(cx));
                    let Waiting { charged, charging, mut ready, request, .. } =
                        *asking.take().expect("it is there");
                    match charging.answered(charged.as_deref(), reserved, &request) {
                        Ok(CallPhase::Charged(charges)) => {
                            State::Forwarded { reply: ready.call(request), charges }
                        }
                        Ok(CallPhase::Asking(charging, store_reply)) => {
                            let waiting =
                                Waiting { charged, store_reply, charging, ready, request };
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
