//! Resolves names in templates, such as `input`, to loop variables or values of the run.

use super::tokens::{Mistake, fault};
use crate::{
    expr::{
        ExpressionError, PathSegment,
        data::{Field, Root},
        is_reserved,
        names::ScopeNames,
        reference,
        variables::{VARIABLES, Variable},
    },
    suggest::nearest,
};

/// A name with constant keys in a template, such as `input.a[0]`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) start: Start,
    pub(super) segments: Vec<PathSegment>,
    /// If `true`, the value may be missing, because `| default(…)` or `is defined` follows the
    /// path.
    pub(super) optional: bool,
    /// If `true`, `is defined` follows the path.
    pub(super) checked: bool,
    /// If `true`, the path is always read with its expression. If `false`, it is read only under a
    /// condition.
    pub(super) certain: bool,
    pub(super) text: String,
}

/// The value at which a path starts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Start {
    Root(Root),
    /// A variable, such as `vars.team`. Its value is the same in all runs.
    Variable(Variable),
    /// A loop variable: its index among the variables of all enclosing loops.
    Local(usize),
    /// A field of the object `loop`, such as `loop.index`. Contains the index of the loop among all
    /// enclosing loops.
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

/// The names that a template can use at the current position of the parser.
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

// === impl Path ===

impl Path {
    pub(super) fn is_secret(&self) -> bool {
        matches!(&self.start, Start::Variable(variable) if variable.is_secret())
    }

    /// Returns the type of the value, such as `a number`. Returns `None` if the type is not known
    /// before a run.
    pub(super) fn kind(&self) -> Option<&'static str> {
        if !self.segments.is_empty() {
            return None;
        }
        match self.start {
            Start::Root(Root::Index) => Some("a number"),
            Start::Root(
                Root::WorkflowId
                | Root::WorkflowName
                | Root::WorkflowStartedAt
                | Root::Step { field: Field::Status, .. },
            ) => Some("a string"),
            Start::Loop(_, LoopField::First | LoopField::Last) => Some("a boolean"),
            Start::Loop(..) => Some("a number"),
            Start::Root(_) | Start::Variable(_) | Start::Local(_) => None,
        }
    }
}

// === impl Scope ===

impl<'n> Scope<'n> {
    pub(super) const fn new(names: &'n ScopeNames<'n>) -> Self {
        Self { names, locals: Vec::new(), loops: 0 }
    }

    /// Returns an error message if `name` cannot be the name of a loop variable.
    pub(super) fn check_target(&self, name: &str) -> Result<(), String> {
        if is_reserved(name) || self.names.item == Some(name) {
            Err(format!("`{name}` is reserved: choose another name for the loop variable"))
        } else {
            Ok(())
        }
    }

    /// Returns the step with this name or, if it does not exist, the most similar step name.
    pub(super) fn nearest_step(&self, name: &str) -> Option<&'n str> {
        let exact = self.names.steps.iter().copied().find(|step| *step == name);
        exact.or_else(|| nearest(name, self.names.steps))
    }

    /// Adds the variables of a loop. Returns the index of the first one.
    pub(super) fn enter(&mut self, targets: impl IntoIterator<Item = String>) -> usize {
        let place = self.locals.len();
        self.locals.extend(targets);
        place
    }

    /// Makes the object `loop` available for the body of a loop.
    pub(super) const fn begin_loop(&mut self) {
        self.loops += 1;
    }

    pub(super) fn leave(&mut self, place: usize) {
        self.locals.truncate(place);
        self.loops -= 1;
    }

    /// Resolves the beginning of the path `text` at the byte position `at`. Returns the value at
    /// which it starts, and the number of segments in `path` that belong to this value.
    pub(super) fn start(
        &self,
        name: &str,
        path: &[PathSegment],
        text: &str,
        at: usize,
    ) -> Result<(Start, usize), Mistake> {
        if let Some(local) = self.locals.iter().rposition(|local| local == name) {
            return Ok((Start::Local(local), 0));
        }
        if let (VARIABLES, Some(variables)) = (name, self.names.variables) {
            let variable = variables.find(text, path, self.names.allows_secrets);
            let variable = variable.map_err(Mistake::Reference)?;
            return Ok((Start::Variable(variable), 1));
        }
        let name = if name == "params" { "input" } else { name };
        match name {
            "loop" if self.loops > 0 => {
                let fields = LOOP.map(|(field, _)| field);
                let key = match path.first() {
                    Some(PathSegment::Key(key)) => key,
                    _ => "",
                };
                match LOOP.into_iter().find(|(field, _)| *field == key) {
                    Some((_, field)) => Ok((Start::Loop(self.loops - 1, field), 1)),
                    None => Err(fault(at, unknown("field of `loop`", key, &fields))),
                }
            }
            "steps" if !self.names.steps.is_empty() && path.len() < 2 => {
                let step = path.first().map_or_else(|| "['a']".to_owned(), ToString::to_string);
                // If the step is unknown, reports that error instead, because it is more important.
                if path.len() == 1 {
                    reference::root(text, name, path, self.names).map_err(Mistake::Reference)?;
                }
                let fields = Field::ALL.map(|field| format!("`.{}`", field.name())).join(", ");
                let hint = format!("write `steps{step}.output`, or another of {fields}");
                Err(fault(at, format!("`{text}` is not a value: {hint}")))
            }
            _ => match reference::root(text, name, path, self.names) {
                Ok((root, used)) => Ok((Start::Root(root), used)),
                Err(_) if name == "workflow" && self.names.run => {
                    let hint = "write `workflow.id`, `workflow.name` or `workflow.started_at`";
                    Err(fault(at, format!("`{text}` is not a value: {hint}")))
                }
                Err(ExpressionError::UnknownRoot { .. }) => Err(fault(at, self.unknown(name))),
                Err(error) => Err(Mistake::Reference(error)),
            },
        }
    }

    fn unknown(&self, name: &str) -> String {
        let locals = self.locals.iter().map(String::as_str);
        let own = (self.loops > 0).then_some("loop");
        let known: Vec<_> = locals.chain(self.names.known()).chain(own).collect();
        unknown("name", name, &known)
    }
}

/// Returns the error message for an unknown name. It suggests the most similar known name, or lists
/// all known names. `what` is the kind of the name, such as `filter`.
pub(super) fn unknown(what: &str, name: &str, known: &[&str]) -> String {
    if let Some(near) = nearest(name, known) {
        return format!("unknown {what} `{name}`: did you mean `{near}`?");
    }
    let known: Vec<_> = known.iter().map(|name| format!("`{name}`")).collect();
    format!("unknown {what} `{name}`: expected {}", known.join(", "))
}
