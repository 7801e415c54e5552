//! Logs each warning for operators only once, and sanitizes its text.

pub(crate) mod sanitize;

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use self::sanitize::Sentence;
use crate::mutex::lock;

/// Maximum number of warnings that a layer stores. Further warnings are neither stored nor logged.
const MAX_COMPLAINTS: usize = 1_000;

/// The warnings that a layer has logged about its settings, for example about a missing tool. They
/// are stored so that each warning is logged only once. Clones share the stored warnings.
#[derive(Clone, Debug, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

// === impl Warnings ===

impl Warnings {
    /// Logs a warning, unless the same warning was already logged. Escapes control characters,
    /// because names in warnings may come from clients and servers.
    pub(crate) fn warn(&self, warning: fmt::Arguments<'_>) {
        let warning = Sentence(warning).to_string();
        let mut logged = lock(&self.0);
        if logged.len() < MAX_COMPLAINTS && !logged.contains(&warning) {
            tracing::warn!("{warning}");
            logged.push(warning);
        }
    }

    pub(crate) fn list(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_does_not_control_a_terminal() {
        let warnings = Warnings::default();
        warnings.warn(format_args!("tool `{}`: \"it's\" größe \\", "a\u{1b}[2J\r\n\u{202e}b"));
        let expected = "tool `a\\u{1b}[2J\\r\\n\\u{202e}b`: \"it's\" größe \\";
        assert_eq!(warnings.list(), [expected]);
    }
}
