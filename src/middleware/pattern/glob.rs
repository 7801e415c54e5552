//! Globs, as regular expressions.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

/// The characters that are not just themselves.
pub(super) const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];
/// How deep `{…}` may stand in `{…}`.
const MAX_DEPTH: usize = 8;

/// Whether a pattern is more than the text that it is.
pub(super) fn is_glob(pattern: &str) -> bool {
    pattern.contains(SPECIAL)
}

/// The regular expression of a glob; `.` must match the end of a line in it.
pub(super) fn expression(glob: &str) -> Result<String, String> {
    let mut expression = String::from("^");
    let mut depth = 0;
    let mut rest = glob.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '*' => {
                // Two runs are one, and no more work to match.
                while rest.next_if_eq(&'*').is_some() {}
                expression.push_str(".*");
            }
            '?' => expression.push('.'),
            '[' => class(&mut rest, &mut expression)?,
            '{' if depth == MAX_DEPTH => {
                return Err(format!("`{{` stands in more than {MAX_DEPTH} others"));
            }
            '{' => {
                depth += 1;
                expression.push_str("(?:");
            }
            '}' if depth == 0 => return Err("`}` closes nothing".to_owned()),
            '}' => {
                depth -= 1;
                expression.push(')');
            }
            ',' if depth > 0 => expression.push('|'),
            '\\' => literal(escaped(&mut rest)?, &mut expression),
            character => literal(character, &mut expression),
        }
    }
    if depth > 0 {
        return Err("`{` is never closed".to_owned());
    }
    expression.push('$');
    Ok(expression)
}

/// What comes after `[`, up to and with the `]` that closes it.
fn class(rest: &mut Peekable<Chars<'_>>, expression: &mut String) -> Result<(), String> {
    let unclosed = || "`[` is never closed".to_owned();
    expression.push('[');
    if rest.next_if(|next| matches!(next, '!' | '^')).is_some() {
        expression.push('^');
    }
    let mut is_first = true;
    loop {
        let first = match rest.next().ok_or_else(unclosed)? {
            ']' if !is_first => break,
            '\\' => escaped(rest)?,
            character => character,
        };
        is_first = false;
        // A `-` in front of the end is one of the characters.
        let mut ahead = rest.clone();
        let ends_range = ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']');
        let last = match ends_range.then(|| rest.nth(1)).flatten() {
            Some('\\') => escaped(rest)?,
            Some(last) => last,
            None => first,
        };
        if last < first {
            return Err(format!("`{first}-{last}` is no range"));
        }
        let (first, last) = (u32::from(first), u32::from(last));
        // As numbers, none of them means anything in the expression.
        let _ = write!(expression, "\\x{{{first:x}}}-\\x{{{last:x}}}");
    }
    expression.push(']');
    Ok(())
}

/// What comes after `\`.
fn escaped(rest: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    rest.next().ok_or_else(|| "nothing comes after `\\`".to_owned())
}

fn literal(character: char, expression: &mut String) {
    expression.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
}
