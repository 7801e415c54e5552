//! The calls that this process makes for runs in Restate.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::future::BoxFuture;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout_at},
};
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use super::{RestateError, client::Client};
use crate::mutex::lock;

/// The first pause after an output could not be stored. Each pause is twice as long as the previous
/// one.
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum pause.
const MAX_PAUSE: Duration = Duration::from_secs(5);

/// The calls that this process makes for runs in Restate.
///
/// If the connection to the Restate server is lost, the server executes the run again, but its
/// calls go on.
#[derive(Debug)]
pub(super) struct Calls {
    client: Client,
    /// The permits of calls that have not started.
    permits: TaskTracker,
    running: Mutex<Running>,
}

/// Allows one call, even if this process begins to shut down before the call starts.
#[derive(Debug)]
pub(super) struct Permit {
    _token: TaskTrackerToken,
}

#[derive(Debug, Default)]
struct Running {
    tasks: JoinSet<()>,
    /// The calls by the ID of the awakeable that receives their output.
    handles: HashMap<String, AbortHandle>,
    /// Whether calls no longer start, even with a permit.
    is_closed: bool,
}

// === impl Calls ===

impl Calls {
    pub(super) fn new(client: Client) -> Self {
        Self { client, permits: TaskTracker::new(), running: Mutex::default() }
    }

    /// Returns `true` if this process makes the call whose output this awakeable receives.
    pub(super) fn contains(&self, awakeable: &str) -> bool {
        let running = lock(&self.running);
        running.handles.get(awakeable).is_some_and(|call| !call.is_finished())
    }

    /// Returns a permit for a call. Returns `None` if this process shuts down.
    pub(super) fn permit(&self) -> Option<Permit> {
        let _running = lock(&self.running);
        (!self.permits.is_closed()).then(|| Permit { _token: self.permits.token() })
    }

    /// Grants no further permits, and waits until the outputs of all calls with permits are stored.
    pub(super) async fn finished(&self) {
        drop(self.shut_down());
        self.permits.wait().await;
        let mut tasks = mem::take(&mut lock(&self.running).tasks);
        while tasks.join_next().await.is_some() {}
    }

    /// Makes no further calls, and cancels the current ones, whose outputs are not stored.
    pub(super) async fn close(&self) {
        let mut tasks = {
            let mut running = self.shut_down();
            running.is_closed = true;
            mem::take(&mut running.tasks)
        };
        tasks.shutdown().await;
    }

    /// Grants no further permits. The lock ensures that no other thread is about to grant one.
    fn shut_down(&self) -> MutexGuard<'_, Running> {
        let running = lock(&self.running);
        self.permits.close();
        running
    }

    /// Makes a call, and completes the awakeable with its output. The call ends at the latest at
    /// `deadline`. Does nothing after [`close`](Self::close).
    pub(super) fn start(
        &self,
        awakeable: String,
        call: BoxFuture<'static, Vec<u8>>,
        deadline: Instant,
        _permit: Permit,
    ) {
        let (client, id) = (self.client.clone(), awakeable.clone());
        let call = async move {
            let Ok(output) = timeout_at(deadline, call).await else { return };
            let mut body = format!("{{\"at\":{},\"output\":", unix_ns()).into_bytes();
            body.extend(output);
            body.push(b'}');
            store(&client, &id, body).await;
        };
        let mut running = lock(&self.running);
        if running.is_closed {
            return;
        }
        while running.tasks.try_join_next().is_some() {}
        running.handles.retain(|_, call| !call.is_finished());
        let handle = running.tasks.spawn(call);
        running.handles.insert(awakeable, handle);
    }

    /// Aborts a call.
    pub(super) fn abort(&self, awakeable: &str) {
        if let Some(call) = lock(&self.running).handles.remove(awakeable) {
            call.abort();
        }
    }
}

/// Completes an awakeable with the output of a call. If the server rejects the output, completes
/// the awakeable with an error, so that the step fails.
async fn store(client: &Client, awakeable: &str, output: Vec<u8>) {
    let Err(error) = persist(|| client.resolve(awakeable, output.clone())).await else { return };
    tracing::error!(%error, "the output of a call is lost, because it was rejected");
    let reason = format!("the output of the call could not be stored: {error}");
    if let Err(error) = persist(|| client.reject(awakeable, reason.clone())).await {
        tracing::error!(%error, "a step ends at its timeout, because its error was rejected");
    }
}

/// Sends a request until the server accepts it. Returns the error if the server rejects it
/// permanently.
async fn persist<F>(request: impl Fn() -> F) -> Result<(), RestateError>
where
    F: Future<Output = Result<(), RestateError>>,
{
    let mut pause = PAUSE;
    loop {
        match request().await {
            Err(error) if !error.is_permanent() => {
                tracing::warn!(%error, "failed to store the output of a call");
            }
            ended => return ended,
        }
        sleep(pause).await;
        pause = MAX_PAUSE.min(pause * 2);
    }
}

/// Returns the current Unix time in nanoseconds.
pub(super) fn unix_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
