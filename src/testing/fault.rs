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

/// What every fault says that says anything.
const WHY: &str = "a fault";

/// What goes wrong with a call; put there by [`Faults`](super::Faults).
///
/// Only some let the call reach the service, and only [`Slow`](Self::Slow),
/// [`Late`](Self::Late) and [`Deaf`](Self::Deaf) give the answer that it gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The service is called only after this time. Whoever gives up before has called
    /// nothing.
    Slow(Duration),
    /// The service is called at once, but its answer is there only this long after the
    /// call. Whoever gives up before does not know that it was done.
    Late(Duration),
    /// The service does not hear that its caller is gone: a call that is dropped goes on
    /// to its end, in a task of its own. Whoever waits notices nothing.
    Deaf,
    /// The service does what it is called for, and its answer is lost on the way back:
    /// the error of the service.
    Lost,
    /// The service's own error: it cannot be reached.
    Unavailable,
    /// A result that says that the tool has failed (`isError`).
    Failure,
    /// A JSON-RPC error, of the code -32603.
    Error,
    /// The result of another method.
    Malformed,
    /// A result with a text of this many bytes.
    Huge(usize),
    /// A question with the key `fault` to the person behind the client, whoever that is.
    Asks,
    /// A panic.
    Panic,
    /// No answer, until the call is dropped.
    Never,
}

// === impl Fault ===

impl Fault {
    /// Its name, such as `slow`, whatever the time or the size is.
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

    /// Calls a service that is ready, or does not.
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
            // The service that is not called may hold a permit.
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

/// An answer that is there after a turn of whoever waits for it, like that of any
/// server.
fn instead(answer: impl Future<Output = Given> + Send + 'static) -> BoxFuture<'static, Given> {
    Box::pin(async {
        tokio::task::yield_now().await;
        answer.await
    })
}

/// Its name, with the time or the size if it has one.
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
