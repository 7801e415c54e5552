//! Parses numbers from strings, and converts floats without a fraction to integers.

use serde_json::Number;

/// 2^53. Up to this number, an `f64` represents every integer exactly.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// Parses a JSON number. Returns `None` for other strings, and for integers that cannot be
/// represented exactly.
pub(crate) fn parse_number(text: &str) -> Option<Number> {
    if !text.contains(['.', 'e', 'E']) {
        return parse_integer(text);
    }
    parse(text)
}

/// Parses a JSON number without a fraction or exponent. Returns `None` for other strings, and for
/// integers that cannot be represented exactly.
pub(crate) fn parse_integer(text: &str) -> Option<Number> {
    if text.contains(['.', 'e', 'E']) {
        return None;
    }
    // `serde_json` parses `-0` as a float.
    to_integer(&parse(text)?).filter(|number| !number.is_f64())
}

/// Converts a float without a fraction, such as `3.0`, to an integer. Integers and floats beyond
/// 2^53 are returned unchanged. Returns `None` for floats with a fraction.
pub(crate) fn to_integer(number: &Number) -> Option<Number> {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return Some(number.clone());
    };
    if float.fract() != 0.0 {
        return None;
    }
    if float.abs() > MAX_EXACT {
        return Some(number.clone());
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and small enough")]
    let whole = float as i64;
    Some(whole.into())
}

/// Returns `true` for a float without a fraction, such as `3.0`, which [`to_integer`] converts.
pub(crate) fn is_whole_float(number: &Number) -> bool {
    number.is_f64() && to_integer(number).is_some_and(|integer| !integer.is_f64())
}

fn parse(text: &str) -> Option<Number> {
    // `serde_json` accepts white space around a number.
    let is_trimmed = text.trim().len() == text.len();
    is_trimmed.then(|| serde_json::from_str(text).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_texts_follow_the_json_grammar() {
        for text in ["+5", "5.", ".5", "007", " 1", "1 ", "0x10", "inf", "1_000", "", "-", "1e999"]
        {
            assert_eq!((parse_number(text), parse_integer(text)), (None, None), "{text}");
        }
        for (text, number, integer) in [
            ("-7", Some(Number::from(-7)), Some(Number::from(-7))),
            ("-0", Some(Number::from(0)), Some(Number::from(0))),
            ("1.0", Number::from_f64(1.0), None),
            ("1e3", Number::from_f64(1000.0), None),
            ("18446744073709551615", Some(u64::MAX.into()), Some(u64::MAX.into())),
            ("18446744073709551616", None, None),
        ] {
            assert_eq!((parse_number(text), parse_integer(text)), (number, integer), "{text}");
        }
    }

    #[test]
    fn whole_floats_are_integers_up_to_the_largest_exact_one() {
        let of = |float: f64| to_integer(&Number::from_f64(float).unwrap());
        assert_eq!(of(3.0), Some(3.into()));
        assert_eq!(of(-MAX_EXACT), Some((-(1_i64 << 53)).into()));
        assert_eq!(of(2.0 * MAX_EXACT), Number::from_f64(2.0 * MAX_EXACT));
        assert_eq!(of(0.5), None);
    }
}
