use std::fmt::{self, Write as _};

/// How much of a name is printed.
const MAX_SHOWN: usize = 100;
/// How much of a reason is printed: what matters most may come last.
const MAX_REASON: usize = 512;

/// Prints a text that a server chose: its beginning, and nothing in it that a
/// terminal would obey.
pub(super) struct Shown<'t>(pub(super) &'t str);

/// Prints why something went wrong in the same way, and more of it.
pub(super) struct Reason<'t>(pub(super) &'t str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, MAX_SHOWN, f)
    }
}

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self.0, MAX_REASON, f)
    }
}

fn show(text: &str, max: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (count, letter) in text.chars().enumerate() {
        match letter {
            _ if count == max => return f.write_char('…'),
            '\'' | '"' | '\\' => f.write_char(letter)?,
            _ => write!(f, "{}", letter.escape_debug())?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_what_is_long_is_cut() {
        assert_eq!(Shown("größe \"it's\" \\").to_string(), "größe \"it's\" \\");
        assert_eq!(Shown("a\u{1b}[2J\n\u{202e}b").to_string(), "a\\u{1b}[2J\\n\\u{202e}b");
        assert_eq!(Shown(&"x".repeat(100)).to_string(), "x".repeat(100));
        assert_eq!(Shown(&"x".repeat(101)).to_string(), format!("{}…", "x".repeat(100)));
        assert_eq!(Reason(&"\n".repeat(513)).to_string(), format!("{}…", "\\n".repeat(512)));
    }
}
