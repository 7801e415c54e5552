//! Hashes and compares the arguments of tool calls as JSON values: the order of object members does
//! not matter, and `1` equals `1.0`.

use std::hash::{BuildHasher, Hash, Hasher};

use foldhash::quality::RandomState;
use rmcp::model::JsonObject;
use serde_json::{Number, Value};

/// The smallest `f64` that is greater than every `u64`: 2⁶⁴.
const ABOVE_U64: f64 = 18_446_744_073_709_551_616.0;

/// A canonical form of JSON numbers: `1` and `1.0` have the same form.
enum Canonical<'n> {
    Integer(i128),
    /// A number with a fraction, or outside the range of 64-bit integers.
    Other(&'n Number),
}

/// Returns the hash of the arguments of a tool call. A call without arguments has the same hash as
/// a call with the arguments `{}`.
pub(super) fn hash(state: &RandomState, arguments: Option<&JsonObject>) -> u64 {
    let mut hasher = state.build_hasher();
    hash_members(state, arguments.unwrap_or(&JsonObject::new()), &mut hasher);
    hasher.finish()
}

/// Returns `true` if the arguments of two tool calls are equal. A call without arguments is equal
/// to a call with the arguments `{}`.
pub(super) fn equal(one: Option<&JsonObject>, other: Option<&JsonObject>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => same_members(one, other),
        (Some(some), None) | (None, Some(some)) => some.is_empty(),
        (None, None) => true,
    }
}

/// Returns a copy of the arguments in which equal numbers have the same JSON text: `1.0` becomes
/// `1`.
pub(super) fn canonical(arguments: &JsonObject) -> JsonObject {
    let members = arguments.iter();
    members.map(|(name, value)| (name.clone(), canonical_value(value))).collect()
}

fn canonical_value(value: &Value) -> Value {
    match value {
        Value::Number(number) => match Canonical::of(number) {
            Canonical::Integer(integer) => {
                Number::from_i128(integer).map_or_else(|| value.clone(), Value::Number)
            }
            Canonical::Other(_) => value.clone(),
        },
        Value::Array(elements) => elements.iter().map(canonical_value).collect(),
        Value::Object(members) => Value::Object(canonical(members)),
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

fn hash_members(state: &RandomState, members: &JsonObject, hasher: &mut impl Hasher) {
    // Add the hashes of all members, so that the result does not depend on their order, which
    // varies with the features of `serde_json`.
    let sum = members.iter().fold(0_u64, |sum, (name, value)| {
        let mut member = state.build_hasher();
        name.hash(&mut member);
        hash_value(state, value, &mut member);
        sum.wrapping_add(member.finish())
    });
    hasher.write_usize(members.len());
    hasher.write_u64(sum);
}

fn hash_value(state: &RandomState, value: &Value, hasher: &mut impl Hasher) {
    match value {
        Value::Null => hasher.write_u8(0),
        Value::Bool(value) => hasher.write_u8(1 + u8::from(*value)),
        Value::Number(number) => {
            hasher.write_u8(3);
            match Canonical::of(number) {
                Canonical::Integer(integer) => hasher.write_i128(integer),
                Canonical::Other(number) => {
                    hasher.write_u64(number.as_f64().map_or(0, f64::to_bits));
                }
            }
        }
        Value::String(text) => {
            hasher.write_u8(4);
            text.hash(hasher);
        }
        Value::Array(elements) => {
            hasher.write_u8(5);
            hasher.write_usize(elements.len());
            elements.iter().for_each(|element| hash_value(state, element, hasher));
        }
        Value::Object(members) => {
            hasher.write_u8(6);
            hash_members(state, members, hasher);
        }
    }
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => same_number(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => same_members(one, other),
        (one, other) => one == other,
    }
}

fn same_members(one: &JsonObject, other: &JsonObject) -> bool {
    one.len() == other.len()
        && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
}

fn same_number(one: &Number, other: &Number) -> bool {
    match (Canonical::of(one), Canonical::of(other)) {
        (Canonical::Integer(one), Canonical::Integer(other)) => one == other,
        (Canonical::Other(one), Canonical::Other(other)) => one == other,
        _ => false,
    }
}

// === impl Canonical ===

impl<'n> Canonical<'n> {
    fn of(number: &'n Number) -> Self {
        if let Some(integer) = number.as_i64() {
            return Self::Integer(integer.into());
        }
        if let Some(integer) = number.as_u64() {
            return Self::Integer(integer.into());
        }
        match number.as_f64() {
            // If `serde_json` stores numbers as text, a number can have more digits than a float.
            // Converting it to a float then changes its value, and the comparison fails.
            Some(float)
                if float.fract() == 0.0
                    && float.abs() < ABOVE_U64
                    && Number::from_f64(float).as_ref() == Some(number) =>
            {
                #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
                let integer = float as i128;
                Self::Integer(integer)
            }
            _ => Self::Other(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(value: &Value) -> Option<&JsonObject> {
        value.as_object()
    }

    fn is_same(one: &Value, other: &Value) -> bool {
        let state = RandomState::default();
        let equal = equal(object(one), object(other));
        let hashes = hash(&state, object(one)) == hash(&state, object(other));
        assert_eq!(equal, hashes, "{one} and {other}");
        equal
    }

    #[test]
    fn arguments_are_compared_as_json() {
        let same = [
            (r#"{"a":1,"b":[2]}"#, r#"{"b":[2],"a":1}"#),
            (r#"{"a":{"b":1,"c":2}}"#, r#"{"a":{"c":2,"b":1}}"#),
            (r#"{"a":1}"#, r#"{"a":1.0}"#),
            (r#"{"a":100}"#, r#"{"a":1e2}"#),
            (r#"{"a":0}"#, r#"{"a":-0.0}"#),
            (r#"{"a":9007199254740992}"#, r#"{"a":9007199254740992.0}"#),
            (r#"{"a":1.5}"#, r#"{"a":15e-1}"#),
            ("{}", "null"),
        ];
        for (one, other) in same {
            let [one, other] = [one, other].map(|text| serde_json::from_str(text).unwrap());
            assert!(is_same(&one, &other), "{one} and {other}");
        }
    }

    #[test]
    fn different_arguments_differ() {
        let values = [
            json!({}),
            json!({ "a": null }),
            json!({ "a": false }),
            json!({ "a": true }),
            json!({ "a": 0 }),
            json!({ "a": 1 }),
            json!({ "a": -1 }),
            json!({ "a": 1.5 }),
            json!({ "a": "1" }),
            json!({ "a": "" }),
            json!({ "a": [] }),
            json!({ "a": [1] }),
            json!({ "a": [1, 2] }),
            json!({ "a": [2, 1] }),
            json!({ "a": [[1], 2] }),
            json!({ "a": {} }),
            json!({ "a": { "b": 1 } }),
            json!({ "b": { "a": 1 } }),
            json!({ "a": 1, "b": 2 }),
            json!({ "a": 2, "b": 1 }),
            json!({ "a": u64::MAX }),
            json!({ "a": i64::MIN }),
            json!({ "a": 9_007_199_254_740_993_u64 }),
            json!({ "a": 9_007_199_254_740_992.0 }),
            json!({ "a": 1e300 }),
            json!({ "a": 18_446_744_073_709_551_616.0 }),
        ];
        for (index, one) in values.iter().enumerate() {
            assert!(is_same(one, one), "{one}");
            for other in &values[index + 1..] {
                assert!(!is_same(one, other), "{one} and {other}");
            }
        }
    }

    proptest! {
        #[test]
        fn integers_and_whole_floats_are_equal_exactly_if_their_values_are(
            integer in any::<i64>(), float in -1e19..1e19_f64,
        ) {
            let whole = float.trunc();
            #[expect(clippy::cast_possible_truncation, reason = "the float is in range")]
            let expected = i128::from(integer) == whole as i128;
            prop_assert_eq!(is_same(&json!({ "a": integer }), &json!({ "a": whole })), expected);
            #[expect(clippy::cast_possible_truncation, reason = "i64 saturates")]
            let near = whole as i64;
            #[expect(clippy::cast_possible_truncation, reason = "the float is in range")]
            let expected = i128::from(near) == whole as i128;
            prop_assert_eq!(is_same(&json!({ "a": near }), &json!({ "a": whole })), expected);
        }
    }
}
