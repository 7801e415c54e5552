//! Sanitizes strings from clients and servers for log messages.

use std::fmt::{self, Write as _};

/// Maximum number of logged characters of a name from a client or server. Longer names are
/// truncated.
const MAX_SHOWN: usize = 100;
/// Maximum number of logged characters of an error message from a client or server. The limit is
/// higher than for names, because the end of a message may be its most important part.
const MAX_REASON: usize = 512;
/// Maximum number of characters of an excerpt of a client's data.
pub(crate) const MAX_EXCERPT: usize = 2_000;
/// Maximum number of characters of a warning. Longer warnings are truncated.
const MAX_COMPLAINT: usize = 2_000;

/// A name from a client or server, for log messages. `Display` truncates the name and escapes its
/// control characters.
pub(crate) struct Sanitized<T>(pub(crate) T);

/// An error from a client or server, for log messages. `Display` truncates the error message and
/// escapes its control characters.
pub(crate) struct Reason<T>(pub(crate) T);

/// Data from a client that a user reads. `Display` truncates the text after [`MAX_EXCERPT`]
/// characters, and escapes control characters and invisible characters.
pub(crate) struct Excerpt<T>(pub(crate) T);

/// A complete log message, which may contain names and errors. `Display` truncates the message and
/// escapes its control characters.
pub(super) struct Sentence<T>(pub(super) T);

/// A writer that escapes characters and passes them to a formatter. Returns an error after a
/// maximum number of characters.
struct Cut<'a, 'f> {
    to: &'a mut fmt::Formatter<'f>,
    /// The number of characters that can still be written before the text is truncated.
    room: usize,
    is_cut: bool,
}

impl<T: fmt::Display> fmt::Display for Sanitized<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, MAX_SHOWN, f)
    }
}

impl<T: fmt::Display> fmt::Display for Reason<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, MAX_REASON, f)
    }
}

impl<T: fmt::Display> fmt::Display for Excerpt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, MAX_EXCERPT, f)
    }
}

impl<T: fmt::Display> fmt::Display for Sentence<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, MAX_COMPLAINT, f)
    }
}

fn show(text: &dyn fmt::Display, room: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut cut = Cut { to: f, room, is_cut: false };
    let written = write!(cut, "{text}");
    // The writer returns an error at the limit, to stop formatting the rest of the text.
    if cut.is_cut { f.write_char('…') } else { written }
}

// === impl Cut ===

impl fmt::Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for letter in text.chars() {
            if self.room == 0 {
                self.is_cut = true;
                return Err(fmt::Error);
            }
            self.room -= 1;
            match letter {
                '\'' | '"' | '\\' => self.to.write_char(letter)?,
                _ => write!(self.to, "{}", letter.escape_debug())?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_text_is_truncated() {
        assert_eq!(Sanitized("größe \"it's\" \\").to_string(), "größe \"it's\" \\");
        assert_eq!(Sanitized("a\u{1b}[2J\n\u{202e}b").to_string(), "a\\u{1b}[2J\\n\\u{202e}b");
        assert_eq!(Sanitized("x".repeat(100)).to_string(), "x".repeat(100));
        assert_eq!(Sanitized("x".repeat(101)).to_string(), format!("{}…", "x".repeat(100)));
        assert_eq!(Reason("\n".repeat(513)).to_string(), format!("{}…", "\\n".repeat(512)));
    }

    #[test]
    fn text_written_in_pieces_is_truncated_as_a_whole() {
        let pieces = ["x", "y"].map(|letter| letter.repeat(60));
        let expected = format!("{}{}…", pieces[0], "y".repeat(40));
        assert_eq!(Sanitized(format_args!("{}{}", pieces[0], pieces[1])).to_string(), expected);
    }
}
