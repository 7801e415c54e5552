//! The reason why a connection ended.

use std::sync::{Arc, Mutex};

use crate::mutex::lock;

/// The reason why the connection to a server ended, as a text. The transport stores it, and the
/// supervisor task reports it. `None` while the reason is unknown. Clones share the reason.
#[derive(Clone, Default)]
pub(super) struct ExitReason(Arc<Mutex<Option<String>>>);

// === impl ExitReason ===

impl ExitReason {
    /// Sets the reason why the connection ended. Overwrites an earlier reason.
    #[cfg(feature = "stdio")]
    pub(super) fn set(&self, words: String) {
        *lock(&self.0) = Some(words);
    }

    /// Sets the reason why the connection ended, unless a reason was already set.
    pub(super) fn or(&self, words: &str) {
        lock(&self.0).get_or_insert_with(|| words.to_owned());
    }

    pub(super) fn take(&self) -> Option<String> {
        lock(&self.0).take()
    }
}
