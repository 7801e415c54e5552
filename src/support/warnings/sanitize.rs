//! What others have written, as it may be printed.

use std::fmt::{self, Write as _};

/// How much of a name is printed.
const MAX_SHOWN: usize = 100;
/// How much of a reason is printed: what matters most may come last.
const MAX_REASON: usize = 512;
/// How much of a warning is printed and remembered.
const MAX_COMPLAINT: usize = 2_000;

/// Prints a name that others chose: its beginning, and nothing in it that a terminal
/// would obey.
pub(crate) struct Sanitized<T>(pub(crate) T);

/// Prints why something went wrong in the same way, and more of it.
pub(crate) struct Reason<T>(pub(crate) T);

/// Prints a whole sentence in the same way, with names and reasons in it.
pub(super) struct Sentence<T>(pub(super) T);

/// Writes a text on, up to its end or that of the room for it.
struct Cut<'a, 'f> {
    to: &'a mut fmt::Formatter<'f>,
    /// How many characters there is still room for.
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
    // It fails so that no more is written than there is room for.
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
    fn what_a_terminal_would_obey_is_escaped_and_what_is_long_is_cut() {
        assert_eq!(Sanitized("größe \"it's\" \\").to_string(), "größe \"it's\" \\");
        assert_eq!(Sanitized("a\u{1b}[2J\n\u{202e}b").to_string(), "a\\u{1b}[2J\\n\\u{202e}b");
        assert_eq!(Sanitized("x".repeat(100)).to_string(), "x".repeat(100));
        assert_eq!(Sanitized("x".repeat(101)).to_string(), format!("{}…", "x".repeat(100)));
        assert_eq!(Reason("\n".repeat(513)).to_string(), format!("{}…", "\\n".repeat(512)));
    }

    #[test]
    fn what_is_written_piece_by_piece_is_cut_as_a_whole() {
        let pieces = ["x", "y"].map(|letter| letter.repeat(60));
        let told = format!("{}{}…", pieces[0], "y".repeat(40));
        assert_eq!(Sanitized(format_args!("{}{}", pieces[0], pieces[1])).to_string(), told);
    }
}
