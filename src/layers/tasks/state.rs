//! The state of one task.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rmcp::model::{ErrorData, InputRequests, InputResponses, JsonObject, TaskPayload};
use serde::Serialize;
use serde_json::Value;
use tokio::{
    sync::{OwnedSemaphorePermit, oneshot},
    task::AbortHandle,
    time::Instant,
};

use super::error::LimitReached;
use crate::json_size::json_bytes;

/// A task in the memory of this process.
pub(super) struct Entry {
    pub(super) owner: Vec<u8>,
    pub(super) created: Instant,
    pub(super) created_at: Timestamp,
    pub(super) updated_at: Timestamp,
    /// The time from the last change of the task until the task expires.
    lifetime: Duration,
    pub(super) expiry: Instant,
    pub(super) state: State,
    /// Counts the task toward the maximum number of tasks.
    _slot: OwnedSemaphorePermit,
    /// Counts the size of the arguments or, after the task has ended, of the result. `None` if the
    /// task holds neither.
    bytes: Option<OwnedSemaphorePermit>,
}

pub(super) enum State {
    Unfinished {
        run: AbortHandle,
        /// The questions for which the task waits. `None` while the task works.
        questions: Option<Questions>,
        /// Counts the task toward the maximum number of unfinished tasks.
        _slot: OwnedSemaphorePermit,
    },
    /// The outcome of the task.
    Ended(Arc<TaskPayload>),
}

/// The open questions of a task, and the answers received so far.
pub(super) struct Questions {
    open: InputRequests,
    answers: InputResponses,
    answered: oneshot::Sender<InputResponses>,
    /// The permit for the total size of the questions and answers.
    bytes: OwnedSemaphorePermit,
}

// === impl Entry ===

impl Entry {
    pub(super) fn new(
        owner: Vec<u8>,
        lifetime: Duration,
        state: State,
        slot: OwnedSemaphorePermit,
        bytes: OwnedSemaphorePermit,
    ) -> Self {
        let (created, created_at) = (Instant::now(), Timestamp::now());
        Self {
            owner,
            created,
            created_at,
            updated_at: created_at,
            lifetime,
            expiry: created + lifetime,
            state,
            _slot: slot,
            bytes: Some(bytes),
        }
    }

    /// Records that the task has changed now, and postpones its expiry.
    pub(super) fn renew(&mut self) {
        self.updated_at = Timestamp::now();
        self.expiry = Instant::now() + self.lifetime;
    }

    pub(super) const fn is_unfinished(&self) -> bool {
        matches!(self.state, State::Unfinished { .. })
    }

    /// Returns `true` if the task waits for the answers to its questions.
    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Unfinished { questions: Some(_), .. })
    }

    /// Cancels the task and drops its run. Returns `false` if the task has already ended.
    pub(super) fn cancel(&mut self) -> bool {
        let State::Unfinished { run, .. } = &self.state else { return false };
        run.abort();
        self.state = State::Ended(Arc::new(TaskPayload::Cancelled));
        self.bytes = None;
        true
    }

    /// Ends the task with the given outcome. `hold` reserves room for the outcome. If it returns an
    /// error, the task fails.
    pub(super) fn end(
        &mut self,
        ended: TaskPayload,
        hold: impl FnOnce() -> Result<OwnedSemaphorePermit, LimitReached>,
    ) {
        // Releases the size of the arguments before the result is counted.
        self.bytes = None;
        let ended = match hold() {
            Ok(bytes) => {
                self.bytes = Some(bytes);
                ended
            }
            Err(error) => TaskPayload::Failed { error: object(&ErrorData::from(error)) },
        };
        self.state = State::Ended(Arc::new(ended));
    }

    /// Returns the part of the task's state that clients see.
    pub(super) fn payload(&self) -> Arc<TaskPayload> {
        match &self.state {
            State::Unfinished { questions: None, .. } => Arc::new(TaskPayload::Working),
            State::Unfinished { questions: Some(questions), .. } => {
                Arc::new(TaskPayload::InputRequired { input_requests: questions.open.clone() })
            }
            State::Ended(ended) => ended.clone(),
        }
    }
}

/// Converts an MCP value to a JSON object. Values of MCP types can always be converted.
pub(super) fn object(value: &impl Serialize) -> JsonObject {
    match serde_json::to_value(value) {
        Ok(Value::Object(object)) => object,
        _ => JsonObject::new(),
    }
}

// === impl Questions ===

impl Questions {
    pub(super) const fn new(
        open: InputRequests,
        answered: oneshot::Sender<InputResponses>,
        bytes: OwnedSemaphorePermit,
    ) -> Self {
        Self { open, answers: InputResponses::new(), answered, bytes }
    }

    /// Takes the answers to open questions, and ignores all other answers. `hold` reserves room for
    /// an answer of the given size.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no room for an answer. Its question remains open.
    pub(super) fn take_answers(
        &mut self,
        answers: InputResponses,
        hold: impl Fn(usize) -> Result<OwnedSemaphorePermit, LimitReached>,
    ) -> Result<(), LimitReached> {
        for (key, answer) in answers {
            if self.open.contains_key(&key) {
                self.bytes.merge(hold(json_bytes(&answer))?);
                self.open.remove(&key);
                self.answers.insert(key, answer);
            }
        }
        Ok(())
    }

    pub(super) fn open(&self) -> usize {
        self.open.len()
    }

    /// Sends the answers to the run of the task.
    pub(super) fn deliver(self) {
        // Fails only if the run was dropped, which needs no answers.
        let _ = self.answered.send(self.answers);
    }
}
