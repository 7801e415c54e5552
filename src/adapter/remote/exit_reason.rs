//! The reason why a connection ended.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reason why the connection to a server ended, as a text. The transport stores it, and the
/// supervisor task reports it. `None` while the reason is unknown. Clones share the reason.
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
