//! Logs each warning for operators only once, and sanitizes names and errors in logs.

pub(crate) mod sanitize;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use self::sanitize::Sentence;

/// The maximum number of remembered warnings. Further warnings are not logged.
const MAX_COMPLAINTS: usize = 1_000;

/// The warnings about a layer's settings that were logged so far, so that each is logged only once.
/// Clones share the warnings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

// === impl Warnings ===

impl Warnings {
    /// Logs a warning, unless the warning was logged before. Escapes control characters, because
    /// the warning may contain names that clients and servers have chosen.
    pub(crate) fn warn(&self, warning: fmt::Arguments<'_>) {
        let warning = Sentence(warning).to_string();
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < MAX_COMPLAINTS && !told.contains(&warning) {
            tracing::warn!("{warning}");
            told.push(warning);
        }
    }

    /// Returns all warnings logged so far.
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
