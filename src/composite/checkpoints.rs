//! Stores the state of a run in the checkpoint of its call, and loads it.

use std::{fmt, sync::Arc};

use futures::{FutureExt, future};
use serde::Serialize;

use super::{compile::Compiled, suspended_run::SuspendedRun};
use crate::{
    engine::{saving::Saving, state::RunState},
    fingerprint::Fingerprint,
    message::checkpoint::{Checkpoint, CheckpointError},
    warnings::sanitize::Reason,
};

/// The checkpoint of one composite call: its stored state, from which another process can continue
/// the call.
///
/// The stored bytes are a line with the fingerprint of the call, followed by the run as JSON.
pub(super) struct CallCheckpoint {
    checkpoint: Arc<dyn Checkpoint>,
    /// The fingerprint of the call. Only a call with the same fingerprint can continue the run.
    binding: Fingerprint,
}

/// Returns the error text for a run that ended because its state could not be stored. `is_new` is
/// `true` if the run has not called a tool yet.
pub(super) fn unsaved(error: &CheckpointError, is_new: bool) -> String {
    match error {
        CheckpointError::Lost => "another process has taken over the run".to_owned(),
        CheckpointError::Failed(why) if is_new => {
            format!("the run cannot be stored, and nothing was called: {why}")
        }
        CheckpointError::Failed(why) => format!("the run cannot be stored: {why}"),
    }
}

// === impl CallCheckpoint ===

impl CallCheckpoint {
    pub(super) fn new(checkpoint: Arc<dyn Checkpoint>, binding: Fingerprint) -> Self {
        Self { checkpoint, binding }
    }

    /// Loads the stored run of the call. Returns `None` if the run has stored nothing.
    ///
    /// # Errors
    ///
    /// Returns a text for the client if this call cannot continue the stored run.
    pub(super) fn load(&self, compiled: &Compiled) -> Option<Result<SuspendedRun, String>> {
        let bytes = self.checkpoint.stored()?;
        let composite = &*compiled.name;
        let refused = |reason: &dyn fmt::Display, text: String| {
            tracing::warn!(composite, reason = %Reason(reason), "a stored run cannot continue");
            Some(Err(format!("the run cannot continue: {text}")))
        };
        let invalid =
            |reason: &dyn fmt::Display| refused(reason, "its stored state is invalid".to_owned());
        let Some(line) = bytes.iter().position(|&byte| byte == b'\n') else {
            return invalid(&"it has no fingerprint");
        };
        let (binding, json) = (&bytes[..line], &bytes[line + 1..]);
        if binding != self.binding.to_string().as_bytes() {
            let text = format!(
                "the definition of `{composite}` has changed since it started, or the call has \
                 other arguments or another caller"
            );
            return refused(&"it belongs to another definition or call", text);
        }
        let stored: SuspendedRun = match serde_json::from_slice(json) {
            Ok(stored) => stored,
            Err(error) => return invalid(&error),
        };
        if stored.run.fits(&compiled.plan) && (stored.run.was_running() || stored.run.is_waiting())
        {
            Some(Ok(stored))
        } else {
            invalid(&"it belongs to another plan")
        }
    }

    /// Stores a suspended run.
    ///
    /// # Errors
    ///
    /// Returns an error if the run was not stored.
    pub(super) async fn suspend(&self, run: &SuspendedRun) -> Result<(), CheckpointError> {
        self.checkpoint.save(self.encode(run)?).await
    }

    /// Returns the object through which the engine stores the state of the run. `round` and
    /// `questions` are the numbers of rounds and questions so far. `is_new` is `true` if the run
    /// has not started.
    pub(super) fn saving(
        self: &Arc<Self>,
        round: usize,
        questions: usize,
        is_new: bool,
    ) -> Box<Saving> {
        let call = self.clone();
        let save = move |state: &RunState, used| match call.encode(&SuspendedRun {
            round,
            asked: questions,
            used,
            run: state,
        }) {
            Ok(bytes) => {
                let checkpoint = call.checkpoint.clone();
                async move { checkpoint.save(bytes).await }.boxed()
            }
            Err(error) => future::ready(Err(error)).boxed(),
        };
        Box::new(Saving::new(Box::new(save), is_new))
    }

    fn encode<R: Serialize>(&self, run: &SuspendedRun<R>) -> Result<Vec<u8>, CheckpointError> {
        let Some(json) = run.to_json() else {
            return Err(CheckpointError::Failed("a result is nested too deep".to_owned()));
        };
        let mut bytes = format!("{}\n", self.binding).into_bytes();
        bytes.extend(json);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
