//! Evaluates templates.

use std::borrow::Cow;

use serde_json::Value as Json;

use super::{
    arguments::Arguments,
    budget::{Budget, Evaluated, Failure},
    names::{LoopField, Path, Start},
    operators,
    syntax::{Argument, Expr, ForLoop, Node, Written},
    text_builder::TextBuilder,
    value::{Text, Value},
};
use crate::expr::{PathSegment, data::Data, reference::follow, wrapped_array::misses_result};

/// The error of an evaluation: the text of the expression that failed, and the reason.
pub(super) type Failed<'v> = (&'v str, Failure);

/// The number of evaluation steps for each literal text, each node of an expression and each loop
/// iteration.
const STEPS: usize = 2;

// === impl Written ===

impl Written {
    /// Returns `true` if the expression is only a path, such as `input.a`.
    pub(super) const fn is_bare(&self) -> bool {
        matches!(self.expression, Expr::Path(0))
    }

    /// Evaluates the expression to JSON.
    pub(super) fn value<'v>(&'v self, data: &'v dyn Data) -> Result<Json, Failed<'v>> {
        let failed = |failure| (&*self.text, failure);
        if let (true, [path]) = (self.is_bare(), &*self.paths)
            && let Start::Root(root) = path.start
        {
            let value = data.get(root);
            let value = value.and_then(|value| follow(&value, &path.segments).cloned());
            return value.ok_or_else(|| failed(missing(path, data)));
        }
        let frame = Frame::new(data);
        let value = self.evaluate(&frame)?;
        value.to_result(&frame.budget).map_err(failed)
    }

    fn evaluate<'v>(&'v self, frame: &Frame<'v>) -> Result<Value<'v>, Failed<'v>> {
        frame.evaluate_counted(self).map_err(|failure| (&*self.text, failure))
    }

    /// Evaluates the expression, and appends its value to `out` as text. Appends nothing for an
    /// undefined value.
    fn print<'v>(&'v self, frame: &Frame<'v>, out: &mut TextBuilder) -> Result<(), Failed<'v>> {
        let failed = |failure| (&*self.text, failure);
        if let (true, [path @ Path { start: Start::Root(root), segments, .. }]) =
            (self.is_bare(), &*self.paths)
        {
            frame.budget.step(STEPS).map_err(failed)?;
            let value = frame.data.get(*root);
            let value = value.as_deref().and_then(|value| follow(value, segments));
            let value = value.ok_or_else(|| failed(missing(path, frame.data)))?;
            return out.push_data(value).map_err(failed);
        }
        let value = self.evaluate(frame)?;
        // Appends nothing for an undefined value, such as the value of an `if` without `else` whose
        // condition is false.
        if value.is_undefined() {
            return Ok(());
        }
        out.push_value(&frame.budget, &value).map_err(failed)
    }

    fn test<'v>(&'v self, frame: &Frame<'v>) -> Result<bool, Failed<'v>> {
        let value = self.evaluate(frame)?;
        let nothing = || (&*self.text, Failure::other("the condition is undefined"));
        value.truth().map_err(|_| nothing())
    }
}

/// Evaluates the nodes of a template to a string.
pub(super) fn render<'v>(nodes: &'v [Node], data: &'v dyn Data) -> Result<String, Failed<'v>> {
    let mut out = TextBuilder::default();
    render_into(nodes, &mut Frame::new(data), &mut out)?;
    Ok(out.into_string())
}

fn render_into<'v>(
    nodes: &'v [Node],
    frame: &mut Frame<'v>,
    out: &mut TextBuilder,
) -> Result<(), Failed<'v>> {
    for node in nodes {
        match node {
            Node::Text(text) => {
                let pushed = frame.budget.step(STEPS).and_then(|()| out.push(text));
                pushed.map_err(|failure| (&**text, failure))?;
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
            Node::For(each) => each.render(frame, out)?,
        }
    }
    Ok(())
}

// === impl ForLoop ===

impl ForLoop {
    /// Evaluates the body of the loop for each element that fulfills the condition of the loop. If
    /// there is no such element, evaluates the nodes after `else`.
    fn render<'v>(
        &'v self,
        frame: &mut Frame<'v>,
        out: &mut TextBuilder,
    ) -> Result<(), Failed<'v>> {
        let depth = frame.iterations.len();
        frame.iterations.push(Iteration { index: 0, len: 0 });
        // The condition is evaluated for all elements before the first iteration, because some
        // fields of `loop` depend on the number of elements that pass.
        let mut passed = self.elements(frame).map_err(|failure| self.failed(failure))?;
        if let Some(condition) = &self.condition {
            for element in std::mem::take(&mut passed) {
                frame.budget.step(STEPS).map_err(|failure| self.failed(failure))?;
                self.bind(&element, frame)?;
                if condition.test(frame)? {
                    passed.push(element);
                }
            }
        }
        frame.iterations[depth].len = passed.len();
        for (index, element) in passed.iter().enumerate() {
            frame.budget.step(STEPS).map_err(|failure| self.failed(failure))?;
            frame.iterations[depth].index = index;
            self.bind(element, frame)?;
            render_into(&self.body, frame, out)?;
        }
        frame.locals.truncate(self.local);
        frame.iterations.truncate(depth);
        if passed.is_empty() { render_into(&self.otherwise, frame, out) } else { Ok(()) }
    }

    fn elements<'v>(&'v self, frame: &Frame<'v>) -> Evaluated<Vec<Value<'v>>> {
        let budget = &frame.budget;
        let values = frame.evaluate_counted(&self.values)?;
        let elements = values.iterate(budget)?;
        budget.spend(values.len().unwrap_or_default().saturating_mul(size_of::<Value<'_>>()))?;
        elements.collect()
    }

    fn failed<'v>(&'v self, failure: Failure) -> Failed<'v> {
        (&*self.values.text, failure)
    }

    /// Assigns an element to the loop variable. If the loop has several variables, the element must
    /// be a list with one value for each.
    fn bind<'v>(&'v self, element: &Value<'v>, frame: &mut Frame<'v>) -> Result<(), Failed<'v>> {
        frame.locals.truncate(self.local);
        if self.targets == 1 {
            frame.locals.push(element.clone());
            return Ok(());
        }
        let variables = self.targets;
        let reason = match element.len().filter(|_| element.is_list()) {
            Some(len) if len == variables => None,
            Some(len) => {
                Some(format!("the loop has {variables} variables, but an element has {len}"))
            }
            None => {
                let found = element.kind();
                Some(format!("the loop has {variables} variables, but an element is {found}"))
            }
        };
        if let Some(reason) = reason {
            return Err(self.failed(Failure::other(reason)));
        }
        for index in 0..self.targets {
            let part = element.element(&frame.budget, index);
            frame.locals.push(part.map_err(|failure| self.failed(failure))?);
        }
        Ok(())
    }
}

// === impl Frame ===

/// The state of an evaluation.
struct Frame<'v> {
    data: &'v dyn Data,
    budget: Budget,
    /// The values of the loop variables. Variables of outer loops come first.
    locals: Vec<Value<'v>>,
    iterations: Vec<Iteration>,
}

/// The current iteration of a loop. The fields of `loop`, such as `loop.index`, are computed from
/// it.
#[derive(Clone, Copy, Debug)]
struct Iteration {
    index: usize,
    len: usize,
}

impl<'v> Frame<'v> {
    fn new(data: &'v dyn Data) -> Self {
        Self { data, budget: Budget::default(), locals: Vec::new(), iterations: Vec::new() }
    }

    /// Counts the evaluation steps for an expression, and evaluates it.
    fn evaluate_counted(&self, code: &'v Written) -> Evaluated<Value<'v>> {
        self.budget.step(STEPS * code.size)?;
        self.evaluate(code, &code.expression)
    }

    fn evaluate(&self, code: &'v Written, expression: &'v Expr) -> Evaluated<Value<'v>> {
        let budget = &self.budget;
        let of = |expression: &'v Expr| self.evaluate(code, expression);
        Ok(match expression {
            Expr::Null => Value::Null,
            Expr::Bool(truth) => Value::Bool(*truth),
            Expr::Number(number) => Value::from(*number),
            Expr::Text(text) => Value::Text(Text::Borrowed(text)),
            Expr::Path(path) => self.look_up(&code.paths[*path])?,
            Expr::Part { of: whole, key, optional } => {
                operators::part(budget, &of(whole)?, &of(key)?, *optional)?
            }
            Expr::Slice { of: whole, bounds: [start, end, step] } => {
                let bound = |bound: &'v Option<Box<Expr>>| bound.as_deref().map(of).transpose();
                operators::slice(budget, &of(whole)?, [bound(start)?, bound(end)?, bound(step)?])?
            }
            // Needs no budget, because the length of the template limits the memory of the list.
            Expr::List(elements) => Value::List(elements.iter().map(of).collect::<Evaluated<_>>()?),
            Expr::Map(members) => {
                let members = members
                    .iter()
                    .map(|(name, value)| Ok((of(name)?.to_name(budget)?, of(value)?)));
                Value::of_members(members.collect::<Evaluated<_>>()?)
            }
            Expr::Not(operand) => Value::Bool(!of(operand)?.truth()?),
            Expr::Negative(operand) => operators::negative(&of(operand)?)?,
            Expr::Arithmetic(symbol, left, right) => {
                operators::arithmetic(budget, symbol, &of(left)?, &of(right)?)?
            }
            Expr::Logic(word, left, right) => {
                let left = of(left)?;
                if left.truth()? == (*word == "or") { left } else { of(right)? }
            }
            Expr::Compare(first, others) => {
                let mut left = of(first)?;
                for (symbol, right) in others {
                    let right = of(right)?;
                    let is_equality = matches!(*symbol, "==" | "!=");
                    if is_equality && (left.is_undefined() || right.is_undefined()) {
                        return Err(Failure::undefined());
                    }
                    if !operators::compare(budget, &left, symbol, &right)? {
                        return Ok(Value::Bool(false));
                    }
                    left = right;
                }
                Value::Bool(true)
            }
            Expr::If { test, then, otherwise } => match (of(test)?.truth()?, otherwise) {
                (true, _) => of(then)?,
                (false, Some(otherwise)) => of(otherwise)?,
                (false, None) => Value::Undefined,
            },
            Expr::Filter(value, filter, arguments) => {
                filter.apply(budget, of(value)?, self.arguments(code, arguments)?)?
            }
            Expr::Test(value, test, arguments) => {
                Value::Bool(test.check(budget, &of(value)?, self.arguments(code, arguments)?)?)
            }
            Expr::Range(arguments) => range(budget, self.arguments(code, arguments)?)?,
        })
    }

    fn arguments(&self, code: &'v Written, arguments: &'v [Argument]) -> Evaluated<Arguments<'v>> {
        let mut evaluated = Arguments::default();
        for Argument { name, value } in arguments {
            evaluated.push(name.as_deref(), self.evaluate(code, value)?);
        }
        Ok(evaluated)
    }

    fn look_up(&self, path: &'v Path) -> Evaluated<Value<'v>> {
        let budget = &self.budget;
        let value = match path.start {
            Start::Root(root) => match self.data.get(root) {
                None => None,
                Some(Cow::Borrowed(value)) => {
                    let value = follow(value, &path.segments);
                    value.map(|value| Value::of(budget, value)).transpose()?
                }
                Some(Cow::Owned(value)) => follow(&value, &path.segments).cloned().map(Value::made),
            },
            Start::Variable(ref variable) => {
                let value = follow(variable.value(), &path.segments);
                value.map(|value| Value::of(budget, value)).transpose()?
            }
            Start::Loop(depth, field) => {
                self.iterations.get(depth).map(|iteration| iteration.field(field))
            }
            Start::Local(local) => match self.locals.get(local) {
                Some(value) => follow_value(budget, value.clone(), &path.segments)?,
                None => None,
            },
        };
        match value {
            Some(value) => Ok(value),
            None if path.optional => Ok(Value::Undefined),
            None => Err(missing(path, self.data)),
        }
    }
}

/// Returns the error for a path without a value in `data`.
fn missing(path: &Path, data: &dyn Data) -> Failure {
    let value = match path.start {
        Start::Root(root) => data.get(root),
        _ => None,
    };
    match value {
        Some(value) if misses_result(&value, &path.segments) => {
            Failure::WrappedArray(path.text.clone())
        }
        _ => Failure::Missing(path.text.clone()),
    }
}

fn follow_value<'v>(
    budget: &Budget,
    mut value: Value<'v>,
    path: &[PathSegment],
) -> Evaluated<Option<Value<'v>>> {
    for segment in path {
        value = match segment {
            PathSegment::Key(key) => value.get(budget, key)?,
            PathSegment::Index(index) => value.element(budget, *index)?,
        };
        if value.is_undefined() {
            return Ok(None);
        }
    }
    Ok(Some(value))
}

/// Evaluates the function `range`, which returns a list of integers. The list excludes the end. The
/// step may be negative.
fn range<'v>(budget: &Budget, mut arguments: Arguments<'v>) -> Evaluated<Value<'v>> {
    let first = arguments.integer("first")?.ok_or_else(Arguments::missing)?;
    let (second, step) = (arguments.integer("second")?, arguments.integer("step")?);
    arguments.end()?;
    let (start, end) = second.map_or((0, first), |second| (first, second));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Failure::other("the step of `range` must not be 0"));
    }
    let mut next = Some(start);
    let numbers = std::iter::from_fn(|| {
        let number = next.filter(|n| if step > 0 { *n < end } else { *n > end })?;
        next = number.checked_add(step);
        Some(Ok(Value::Integer(number.into())))
    });
    budget.list(numbers)
}

// === impl Iteration ===

impl Iteration {
    fn field<'v>(self, field: LoopField) -> Value<'v> {
        let remaining = self.len.saturating_sub(self.index + 1);
        let number = |number: usize| Value::Integer(i128::try_from(number).unwrap_or_default());
        match field {
            LoopField::Index => number(self.index + 1),
            LoopField::Index0 => number(self.index),
            LoopField::Remaining => number(remaining + 1),
            LoopField::Remaining0 => number(remaining),
            LoopField::First => Value::Bool(self.index == 0),
            LoopField::Last => Value::Bool(remaining == 0),
            LoopField::Length => number(self.len),
        }
    }
}
