//! JSON of words with a meaning to some part of the crate.

use arbitrary::{Arbitrary, Result, Unstructured};
use serde_json::{Number, Value, json};

/// Any JSON value, rarely a deep one.
#[derive(Clone, Debug)]
pub(super) struct Json(pub(super) Value);

/// The maximum number of levels of ordinary values.
const LEVELS: usize = 4;

/// The maximum number of levels of deep values: more than any parser accepts.
const DEEP: usize = 300;

/// Words of schemas, of results, and of the tools in the checks.
const WORDS: [&str; 40] = [
    "a",
    "b",
    "q",
    "query",
    "token",
    "items",
    "rows",
    "type",
    "object",
    "array",
    "string",
    "integer",
    "null",
    "properties",
    "required",
    "additionalProperties",
    "prefixItems",
    "enum",
    "const",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "$ref",
    "#",
    "#/properties/a",
    "#/$defs/a",
    "$defs",
    "$id",
    "pattern",
    "format",
    "minLength",
    "maximum",
    "default",
    "description",
    "text",
    "{{ input.a }}",
    "$input.a",
];

/// Numbers at the limits of types.
const EDGES: [f64; 9] =
    [0.0, -0.0, 0.5, -1.0, 1e15, 9_007_199_254_740_993.0, 1e19, 1e308, f64::MIN_POSITIVE];

impl<'a> Arbitrary<'a> for Json {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        if bytes.ratio(1, 50)? {
            let levels = bytes.int_in_range(1..=DEEP)?;
            let wrap: fn(Value) -> Value =
                if bytes.arbitrary()? { |inner| json!([inner]) } else { |a| json!({ "a": a }) };
            return Ok(Self((0..levels).fold(Value::Null, |inner, _| wrap(inner))));
        }
        value(bytes, LEVELS).map(Self)
    }
}

/// Returns a word, or a text of any characters.
pub(super) fn word(bytes: &mut Unstructured<'_>) -> Result<String> {
    if bytes.ratio(9, 10)? {
        bytes.choose(&WORDS).map(|word| (*word).to_owned())
    } else {
        bytes.arbitrary()
    }
}

/// Returns an object with some members, whose values are made by `member`.
pub(super) fn members<'a>(
    bytes: &mut Unstructured<'a>,
    mut member: impl FnMut(&mut Unstructured<'a>) -> Result<Value>,
) -> Result<Value> {
    let count = bytes.int_in_range(0..=4)?;
    let members = (0..count).map(|_| Ok((word(bytes)?, member(bytes)?)));
    members.collect::<Result<_>>().map(Value::Object)
}

fn value(bytes: &mut Unstructured<'_>, levels: usize) -> Result<Value> {
    let kinds = if levels == 0 || bytes.is_empty() { 5 } else { 9 };
    Ok(match bytes.int_in_range(0..=kinds)? {
        0 => Value::Null,
        1 => Value::Bool(bytes.arbitrary()?),
        2 => json!(bytes.arbitrary::<i8>()?),
        3 => match bytes.arbitrary()? {
            true => json!(bytes.arbitrary::<i64>()?),
            false => Number::from_f64(*bytes.choose(&EDGES)?).map_or(Value::Null, Value::Number),
        },
        4 | 5 => Value::String(word(bytes)?),
        6 | 7 => {
            let count = bytes.int_in_range(0..=4)?;
            (0..count).map(|_| value(bytes, levels - 1)).collect::<Result<_>>()?
        }
        _ => members(bytes, |bytes| value(bytes, levels - 1))?,
    })
}
