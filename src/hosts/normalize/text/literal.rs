//! Parses Python literals, and also the JSON literals that models write instead.

use rmcp::model::JsonObject;
use serde_json::{Number, Value};

use crate::normalize::{
    call::{MalformedKind, Problem},
    limits::ParseLimits,
};

/// A parser of the argument names and literals in a call such as `f(a=1, b="x")`.
pub(super) struct Reader<'t> {
    rest: &'t str,
    limits: ParseLimits,
}

/// A list or dictionary whose closing bracket is not parsed yet.
enum Open {
    List(Vec<Value>),
    /// A dictionary. Contains the members that were already parsed, and the key of the member whose
    /// value is parsed next.
    Dict(JsonObject, String),
}

// === impl Reader ===

impl<'t> Reader<'t> {
    pub(super) const fn new(text: &'t str, limits: ParseLimits) -> Self {
        Self { rest: text, limits }
    }

    /// Skips whitespace and, if it comes next, `character`. Returns `true` if `character` was
    /// skipped.
    pub(super) fn takes(&mut self, character: char) -> bool {
        self.rest = self.rest.trim_start();
        let after = self.rest.strip_prefix(character);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        self.rest.is_empty()
    }

    /// Returns a syntax error. Its message describes the `expected` input, and quotes the remaining
    /// input.
    pub(super) fn expected(&self, expected: &str) -> Problem {
        let found = excerpt(self.rest.trim_start());
        Problem::new(MalformedKind::Arguments, format!("expected {expected}, found {found}"))
    }

    /// Parses the name of an argument.
    pub(super) fn name(&mut self) -> Result<String, Problem> {
        self.rest = self.rest.trim_start();
        let before = self.rest;
        let is_of_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
        let name = self.while_is(is_of_name);
        if name.starts_with(|first: char| first.is_alphabetic() || matches!(first, '_' | '$')) {
            return Ok(name.to_owned());
        }
        self.rest = before;
        Err(self.expected("the name of an argument"))
    }

    /// Parses the value of the argument `of`.
    ///
    /// The function uses no recursion, so that deeply nested values cannot overflow the stack.
    pub(super) fn value(&mut self, of: &str) -> Result<Value, Problem> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            let mut value = match (self.takes('['), open.last()) {
                (true, _) => {
                    self.enter(&mut open, Open::List(Vec::new()))?;
                    continue;
                }
                (false, Some(Open::List(_))) if self.takes(']') => close(&mut open),
                _ if self.takes('{') => {
                    self.enter(&mut open, Open::Dict(JsonObject::new(), String::new()))?;
                    match self.takes('}') {
                        true => close(&mut open),
                        false => {
                            self.key(&mut open)?;
                            continue;
                        }
                    }
                }
                _ => self.scalar(of)?,
            };
            // A closed list or dictionary is itself a value of the enclosing container.
            loop {
                match open.last_mut() {
                    None => return Ok(value),
                    Some(Open::List(elements)) => {
                        elements.push(value);
                        if self.takes(',') {
                            break;
                        }
                        if !self.takes(']') {
                            return Err(self.expected("`,` or `]` in a list"));
                        }
                    }
                    Some(Open::Dict(members, key)) => {
                        members.insert(std::mem::take(key), value);
                        let goes_on = self.takes(',');
                        if !self.takes('}') {
                            if goes_on {
                                self.key(&mut open)?;
                                break;
                            }
                            return Err(self.expected("`,` or `}` in a dictionary"));
                        }
                    }
                }
                value = close(&mut open);
            }
        }
    }

    fn enter(&self, open: &mut Vec<Open>, container: Open) -> Result<(), Problem> {
        // The arguments object counts as the first level.
        if open.len() + 2 > self.limits.max_depth {
            return Err(self.limits.too_deep());
        }
        open.push(container);
        Ok(())
    }

    /// Parses a key and the colon after it, for the next member of the innermost open dictionary.
    fn key(&mut self, open: &mut [Open]) -> Result<(), Problem> {
        self.rest = self.rest.trim_start();
        if !self.rest.starts_with(['"', '\'']) {
            return Err(self.expected("a text as a key"));
        }
        let key = self.text()?;
        if !self.takes(':') {
            return Err(self.expected("`:` after a key"));
        }
        if let Some(Open::Dict(members, next)) = open.last_mut() {
            if members.contains_key(&key) {
                let message = format!("the key {} is there twice", excerpt(&key));
                return Err(Problem::new(MalformedKind::Arguments, message));
            }
            *next = key;
        }
        Ok(())
    }

    fn scalar(&mut self, of: &str) -> Result<Value, Problem> {
        self.rest = self.rest.trim_start();
        if self.rest.starts_with(['"', '\'']) {
            return self.text().map(Value::String);
        }
        let before = self.rest;
        let is_of_word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '+' | '-');
        let word = self.while_is(is_of_word);
        Ok(match word {
            "True" | "true" => Value::Bool(true),
            "False" | "false" => Value::Bool(false),
            "None" | "null" => Value::Null,
            _ => match number(word) {
                Some(Some(number)) => Value::Number(number),
                Some(None) => {
                    let message = format!("the number {} cannot be kept exactly", excerpt(word));
                    return Err(Problem::new(MalformedKind::Arguments, message));
                }
                None => {
                    self.rest = before;
                    let expected = format!("a text, a number or another value for `{of}`");
                    return Err(self.expected(&expected));
                }
            },
        })
    }

    /// Parses a quoted string.
    fn text(&mut self) -> Result<String, Problem> {
        let mut characters = self.rest.chars();
        let quote = characters.next();
        let mut text = String::new();
        loop {
            let Some(character) = characters.next() else {
                self.rest = "";
                return Err(self.expected("the end of a text"));
            };
            match character {
                _ if Some(character) == quote => break,
                '\\' => {
                    let escaped = characters.as_str();
                    self.rest = unescape(escaped, &mut text).ok_or_else(|| bad_escape(escaped))?;
                    characters = self.rest.chars();
                }
                _ => text.push(character),
            }
        }
        self.rest = characters.as_str();
        Ok(text)
    }

    fn while_is(&mut self, is: impl Fn(char) -> bool) -> &'t str {
        let end = self.rest.find(|character| !is(character)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }
}

/// Removes the innermost list or dictionary from `open`, and returns it as a JSON value.
fn close(open: &mut Vec<Open>) -> Value {
    match open.pop() {
        Some(Open::List(elements)) => Value::Array(elements),
        Some(Open::Dict(members, _)) => Value::Object(members),
        None => Value::Null,
    }
}

/// Parses a JSON number. Returns `None` if `word` is not a number. Returns `Some(None)` if the
/// number has no exact representation, for example an integer above `u64::MAX`.
fn number(word: &str) -> Option<Option<Number>> {
    // Only the number syntax that Python and JSON share is accepted, but not `1_000`, `0x10`, `007`
    // or `nan`.
    serde_json::from_str::<Number>(word).ok()?;
    if word.contains(['.', 'e', 'E']) {
        // Parsed again with the standard library, because serde_json's result may be off by the
        // last bit.
        return Some(word.parse().ok().and_then(Number::from_f64));
    }
    let signed = word.parse::<i64>().map(Number::from);
    Some(signed.or_else(|_| word.parse::<u64>().map(Number::from)).ok())
}

/// Parses an escape sequence after its backslash, and appends the character to `text`. Returns the
/// rest of the input, or `None` if the sequence is invalid.
fn unescape<'t>(escaped: &'t str, text: &mut String) -> Option<&'t str> {
    let mut characters = escaped.chars();
    let character = match characters.next()? {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        'a' => '\u{7}',
        // A backslash at the end of a line is a line continuation.
        '\n' => return Some(characters.as_str()),
        same @ ('\\' | '\'' | '"' | '/') => same,
        '0'..='7' => return octal(escaped, text),
        'x' => return of_code(characters.as_str(), 2, text),
        'u' => return of_code(characters.as_str(), 4, text),
        'U' => return of_code(characters.as_str(), 8, text),
        'N' => return None,
        // Any other backslash is kept, as in Python. For example, `\d` in a regular expression is
        // two characters.
        other => {
            text.push('\\');
            other
        }
    };
    text.push(character);
    Some(characters.as_str())
}

fn octal<'t>(escaped: &'t str, text: &mut String) -> Option<&'t str> {
    let is_octal = |byte: &u8| (b'0'..=b'7').contains(byte);
    let length = escaped.bytes().take(3).take_while(is_octal).count();
    let (digits, rest) = escaped.split_at(length);
    text.push(char::from_u32(u32::from_str_radix(digits, 8).ok()?)?);
    Some(rest)
}

/// Parses a character code of `digits` hexadecimal digits, and appends the character to `text`. If
/// the code is the first half of a JSON surrogate pair, also parses the second half.
fn of_code<'t>(escaped: &'t str, digits: usize, text: &mut String) -> Option<&'t str> {
    let (code, rest) = hexadecimal(escaped, digits)?;
    if let Some(character) = char::from_u32(code) {
        text.push(character);
        return Some(rest);
    }
    let (low, rest) = hexadecimal(rest.strip_prefix("\\u")?, 4)?;
    let units = [u16::try_from(code).ok()?, u16::try_from(low).ok()?];
    text.push_str(&String::from_utf16(&units).ok()?);
    Some(rest)
}

fn hexadecimal(escaped: &str, digits: usize) -> Option<(u32, &str)> {
    let (code, rest) = escaped.split_at_checked(digits)?;
    let is_hexadecimal = code.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hexadecimal.then(|| u32::from_str_radix(code, 16).ok())?.map(|code| (code, rest))
}

fn bad_escape(escaped: &str) -> Problem {
    let message = format!("no text has an escape like {}", excerpt(&format!("\\{escaped}")));
    Problem::new(MalformedKind::Arguments, message)
}

/// Returns the beginning of a model's text in quotes, for error messages.
pub(super) fn excerpt(text: &str) -> String {
    const EXCERPT: usize = 20;

    let beginning: String = text.chars().take(EXCERPT).collect();
    let more = if beginning.len() < text.len() { "…" } else { "" };
    match beginning.is_empty() {
        true => "nothing".to_owned(),
        false => format!("`{beginning}{more}`"),
    }
}
