use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What is known of why a connection ended, from whoever knows more than that it
/// did.
#[derive(Clone, Default)]
pub(super) struct ExitReason(Arc<Mutex<Option<String>>>);

// === impl ExitReason ===

impl ExitReason {
    /// Says something better than what was said.
    #[cfg(feature = "stdio")]
    pub(super) fn set(&self, words: String) {
        *self.words() = Some(words);
    }

    /// Says something if nothing was said yet.
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
