//! The operators of templates.

use std::cmp::Ordering;

use super::{
    budget::{Budget, Evaluated, Failure},
    numeric::Numeric,
    order::ordering,
    text_builder::TextBuilder,
    value::Value,
};

/// Applies a binary operator, such as `+`, to two values. The operator `~` concatenates them as
/// strings.
pub(super) fn arithmetic<'v>(
    budget: &Budget,
    symbol: &str,
    left: &Value<'v>,
    right: &Value<'v>,
) -> Evaluated<Value<'v>> {
    match symbol {
        "~" => concat(budget, left, right),
        "+" if left.as_str().is_some() && right.as_str().is_some() => concat(budget, left, right),
        "+" if left.is_list() && right.is_list() => {
            budget.list(left.iterate(budget)?.chain(right.iterate(budget)?))
        }
        "+" => {
            let (Some(left), Some(right)) = (left.number(), right.number()) else {
                let (left, right) = (left.kind(), right.kind());
                return Err(Failure::other(format!("`+` cannot add {left} and {right}")));
            };
            add(left, right).map(Value::from)
        }
        symbol => {
            let (left, right) = (number(symbol, left)?, number(symbol, right)?);
            calculate(symbol, left, right).map(Value::from).ok_or(Failure::Incalculable)
        }
    }
}

fn concat<'v>(budget: &Budget, left: &Value<'v>, right: &Value<'v>) -> Evaluated<Value<'v>> {
    let mut text = TextBuilder::default();
    text.push_value(budget, left)?;
    text.push_value(budget, right)?;
    budget.text(text.into_string())
}

pub(super) fn add(left: Numeric, right: Numeric) -> Evaluated<Numeric> {
    match (left, right) {
        (Numeric::Integer(a), Numeric::Integer(b)) => {
            let sum = a.checked_add(b).map(Numeric::Integer);
            sum.ok_or_else(|| Failure::other("a number is too large"))
        }
        (a, b) => Ok(Numeric::Float(a.to_float() + b.to_float())),
    }
}

/// Returns the number to which the operator `symbol` is applied. Returns an error for other values.
fn number(symbol: &str, value: &Value<'_>) -> Evaluated<Numeric> {
    value
        .number()
        .ok_or_else(|| Failure::other(format!("`{symbol}` needs numbers and not {}", value.kind())))
}

/// Applies an arithmetic operator to two numbers. Returns `None` if there is no result, as for a
/// division by zero or an integer overflow. `//` rounds down. The result of `%` has the sign of the
/// divisor.
fn calculate(symbol: &str, left: Numeric, right: Numeric) -> Option<Numeric> {
    use Numeric::{Float, Integer};
    let (a, b) = match (left, right) {
        (Integer(a), Integer(b)) if symbol != "/" => {
            return Some(match symbol {
                "-" => Integer(a.checked_sub(b)?),
                "*" => Integer(a.checked_mul(b)?),
                "//" | "%" if b == 0 => return None,
                // Only the division of the smallest integer by -1 overflows. Its quotient is
                // returned as a float.
                "//" if a.checked_div(b).is_none() => Float(-left.to_float()),
                "//" => Integer(floor_division(a, b)),
                "%" if b == -1 => Integer(0),
                "%" => match a % b {
                    remainder if remainder != 0 && (remainder < 0) != (b < 0) => {
                        Integer(remainder + b)
                    }
                    remainder => Integer(remainder),
                },
                _ if b < 0 => power(left.to_float(), right.to_float())?,
                _ => Integer(a.checked_pow(u32::try_from(b).ok()?)?),
            });
        }
        (left, right) => (left.to_float(), right.to_float()),
    };
    Some(match symbol {
        "-" => Float(a - b),
        "*" => Float(a * b),
        "/" | "//" | "%" if b == 0.0 => return None,
        "/" => Float(a / b),
        // Adding zero removes the sign of a negative zero.
        "//" => Float(((a - remainder(a, b)) / b).round() + 0.0),
        "%" => Float(remainder(a, b)),
        _ => power(a, b)?,
    })
}

/// Divides two integers and rounds the quotient down.
const fn floor_division(a: i128, b: i128) -> i128 {
    let quotient = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

/// Returns the remainder of a division. It has the sign of the divisor.
fn remainder(a: f64, b: f64) -> f64 {
    let remainder = a % b;
    if remainder == 0.0 {
        remainder.copysign(b)
    } else if (remainder < 0.0) == (b < 0.0) {
        remainder
    } else {
        remainder + b
    }
}

fn power(base: f64, exponent: f64) -> Option<Numeric> {
    (base != 0.0 || exponent >= 0.0).then(|| Numeric::Float(base.powf(exponent)))
}

/// Negates a number. Returns an error for other values.
pub(super) fn negative<'v>(value: &Value<'v>) -> Evaluated<Value<'v>> {
    match number("-", value)? {
        Numeric::Integer(integer) => {
            integer.checked_neg().map(Value::Integer).ok_or(Failure::Incalculable)
        }
        Numeric::Float(float) => Ok(Value::Float(-float)),
    }
}

/// Evaluates a comparison operator, such as `<` or `not in`.
pub(super) fn compare(
    budget: &Budget,
    left: &Value<'_>,
    symbol: &str,
    right: &Value<'_>,
) -> Evaluated<bool> {
    Ok(match symbol {
        "==" => left.equals(budget, right)?,
        "!=" => !left.equals(budget, right)?,
        "in" => contains(budget, right, left)?,
        "not in" => !contains(budget, right, left)?,
        symbol => {
            let ordering = ordering(budget, symbol, left, right)?;
            match symbol {
                "<" => ordering == Ordering::Less,
                "<=" => ordering != Ordering::Greater,
                ">" => ordering == Ordering::Greater,
                _ => ordering != Ordering::Less,
            }
        }
    })
}

/// Returns `true` if `container` contains `value` as an element of an array, a member name of an
/// object or a part of a string.
pub(super) fn contains(
    budget: &Budget,
    container: &Value<'_>,
    value: &Value<'_>,
) -> Evaluated<bool> {
    match container {
        Value::Text(text) => {
            budget.read(text)?;
            if let Value::Text(part) = value {
                budget.read(part)?;
                return Ok(text.contains(&**part));
            }
            let mut part = TextBuilder::default();
            part.push_value(budget, value)?;
            let part = part.into_string();
            budget.spend(part.len())?;
            Ok(text.contains(&part))
        }
        map if map.is_map() => match value.as_str() {
            Some(name) => Ok(!map.get(budget, name)?.is_undefined()),
            None => Ok(false),
        },
        list if list.is_list() => {
            for element in list.iterate(budget)? {
                if element?.equals(budget, value)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        other => {
            let found = other.kind();
            let reason = format!("`in` needs an array, an object or a string and not {found}");
            Err(Failure::other(reason))
        }
    }
}

/// Returns the member or element of `of` with the key `key`. If it does not exist, returns
/// undefined if `optional` is `true`, and an error otherwise.
pub(super) fn part<'v>(
    budget: &Budget,
    of: &Value<'v>,
    key: &Value<'v>,
    optional: bool,
) -> Evaluated<Value<'v>> {
    budget.step(1)?;
    let part = match (of, key) {
        (Value::Undefined, _) if optional => return Ok(Value::Undefined),
        (Value::Undefined, _) => return Err(Failure::undefined()),
        (list, Value::Integer(index)) if list.is_list() => {
            let len = list.len().unwrap_or_default();
            match offset(*index, len) {
                Some(index) => list.element(budget, index)?,
                None => Value::Undefined,
            }
        }
        (of, Value::Text(name)) => of.get(budget, name)?,
        (map @ Value::Map(_), Value::Integer(_) | Value::Float(_)) => {
            map.get(budget, &key.to_name(budget)?)?
        }
        _ => Value::Undefined,
    };
    if part.is_undefined() && !optional {
        return Err(Failure::other(match (of, key) {
            (map, _) if map.is_map() => "an object has no such key",
            (list, _) if list.is_list() => "an array has no such element",
            _ => "the value has no keys",
        }));
    }
    Ok(part)
}

/// Converts an index to a position in a list of `len` elements. A negative index counts from the
/// end. Returns `None` if the position would be negative.
fn offset(index: i128, len: usize) -> Option<usize> {
    let from = if index < 0 { i128::try_from(len).ok()? } else { 0 };
    usize::try_from(from.checked_add(index)?).ok()
}

pub(super) fn slice<'v>(
    budget: &Budget,
    of: &Value<'v>,
    [start, end, step]: [Option<Value<'v>>; 3],
) -> Evaluated<Value<'v>> {
    let integer = |bound: Option<Value<'_>>| match bound {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Integer(bound)) => Ok(Some(bound)),
        Some(other) => {
            let found = other.kind();
            Err(Failure::other(format!("the bounds of a slice are integers and not {found}")))
        }
    };
    let (start, end, step) = (integer(start)?, integer(end)?, integer(step)?);
    let step = usize::try_from(step.unwrap_or(1)).ok().filter(|step| *step > 0);
    let step =
        step.ok_or_else(|| Failure::other("the step of a slice must be a positive integer"))?;
    let len = match of {
        Value::Text(_) => of.len(),
        list if list.is_list() => list.len(),
        other => return Err(Failure::other(format!("{} has no slices", other.kind()))),
    };
    let len = len.unwrap_or_default();
    budget.step(len)?;
    let bound = |bound: Option<i128>, default: usize| match bound {
        None => default,
        Some(bound) => {
            let distance = usize::try_from(bound.unsigned_abs()).unwrap_or(usize::MAX);
            if bound < 0 { len.saturating_sub(distance) } else { distance.min(len) }
        }
    };
    let start = bound(start, 0);
    let count = bound(end, len).saturating_sub(start);
    match of.as_str() {
        Some(text) => budget.text(text.chars().skip(start).take(count).step_by(step).collect()),
        None => {
            let places = (start..start + count).step_by(step);
            budget.list(places.map(|place| of.element(budget, place)))
        }
    }
}
