//! Sanitizes text from clients and servers for logs.

use std::fmt::{self, Write as _};

/// The maximum number of printed characters of a name.
const MAX_SHOWN: usize = 100;
/// The maximum number of characters of a failure's reason that are printed. The limit is high
/// because the most important part of a reason may be at its end.
const MAX_REASON: usize = 512;
/// The maximum number of characters of a warning that are printed and remembered.
const MAX_COMPLAINT: usize = 2_000;

/// Displays a name that a client or server has chosen. The name is truncated, and its control
/// characters are escaped.
pub(crate) struct Sanitized<T>(pub(crate) T);

/// Displays the reason of a failure. The reason is truncated, and its control characters are
/// escaped.
pub(crate) struct Reason<T>(pub(crate) T);

/// Displays a sentence that contains names and reasons. The sentence is truncated, and its control
/// characters are escaped.
pub(super) struct Sentence<T>(pub(super) T);

/// A writer that forwards a text, but only up to a maximum number of characters.
struct Cut<'a, 'f> {
    to: &'a mut fmt::Formatter<'f>,
    /// The number of characters that may still be written.
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

impl<T: fmt::Display> fmt::Display for Sentence<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(&self.0, MAX_COMPLAINT, f)
    }
}

fn show(text: &dyn fmt::Display, room: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut cut = Cut { to: f, room, is_cut: false };
    let written = write!(cut, "{text}");
    // Writing fails at the limit, so that the rest of the text is not formatted.
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
        let told = format!("{}{}…", pieces[0], "y".repeat(40));
        assert_eq!(Sanitized(format_args!("{}{}", pieces[0], pieces[1])).to_string(), told);
    }
}
