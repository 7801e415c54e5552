//! Evaluates templates.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use minijinja::{
    Error, Value,
    value::{Object, ValueKind},
};
use serde_json::Value as Json;

use super::{
    filters::ENVIRONMENT,
    names::{LoopField, Path, Start},
    syntax::{Expr, Node, Written},
    value::{
        Failure, MAX_ELEMENTS, Part, Run, Text, checked, iterate, kind, to_result,
        too_many_elements,
    },
};
use crate::expr::{PathSegment, data::Data, path_segment::place, reference::follow};

/// A compiled expression.
#[derive(Debug)]
pub(super) struct Code {
    program: Program,
    paths: Arc<[Path]>,
    size: usize,
    text: Box<str>,
}

#[derive(Debug)]
enum Program {
    /// A single path, which does not need minijinja.
    Path,
    Compiled(Box<minijinja::Expression<'static, 'static>>),
}

/// A failure, and the text of the expression that failed.
pub(super) type Failed<'c> = (&'c str, Failure);

/// The number of steps that an evaluated expression or loop iteration counts as.
const STEPS: usize = 2;

// === impl Code ===

impl Code {
    pub(super) fn new(written: Written) -> Result<Self, Error> {
        let program = match written.expression {
            Expr::Path(0) => Program::Path,
            expression => {
                let compiled = ENVIRONMENT.compile_expression_owned(expression.emit())?;
                Program::Compiled(Box::new(compiled))
            }
        };
        let Written { paths, size, text, .. } = written;
        Ok(Self { program, paths: paths.into(), size, text })
    }

    pub(super) fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Returns `true` if the expression is a single path.
    pub(super) const fn is_bare(&self) -> bool {
        matches!(self.program, Program::Path)
    }

    /// Evaluates the expression to JSON.
    pub(super) fn value(&self, data: &Arc<dyn Data>) -> Result<Json, Failed<'_>> {
        let failed = |failure| (&*self.text, failure);
        if let (Program::Path, [path]) = (&self.program, &*self.paths)
            && let Start::Root(root) = path.start
        {
            let value = data.get(root);
            let value = value.and_then(|value| follow(&value, &path.segments).cloned());
            return value.ok_or_else(|| failed(Failure::Missing(path.text.clone())));
        }
        let frame = Frame::new(Arc::clone(data));
        let value = self.evaluate(&frame)?;
        frame.run.settle(to_result(&frame.run, &value)).map_err(failed)
    }

    fn evaluate(&self, frame: &Frame) -> Result<Value, Failed<'_>> {
        let evaluate = || {
            frame.run.step(STEPS * self.size)?;
            match &self.program {
                Program::Path => frame.look_up(&self.paths[0]),
                Program::Compiled(compiled) => {
                    let names = LocalNames { frame: frame.clone(), paths: Arc::clone(&self.paths) };
                    // minijinja is not known to panic on any data, but a call must not crash the
                    // server. Only counters remain after a panic.
                    let value =
                        catch_unwind(AssertUnwindSafe(|| compiled.eval(Value::from_object(names))))
                            .map_err(|_| Failure::other("this cannot be evaluated"))?;
                    checked(value.map_err(|error| Failure::of(&error))?)
                }
            }
        };
        frame.run.settle(evaluate()).map_err(|failure| (&*self.text, failure))
    }

    /// Evaluates the expression and appends it to a text.
    fn print(&self, frame: &Frame, out: &mut Text) -> Result<(), Failed<'_>> {
        let failed = |failure| (&*self.text, failure);
        if let (Program::Path, [Path { start: Start::Root(root), segments, text, .. }]) =
            (&self.program, &*self.paths)
        {
            frame.run.step(STEPS).map_err(failed)?;
            let value = frame.run.data().get(*root);
            let value = value.as_deref().and_then(|value| follow(value, segments));
            let value = value.ok_or_else(|| failed(Failure::Missing(text.clone())))?;
            return out.push_data(value).map_err(failed);
        }
        let value = self.evaluate(frame)?;
        // An `if` without `else` may have no value and then prints nothing.
        if value.is_undefined() {
            return Ok(());
        }
        frame.run.settle(out.push_value(&frame.run, &value)).map_err(failed)
    }

    fn test(&self, frame: &Frame) -> Result<bool, Failed<'_>> {
        let value = self.evaluate(frame)?;
        if value.is_undefined() {
            return Err((&*self.text, Failure::other("a condition gives nothing")));
        }
        Ok(value.is_true())
    }
}

/// Renders a text with expressions.
pub(super) fn render<'c>(
    nodes: &'c [Node<Code>],
    data: &Arc<dyn Data>,
) -> Result<String, Failed<'c>> {
    let mut out = Text::default();
    render_into(nodes, &mut Frame::new(Arc::clone(data)), &mut out)?;
    Ok(out.into_string())
}

fn render_into<'c>(
    nodes: &'c [Node<Code>],
    frame: &mut Frame,
    out: &mut Text,
) -> Result<(), Failed<'c>> {
    for node in nodes {
        match node {
            Node::Text(text) => {
                frame.run.step(STEPS).map_err(|failure| (&**text, failure))?;
                out.push(text).map_err(|failure| (&**text, failure))?;
            }
            Node::Output(code) => code.print(frame, out)?,
            Node::If { branches, otherwise } => {
                let mut taken = otherwise;
                for (test, nodes) in branches {
                    if test.test(frame)? {
                        taken = nodes;
                        break;
                    }
                }
                render_into(taken, frame, out)?;
            }
            Node::For { targets, local, values, condition, body, otherwise } => {
                let turns = Turns { targets: *targets, local: *local, values, condition, body };
                if !turns.render(frame, out)? {
                    render_into(otherwise, frame, out)?;
                }
            }
        }
    }
    Ok(())
}

// === impl Turns ===

struct Turns<'c> {
    targets: usize,
    local: usize,
    values: &'c Code,
    condition: &'c Option<Code>,
    body: &'c [Node<Code>],
}

impl<'c> Turns<'c> {
    /// Renders the body for each element. Returns `true` if there was an element.
    fn render(&self, frame: &mut Frame, out: &mut Text) -> Result<bool, Failed<'c>> {
        let failed = |failure| (&*self.values.text, failure);
        let values = self.values.evaluate(frame)?;
        let elements = iterate(&values).map_err(failed)?;
        let depth = frame.turns.len();
        frame.turns.push(Turn { index: 0, len: 0 });
        let rendered = match (values.len(), self.condition) {
            (Some(len), None) => {
                frame.turns[depth].len = len;
                self.each(elements, frame, out, depth)
            }
            // The elements are filtered before the first iteration, because `loop` needs their
            // number.
            (_, condition) => {
                let mut passed = Vec::new();
                for element in elements {
                    if passed.len() == MAX_ELEMENTS {
                        return Err(failed(too_many_elements()));
                    }
                    frame.run.step(STEPS).map_err(failed)?;
                    let element = checked(element).map_err(failed)?;
                    if let Some(condition) = condition {
                        self.bind(&element, frame)?;
                        if !condition.test(frame)? {
                            continue;
                        }
                    }
                    passed.push(element);
                }
                frame.turns[depth].len = passed.len();
                self.each(passed.into_iter(), frame, out, depth)
            }
        }?;
        frame.locals.truncate(self.local);
        frame.turns.truncate(depth);
        frame.run.settle(Ok(rendered)).map_err(failed)
    }

    fn each(
        &self,
        elements: impl Iterator<Item = Value>,
        frame: &mut Frame,
        out: &mut Text,
        depth: usize,
    ) -> Result<bool, Failed<'c>> {
        let mut rendered = false;
        for (index, element) in elements.enumerate() {
            let failed = |failure| (&*self.values.text, failure);
            frame.run.step(STEPS).map_err(failed)?;
            frame.turns[depth].index = index;
            self.bind(&checked(element).map_err(failed)?, frame)?;
            render_into(self.body, frame, out)?;
            rendered = true;
        }
        Ok(rendered)
    }

    /// Sets the loop variables for this iteration.
    fn bind(&self, element: &Value, frame: &mut Frame) -> Result<(), Failed<'c>> {
        let failed = |failure| (&*self.values.text, failure);
        frame.locals.truncate(self.local);
        if self.targets == 1 {
            frame.locals.push(element.clone());
            return Ok(());
        }
        let is_list = matches!(element.kind(), ValueKind::Seq | ValueKind::Iterable);
        if !is_list || element.len() != Some(self.targets) {
            let (targets, found) = (self.targets, kind(element));
            let reason = format!("a loop over lists of {targets} elements gets {found} instead");
            return Err(failed(Failure::other(reason)));
        }
        for part in iterate(element).map_err(failed)? {
            frame.locals.push(checked(part).map_err(failed)?);
        }
        Ok(())
    }
}

// === impl Frame ===

/// The values in scope at a point of the evaluation.
#[derive(Clone, Debug)]
struct Frame {
    run: Arc<Run>,
    /// The loop variables in scope.
    locals: Vec<Value>,
    turns: Vec<Turn>,
}

/// The position of a loop.
#[derive(Clone, Copy, Debug)]
struct Turn {
    index: usize,
    len: usize,
}

impl Frame {
    fn new(data: Arc<dyn Data>) -> Self {
        Self { run: Run::new(data), locals: Vec::new(), turns: Vec::new() }
    }

    fn look_up(&self, path: &Path) -> Result<Value, Failure> {
        let value = match path.start {
            Start::Root(root) => self.run.look_up(root, &path.segments)?,
            Start::Loop(depth, field) => self.turns.get(depth).map(|turn| turn.field(field)),
            Start::Local(local) => match self.locals.get(local) {
                Some(value) => follow_value(value.clone(), &path.segments)?,
                None => None,
            },
        };
        match value {
            Some(value) => Ok(value),
            None if path.optional => Ok(Value::UNDEFINED),
            None => Err(Failure::Missing(path.text.clone())),
        }
    }
}

fn follow_value(mut value: Value, path: &[PathSegment]) -> Result<Option<Value>, Failure> {
    for segment in path {
        let found = match segment {
            _ if value.downcast_object_ref::<Part>().is_none() && value.as_object().is_none() => {
                return Ok(None);
            }
            PathSegment::Key(key) => match (value.kind(), place(key)) {
                (ValueKind::Seq | ValueKind::Iterable, Some(place)) => {
                    value.get_item_by_index(place)
                }
                _ => value.get_attr(key),
            },
            PathSegment::Index(index) => value.get_item_by_index(*index),
        };
        value = checked(found.map_err(|error| Failure::of(&error))?)?;
        if value.is_undefined() {
            return Ok(None);
        }
    }
    Ok(Some(value))
}

// === impl Turn ===

impl Turn {
    fn field(self, field: LoopField) -> Value {
        let remaining = self.len.saturating_sub(self.index + 1);
        match field {
            LoopField::Index => Value::from(self.index + 1),
            LoopField::Index0 => Value::from(self.index),
            LoopField::Remaining => Value::from(remaining + 1),
            LoopField::Remaining0 => Value::from(remaining),
            LoopField::First => Value::from(self.index == 0),
            LoopField::Last => Value::from(remaining == 0),
            LoopField::Length => Value::from(self.len),
        }
    }
}

// === impl LocalNames ===

/// The values of the paths of an expression, by their generated names.
#[derive(Debug)]
struct LocalNames {
    frame: Frame,
    paths: Arc<[Path]>,
}

impl Object for LocalNames {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let key = key.as_str()?;
        if key == "run" {
            return Some(Value::from_dyn_object(Arc::clone(&self.frame.run)));
        }
        let path = self.paths.get(key.strip_prefix('v')?.parse::<usize>().ok()?)?;
        let value = self.frame.look_up(path);
        Some(value.unwrap_or_else(|failure| Value::from(Error::from(failure))))
    }
}
