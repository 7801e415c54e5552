//! The calls that this process makes for runs in Restate.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures::future::BoxFuture;
use tokio::{
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep, timeout_at},
};

use super::{RestateError, client::Client};

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
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    tasks: JoinSet<()>,
    /// The calls by the ID of the awakeable that receives their output.
    handles: HashMap<String, AbortHandle>,
    /// Whether this process makes no further calls, because it is about to end.
    is_closed: bool,
}

// === impl Calls ===

impl Calls {
    pub(super) fn new(client: Client) -> Self {
        Self { client, running: Mutex::default() }
    }

    /// Returns `true` if this process makes the call whose output this awakeable receives.
    pub(super) fn contains(&self, awakeable: &str) -> bool {
        let running = self.running();
        running.handles.get(awakeable).is_some_and(|call| !call.is_finished())
    }

    /// Returns `true` if this process makes no further calls.
    pub(super) fn is_closed(&self) -> bool {
        self.running().is_closed
    }

    /// Makes no further calls, and waits until the outputs of the current ones are stored.
    pub(super) async fn finished(&self) {
        let mut tasks = self.take();
        while tasks.join_next().await.is_some() {}
    }

    /// Makes no further calls, and cancels the current ones, whose outputs are not stored.
    pub(super) async fn close(&self) {
        self.take().shutdown().await;
    }

    fn take(&self) -> JoinSet<()> {
        let mut running = self.running();
        running.is_closed = true;
        mem::take(&mut running.tasks)
    }

    /// Makes a call, and completes the awakeable with its output. The call ends at the latest at
    /// `deadline`. Does nothing if this process makes no further calls.
    pub(super) fn start(
        self: &Arc<Self>,
        awakeable: String,
        call: BoxFuture<'static, Vec<u8>>,
        deadline: Instant,
    ) {
        let (client, id) = (self.client.clone(), awakeable.clone());
        let call = async move {
            let Ok(output) = timeout_at(deadline, call).await else { return };
            let mut body = format!("{{\"at\":{},\"output\":", unix_ns()).into_bytes();
            body.extend(output);
            body.push(b'}');
            store(&client, &id, body).await;
        };
        let mut running = self.running();
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
        if let Some(call) = self.running().handles.remove(awakeable) {
            call.abort();
        }
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        // A poisoned lock is harmless, because no code panics while it holds the lock.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
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
