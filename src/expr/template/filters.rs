//! The filters, tests and functions that templates can use.
//!
//! Only listed filters, tests and functions are available. Each is wrapped to limit its memory and
//! time, because minijinja does not limit them.

mod apply;
mod filter;
mod operators;

use std::sync::LazyLock;

use minijinja::{
    Environment, Error, State, UndefinedBehavior, Value, filters, tests,
    value::{Rest, ValueKind, ValueOrKwargs},
};

pub(super) use self::filter::FILTERS;
use self::{
    apply::apply,
    operators::{add, both_texts, concat, container, number, ordered, part, run, slice},
};
use super::value::{Failure, kind};

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

/// The environment of all expressions.
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
    // The functions that operators are compiled to.
    environment.add_function("number", number);
    environment.add_function("add", add);
    environment.add_function("ordered", ordered);
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
    for name in TESTS {
        if let Some(symbol) = symbol_of(name) {
            let test = move |state: &State<'_, '_>, value: &Value, other: &Value| {
                ordered(state, value, symbol, other)
            };
            environment.add_test(name, test);
        }
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
    // minijinja's tests would convert other values to text.
    environment.add_test("startingwith", |value: &Value, start: &Value| {
        both_texts(value, start).is_some_and(|(value, start)| value.starts_with(start))
    });
    environment.add_test("endingwith", |value: &Value, end: &Value| {
        both_texts(value, end).is_some_and(|(value, end)| value.ends_with(end))
    });
}

/// Returns the operator of a test, if it needs an order.
pub(super) fn symbol_of(test: &str) -> Option<&'static str> {
    match test {
        "lt" | "lessthan" => Some("<"),
        "le" => Some("<="),
        "gt" | "greaterthan" => Some(">"),
        "ge" => Some(">="),
        _ => None,
    }
}

/// Describes the result type of a filter, if it is always the same.
pub(super) fn kind_of(filter: &str) -> Option<&'static str> {
    Some(match filter {
        "abs" | "count" | "float" | "int" | "length" | "round" | "sum" => "a number",
        "bool" => "a boolean",
        "capitalize" | "indent" | "join" | "lower" | "quote" | "replace" | "string" | "title"
        | "tojson" | "trim" | "upper" | "urlencode" => "a string",
        "batch" | "dictsort" | "groupby" | "items" | "keys" | "lines" | "list" | "map"
        | "reject" | "rejectattr" | "select" | "selectattr" | "sort" | "split" | "unique"
        | "values" | "zip" => "an array",
        _ => return None,
    })
}

/// minijinja's own test would divide by zero.
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
        // The remainder overflows only for a division by -1.
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

/// Returns minijinja's own filter; `None` for filters that `apply` implements.
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
