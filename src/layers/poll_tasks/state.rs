//! The state of a task that waits for answers, as a `requestState`.

use std::{collections::BTreeSet, time::Duration};

use rmcp::model::{ErrorData, Task};
use serde::{Deserialize, Serialize};

use super::layer::Settings;
use crate::{
    message::Context,
    store::{PutError, TakeError, caller_key},
    warnings::sanitize::Reason,
};

/// The prefix of each `requestState` that this layer creates. The handle of the stored state
/// follows the prefix.
const PREFIX: &str = "mcp-composite/task.";
/// The poll interval of a task whose server recommends none.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);

/// The state of a call that waits for a task. Contains all data that a later call needs to continue
/// to wait.
#[derive(Serialize, Deserialize)]
pub(super) struct TaskState {
    pub(super) id: String,
    pub(super) interval: Duration,
    /// The keys of the questions whose answers were sent to the server. The keys are unique during
    /// the life of a task. The server may list an answered question until it has processed the
    /// answer.
    pub(super) answered: BTreeSet<String>,
}

/// The owner of the states of tasks: the server, the tool and the caller.
pub(super) struct Owner {
    key: Vec<u8>,
    /// Identifies the caller to the store. `None` if the layer does not identify callers.
    caller: Option<Vec<u8>>,
}

/// Returns the handle of the stored state in a `requestState` of this layer. Returns `None` if the
/// server has created the `requestState`.
pub(super) fn handle(request_state: &str) -> Option<&str> {
    request_state.strip_prefix(PREFIX)
}

/// Returns the time to wait before the next `tasks/get` request: the interval that the server
/// recommends, limited to 100 ms to 30 s.
pub(super) fn interval(task: &Task) -> Duration {
    let interval = task.poll_interval_ms.map_or(POLL_INTERVAL, Duration::from_millis);
    interval.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

// === impl TaskState ===

impl TaskState {
    pub(super) fn new(task: &Task) -> Self {
        let (id, interval) = (task.task_id.clone(), interval(task));
        Self { id, interval, answered: BTreeSet::new() }
    }

    /// Stores the state. Returns the `requestState` with which the caller repeats its call.
    ///
    /// # Errors
    ///
    /// Returns an error if the store rejects the state.
    pub(super) async fn put(
        &self,
        settings: &Settings,
        owner: &Owner,
    ) -> Result<String, ErrorData> {
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        let handle = settings.state.put(bytes, &owner.key, owner.caller.as_deref()).await;
        handle.map(|handle| format!("{PREFIX}{handle}")).map_err(|error| {
            tracing::warn!(backend = &*settings.name, %error, "failed to store the state of a task");
            let text = match error {
                PutError::Unavailable(_) => {
                    "the call cannot wait for an answer at the moment".to_owned()
                }
                error => format!("the call cannot wait for an answer: {error}"),
            };
            ErrorData::internal_error(text, None)
        })
    }

    /// Loads the state with the given handle, and removes it from the store.
    ///
    /// # Errors
    ///
    /// Returns an error if the state is invalid, has expired, or belongs to another owner.
    pub(super) async fn take(
        handle: &str,
        settings: &Settings,
        owner: &Owner,
    ) -> Result<Self, ErrorData> {
        let invalid = || ErrorData::invalid_params("invalid `requestState`", None);
        match settings.state.take(handle, &owner.key, owner.caller.as_deref()).await {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| invalid()),
            Err(TakeError::Unavailable(error)) => {
                tracing::warn!(backend = &*settings.name, %error, "failed to load a task's state");
                Err(ErrorData::internal_error(
                    "the state of the call is not available at the moment",
                    None,
                ))
            }
            Err(error) => {
                let reason = Reason(&error.to_string()).to_string();
                tracing::info!(backend = &*settings.name, reason, "rejected a `requestState`");
                Err(invalid())
            }
        }
    }
}

// === impl Owner ===

impl Owner {
    /// Returns the owner of the tasks that a call of `tool` starts.
    pub(super) fn of(settings: &Settings, tool: &str, context: &Context) -> Self {
        let caller = settings.caller.as_ref().map(|caller| caller_key(caller(context).as_deref()));
        let mut key = b"task".to_vec();
        // Each part is preceded by its length, so that different parts always result in different
        // keys.
        let parts = [settings.name.as_bytes(), tool.as_bytes()];
        for part in parts.into_iter().chain(caller.as_deref()) {
            key.extend_from_slice(&(part.len() as u64).to_be_bytes());
            key.extend_from_slice(part);
        }
        Self { key, caller }
    }
}
