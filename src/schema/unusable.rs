//! The reasons why a schema cannot be used for validation.

use std::fmt::{self, Write as _};

/// The maximum length in characters of a message that can contain schema text. Longer messages are
/// truncated.
pub(super) const MAX_DISPLAYED_SCHEMA: usize = 200;

/// The reason why a schema cannot be used for validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// The invalid place in the schema, as a JSON Pointer. Empty for the schema as a whole.
    pub(super) path: String,
    pub(super) reason: String,
    /// `true` if the schema itself is valid, but using it to validate or coerce arguments would
    /// take too long.
    pub(super) too_long: bool,
}

/// A writer that truncates the written text to a maximum number of characters.
struct Shortened {
    text: String,
    /// The number of characters that may still be written.
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

/// Truncates a message, which can quote a long text or list in the schema.
pub(super) fn shortened(message: &impl fmt::Display) -> String {
    let mut shortened = Shortened { text: String::new(), left: MAX_DISPLAYED_SCHEMA };
    // Formatting stops with an error as soon as the message is too long.
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
