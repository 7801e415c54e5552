//! Stores suspended runs while they wait for answers, and loads them.

use std::fmt;

use rmcp::model::ErrorData;
use serde_json::{Value, json};

use super::Called;
use crate::{
    composite::suspended_run::SuspendedRun,
    fingerprint::{Fingerprint, Fingerprinter},
    message::Reply,
    store::{PutError, TakeError, caller_key},
    warnings::sanitize::Reason,
};

/// The preserved outputs of a suspended run may use at most a quarter of the store's maximum state
/// size. Preserved outputs are outputs of completed steps that only the result of a failed run
/// needs.
const PRESERVED_SHARE: usize = 4;
/// The maximum size in bytes of the preserved outputs of a suspended run, if the store has no
/// maximum state size.
const MAX_PRESERVED: usize = 4 * 1024;

// === impl Called ===

impl Called<'_> {
    /// Stores a suspended run, and returns the reply that sends its open questions to the client.
    ///
    /// # Errors
    ///
    /// Returns a text that may be sent to clients. It contains the reason why the run cannot be
    /// suspended.
    pub(super) async fn put(&self, kept: &mut SuspendedRun) -> Result<Reply, String> {
        let mut preserved = Vec::new();
        kept.run.each_preserved(&mut |outputs| preserved.push(outputs.clone()));
        let put = self.put_trimmed(kept).await;
        if put.is_ok() {
            kept.run.hand_over();
        } else {
            // The run is not suspended and continues in memory, so its preserved outputs are
            // restored.
            let mut preserved = preserved.into_iter();
            kept.run.each_preserved(&mut |outputs| *outputs = preserved.next().unwrap_or_default());
        }
        put
    }

    /// Truncates the preserved outputs of a run so that its state is small enough for the store.
    /// Then stores the run, and returns the reply that sends its open questions to the client.
    async fn put_trimmed(&self, kept: &mut SuspendedRun) -> Result<Reply, String> {
        let room = self.layer.state.max_bytes();
        let share = room.map_or(MAX_PRESERVED, |room| room / PRESERVED_SHARE);
        kept.run.trim_preserved(&mut { share });
        let mut json = kept.to_json();
        if room.is_some_and(|room| json.as_ref().is_some_and(|json| json.len() > room)) {
            kept.run.trim_preserved(&mut 0);
            json = kept.to_json();
        }
        let Some(bytes) = json else {
            return Err("the run cannot wait for an answer: a result is nested too deep".to_owned());
        };
        let (store, binding) = (&self.layer.state, self.binding());
        let caller = self.caller_key();
        match store.put(bytes, binding.as_bytes(), caller.as_deref()).await {
            Ok(text) => Ok(self.asks(&kept.run, Some(text))),
            Err(
                error @ (PutError::TooLarge { .. }
                | PutError::Full { .. }
                | PutError::CallerFull { .. }),
            ) => Err(format!("the run cannot wait for an answer: {error}")),
            Err(error) => {
                tracing::warn!(composite = &*self.compiled.name, %error, "failed to suspend a run");
                Err("the run cannot wait for an answer at the moment".to_owned())
            }
        }
    }

    /// Loads a suspended run, and removes it from the store. `text` is the `requestState` that the
    /// client sent. Returns an error reply if the store contains no such run, or if this call is
    /// not allowed to resume it.
    pub(super) async fn take(&self, text: &str) -> Result<SuspendedRun, Reply> {
        let composite = &*self.compiled.name;
        let invalid = |reason: &dyn fmt::Display| {
            tracing::info!(composite, reason = %Reason(reason), "rejected a `requestState`");
            // All reasons have the same error, so that clients cannot probe for valid states.
            Reply::from(ErrorData::invalid_params("invalid `requestState`", None))
        };
        let (store, binding) = (&self.layer.state, self.binding());
        let caller = self.caller_key();
        let bytes = match store.take(text, binding.as_bytes(), caller.as_deref()).await {
            Ok(bytes) => bytes,
            Err(TakeError::Unavailable(error)) => {
                tracing::warn!(composite, %error, "failed to load a suspended run");
                let error = "the state of the run is not available at the moment";
                return Err(ErrorData::internal_error(error, None).into());
            }
            Err(error) => return Err(invalid(&error)),
        };
        let kept: SuspendedRun = serde_json::from_slice(&bytes).map_err(|error| invalid(&error))?;
        if kept.run.fits(&self.compiled.plan) {
            Ok(kept)
        } else {
            Err(invalid(&"it belongs to another plan"))
        }
    }

    /// Returns the key by which the store limits the space of each caller. Returns `None` if the
    /// layer does not distinguish callers.
    fn caller_key(&self) -> Option<Vec<u8>> {
        let caller = self.layer.caller.as_ref()?;
        Some(caller_key(caller(self.context).as_deref()))
    }

    /// Returns a fingerprint of the composite's name, its definition, the arguments and the caller.
    /// A suspended run is stored with this fingerprint, and only a call with the same fingerprint
    /// can resume it. This prevents other callers from resuming the run.
    pub(super) fn binding(&self) -> Fingerprint {
        let caller = self.layer.caller.as_ref().and_then(|caller| caller(self.context));
        let arguments = Value::Object(self.arguments.clone().unwrap_or_default());
        Fingerprinter::default()
            .and(&json!(["mcp-composite/run/1", &*self.compiled.name, caller]))
            .and_fingerprint(&self.fingerprint)
            .and(&arguments)
            .finish()
    }
}
