//! What an operator is told once, and how what others have written is printed.

pub(crate) mod sanitize;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use self::sanitize::Complaint;

/// How many complaints are remembered; what comes after is not logged.
const MAX_COMPLAINTS: usize = 1_000;

/// What was said about a layer's settings, so that it is said once; clones share
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Complaints(Arc<Mutex<Vec<String>>>);

// === impl Complaints ===

impl Complaints {
    /// Logs a complaint, unless it was; without what a terminal would obey in it, since
    /// there may be names in it that clients and servers chose.
    pub(crate) fn tell(&self, complaint: fmt::Arguments<'_>) {
        let complaint = Complaint(complaint).to_string();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_makes_a_terminal_do_nothing() {
        let complaints = Complaints::default();
        complaints.tell(format_args!("tool `{}`: \"it's\" größe \\", "a\u{1b}[2J\r\n\u{202e}b"));
        let told = "tool `a\\u{1b}[2J\\r\\n\\u{202e}b`: \"it's\" größe \\";
        assert_eq!(complaints.told(), [told]);
    }
}
