//! Compares a JSON text with a value. Does not parse the text into a second value, which would take
//! longer.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use crate::json_size::record_inspected;

/// Returns `true` if `text` is JSON that is equal to `value`. The order of object members does not
/// matter. Returns `false` if `value` is neither an array nor an object.
pub(super) fn repeats(text: &str, value: &Value) -> bool {
    let begins = |with: char| text.trim_start().starts_with(with);
    let may_be = match value {
        Value::Array(_) => begins('['),
        Value::Object(_) => begins('{'),
        _ => false,
    };
    if !may_be {
        return false;
    }
    record_inspected(text.len());
    let mut json = serde_json::Deserializer::from_str(text);
    Same(value).deserialize(&mut json).is_ok() && json.end().is_ok()
}

/// A [`DeserializeSeed`] that compares JSON with this value while it reads the JSON. Returns an
/// error if they differ.
struct Same<'v>(&'v Value);

/// A [`DeserializeSeed`] that reads an object key, and returns the member of this map with the same
/// key. Does not allocate a string for the key.
struct Key<'v>(&'v serde_json::Map<String, Value>);

// === impl Same ===

impl<'de> DeserializeSeed<'de> for Same<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl Same<'_> {
    fn when<E: Error>(is_same: bool) -> Result<(), E> {
        if is_same { Ok(()) } else { Err(E::custom("something else")) }
    }
}

impl<'de> Visitor<'de> for Same<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the same value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Self::when(self.0.is_null())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        Self::when(self.0.as_bool() == Some(truth))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        Self::when(matches!(self.0, Value::Number(it) if *it == Number::from(number)))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        Self::when(matches!(self.0, Value::Number(it) if *it == Number::from(number)))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        let number = Number::from_f64(number);
        Self::when(matches!(self.0, Value::Number(it) if Some(it) == number.as_ref()))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        Self::when(self.0.as_str() == Some(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Value::Array(expected) = self.0 else { return Self::when(false) };
        for element in expected {
            if elements.next_element_seed(Same(element))?.is_none() {
                return Self::when(false);
            }
        }
        // Read the end of the array, because the deserializer must be behind the array to read the
        // next value.
        Self::when(elements.next_element::<serde::de::IgnoredAny>()?.is_none())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Value::Object(expected) = self.0 else { return Self::when(false) };
        let mut seen = 0;
        while let Some(member) = members.next_key_seed(Key(expected))? {
            members.next_value_seed(Same(member))?;
            seen += 1;
        }
        // A text with a duplicate key and a missing key can have as many members as `expected`.
        // Accepting such a text is harmless, because it is rendered again from the value.
        Self::when(seen == expected.len())
    }
}

// === impl Key ===

impl<'de, 'v> DeserializeSeed<'de> for Key<'v> {
    type Value = &'v Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<&'v Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'v> Visitor<'_> for Key<'v> {
    type Value = &'v Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key of the value")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<&'v Value, E> {
        self.0.get(key).ok_or_else(|| E::custom("another key"))
    }
}
