//! Translates globs to regular expressions.

use std::{fmt::Write as _, iter::Peekable, str::Chars};

/// The characters that have a special meaning in globs.
pub(super) const SPECIAL: [char; 7] = ['*', '?', '[', ']', '{', '}', '\\'];
/// The maximum nesting depth of alternatives in braces, as in `{a,{b,c}}`.
const MAX_BRACE_DEPTH: usize = 8;

/// Returns `true` if a pattern contains a character with a special meaning in globs.
pub(super) fn is_glob(pattern: &str) -> bool {
    pattern.contains(SPECIAL)
}

/// Translates a glob to a regular expression. The result must be compiled with the option that lets
/// `.` match line breaks. Returns an error message if the glob is invalid.
pub(super) fn expression(glob: &str) -> Result<String, String> {
    let mut expression = String::from("^");
    let mut depth = 0;
    let mut rest = glob.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '*' => {
                // Adjacent `*` are equivalent to a single `*`, which is cheaper to match.
                while rest.next_if_eq(&'*').is_some() {}
                expression.push_str(".*");
            }
            '?' => expression.push('.'),
            '[' => class(&mut rest, &mut expression)?,
            '{' if depth == MAX_BRACE_DEPTH => {
                return Err(format!("`{{` is nested more than {MAX_BRACE_DEPTH} levels deep"));
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

/// Translates a character class of a glob, such as `[a-z]`, and appends the translation to
/// `expression`. `rest` is the part of the glob after the opening bracket. Returns an error message
/// if the class is invalid.
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
        // A `-` before the closing `]` is a literal character.
        let mut ahead = rest.clone();
        let ends_range = ahead.next() == Some('-') && ahead.peek().is_some_and(|c| *c != ']');
        let last = match ends_range.then(|| rest.nth(1)).flatten() {
            Some('\\') => escaped(rest)?,
            Some(last) => last,
            None => first,
        };
        if last < first {
            return Err(format!("`{first}-{last}` is not a valid range"));
        }
        let (first, last) = (u32::from(first), u32::from(last));
        // Written as code points, so that no character has a special meaning in the regular
        // expression.
        let _ = write!(expression, "\\x{{{first:x}}}-\\x{{{last:x}}}");
    }
    expression.push(']');
    Ok(())
}

/// Returns the character that follows a `\` in a glob. Returns an error message if the glob ends
/// with the `\`.
fn escaped(rest: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    rest.next().ok_or_else(|| "nothing comes after `\\`".to_owned())
}

fn literal(character: char, expression: &mut String) {
    expression.push_str(&regex::escape(character.encode_utf8(&mut [0; 4])));
}
