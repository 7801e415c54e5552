//! Faults for tests, which are injected into tool calls.

use std::{fmt, future, panic, time::Duration};

use futures::future::BoxFuture;
use rmcp::model::{CallToolResult, ContentBlock, ErrorData, ListToolsResult};
use tokio::{
    runtime::Handle,
    time::{Instant, sleep, sleep_until},
};
use tower::BoxError;
use tower_service::Service;

use super::answer::{Given, question};
use crate::message::{Reply, Request};

/// The text that injected errors, panics and questions use as their message.
const WHY: &str = "a fault";

/// A fault that the layer [`Faults`](super::Faults) injects into a tool call.
///
/// [`Slow`](Self::Slow), [`Late`](Self::Late) and [`Deaf`](Self::Deaf) call the service and return
/// its answer. [`Lost`](Self::Lost) calls the service and discards its answer. All other faults
/// replace the answer without calling the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Waits for this duration, and then calls the service. If the caller drops the call while it
    /// waits, the service is not called.
    Slow(Duration),
    /// Calls the service immediately, but returns its answer only when this duration has passed
    /// since the start of the call. If the caller drops the call before, the service may already
    /// have executed the request.
    Late(Duration),
    /// Calls the service in a separate task, to simulate a service that ignores cancellation. The
    /// service executes the request even if the caller drops the call. A caller that waits for the
    /// answer notices no difference.
    Deaf,
    /// Calls the service and discards its answer. Returns a service error instead, as if the answer
    /// had been lost on the network.
    Lost,
    /// Returns a service error, as if the service could not be reached.
    Unavailable,
    /// Returns a failed result (`isError`).
    Failure,
    /// Returns a JSON-RPC error with the code -32603.
    Error,
    /// Returns a result that belongs to another method, so it is not a valid answer to a tool call.
    Malformed,
    /// Returns a large tool result: a text of this size in bytes.
    Huge(usize),
    /// Asks the user a question with the key `fault`.
    Asks,
    /// Panics.
    Panic,
    /// Never returns an answer. The call runs until the caller drops it.
    Never,
}

// === impl Fault ===

impl Fault {
    /// Returns the name of the fault, for example `slow` for `Fault::Slow(_)`, without its duration
    /// or size.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Slow(_) => "slow",
            Self::Late(_) => "late",
            Self::Deaf => "deaf",
            Self::Lost => "lost",
            Self::Unavailable => "unavailable",
            Self::Failure => "failure",
            Self::Error => "error",
            Self::Malformed => "malformed",
            Self::Huge(_) => "huge",
            Self::Asks => "asks",
            Self::Panic => "panic",
            Self::Never => "never",
        }
    }

    /// Answers a request with this fault. `ready` is the inner service, for which `poll_ready` has
    /// returned ready. Some faults do not call it.
    pub(super) fn happen<S>(self, mut ready: S, request: Request) -> BoxFuture<'static, Given>
    where
        S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send> + Send + 'static,
    {
        match self {
            Self::Slow(delay) => Box::pin(async move {
                sleep(delay).await;
                let answer = ready.call(request);
                drop(ready);
                answer.await.map_err(Into::into)
            }),
            Self::Late(delay) => {
                let (answer, end) = (ready.call(request), Instant::now() + delay);
                Box::pin(async move {
                    let answer = answer.await.map_err(Into::into);
                    sleep_until(end).await;
                    answer
                })
            }
            Self::Deaf => {
                let answer = ready.call(request);
                let going_on = Handle::current().spawn(async { answer.await.map_err(Into::into) });
                Box::pin(async move {
                    match going_on.await.map_err(tokio::task::JoinError::try_into_panic) {
                        Ok(given) => given,
                        Err(Ok(panic)) => panic::resume_unwind(panic),
                        Err(Err(error)) => Err(error.into()),
                    }
                })
            }
            Self::Lost => {
                let answer = ready.call(request);
                Box::pin(async move {
                    drop(answer.await);
                    Err(WHY.into())
                })
            }
            // Drops the service, which is not called, because it may hold a permit.
            Self::Unavailable => instead(async { Err(WHY.into()) }),
            Self::Failure => instead(async {
                let why = vec![ContentBlock::text(WHY)];
                Ok(CallToolResult::error(why).into())
            }),
            Self::Error => instead(async { Ok(ErrorData::internal_error(WHY, None).into()) }),
            Self::Malformed => instead(async { Ok(ListToolsResult::default().into()) }),
            Self::Huge(bytes) => instead(async move {
                let text = vec![ContentBlock::text("x".repeat(bytes))];
                Ok(CallToolResult::success(text).into())
            }),
            Self::Asks => instead(async { Ok(question("fault", WHY)) }),
            Self::Panic => instead(async { panic!("{WHY}") }),
            Self::Never => Box::pin(future::pending()),
        }
    }
}

/// Returns a future that resolves to `answer`, for a fault that does not call the service. The
/// future first yields to the runtime once, because a real server would not answer immediately.
fn instead(answer: impl Future<Output = Given> + Send + 'static) -> BoxFuture<'static, Given> {
    Box::pin(async {
        tokio::task::yield_now().await;
        answer.await
    })
}

/// Formats the name of the fault, followed by its time or size if it has one.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Slow(time) | Self::Late(time) => write!(f, " by {time:?}"),
            Self::Huge(bytes) => write!(f, ", {bytes} bytes"),
            _ => Ok(()),
        }
    }
}
