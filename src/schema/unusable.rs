//! Errors of schemas that cannot be used for validation.

use std::fmt::{self, Write as _};

/// Maximum length in characters of an error message that may quote the schema. Longer messages are
/// truncated.
pub(super) const MAX_DISPLAYED_SCHEMA: usize = 200;

/// The reason why a schema cannot be used for validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// The JSON Pointer to the invalid part of the schema. Empty if the whole schema cannot be
    /// used.
    pub(super) path: String,
    pub(super) reason: String,
    /// Whether the schema is valid, but would make the validation or coercion of arguments too
    /// slow.
    pub(super) too_long: bool,
}

/// A writer that stores a limited number of characters, and fails if more are written.
struct Shortened {
    text: String,
    /// The number of characters that can still be written.
    left: usize,
}

// === impl Unusable ===

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        if !self.path.is_empty() {
            write!(f, " (at `{}`)", self.path)?;
        }
        Ok(())
    }
}

/// Truncates an error message, because it may quote a long string or list of the schema.
pub(super) fn shortened(message: &impl fmt::Display) -> String {
    let mut shortened = Shortened { text: String::new(), left: MAX_DISPLAYED_SCHEMA };
    // The writer returns an error when the message is too long, which stops the formatting.
    if write!(shortened, "{message}").is_err() {
        shortened.text.push('…');
    }
    shortened.text
}

impl fmt::Write for Shortened {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        match text.char_indices().nth(self.left) {
            Some((end, _)) => {
                self.text.push_str(&text[..end]);
                self.left = 0;
                Err(fmt::Error)
            }
            None => {
                self.text.push_str(text);
                self.left -= text.chars().count();
                Ok(())
            }
        }
    }
}
