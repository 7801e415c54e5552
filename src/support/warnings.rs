//! What an operator is told once, and how what others have written is printed.

pub(crate) mod sanitize;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use self::sanitize::Sentence;

/// How many warnings are remembered; what comes after is not logged.
const MAX_COMPLAINTS: usize = 1_000;

/// What was said about a layer's settings, so that it is said once; clones share
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

// === impl Warnings ===

impl Warnings {
    /// Logs a warning, unless it was; without what a terminal would obey in it, since
    /// there may be names in it that clients and servers chose.
    pub(crate) fn warn(&self, warning: fmt::Arguments<'_>) {
        let warning = Sentence(warning).to_string();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_COMPLAINTS && !told.contains(&warning) {
            tracing::warn!("{warning}");
            told.push(warning);
        }
    }

    /// All that was said so far.
    pub(crate) fn list(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_does_not_control_a_terminal() {
        let warnings = Warnings::default();
        warnings.warn(format_args!("tool `{}`: \"it's\" größe \\", "a\u{1b}[2J\r\n\u{202e}b"));
        let told = "tool `a\\u{1b}[2J\\r\\n\\u{202e}b`: \"it's\" größe \\";
        assert_eq!(warnings.list(), [told]);
    }
}
