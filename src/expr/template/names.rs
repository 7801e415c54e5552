//! What the names in a template stand for.

use super::super::{
    ExpressionError, PathSegment,
    data::{Field, Root},
    names::{Previous, ScopeNames},
    reference,
};
use crate::{expr::RESERVED, suggest::nearest};

/// A name with the keys that are written after it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) start: Start,
    pub(super) segments: Vec<PathSegment>,
    /// Whether it is followed by a default, or asked whether it is defined.
    pub(super) optional: bool,
    /// Whether it is asked whether it is defined.
    pub(super) asked: bool,
    /// Whether it is looked at whenever its expression is evaluated.
    pub(super) certain: bool,
    /// How it is written.
    pub(super) text: String,
}

/// What a path begins with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Start {
    Root(Root),
    /// A name that a loop gives, by its place among those around it.
    Local(usize),
    /// What `loop` tells, of the loop at this depth.
    Loop(usize, LoopField),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LoopField {
    Index,
    Index0,
    Remaining,
    Remaining0,
    First,
    Last,
    Length,
}

/// Why a name stands for nothing.
pub(super) enum Unknown {
    Template(String),
    Reference(ExpressionError),
}

/// The names that can be used at a place of a template.
pub(super) struct Scope<'n> {
    names: &'n ScopeNames<'n>,
    locals: Vec<String>,
    loops: usize,
}

const LOOP: [(&str, LoopField); 7] = [
    ("index", LoopField::Index),
    ("index0", LoopField::Index0),
    ("revindex", LoopField::Remaining),
    ("revindex0", LoopField::Remaining0),
    ("first", LoopField::First),
    ("last", LoopField::Last),
    ("length", LoopField::Length),
];

/// The words that operators and constants are written with.
pub(super) const WORDS: [&str; 14] = [
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "elif",
    "for",
    "true",
    "false",
    "none",
    "null",
    "recursive",
];

// === impl Path ===

impl Path {
    /// The kind of its value, in words, if that is the same in every run.
    pub(super) const fn kind(&self) -> Option<&'static str> {
        if !self.segments.is_empty() {
            return None;
        }
        match self.start {
            Start::Root(Root::Index) => Some("a number"),
            Start::Root(
                Root::WorkflowId | Root::WorkflowName | Root::Step { field: Field::Status, .. },
            ) => Some("a string"),
            Start::Loop(_, LoopField::First | LoopField::Last) => Some("a boolean"),
            Start::Loop(..) => Some("a number"),
            Start::Root(_) | Start::Local(_) => None,
        }
    }
}

// === impl Scope ===

impl<'n> Scope<'n> {
    pub(super) const fn new(names: &'n ScopeNames<'n>) -> Self {
        Self { names, locals: Vec::new(), loops: 0 }
    }

    /// Whether a loop can name its elements so.
    pub(super) fn check_target(&self, name: &str) -> Result<(), String> {
        if RESERVED.contains(&name) || self.names.item == Some(name) {
            Err(format!("`{name}` has a meaning of its own: name what the loop gives otherwise"))
        } else {
            Ok(())
        }
    }

    /// The step that is most likely meant.
    pub(super) fn nearest_step(&self, name: &str) -> Option<&'n str> {
        let exact = self.names.steps.iter().copied().find(|step| *step == name);
        exact.or_else(|| nearest(name, self.names.steps))
    }

    /// Begins a loop; tells the place of its first name.
    pub(super) fn enter(&mut self, targets: impl IntoIterator<Item = String>) -> usize {
        let place = self.locals.len();
        self.locals.extend(targets);
        self.loops += 1;
        place
    }

    pub(super) fn leave(&mut self, place: usize) {
        self.locals.truncate(place);
        self.loops -= 1;
    }

    /// Tells what a path begins with, and how much of it that is.
    pub(super) fn start(
        &self,
        name: &str,
        path: &[PathSegment],
        text: &str,
    ) -> Result<(Start, usize), Unknown> {
        if let Some(local) = self.locals.iter().rposition(|local| local == name) {
            return Ok((Start::Local(local), 0));
        }
        let name = if name == "params" { "input" } else { name };
        match name {
            "loop" if self.loops > 0 => {
                let fields = LOOP.map(|(field, _)| field);
                let told = match path.first() {
                    Some(PathSegment::Key(key)) => key,
                    _ => "",
                };
                match LOOP.into_iter().find(|(field, _)| *field == told) {
                    Some((_, field)) => Ok((Start::Loop(self.loops - 1, field), 1)),
                    None => Err(Unknown::Template(unknown("field of `loop`", told, &fields))),
                }
            }
            "steps" if !self.names.steps.is_empty() && path.len() < 2 => {
                let step = path.first().map_or_else(|| "['a']".to_owned(), ToString::to_string);
                // An unknown step is the greater mistake.
                if path.len() == 1 {
                    reference::root(text, name, path, self.names).map_err(Unknown::Reference)?;
                }
                let fields = Field::ALL.map(|field| format!("`.{}`", field.name())).join(", ");
                Err(Unknown::Template(format!(
                    "`{text}` is no value: write `steps{step}.output`, or another of {fields}"
                )))
            }
            "workflow" if self.names.run => reference::root(text, name, path, self.names)
                .map_err(|_| {
                    Unknown::Template(format!(
                        "`{text}` is no value: write `workflow.id` or `workflow.name`"
                    ))
                })
                .map(|(root, used)| (Start::Root(root), used)),
            _ => match reference::root(text, name, path, self.names) {
                Ok((root, used)) => Ok((Start::Root(root), used)),
                Err(ExpressionError::UnknownRoot { .. }) => Err(self.unknown(name)),
                Err(error) => Err(Unknown::Reference(error)),
            },
        }
    }

    fn unknown(&self, name: &str) -> Unknown {
        let mut known: Vec<&str> = self.locals.iter().map(String::as_str).collect();
        known.push("input");
        if self.names.previous != Previous::None {
            known.push("prev");
        }
        if !self.names.steps.is_empty() {
            known.push("steps");
        }
        if let Some(item) = self.names.item {
            known.extend([item, "index"]);
        }
        if self.names.run {
            known.push("workflow");
        }
        if self.loops > 0 {
            known.push("loop");
        }
        Unknown::Template(unknown("name", name, &known))
    }
}

/// Says that there is no such thing, and what was probably meant or what there is.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    if let Some(near) = nearest(name, known) {
        return format!("unknown {what} `{name}`: did you mean `{near}`?");
    }
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    format!("unknown {what} `{name}`: expected {}", known.join(", "))
}
