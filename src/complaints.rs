//! What an operator is told once.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// How many complaints are remembered; what comes after is not logged.
const MAX_COMPLAINTS: usize = 1_000;

/// What was said about a layer's settings, so that it is said once; clones share
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complaints(Arc<Mutex<Vec<String>>>);

// === impl Complaints ===

impl Complaints {
    /// Logs a complaint, unless it was.
    pub(crate) fn tell(&self, complaint: fmt::Arguments<'_>) {
        let complaint = complaint.to_string();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_COMPLAINTS && !told.contains(&complaint) {
            tracing::warn!("{complaint}");
            told.push(complaint);
        }
    }

    /// All that was said so far.
    pub(crate) fn told(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
