//! Faults that can be injected into calls.

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

/// The message of all faults that have one.
const WHY: &str = "a fault";

/// A fault of a call, injected by [`Faults`](super::Faults).
///
/// Only some faults let the call reach the service, and only [`Slow`](Self::Slow),
/// [`Late`](Self::Late) and [`Deaf`](Self::Deaf) return its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Calls the service after this delay. If the caller gives up before, the service is not
    /// called.
    Slow(Duration),
    /// Calls the service at once, but returns its answer this long after the call. If the caller
    /// gives up before, the call may have been executed.
    Late(Duration),
    /// The service ignores cancellation: a dropped call runs to completion in a separate task.
    /// Callers that wait notice nothing.
    Deaf,
    /// The service executes the call, but its answer is lost and replaced by a service error.
    Lost,
    /// A service error: the service cannot be reached.
    Unavailable,
    /// A failed result (`isError`).
    Failure,
    /// A JSON-RPC error with the code -32603.
    Error,
    /// The result of another method.
    Malformed,
    /// A result with a text of this size in bytes.
    Huge(usize),
    /// A question to the user with the key `fault`.
    Asks,
    /// A panic.
    Panic,
    /// No answer, until the call is dropped.
    Never,
}

// === impl Fault ===

impl Fault {
    /// Returns the name, such as `slow`, without the time or size.
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

    /// Calls the ready service with the fault, or answers without it.
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
            // Drops the service that is not called, since it may hold a permit.
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

/// Returns an answer after yielding once, like a real server.
fn instead(answer: impl Future<Output = Given> + Send + 'static) -> BoxFuture<'static, Given> {
    Box::pin(async {
        tokio::task::yield_now().await;
        answer.await
    })
}

/// Prints the name, with the time or size if there is one.
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
