//! References, through which expressions read the input, step outputs and other values of a run.

use std::{borrow::Cow, fmt};

use serde_json::Value;

use super::{
    EvaluationError, ExpressionError, PathSegment,
    data::{Data, Field, Root},
    names::{Previous, ScopeNames},
    path_segment::{is_word_character, place},
    wrapped_array::misses_result,
};
use crate::suggest::nearest;

/// A reference to a value of a run, such as `$input.a[0]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    written: Box<str>,
    root: Root,
    path: Vec<PathSegment>,
    optional: bool,
}

/// The parts of a reference, such as `$input.a[0]?`.
pub(super) struct Parts<'a> {
    /// The first name without `$`, such as `input`.
    name: &'a str,
    pub(super) path: Vec<PathSegment>,
    /// If `true`, the reference ends in `?`, and its value may be missing.
    pub(super) optional: bool,
}

/// A reference in an expression, with its position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Use<'e> {
    /// The path from the root of the expression to the string that contains the reference.
    pub(crate) place: Vec<PathSegment>,
    /// The value at which the reference starts. For `$input.query`, this is the input of the run.
    pub(crate) root: Root,
    /// The path from `root` to the referenced value. It ends before the first key that a template
    /// computes, as in `steps.a[input.key]`.
    pub(crate) path: &'e [PathSegment],
    /// If `true`, the referenced value may be missing. If `false`, a missing value is an error.
    pub(crate) optional: bool,
    /// If `true`, the whole string is this reference, so that the value keeps its type. If `false`,
    /// the reference is a part of a larger template.
    pub(crate) bare: bool,
    /// If `true`, the reference is always read. If `false`, a template reads it only under a
    /// condition, such as inside an `{% if %}` block.
    pub(crate) certain: bool,
    /// The text of the reference, such as `$input.query`.
    pub(crate) text: &'e str,
}

// === impl Reference ===

impl Reference {
    /// Parses a reference, which begins with `$`. Returns an error if the syntax is invalid or a
    /// name is not in `names`.
    pub(super) fn parse(text: &str, names: &ScopeNames<'_>) -> Result<Self, ExpressionError> {
        // Reports an unknown name and not malformed syntax, because a string such as `$5.00 off`
        // may be meant literally.
        let parts = Parts::parse_if(text, |name| names.known().contains(&name));
        let Parts { name, mut path, optional } =
            parts.ok_or_else(|| unknown_root(text, names))??;
        let (root, used) = root(text, name, &path, names)?;
        path.drain(..used);
        let optional = optional || names.lenient;
        Ok(Self { written: text.into(), root, path, optional })
    }

    pub(super) const fn root(&self) -> Root {
        self.root
    }

    /// Returns the path of the reference after its root. It is empty for `$input`.
    pub(super) fn path(&self) -> &[PathSegment] {
        &self.path
    }

    /// Returns `true` if the referenced value may be missing. Otherwise, a missing value is an
    /// error.
    pub(super) const fn is_optional(&self) -> bool {
        self.optional
    }

    /// Returns the use of this reference in the string at the path `place` of an expression.
    pub(super) fn as_use(&self, place: &[PathSegment]) -> Use<'_> {
        Use {
            place: place.to_vec(),
            root: self.root,
            path: &self.path,
            optional: self.optional,
            bare: true,
            certain: true,
            text: &self.written,
        }
    }

    /// Reads the referenced value from `data`. Returns `None` if the value is missing.
    pub(super) fn follow<'d>(&self, data: &'d dyn Data) -> Option<Cow<'d, Value>> {
        match data.get(self.root)? {
            Cow::Borrowed(value) => follow(value, &self.path).map(Cow::Borrowed),
            Cow::Owned(value) if self.path.is_empty() => Some(Cow::Owned(value)),
            Cow::Owned(value) => follow(&value, &self.path).cloned().map(Cow::Owned),
        }
    }

    /// Returns the error for the missing value of this reference.
    pub(super) fn missing(&self, data: &dyn Data) -> EvaluationError {
        let reference = self.to_string();
        match data.get(self.root) {
            Some(value) if misses_result(&value, &self.path) => {
                EvaluationError::WrappedArray { reference }
            }
            _ => EvaluationError::Missing { reference },
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

// === impl Use ===

impl Use<'_> {
    /// Returns the input property that the reference reads, such as `query` for `$input.query`.
    /// Returns `None` if it reads the whole input or another value.
    pub(crate) fn property(&self) -> Option<&str> {
        match (self.root, self.path.first()?) {
            (Root::Input, PathSegment::Key(key)) => Some(key),
            _ => None,
        }
    }
}

// === impl Parts ===

impl<'a> Parts<'a> {
    /// Splits a reference, which begins with `$`, into its parts. Returns `None` if `is_known`
    /// returns `false` for its first name, or if something other than a path follows the name.
    pub(super) fn parse_if(
        text: &'a str,
        is_known: impl Fn(&str) -> bool,
    ) -> Option<Result<Self, ExpressionError>> {
        let mut parser = Parser { text, rest: text };
        parser.take(1);
        let name = parser.word();
        let starts_path = |rest: &str| rest.is_empty() || rest.starts_with(['.', '[', '?']);
        (is_known(name) && starts_path(parser.rest)).then(|| parser.parts(name))
    }
}

/// Returns the part of `value` at `path`. Returns `None` if it does not exist.
pub(crate) fn follow<'v>(value: &'v Value, path: &[PathSegment]) -> Option<&'v Value> {
    path.iter().try_fold(value, |value, segment| segment.of(value))
}

/// Returns the value at which a reference starts, and the number of segments in `path` that belong
/// to it. For `steps.a.output`, these are `a` and `output`.
pub(super) fn root(
    text: &str,
    name: &str,
    path: &[PathSegment],
    names: &ScopeNames<'_>,
) -> Result<(Root, usize), ExpressionError> {
    let key = |place: usize| match path.get(place) {
        Some(PathSegment::Key(key)) => Some(key.as_str()),
        _ => None,
    };
    match name {
        "input" => Ok((Root::Input, 0)),
        "prev" => match names.previous {
            Previous::Step(step) => Ok((Root::Step { step, field: Field::Output }, 0)),
            Previous::First => Err(ExpressionError::NoPrevious { text: text.to_owned() }),
            Previous::None => Err(unknown_root(text, names)),
        },
        "steps" if !names.steps.is_empty() => {
            let step = step(text, path.first(), names)?;
            match (path.get(1), key(1).and_then(Field::from_name)) {
                (None, _) => Ok((Root::Step { step, field: Field::Output }, 1)),
                (_, Some(field)) => Ok((Root::Step { step, field }, 2)),
                (Some(other), None) => {
                    let step = names.steps[step];
                    let other = other.to_string();
                    let sign = if text.starts_with('$') { "$" } else { "" };
                    let step = PathSegment::Key(step.to_owned());
                    let near = format!("{sign}steps{step}.output{other}");
                    let field = other.trim_start_matches('.').to_owned();
                    let similar = nearest(&field, &Field::ALL.map(Field::name))
                        .map(|field| format!("{sign}steps{step}.{field}"));
                    Err(ExpressionError::UnknownField { field, near, similar })
                }
            }
        }
        "index" if names.item.is_some() => Ok((Root::Index, 0)),
        "workflow" if names.run => match key(0) {
            Some("id") => Ok((Root::WorkflowId, 1)),
            Some("name") => Ok((Root::WorkflowName, 1)),
            Some("started_at") => Ok((Root::WorkflowStartedAt, 1)),
            _ => Err(ExpressionError::UnknownRoot {
                text: text.to_owned(),
                expected: "`$workflow.id`, `$workflow.name`, `$workflow.started_at`".to_owned(),
            }),
        },
        name if names.item == Some(name) => Ok((Root::Item, 0)),
        _ => Err(unknown_root(text, names)),
    }
}

/// Returns the index of the step with the name or index in `segment`.
fn step(
    text: &str,
    segment: Option<&PathSegment>,
    names: &ScopeNames<'_>,
) -> Result<usize, ExpressionError> {
    let (place, step) = match segment {
        None => {
            return Err(ExpressionError::UnknownRoot {
                text: text.to_owned(),
                expected: "a step, such as `$steps.search`".to_owned(),
            });
        }
        Some(PathSegment::Index(index)) => {
            (Some(*index).filter(|index| *index < names.steps.len()), index.to_string())
        }
        Some(PathSegment::Key(key)) => {
            let named = names.steps.iter().position(|step| step == key);
            let place = || place(key).filter(|place| *place < names.steps.len());
            (named.or_else(place), key.clone())
        }
    };
    match (place, names.before) {
        (None, _) => {
            let near = nearest(&step, names.steps).map(str::to_owned);
            Err(ExpressionError::UnknownStep { text: text.to_owned(), step, near })
        }
        (Some(place), Some(before)) if place >= before => {
            Err(ExpressionError::LaterStep { text: text.to_owned(), step })
        }
        (Some(place), _) => Ok(place),
    }
}

fn unknown_root(text: &str, names: &ScopeNames<'_>) -> ExpressionError {
    let expected = names.known().into_iter().chain(["null"]);
    let expected: Vec<_> = expected.map(|name| format!("`${name}`")).collect();
    ExpressionError::UnknownRoot { text: text.to_owned(), expected: expected.join(", ") }
}

// === impl Parser ===

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// Parses the path of a reference after its first name.
    fn parts(&mut self, name: &'a str) -> Result<Parts<'a>, ExpressionError> {
        let mut path = Vec::new();
        let mut optional = false;
        while let Some(next) = self.rest.chars().next() {
            match next {
                '.' => path.push(self.key()?),
                '[' => path.push(self.bracket()?),
                '?' => {
                    self.take(1);
                    if !self.rest.is_empty() {
                        return self.fail("the end after `?`");
                    }
                    optional = true;
                }
                _ => return self.fail("`.`, `[`, `?` or the end"),
            }
        }
        Ok(Parts { name, path, optional })
    }

    /// Parses `.key`.
    fn key(&mut self) -> Result<PathSegment, ExpressionError> {
        self.take(1);
        match self.word() {
            "" => self.fail("a key of letters, digits, `_` and `-`; others as `['key']`"),
            word => Ok(PathSegment::Key(word.to_owned())),
        }
    }

    /// Parses a path segment in brackets: `[0]`, `['key']` or `["key"]`.
    fn bracket(&mut self) -> Result<PathSegment, ExpressionError> {
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

    /// Consumes and returns the word at the current position, which may be empty.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find(|c| !is_word_character(c)).unwrap_or(self.rest.len());
        self.take(end)
    }

    /// Consumes and returns the next `bytes` bytes. Panics if they end inside a character.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn fail<T>(&self, expected: &'static str) -> Result<T, ExpressionError> {
        let before = &self.text[..self.text.len() - self.rest.len()];
        Err(ExpressionError::Malformed {
            text: self.text.to_owned(),
            position: before.chars().count() + 1,
            expected,
        })
    }
}
