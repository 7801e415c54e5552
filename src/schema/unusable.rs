//! The reason why a schema cannot be used.

use std::fmt::{self, Write as _};

/// The maximum number of characters of a schema that a message repeats.
pub(super) const MAX_DISPLAYED_SCHEMA: usize = 200;

/// The reason why a schema is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unusable {
    /// The place in the schema, as a JSON Pointer.
    pub(super) path: String,
    pub(super) reason: String,
    /// Whether the schema is valid, but any check with it would take too long.
    pub(super) too_long: bool,
}

/// A text truncated to a number of characters.
struct Shortened {
    text: String,
    /// The number of characters that may still be added.
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

/// Truncates a message, which can repeat a text or a list of the schema.
pub(super) fn shortened(message: &impl fmt::Display) -> String {
    let mut shortened = Shortened { text: String::new(), left: MAX_DISPLAYED_SCHEMA };
    // The rest is not even formatted.
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
