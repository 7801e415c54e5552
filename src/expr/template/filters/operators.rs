//! The functions that the operators of templates are compiled to.

use std::sync::Arc;

use minijinja::{Error, State, Value, value::ValueKind};

use super::super::{
    order::ordering,
    value::{Failure, MAX_ELEMENTS, Run, Text, checked, iterate, kind},
};
use crate::expr::path_segment::place;

/// Rejects operands of the operator `symbol` that are not numbers.
pub(super) fn number(value: Value, symbol: &str) -> Result<Value, Error> {
    if value.kind() == ValueKind::Number {
        Ok(value)
    } else {
        Err(Failure::other(format!("`{symbol}` needs numbers and not {}", kind(&value))).into())
    }
}

pub(super) fn add(state: &State<'_, '_>, left: &Value, right: &Value) -> Result<Value, Error> {
    let run = run(state)?;
    if let Some((left, right)) = both_texts(left, right) {
        let mut text = Text::default();
        text.push(left)?;
        text.push(right)?;
        return Ok(run.text(text.as_str())?);
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) {
        return Ok(run.list(iterate(left)?.chain(iterate(right)?))?);
    }
    if left.kind() != ValueKind::Number || right.kind() != ValueKind::Number {
        let (left, right) = (kind(left), kind(right));
        return Err(Failure::other(format!("`+` cannot add {left} and {right}")).into());
    }
    if left.is_integer() && right.is_integer() {
        let sum = i128::try_from(left.clone())?.checked_add(i128::try_from(right.clone())?);
        let sum = sum.ok_or_else(|| Failure::other("a number is too large"))?;
        return Ok(i64::try_from(sum).map_or_else(|_| Value::from(sum), Value::from));
    }
    Ok(Value::from(f64::try_from(left.clone())? + f64::try_from(right.clone())?))
}

/// Returns the result of `<`, `<=`, `>` or `>=`.
pub(super) fn ordered(
    state: &State<'_, '_>,
    left: &Value,
    symbol: &str,
    right: &Value,
) -> Result<bool, Error> {
    let ordering = ordering(&*run(state)?, symbol, left, right)?;
    Ok(match symbol {
        "<" => ordering.is_lt(),
        "<=" => ordering.is_le(),
        ">" => ordering.is_gt(),
        _ => ordering.is_ge(),
    })
}

pub(super) fn concat(state: &State<'_, '_>, left: &Value, right: &Value) -> Result<Value, Error> {
    let run = run(state)?;
    let mut text = Text::default();
    text.push_value(&run, left)?;
    text.push_value(&run, right)?;
    Ok(run.text(text.as_str())?)
}

/// Counts the elements that `in` searches.
pub(super) fn container(state: &State<'_, '_>, value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            run(state)?.step(value.len().unwrap_or(MAX_ELEMENTS))?;
        }
        ValueKind::Map | ValueKind::String => (),
        _ => {
            let reason =
                format!("`in` needs an array, an object or a string and not {}", kind(&value));
            return Err(Failure::other(reason).into());
        }
    }
    Ok(value)
}

/// Returns a member or an element of a value.
pub(super) fn part(
    state: &State<'_, '_>,
    of: &Value,
    key: &Value,
    optional: bool,
) -> Result<Value, Error> {
    run(state)?.step(1)?;
    if of.is_undefined() && optional {
        return Ok(Value::UNDEFINED);
    }
    let part = match of.kind() {
        // Not a character of a text; the same path in data does not return one either.
        ValueKind::String => Value::UNDEFINED,
        ValueKind::Seq | ValueKind::Iterable => match key.as_str().and_then(place) {
            Some(place) => checked(of.get_item_by_index(place)?)?,
            None => checked(of.get_item(key)?)?,
        },
        _ => checked(of.get_item(key)?)?,
    };
    if part.is_undefined() && !optional {
        let reason = match (of.kind(), key.kind()) {
            (ValueKind::Map, _) => "an object has no such key",
            (ValueKind::Seq | ValueKind::Iterable, _) => "an array has no such element",
            _ => "a key is used on a value that has none",
        };
        return Err(Failure::other(reason).into());
    }
    Ok(part)
}

pub(super) fn slice(
    state: &State<'_, '_>,
    of: &Value,
    start: Option<i64>,
    end: Option<i64>,
    step: Option<i64>,
) -> Result<Value, Error> {
    let run = run(state)?;
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0);
    let step = step.ok_or_else(|| Failure::other("a slice goes in steps from 1"))?;
    let len = match of.kind() {
        ValueKind::String | ValueKind::Seq | ValueKind::Iterable => of.len().unwrap_or_default(),
        _ => return Err(Failure::other(format!("{} has no slices", kind(of))).into()),
    };
    run.step(len)?;
    let bound = |bound: Option<i64>, default: usize| match bound {
        None => default,
        Some(bound) => {
            let distance = usize::try_from(bound.unsigned_abs()).unwrap_or(usize::MAX);
            if bound < 0 { len.saturating_sub(distance) } else { distance.min(len) }
        }
    };
    let start = bound(start, 0);
    let count = bound(end, len).saturating_sub(start);
    match of.as_str() {
        Some(text) => {
            let text: String = text.chars().skip(start).take(count).step_by(step).collect();
            Ok(run.text(&text)?)
        }
        None => Ok(run.list(iterate(of)?.skip(start).take(count).step_by(step))?),
    }
}

pub(super) fn both_texts<'v>(first: &'v Value, second: &'v Value) -> Option<(&'v str, &'v str)> {
    first.as_str().zip(second.as_str())
}

/// Returns the current evaluation.
pub(super) fn run(state: &State<'_, '_>) -> Result<Arc<Run>, Failure> {
    let run = state.lookup("run").and_then(|run| run.downcast_object::<Run>());
    run.ok_or_else(|| Failure::other("there is no evaluation"))
}
