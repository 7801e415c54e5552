//! The filters, tests and functions that templates can use.
//!
//! A list of what is allowed, and around each of them what keeps it from making
//! more than it may: minijinja bounds none of them.

mod operators;

use std::{
    cmp::Ordering,
    sync::{Arc, LazyLock},
};

use minijinja::{
    Environment, Error, State, UndefinedBehavior, Value, filters, tests,
    value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args},
};

use self::operators::{add, concat, container, number, part, slice};
use super::{
    order::{self, Group},
    value::{
        Failure, MAX_ELEMENTS, MAX_TEMPLATE_BYTES, Part, Run, Text, checked, iterate, kind,
        to_json, too_many_elements,
    },
};
use crate::expr::json;

/// A filter that templates can use.
pub(super) struct Filter {
    pub(super) name: &'static str,
    takes: Takes,
}

/// What a filter is applied to.
#[derive(Clone, Copy, PartialEq)]
enum Takes {
    Anything,
    /// Anything, or nothing.
    Nothing,
    Text,
    List,
    TextOrList,
    Map,
    Number,
    Scalar,
}

const fn filter(name: &'static str, takes: Takes) -> Filter {
    Filter { name, takes }
}

pub(super) static FILTERS: [Filter; 46] = [
    filter("abs", Takes::Number),
    filter("batch", Takes::List),
    filter("bool", Takes::Anything),
    filter("capitalize", Takes::Text),
    filter("chain", Takes::List),
    filter("count", Takes::Anything),
    filter("d", Takes::Nothing),
    filter("default", Takes::Nothing),
    filter("dictsort", Takes::Map),
    filter("first", Takes::TextOrList),
    filter("float", Takes::Scalar),
    filter("fromjson", Takes::Text),
    filter("groupby", Takes::List),
    filter("indent", Takes::Text),
    filter("int", Takes::Scalar),
    filter("items", Takes::Map),
    filter("join", Takes::List),
    filter("last", Takes::TextOrList),
    filter("length", Takes::Anything),
    filter("lines", Takes::Text),
    filter("list", Takes::List),
    filter("lower", Takes::Text),
    filter("map", Takes::List),
    filter("max", Takes::List),
    filter("min", Takes::List),
    filter("quote", Takes::Text),
    filter("reject", Takes::List),
    filter("rejectattr", Takes::List),
    filter("replace", Takes::Text),
    filter("reverse", Takes::TextOrList),
    filter("round", Takes::Number),
    filter("select", Takes::List),
    filter("selectattr", Takes::List),
    filter("sort", Takes::List),
    filter("split", Takes::Text),
    filter("string", Takes::Anything),
    filter("sum", Takes::List),
    filter("title", Takes::Text),
    filter("tojson", Takes::Anything),
    filter("trim", Takes::Text),
    filter("unique", Takes::List),
    filter("upper", Takes::Text),
    filter("urlencode", Takes::Scalar),
    filter("zip", Takes::List),
    filter("keys", Takes::Map),
    filter("values", Takes::Map),
];

pub(super) const TESTS: [&str; 35] = [
    "boolean",
    "defined",
    "divisibleby",
    "endingwith",
    "eq",
    "equalto",
    "even",
    "false",
    "float",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "int",
    "integer",
    "iterable",
    "le",
    "lessthan",
    "lower",
    "lt",
    "mapping",
    "ne",
    "none",
    "number",
    "odd",
    "sameas",
    "sequence",
    "startingwith",
    "string",
    "true",
    "undefined",
    "upper",
    "null",
    "empty",
    "containing",
];

pub(super) const FUNCTIONS: [&str; 1] = ["range"];

/// What every expression is compiled for.
pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

fn environment() -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    for filter in &FILTERS {
        let function = built_in(filter.name);
        let apply = move |state: &mut State<'_, '_>, arguments: Rest<ValueOrKwargs>| {
            let arguments = arguments.into_values();
            apply(filter, function.as_ref(), state, &arguments)
        };
        environment.add_filter(filter.name, apply);
    }
    add_tests(&mut environment);
    environment.add_function("range", range);
    // What operators become.
    environment.add_function("number", number);
    environment.add_function("add", add);
    environment.add_function("concat", concat);
    environment.add_function("container", container);
    environment.add_function("part", |state: &State<'_, '_>, of: Value, key: Value| {
        part(state, &of, &key, false)
    });
    environment.add_function("part_or_nothing", |state: &State<'_, '_>, of: Value, key: Value| {
        part(state, &of, &key, true)
    });
    environment.add_function("slice", slice);
    environment
}

fn add_tests(environment: &mut Environment<'static>) {
    environment.add_test("boolean", tests::is_boolean);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("divisibleby", divisible_by);
    for name in ["eq", "equalto"] {
        environment.add_test(name, tests::is_eq);
    }
    environment.add_test("even", tests::is_even);
    environment.add_test("false", tests::is_false);
    environment.add_test("float", tests::is_float);
    environment.add_test("ge", tests::is_ge);
    for name in ["gt", "greaterthan"] {
        environment.add_test(name, tests::is_gt);
    }
    environment.add_test("in", |state: &State<'_, '_>, value: &Value, other: Value| {
        tests::is_in(state, value, &container(state, other)?)
    });
    environment.add_test("containing", |state: &State<'_, '_>, value: Value, other: &Value| {
        tests::is_in(state, other, &container(state, value)?)
    });
    for name in ["int", "integer"] {
        environment.add_test(name, tests::is_integer);
    }
    environment.add_test("iterable", tests::is_iterable);
    environment.add_test("le", tests::is_le);
    for name in ["lt", "lessthan"] {
        environment.add_test(name, tests::is_lt);
    }
    environment.add_test("lower", tests::is_lower);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("ne", tests::is_ne);
    for name in ["none", "null"] {
        environment.add_test(name, tests::is_none);
    }
    environment.add_test("number", tests::is_number);
    environment.add_test("odd", tests::is_odd);
    environment.add_test("sameas", tests::is_sameas);
    environment.add_test("sequence", tests::is_sequence);
    environment.add_test("string", tests::is_string);
    environment.add_test("true", tests::is_true);
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("upper", tests::is_upper);
    environment.add_test("empty", |value: &Value| value.len() == Some(0));
    // minijinja's would make texts of other values.
    environment.add_test("startingwith", |value: &Value, start: &Value| {
        both_texts(value, start).is_some_and(|(value, start)| value.starts_with(start))
    });
    environment.add_test("endingwith", |value: &Value, end: &Value| {
        both_texts(value, end).is_some_and(|(value, end)| value.ends_with(end))
    });
}

/// minijinja's would divide by zero.
fn divisible_by(value: Value, divisor: Value) -> Result<bool, Error> {
    for number in [&value, &divisor] {
        if number.kind() != ValueKind::Number {
            let found = kind(number);
            return Err(
                Failure::other(format!("`divisibleby` needs numbers and not {found}")).into()
            );
        }
    }
    if value.is_integer() && divisor.is_integer() {
        let (value, divisor) = (i128::try_from(value)?, i128::try_from(divisor)?);
        // A remainder that is too large is that of a division by -1.
        return match divisor {
            0 => Err(Failure::other("nothing is divisible by 0").into()),
            _ => Ok(value.checked_rem(divisor).is_none_or(|remainder| remainder == 0)),
        };
    }
    let (value, divisor) = (f64::try_from(value)?, f64::try_from(divisor)?);
    if divisor == 0.0 {
        return Err(Failure::other("nothing is divisible by 0").into());
    }
    Ok(value % divisor == 0.0)
}

fn both_texts<'v>(first: &'v Value, second: &'v Value) -> Option<(&'v str, &'v str)> {
    first.as_str().zip(second.as_str())
}

/// minijinja's own filter; none where ours stands in `apply`.
fn built_in(name: &str) -> Option<Value> {
    Some(match name {
        "abs" => Value::from_function(filters::abs),
        "batch" => Value::from_function(filters::batch),
        "bool" => Value::from_function(filters::bool),
        "capitalize" => Value::from_function(filters::capitalize),
        "chain" => Value::from_function(filters::chain),
        "count" | "length" => Value::from_function(filters::length),
        "d" | "default" => Value::from_function(filters::default),
        "first" => Value::from_function(filters::first),
        "float" => Value::from_function(filters::float),
        "indent" => Value::from_function(filters::indent),
        "int" => Value::from_function(filters::int),
        "items" => Value::from_function(filters::items),
        "last" => Value::from_function(filters::last),
        "lines" => Value::from_function(filters::lines),
        "list" => Value::from_function(filters::list),
        "lower" => Value::from_function(filters::lower),
        "map" => Value::from_function(filters::map),
        "reject" => Value::from_function(filters::reject),
        "rejectattr" => Value::from_function(filters::rejectattr),
        "replace" => Value::from_function(filters::replace),
        "reverse" => Value::from_function(filters::reverse),
        "round" => Value::from_function(filters::round),
        "select" => Value::from_function(filters::select),
        "selectattr" => Value::from_function(filters::selectattr),
        "split" => Value::from_function(filters::split),
        "sum" => Value::from_function(filters::sum),
        "title" => Value::from_function(filters::title),
        "trim" => Value::from_function(filters::trim),
        "upper" => Value::from_function(filters::upper),
        "urlencode" => Value::from_function(filters::urlencode),
        "zip" => Value::from_function(filters::zip),
        _ => return None,
    })
}

/// Applies a filter within its bounds.
fn apply(
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
    let sized = [value.kind(), others.first().map_or(ValueKind::Undefined, Value::kind)];
    if filter.name != "length" && filter.name != "count" && filter.takes != Takes::Nothing {
        for (argument, kind) in arguments.iter().zip(sized) {
            if matches!(kind, ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
                let len = argument.len().unwrap_or_default();
                if len > MAX_ELEMENTS && !matches!(filter.name, "first" | "last" | "tojson") {
                    return Err(too_many_elements().into());
                }
                run.step(len.min(MAX_ELEMENTS))?;
            }
        }
    }
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

/// Whether an error says in our words what is wrong.
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

/// Refuses what would make too much, before it does.
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
            if len > MAX_TEMPLATE_BYTES {
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
            if lines.saturating_mul(width).saturating_add(text.len()) > MAX_TEMPLATE_BYTES {
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
        // What it adds up are numbers if it begins with one.
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

/// Counts what a filter made.
fn after(run: &Run, takes: &Takes, value: Value) -> Result<Value, Error> {
    match value.kind() {
        // Handed through.
        _ if *takes == Takes::Nothing => Ok(value),
        ValueKind::String => {
            let len = value.as_str().map_or(0, str::len);
            if len > MAX_TEMPLATE_BYTES {
                return Err(Failure::TooLarge.into());
            }
            run.spend(len)?;
            Ok(value)
        }
        ValueKind::Seq | ValueKind::Iterable if !is_whole(&value) => {
            // Not as late as it is looked at, when it could be looked at often.
            Ok(run.list(iterate(&value)?)?)
        }
        _ => Ok(value),
    }
}

/// Whether a list is one of ours, of which nothing is made when it is looked at.
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

fn range(
    state: &State<'_, '_>,
    first: i64,
    second: Option<i64>,
    step: Option<i64>,
) -> Result<Value, Error> {
    let (start, end) = second.map_or((0, first), |second| (first, second));
    let step = step.unwrap_or(1);
    if step == 0 {
        return Err(Failure::other("`range` cannot go in steps of 0").into());
    }
    let mut next = Some(start);
    let numbers = std::iter::from_fn(|| {
        let number = next.filter(|n| if step > 0 { *n < end } else { *n > end })?;
        next = number.checked_add(step);
        Some(Value::from(number))
    });
    Ok(run(state)?.list(numbers)?)
}

/// What the evaluation may still use.
fn run(state: &State<'_, '_>) -> Result<Arc<Run>, Failure> {
    let run = state.lookup("run").and_then(|run| run.downcast_object::<Run>());
    run.ok_or_else(|| Failure::other("there is no evaluation"))
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
            // An object is the list of its keys.
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
