//! The filters for numbers.

use crate::expr::template::{
    arguments::Call,
    budget::{Evaluated, Failure},
    numeric::Numeric,
    value::Value,
};

pub(super) fn abs<'v>(Call { value, arguments, .. }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    arguments.end()?;
    computed(match value.number() {
        Some(Numeric::Integer(integer)) => integer.checked_abs().map(Numeric::Integer),
        Some(Numeric::Float(float)) => Some(Numeric::Float(float.abs())),
        None => None,
    })
}

pub(super) fn float<'v>(Call { value, mut arguments, .. }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let default = arguments.take("default");
    arguments.end()?;
    let float = match value.as_str() {
        Some(text) => text.parse().ok(),
        None => value.numeric().map(Numeric::to_float),
    };
    match (float, default) {
        (None, Some(default)) => Ok(default),
        (float, _) => computed(float.map(Numeric::Float)),
    }
}

/// The filter `int`. Converts a number or a string to an integer, without its fraction. A string
/// contains an integer in the base `base` or a decimal number.
pub(super) fn int<'v>(Call { value, mut arguments, .. }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let default = arguments.take("default");
    let base = arguments.integer("base")?.unwrap_or(10);
    arguments.end()?;
    let integer = match (value.as_str(), value.numeric()) {
        (Some(text), _) => parse(text, base).or_else(|| text.parse().ok().map(truncate)),
        (None, Some(Numeric::Integer(integer))) => Some(integer),
        (None, Some(Numeric::Float(float))) => Some(truncate(float)),
        (None, None) => None,
    };
    match (integer, default) {
        (None, Some(default)) => Ok(default),
        (integer, _) => computed(integer.map(Numeric::Integer)),
    }
}

/// Parses an integer in the base `base`. It may have a prefix, such as `0x` for base 16.
fn parse(text: &str, base: i64) -> Option<i128> {
    let base = u32::try_from(base).ok().filter(|base| (2..=36).contains(base))?;
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let unsigned = text.trim_start_matches(['+', '-']);
    if text.len() - unsigned.len() > 1 {
        return None;
    }
    let sign = &text[..text.len() - unsigned.len()];
    let has_prefix = unsigned.get(..prefix.len()).is_some_and(|p| p.eq_ignore_ascii_case(prefix));
    let digits = if has_prefix { &unsigned[prefix.len()..] } else { unsigned };
    if !digits.starts_with(|c: char| c.is_digit(base)) {
        return None;
    }
    i128::from_str_radix(&format!("{sign}{digits}"), base).ok()
}

#[expect(clippy::cast_possible_truncation, reason = "that is what it is for")]
const fn truncate(float: f64) -> i128 {
    float as i128
}

/// The filter `round`. Rounds a number to `precision` decimal places. The precision -1 rounds to
/// tens, and -2 to hundreds.
pub(super) fn round<'v>(Call { value, mut arguments, .. }: Call<'_, 'v>) -> Evaluated<Value<'v>> {
    let precision = arguments.integer("precision")?.unwrap_or(0);
    let precision = i32::try_from(precision).map_err(|_| Failure::Incalculable)?;
    let method = arguments.text("method")?;
    arguments.end()?;
    let method = method.as_deref().unwrap_or("common");
    if !matches!(method, "common" | "ceil" | "floor") {
        return Err(Failure::other("`round` needs the method `common`, `ceil` or `floor`"));
    }
    computed(match value.number() {
        Some(Numeric::Integer(integer)) if precision >= 0 => Some(Numeric::Integer(integer)),
        Some(Numeric::Integer(integer)) => {
            round_integer(integer, precision, method).map(Numeric::Integer)
        }
        Some(Numeric::Float(float)) => round_float(float, precision, method).map(Numeric::Float),
        None => None,
    })
}

fn round_integer(value: i128, precision: i32, method: &str) -> Option<i128> {
    let Some(factor) = 10_i128.checked_pow(precision.unsigned_abs()) else {
        let is_away = (method == "ceil" && value > 0) || (method == "floor" && value < 0);
        return (!is_away).then_some(0);
    };
    let (quotient, remainder) = (value.div_euclid(factor), value.rem_euclid(factor));
    let is_up = match method {
        "ceil" => remainder > 0,
        "floor" => false,
        // Half is rounded to even.
        _ => {
            let rest = factor - remainder;
            remainder > rest || (remainder == rest && quotient % 2 != 0)
        }
    };
    (quotient + i128::from(is_up)).checked_mul(factor)
}

fn round_float(value: f64, precision: i32, method: &str) -> Option<f64> {
    if !value.is_finite() {
        return Some(value);
    }
    // Parsing the factor is exact, whereas computing a power is not.
    let factor: f64 = format!("1e{}", precision.unsigned_abs()).parse().ok()?;
    let scaled = if precision < 0 { value / factor } else { value * factor };
    let rounded = match method {
        "common" => match usize::try_from(precision) {
            // Formatting uses the exact decimal digits of the float for rounding.
            Ok(digits) if digits <= 1074 => return format!("{value:.digits$}").parse().ok(),
            Ok(_) => return Some(value),
            Err(_) if factor.is_infinite() => return Some(0.0_f64.copysign(value)),
            Err(_) => scaled.round_ties_even(),
        },
        _ if scaled.is_infinite() => return Some(value),
        // Adding zero removes the sign of a negative zero.
        "ceil" => scaled.ceil() + 0.0,
        _ => scaled.floor() + 0.0,
    };
    let value = if precision < 0 { rounded * factor } else { rounded / factor };
    value.is_finite().then_some(value)
}

/// The maximum number of decimal places of a formatted number.
const MAX_DECIMALS: i64 = 20;

/// The filter `format`. Formats a number with `decimals` decimal places. `separator` separates
/// groups of three digits, as in `1,000,000`.
pub(super) fn format<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let decimals = arguments.integer("decimals")?;
    let separator = arguments.text("separator")?;
    arguments.end()?;
    if decimals.is_some_and(|decimals| !(0..=MAX_DECIMALS).contains(&decimals)) {
        let reason = format!("`format` needs a number of decimals up to {MAX_DECIMALS}");
        return Err(Failure::other(reason));
    }
    let decimals = decimals.and_then(|decimals| usize::try_from(decimals).ok());
    let text = match (value.number(), decimals) {
        (Some(Numeric::Integer(integer)), None | Some(0)) => integer.to_string(),
        (Some(Numeric::Integer(integer)), Some(decimals)) => {
            format!("{integer}.{}", "0".repeat(decimals))
        }
        (Some(Numeric::Float(float)), decimals) if float.is_finite() => match decimals {
            Some(decimals) => format!("{float:.decimals$}"),
            None => float.to_string(),
        },
        _ => return Err(Failure::Incalculable),
    };
    budget.text(match separator {
        Some(separator) => grouped(&text, &separator),
        None => text,
    })
}

/// Inserts `separator` between groups of three digits, as in `1,000,000.5`.
fn grouped(number: &str, separator: &str) -> String {
    let start = usize::from(number.starts_with('-'));
    let end = number.find('.').unwrap_or(number.len());
    let mut text = number[..start].to_owned();
    for (index, digit) in number[start..end].chars().enumerate() {
        if index > 0 && (end - start - index).is_multiple_of(3) {
            text.push_str(separator);
        }
        text.push(digit);
    }
    text + &number[end..]
}

/// Converts the result of a calculation to a value. `None` is a failed calculation.
fn computed<'v>(number: Option<Numeric>) -> Evaluated<Value<'v>> {
    number.map(Value::from).ok_or(Failure::Incalculable)
}
