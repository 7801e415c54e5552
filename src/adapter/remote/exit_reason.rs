//! The reason why a connection ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reason why a connection ended, as far as it is known.
#[derive(Clone, Default)]
pub(super) struct ExitReason(Arc<Mutex<Option<String>>>);

// === impl ExitReason ===

impl ExitReason {
    /// Sets the reason, replacing a less specific one.
    #[cfg(feature = "stdio")]
    pub(super) fn set(&self, words: String) {
        *self.words() = Some(words);
    }

    /// Sets the reason if there is none yet.
    pub(super) fn or(&self, words: &str) {
        self.words().get_or_insert_with(|| words.to_owned());
    }

    pub(super) fn take(&self) -> Option<String> {
        self.words().take()
    }

    fn words(&self) -> MutexGuard<'_, Option<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
