//! Applies filters within their limits.

use std::{cmp::Ordering, sync::Arc};

use minijinja::{
    Error, State, Value,
    value::{Kwargs, ValueKind, from_args},
};

use super::{
    super::{
        order::{self, Group},
        value::{
            Failure, MAX_ELEMENTS, MAX_RENDERED_BYTES, Part, Run, Text, checked, iterate, kind,
            to_json, too_many_elements,
        },
    },
    filter::{Filter, Takes},
    operators::run,
};
use crate::expr::json;

/// Applies a filter within its limits.
pub(super) fn apply(
    filter: &Filter,
    function: Option<&Value>,
    state: &mut State<'_, '_>,
    arguments: &[Value],
) -> Result<Value, Error> {
    let run = run(state)?;
    let [value, others @ ..] = arguments else {
        return Err(Failure::other("a filter is applied to nothing").into());
    };
    filter.check(value)?;
    count_elements(filter, &run, arguments)?;
    let text = value.as_str().unwrap_or_default();
    let applied = match (filter.name, function) {
        ("fromjson", _) => return from_json(&run, text).map_err(Error::from),
        ("dictsort", _) => return order::sort_members(&run, value, others),
        ("groupby", _) => return order::group_by(&run, value, others),
        ("join", _) => return join(&run, value, others),
        ("keys", _) => return Ok(run.list(iterate(value)?)?),
        ("max", _) => return order::extreme(&run, value, others, Ordering::Greater),
        ("min", _) => return order::extreme(&run, value, others, Ordering::Less),
        ("quote", _) => {
            let mut quoted = Text::default();
            quoted.push_json(text)?;
            return Ok(run.text(quoted.as_str())?);
        }
        ("sort", _) => return order::sort(&run, value, others),
        ("string", _) => {
            let mut out = Text::default();
            out.push_value(&run, value)?;
            return Ok(run.text(out.as_str())?);
        }
        ("tojson", _) => return to_json_text(&run, value, others),
        ("unique", _) => return order::unique(&run, value, others),
        ("values", _) => {
            let values =
                iterate(value)?.map(|key| value.get_item(&key).unwrap_or_else(Value::from));
            return Ok(run.list(values)?);
        }
        (name, Some(function)) => {
            before(name, &run, value, others)?;
            function.call(state, arguments)
        }
        (_, None) => return Err(Failure::other("there is no such filter").into()),
    };
    let applied = applied.map_err(|error| match Failure::of(&error) {
        Failure::Other(_) if !is_ours(&error) => {
            Failure::other(format!("`{}` cannot be applied to these values", filter.name))
        }
        failure => failure,
    })?;
    after(&run, &filter.takes, applied)
}

/// Returns `true` if the error message is ours rather than minijinja's.
fn is_ours(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(error) = source {
        if error.is::<Failure>() {
            return true;
        }
        source = error.source();
    }
    false
}

/// Counts the elements of the value and of the first argument as steps.
fn count_elements(filter: &Filter, run: &Run, arguments: &[Value]) -> Result<(), Failure> {
    if filter.name == "length" || filter.name == "count" || filter.takes == Takes::Nothing {
        return Ok(());
    }
    for argument in arguments.iter().take(2) {
        if matches!(argument.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            let len = argument.len().unwrap_or_default();
            if len > MAX_ELEMENTS && !matches!(filter.name, "first" | "last" | "tojson") {
                return Err(too_many_elements());
            }
            run.step(len.min(MAX_ELEMENTS))?;
        }
    }
    Ok(())
}

/// Rejects a filter before it would exceed a limit.
fn before(name: &str, run: &Run, value: &Value, others: &[Value]) -> Result<(), Failure> {
    let text = value.as_str().unwrap_or_default();
    let other_text = |place: usize| others.get(place).and_then(Value::as_str);
    match name {
        "replace" => {
            let (Some(from), Some(to)) = (other_text(0), other_text(1)) else {
                return Err(Failure::other("`replace` needs two strings"));
            };
            let count = text.matches(from).count();
            let len = text.len() - count * from.len() + count.saturating_mul(to.len());
            if len > MAX_RENDERED_BYTES {
                return Err(Failure::TooLarge);
            }
        }
        "indent" => {
            let failed = |error: Error| Failure::of(&error);
            let (width, _, _, named): (Option<usize>, Option<bool>, Option<bool>, Kwargs) =
                from_args(others).map_err(failed)?;
            let width = match width {
                Some(width) => width,
                None => named.get::<Option<usize>>("width").map_err(failed)?.unwrap_or(4),
            };
            let lines = text.split('\n').count();
            if lines.saturating_mul(width).saturating_add(text.len()) > MAX_RENDERED_BYTES {
                return Err(Failure::TooLarge);
            }
        }
        "split" | "lines" => {
            let pieces = match (name, other_text(0)) {
                ("lines", _) => text.lines().count(),
                (_, Some("")) => text.chars().count() + 2,
                (_, Some(separator)) => text.matches(separator).count() + 1,
                (_, None) => text.split_whitespace().count(),
            };
            if pieces > MAX_ELEMENTS {
                return Err(too_many_elements());
            }
            run.spend(pieces * size_of::<Value>() + text.len())?;
        }
        "batch" => {
            let size = others.first().and_then(Value::as_usize);
            if size.is_none_or(|size| size == 0 || size > MAX_ELEMENTS) {
                return Err(Failure::other(format!("`batch` needs a size up to {MAX_ELEMENTS}")));
            }
        }
        // `sum` adds only numbers if its start is a number.
        "sum" => {
            let start = match others {
                [] => None,
                [.., named] if named.is_kwargs() => Kwargs::try_from(named.clone())
                    .and_then(|named| named.get::<Option<Value>>("start"))
                    .map_err(|error| Failure::of(&error))?,
                [_] => None,
                [_, start, ..] => Some(start.clone()),
            };
            if start.is_some_and(|start| !start.is_number()) {
                return Err(Failure::other("`sum` adds up numbers"));
            }
        }
        _ => (),
    }
    Ok(())
}

/// Counts the result of a filter.
fn after(run: &Run, takes: &Takes, value: Value) -> Result<Value, Error> {
    match value.kind() {
        // Passed on unchanged.
        _ if *takes == Takes::Nothing => Ok(value),
        ValueKind::String => {
            let len = value.as_str().map_or(0, str::len);
            if len > MAX_RENDERED_BYTES {
                return Err(Failure::TooLarge.into());
            }
            run.spend(len)?;
            Ok(value)
        }
        ValueKind::Seq | ValueKind::Iterable if !is_whole(&value) => {
            // Now, because each later access would create the elements again.
            Ok(run.list(iterate(&value)?)?)
        }
        _ => Ok(value),
    }
}

/// Returns `true` if a list creates nothing on access.
fn is_whole(list: &Value) -> bool {
    list.downcast_object_ref::<Part>().is_some() || list.downcast_object_ref::<Group>().is_some()
}

fn join(run: &Arc<Run>, value: &Value, others: &[Value]) -> Result<Value, Error> {
    let (separator, attribute, named): (Option<&str>, Option<&str>, Kwargs) = from_args(others)?;
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => named.get::<Option<&str>>("attribute")?,
    };
    named.assert_all_used()?;
    let mut text = Text::default();
    for (index, element) in iterate(value)?.enumerate() {
        let mut element = checked(element)?;
        for key in attribute.into_iter().flat_map(|attribute| attribute.split('.')) {
            element = checked(element.get_attr(key)?)?;
        }
        if index > 0 {
            text.push(separator.unwrap_or_default())?;
        }
        text.push_value(run, &element)?;
    }
    Ok(run.text(text.as_str())?)
}

fn to_json_text(run: &Run, value: &Value, others: &[Value]) -> Result<Value, Error> {
    let (indent, named): (Option<Value>, Kwargs) = from_args(others)?;
    let indent = match indent {
        Some(indent) => Some(indent),
        None => named.get::<Option<Value>>("indent")?,
    };
    named.assert_all_used()?;
    let indent = match indent {
        None => None,
        Some(indent) => match (indent.kind(), indent.as_usize()) {
            (ValueKind::Bool, _) => indent.is_true().then_some(2),
            (ValueKind::Number, Some(indent @ 0..=16)) => Some(indent),
            _ => return Err(Failure::other("`tojson` indents by a number up to 16").into()),
        },
    };
    let mut text = Text::default();
    match indent {
        None => text.push_quoted(run, value)?,
        Some(indent) => {
            let spaces = " ".repeat(indent);
            let formatter = serde_json::ser::PrettyFormatter::with_indent(spaces.as_bytes());
            let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
            serde::Serialize::serialize(&to_json(run, value)?, &mut serializer)
                .map_err(|_| Failure::TooLarge)?;
        }
    }
    Ok(run.text(text.as_str())?)
}

fn from_json(run: &Arc<Run>, text: &str) -> Result<Value, Failure> {
    run.spend(json::bytes_of(text))?;
    let value = serde_json::from_str(text)
        .map_err(|_| Failure::other("`fromjson` is applied to a text that is no JSON"))?;
    run.made(value)
}

// === impl Filter ===

impl Filter {
    fn check(&self, value: &Value) -> Result<(), Failure> {
        let is_list = matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
        let is_text = value.kind() == ValueKind::String;
        let (fits, needs) = match self.takes {
            Takes::Nothing => (true, "anything"),
            Takes::Anything => (!value.is_undefined(), "a value"),
            Takes::Text => (is_text, "a string"),
            // An object is treated as the list of its keys.
            Takes::List => (is_list || value.kind() == ValueKind::Map, "an array"),
            Takes::TextOrList => (is_text || is_list, "an array or a string"),
            Takes::Map => (value.kind() == ValueKind::Map, "an object"),
            Takes::Number => (value.kind() == ValueKind::Number, "a number"),
            Takes::Scalar => (
                is_text || matches!(value.kind(), ValueKind::Number | ValueKind::Bool),
                "a string or a number",
            ),
        };
        if fits {
            return Ok(());
        }
        let (name, found) = (self.name, kind(value));
        Err(Failure::other(format!("`{name}` needs {needs} and not {found}")))
    }
}
