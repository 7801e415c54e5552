//! Tests, which templates apply to values with `is`. Filters such as `select` take their names as
//! arguments.

use super::{
    arguments::Arguments,
    budget::{Budget, Evaluated, Failure},
    numeric::Numeric,
    operators::{compare, contains},
    value::Value,
};

/// A test, such as `defined` in `value is defined`.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) name: &'static str,
    check: Check,
}

#[derive(Clone, Copy, Debug)]
enum Check {
    /// A test without an argument, such as `defined`.
    Of(fn(&Value<'_>) -> bool),
    /// A test with one argument, such as `divisibleby`. The function takes the value and the
    /// argument.
    With(for<'v> fn(&Budget, &Value<'v>, &Value<'v>) -> Evaluated<bool>),
    /// A comparison with this operator. For example, `ge` is `>=`.
    Compare(&'static str),
}

const fn of(name: &'static str, check: fn(&Value<'_>) -> bool) -> Test {
    Test { name, check: Check::Of(check) }
}

const fn with(
    name: &'static str,
    check: for<'v> fn(&Budget, &Value<'v>, &Value<'v>) -> Evaluated<bool>,
) -> Test {
    Test { name, check: Check::With(check) }
}

const fn comparison(name: &'static str, symbol: &'static str) -> Test {
    Test { name, check: Check::Compare(symbol) }
}

pub(super) static TESTS: [Test; 35] = [
    of("boolean", |value| matches!(value, Value::Bool(_))),
    of("defined", |value| !value.is_undefined()),
    with("divisibleby", |_, value, divisor| is_divisible(value, divisor)),
    // Values other than strings fail this test, because they are not converted to strings.
    with("endingwith", |_, value, end| {
        Ok(value.as_str().zip(end.as_str()).is_some_and(|(value, end)| value.ends_with(end)))
    }),
    comparison("eq", "=="),
    comparison("equalto", "=="),
    of("even", |value| remainder_of_two(value) == Some(0)),
    of("false", |value| matches!(value, Value::Bool(false))),
    of("float", |value| matches!(value, Value::Float(_))),
    comparison("ge", ">="),
    comparison("greaterthan", ">"),
    comparison("gt", ">"),
    comparison("in", "in"),
    of("int", |value| matches!(value, Value::Integer(_))),
    of("integer", |value| matches!(value, Value::Integer(_))),
    of("iterable", |value| value.is_list() || value.is_map()),
    comparison("le", "<="),
    comparison("lessthan", "<"),
    of("lower", |value| is_cased(value, char::is_lowercase)),
    comparison("lt", "<"),
    of("mapping", |value| value.is_map()),
    comparison("ne", "!="),
    of("none", |value| matches!(value, Value::Null)),
    of("number", |value| value.numeric().is_some()),
    of("odd", |value| remainder_of_two(value).is_some_and(|rest| rest != 0)),
    with("sameas", is_same),
    of("sequence", |value| value.is_list()),
    with("startingwith", |_, value, start| {
        Ok(value
            .as_str()
            .zip(start.as_str())
            .is_some_and(|(value, start)| value.starts_with(start)))
    }),
    of("string", |value| value.as_str().is_some()),
    of("true", |value| matches!(value, Value::Bool(true))),
    of("undefined", |value| value.is_undefined()),
    of("upper", |value| is_cased(value, char::is_uppercase)),
    of("null", |value| matches!(value, Value::Null)),
    of("empty", |value| value.len() == Some(0)),
    with("containing", contains),
];

// === impl Test ===

impl Test {
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        TESTS.iter().find(|test| test.name == name)
    }

    /// Returns the operator of a comparison, such as `>=` for `ge`. Returns `None` for other tests.
    pub(super) const fn symbol(&self) -> Option<&'static str> {
        match self.check {
            Check::Compare(symbol) => Some(symbol),
            Check::Of(_) | Check::With(_) => None,
        }
    }

    /// Returns `true` if `value` passes the test. Returns an error if the arguments are invalid.
    pub(super) fn check<'v>(
        &self,
        budget: &Budget,
        value: &Value<'v>,
        mut arguments: Arguments<'v>,
    ) -> Evaluated<bool> {
        budget.read(value.as_str().unwrap_or_default())?;
        arguments.count(budget)?;
        match self.check {
            Check::Of(check) => {
                arguments.end()?;
                Ok(check(value))
            }
            Check::With(check) => {
                let other = arguments.required("other")?;
                arguments.end()?;
                check(budget, value, &other)
            }
            Check::Compare(symbol) => {
                let other = arguments.required("other")?;
                arguments.end()?;
                compare(budget, value, symbol, &other)
            }
        }
    }
}

/// Returns the remainder of a division by two. Returns `None` if the value is not a whole number.
fn remainder_of_two(value: &Value<'_>) -> Option<i128> {
    match value.numeric()? {
        Numeric::Integer(integer) => Some(integer % 2),
        #[expect(clippy::cast_possible_truncation, reason = "it is whole")]
        Numeric::Float(float) => (float.fract() == 0.0).then_some((float % 2.0) as i128),
    }
}

fn is_divisible(value: &Value<'_>, divisor: &Value<'_>) -> Evaluated<bool> {
    let number = |number: &Value<'_>| {
        let found = number.kind();
        let not = || Failure::other(format!("`divisibleby` needs numbers and not {found}"));
        number.number().ok_or_else(not)
    };
    let (value, divisor) = (number(value)?, number(divisor)?);
    if divisor.to_float() == 0.0 {
        return Err(Failure::other("the divisor must not be 0"));
    }
    Ok(match (value, divisor) {
        (Numeric::Integer(value), Numeric::Integer(divisor)) => {
            // The remainder overflows only for a division by -1, which leaves no remainder.
            value.checked_rem(divisor).is_none_or(|remainder| remainder == 0)
        }
        (value, divisor) => value.to_float() % divisor.to_float() == 0.0,
    })
}

/// Returns `true` if the value is a string with at least one letter and all letters have the given
/// case.
fn is_cased(value: &Value<'_>, is_case: fn(char) -> bool) -> bool {
    let Some(text) = value.as_str() else { return false };
    let has_case = |c: char| c.is_lowercase() || c.is_uppercase();
    text.chars().any(is_case) && text.chars().filter(|&c| has_case(c)).all(is_case)
}

/// Returns `true` if two arrays or objects are the same value in memory, or if two other values
/// have the same type and are equal.
fn is_same<'v>(budget: &Budget, one: &Value<'v>, other: &Value<'v>) -> Evaluated<bool> {
    Ok(match (one, other) {
        (Value::Array(a), Value::Array(b)) => std::ptr::eq(*a, *b),
        (Value::Object(a), Value::Object(b)) => std::ptr::eq(*a, *b),
        (Value::List(a), Value::List(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Map(a), Value::Map(b)) => std::rc::Rc::ptr_eq(a, b),
        (Value::Integer(_), Value::Float(_)) | (Value::Float(_), Value::Integer(_)) => false,
        (one, other) if one.is_list() || one.is_map() || one.kind() != other.kind() => false,
        (one, other) => one.equals(budget, other)?,
    })
}
