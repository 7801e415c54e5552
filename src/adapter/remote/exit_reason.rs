//! The reason why a connection ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Stores the reason why a connection ended, so that the supervisor task can report it. Clones
/// share the reason. Empty while the reason is unknown.
#[derive(Clone, Default)]
pub(super) struct ExitReason(Arc<Mutex<Option<String>>>);

// === impl ExitReason ===

impl ExitReason {
    /// Sets the reason why the connection ended. Overwrites an earlier reason.
    #[cfg(feature = "stdio")]
    pub(super) fn set(&self, words: String) {
        *self.words() = Some(words);
    }

    /// Sets the reason why the connection ended, unless a reason was already set.
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
