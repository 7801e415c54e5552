//! The faults that can be injected into tool calls.

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

/// The message of each injected error, panic and question.
const WHY: &str = "a fault";

/// A fault that [`Faults`](super::Faults) injects into a tool call.
///
/// The faults [`Slow`](Self::Slow), [`Late`](Self::Late), [`Deaf`](Self::Deaf) and
/// [`Lost`](Self::Lost) call the service, and all of them except `Lost` return its answer. The
/// other faults replace the answer without calling the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Calls the service after this delay. If the caller drops the call during the delay, the
    /// service is not called.
    Slow(Duration),
    /// Calls the service immediately, but delays its answer until this time after the start of the
    /// call. If the caller drops the call before, the service may nevertheless have executed it.
    Late(Duration),
    /// Calls the service in a separate task, like a service that ignores cancellation. Even if the
    /// call is dropped, it runs to completion. A caller that waits for the answer notices no
    /// difference.
    Deaf,
    /// Calls the service, but discards its answer and returns a service error, as if the answer had
    /// been lost.
    Lost,
    /// Returns a service error, as if the service could not be reached.
    Unavailable,
    /// Returns a failed result (`isError`).
    Failure,
    /// Returns a JSON-RPC error with the code -32603.
    Error,
    /// Returns the result of another method, which is not a valid answer to a tool call.
    Malformed,
    /// Returns a result with a text of this size in bytes.
    Huge(usize),
    /// Asks the user a question with the key `fault`.
    Asks,
    /// Panics.
    Panic,
    /// Never answers. The call runs until it is dropped.
    Never,
}

// === impl Fault ===

impl Fault {
    /// Returns the name of the fault without its time or size, for example `slow`.
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

    /// Executes a request with this fault. `ready` is a service that is ready, and that some faults
    /// do not call.
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

/// Yields to the runtime once, like a real server. Then returns `answer` in place of the service's
/// answer.
fn instead(answer: impl Future<Output = Given> + Send + 'static) -> BoxFuture<'static, Given> {
    Box::pin(async {
        tokio::task::yield_now().await;
        answer.await
    })
}

/// Prints the name of the fault, followed by its time or size if it has one.
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
