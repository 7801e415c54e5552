use std::fmt;

use serde_json::Value;

/// A reference to the input of a run or to a part of it, such as `$input.a[0]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    path: Vec<PathSegment>,
    optional: bool,
}

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathSegment {
    /// The member of an object.
    Key(String),
    /// The element of an array, from zero.
    Index(usize),
}

/// Why a text is not a reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReferenceError {
    /// It begins with something that cannot be referred to.
    #[error("unknown reference `{text}`: expected `$input`, `$null`, or `$$` for a literal `$`")]
    UnknownRoot {
        /// The text.
        text: String,
    },
    /// It does not go on as a reference does.
    #[error("malformed reference `{text}` at character {position}: expected {expected}")]
    Malformed {
        /// The text.
        text: String,
        /// Which character, from one.
        position: usize,
        /// What was expected there.
        expected: &'static str,
    },
    /// It is a template.
    #[error(
        "a template cannot stand here: expected a plain string or a reference such as `$input.name`"
    )]
    Template,
    /// It is no object.
    #[error("arguments are {found}: expected an object")]
    NoObject {
        /// What they are.
        found: &'static str,
    },
}

// === impl Reference ===

impl Reference {
    /// Parses what follows `$input`.
    pub(super) fn parse(text: &str) -> Result<Self, ReferenceError> {
        let Some(rest) = text.strip_prefix("$input") else {
            return Err(ReferenceError::UnknownRoot { text: text.to_owned() });
        };
        let mut parser = Parser { text, rest };
        let mut path = Vec::new();
        loop {
            match parser.rest.chars().next() {
                None => return Ok(Self { path, optional: false }),
                Some('?') => {
                    parser.take(1);
                    return match parser.rest {
                        "" => Ok(Self { path, optional: true }),
                        _ => parser.fail("the end after `?`"),
                    };
                }
                Some('.') => path.push(parser.key()?),
                Some('[') => path.push(parser.bracket()?),
                // Such as `$inputs`: another root, not a malformed one.
                Some(_) if path.is_empty() => {
                    return Err(ReferenceError::UnknownRoot { text: text.to_owned() });
                }
                Some(_) => return parser.fail("`.`, `[`, `?` or the end"),
            }
        }
    }

    /// Where in the input; empty for all of it.
    #[must_use]
    pub fn path(&self) -> &[PathSegment] {
        &self.path
    }

    /// Whether the value may be missing.
    #[must_use]
    pub const fn is_optional(&self) -> bool {
        self.optional
    }

    /// The member of the input that it refers to, wholly or in part.
    #[must_use]
    pub fn property(&self) -> Option<&str> {
        match self.path.first()? {
            PathSegment::Key(key) => Some(key),
            PathSegment::Index(_) => None,
        }
    }

    /// Follows the reference into `input`.
    #[must_use]
    pub fn follow<'v>(&self, input: &'v Value) -> Option<&'v Value> {
        self.path.iter().try_fold(input, |value, segment| match segment {
            PathSegment::Key(key) => value.get(key),
            PathSegment::Index(index) => value.get(index),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$input")?;
        for segment in &self.path {
            match segment {
                PathSegment::Index(index) => write!(f, "[{index}]")?,
                PathSegment::Key(key) if is_word(key) => write!(f, ".{key}")?,
                PathSegment::Key(key) if key.contains('\'') => write!(f, "[\"{key}\"]")?,
                PathSegment::Key(key) => write!(f, "['{key}']")?,
            }
        }
        f.write_str(if self.optional { "?" } else { "" })
    }
}

// === impl Parser ===

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl Parser<'_> {
    /// Parses `.key`.
    fn key(&mut self) -> Result<PathSegment, ReferenceError> {
        self.take(1);
        let end = self.rest.find(|c| !is_word_character(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return self.fail("a key of letters, digits, `_` and `-`; others as `['key']`");
        }
        Ok(PathSegment::Key(self.take(end).to_owned()))
    }

    /// Parses `[0]`, `['key']` or `["key"]`.
    fn bracket(&mut self) -> Result<PathSegment, ReferenceError> {
        self.take(1);
        let segment = match self.rest.chars().next() {
            Some(quote @ ('\'' | '"')) => {
                self.take(1);
                let Some(end) = self.rest.find(quote) else {
                    return self.fail("a closing quote");
                };
                let key = self.take(end).to_owned();
                self.take(1);
                PathSegment::Key(key)
            }
            _ => {
                let end = self.rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.rest.len());
                let Ok(index) = self.rest[..end].parse() else {
                    return self.fail("a number from zero or a quoted key");
                };
                self.take(end);
                PathSegment::Index(index)
            }
        };
        if !self.rest.starts_with(']') {
            return self.fail("`]`");
        }
        self.take(1);
        Ok(segment)
    }

    /// Takes the next `bytes`, which end at a character.
    fn take(&mut self, bytes: usize) -> &str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T, ReferenceError> {
        let before = &self.text[..self.text.len() - self.rest.len()];
        Err(ReferenceError::Malformed {
            text: self.text.to_owned(),
            position: before.chars().count() + 1,
            expected,
        })
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.chars().all(is_word_character)
}

fn is_word_character(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}
