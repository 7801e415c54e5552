//! A task that this replica runs, and the handle with which the run stores its state.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::BoxFuture;
use rmcp::model::ErrorData;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    record::{self, Call, Progress, State},
    store::{TaskPhase, TaskStore, TaskStoreError, TaskWrite, new_token},
};
use crate::{
    adapter::failure::{caught, mismatch},
    message::{
        Context, Reply, ToolAnswer,
        checkpoint::{Checkpoint, CheckpointError},
    },
    mutex::lock,
    tasks::tool::METHOD,
};

/// The maximum number of attempts to store the state of a run while the store is unavailable.
const SAVES: u32 = 5;
/// The maximum number of attempts to store the end of a run while the store is unavailable.
const ENDS: u32 = 60;
/// The time between two attempts to reach an unavailable store.
const PAUSE: Duration = Duration::from_secs(1);

/// A task that this replica runs. Each write to the record of the task names the expected token of
/// the record. If another replica has changed the record, it has another token, and the write
/// fails.
pub(super) struct Held {
    store: Arc<dyn TaskStore>,
    pub(super) key: String,
    pub(super) token: String,
    pub(super) call: Call,
    status: Mutex<Status>,
    /// Locked during each write, so that writes do not overtake each other.
    writing: tokio::sync::Mutex<()>,
    /// Cancelled when the run must be dropped.
    pub(super) dropped: CancellationToken,
    /// Cancelled if the run is dropped because its task or its call was cancelled. Not cancelled if
    /// the run is dropped for another replica to continue it.
    pub(super) cancelled: CancellationToken,
}

struct Status {
    stage: Stage,
    state: State,
    checkpoint: Option<Arc<[u8]>>,
}

/// Whether the run of a task may still write to the record of the task in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The record does not exist yet. The state of the run is only in memory.
    Unstored,
    /// This replica holds the lease of the task, so that the run may write to the record.
    Running,
    /// The task was cancelled. The run may clean up, and its state is no longer stored.
    Cancelled,
    /// The run is suspended or has ended here, or another replica has taken it over.
    Lost,
}

// === impl Held ===

impl Held {
    /// Creates the handle of a task. `stage` is `Unstored` for a new task, and `Running` for a task
    /// that this replica has claimed.
    pub(super) fn new(
        store: Arc<dyn TaskStore>,
        (key, token): (String, String),
        call: Call,
        state: State,
        stage: Stage,
    ) -> Self {
        Self {
            store,
            key,
            token,
            call,
            status: Mutex::new(Status { stage, state, checkpoint: None }),
            writing: tokio::sync::Mutex::default(),
            dropped: CancellationToken::new(),
            cancelled: CancellationToken::new(),
        }
    }

    pub(super) fn state(&self) -> State {
        lock(&self.status).state.clone()
    }

    pub(super) fn is_running(&self) -> bool {
        lock(&self.status).stage == Stage::Running
    }

    /// Drops the run. With [`Stage::Cancelled`], the run may still clean up.
    pub(super) fn leave(&self, stage: Stage) {
        lock(&self.status).stage = stage;
        if stage == Stage::Cancelled {
            self.cancelled.cancel();
        }
        self.dropped.cancel();
    }

    /// Drops the run after another replica has changed the record. Reads the record to determine
    /// whether the task was cancelled.
    pub(super) async fn lose(&self) {
        let stored = self.store.get(&self.key).await;
        let state = stored.ok().flatten().and_then(|task| record::parse::<State>(&task.state));
        let is_cancelled = state.is_some_and(|state| state.progress == Progress::Cancelled);
        self.leave(if is_cancelled { Stage::Cancelled } else { Stage::Lost });
    }

    /// Sets the record of this task as the place in which a run stores its checkpoints. The run is
    /// the one that a call with `context` starts.
    pub(super) fn keep_run_of(self: &Arc<Self>, context: &mut Context) {
        context.set_task_name(&self.key);
        context.set_checkpoint(self.clone());
        context.set_cancellation(self.cancelled.clone());
    }

    /// Creates the record of a new task.
    pub(super) async fn create(&self) -> Result<(), TaskStoreError> {
        let _writing = self.writing.lock().await;
        let (state, checkpoint) = {
            let status = lock(&self.status);
            (record::format(&status.state), status.checkpoint.clone())
        };
        let call = record::format(&self.call);
        let write = TaskWrite {
            expected: None,
            call: Some(&call),
            state: Some(&state),
            checkpoint: checkpoint.as_deref(),
            ..self.write_in(TaskPhase::Working(self.store.lease()))
        };
        self.store.write(&self.key, write).await?;
        lock(&self.status).stage = Stage::Running;
        Ok(())
    }

    /// Loads the checkpoint of a task that this replica has claimed: the stored state of its run.
    pub(super) async fn load(&self) -> Result<(), TaskStoreError> {
        let mut attempt = 1;
        let checkpoint = loop {
            match self.store.checkpoint(&self.key).await {
                Err(TaskStoreError::Unavailable(_)) if attempt < SAVES => attempt += 1,
                loaded => break loaded?,
            }
            sleep(PAUSE).await;
        };
        lock(&self.status).checkpoint = checkpoint.map(Into::into);
        Ok(())
    }

    /// Waits for the reply to the call, and records the outcome.
    pub(super) async fn run(&self, reply: BoxFuture<'static, Result<Reply, ErrorData>>) {
        let reply = caught(METHOD, reply).await.unwrap_or_else(Err);
        let state = self.state();
        let next = match reply.map_or_else(ToolAnswer::Error, Reply::into_tool_answer) {
            ToolAnswer::InputRequired(result) => match result.input_requests {
                Some(open) if !open.is_empty() => state.asking(open, result.request_state),
                _ => state.then(Progress::failed(&mismatch(METHOD))),
            },
            answer => state.then(Progress::of(answer)),
        };
        match self.finish(&next).await {
            Err(TaskStoreError::TooLarge { max }) => {
                let error = ErrorData::from(TaskStoreError::TooLarge { max });
                let _ = self.finish(&state.then(Progress::failed(&error))).await;
            }
            Err(TaskStoreError::Lost) | Ok(()) => (),
            Err(error) => {
                let reason = error.reason();
                tracing::warn!(%error, reason, "failed to store the outcome of a task");
            }
        }
    }

    /// Writes the state with which the run ends or is suspended.
    async fn finish(&self, state: &State) -> Result<(), TaskStoreError> {
        let _writing = self.writing.lock().await;
        let (formatted, token) = (record::format(state), new_token()?);
        let phase = if state.progress.is_ended() { TaskPhase::Ended } else { TaskPhase::Waiting };
        let write = TaskWrite { token: &token, state: Some(&formatted), ..self.write_in(phase) };
        let written = self.write(write, ENDS).await;
        if written.is_ok() {
            lock(&self.status).stage = Stage::Lost;
        }
        written
    }

    /// Stores a checkpoint, the current state of the run, in the record of the task.
    async fn save_state(&self, checkpoint: Vec<u8>) -> Result<(), CheckpointError> {
        let _writing = self.writing.lock().await;
        let checkpoint: Arc<[u8]> = checkpoint.into();
        let stage = lock(&self.status).stage;
        match stage {
            Stage::Running => (),
            Stage::Lost => return Err(CheckpointError::Lost),
            Stage::Unstored | Stage::Cancelled => {
                lock(&self.status).checkpoint = Some(checkpoint);
                return Ok(());
            }
        }
        // The run has used its answers, and must not receive them again at its next questions.
        let used = self.state().without_answers();
        let state = used.as_ref().map(record::format);
        let write = TaskWrite {
            state: state.as_deref(),
            checkpoint: Some(&checkpoint),
            ..self.write_in(TaskPhase::Working(self.store.lease()))
        };
        self.write(write, SAVES).await.map_err(|error| match error {
            TaskStoreError::Lost => CheckpointError::Lost,
            error => CheckpointError::Failed(ErrorData::from(error).message.into_owned()),
        })?;
        let mut status = lock(&self.status);
        status.checkpoint = Some(checkpoint);
        if let Some(state) = used {
            status.state = state;
        }
        Ok(())
    }

    /// Writes to the record. While the store is unavailable, tries up to `attempts` times. Drops
    /// the run if another replica has changed the record.
    async fn write(&self, write: TaskWrite<'_>, attempts: u32) -> Result<(), TaskStoreError> {
        let mut attempt = 1;
        loop {
            match self.store.write(&self.key, write).await {
                Err(TaskStoreError::Unavailable(_)) if attempt < attempts => attempt += 1,
                Err(TaskStoreError::Lost) => {
                    self.lose().await;
                    return Err(TaskStoreError::Lost);
                }
                written => return written,
            }
            sleep(PAUSE).await;
        }
    }

    /// Returns a write that changes the phase of the record, such as working or ended, but no data.
    fn write_in(&self, phase: TaskPhase) -> TaskWrite<'_> {
        TaskWrite { expected: Some(&self.token), ..self.call.write(&self.token, phase) }
    }
}

impl Checkpoint for Held {
    fn stored(&self) -> Option<Arc<[u8]>> {
        lock(&self.status).checkpoint.clone()
    }

    fn save(&self, state: Vec<u8>) -> BoxFuture<'_, Result<(), CheckpointError>> {
        Box::pin(self.save_state(state))
    }
}
