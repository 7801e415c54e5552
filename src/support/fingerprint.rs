//! Computes SHA-256 fingerprints of JSON values.
//!
//! The fingerprint of a value is the SHA-256 digest of its canonical JSON. In canonical JSON,
//! object members are sorted by name, there is no whitespace between tokens, and numbers are
//! formatted as in `serde_json`. Equal values therefore have equal fingerprints, regardless of the
//! order of their members.

use std::{fmt, io};

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The fingerprint of a JSON value, or of a sequence of JSON values.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint([u8; 32]);

/// Computes the fingerprint of a sequence of JSON values.
#[derive(Default)]
pub(crate) struct Fingerprinter(Sha256);

// === impl Fingerprint ===

impl Fingerprint {
    pub(crate) fn of(value: &Value) -> Self {
        Fingerprinter::default().and(value).finish()
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

// === impl Fingerprinter ===

impl Fingerprinter {
    /// Appends a value to the sequence.
    pub(crate) fn and(mut self, value: &Value) -> Self {
        self.value(value);
        // The line break separates values. Canonical JSON never contains a line break, so different
        // sequences have different fingerprints.
        self.0.update(b"\n");
        self
    }

    /// Appends a value by its fingerprint, if the value itself is not available.
    pub(crate) fn and_fingerprint(mut self, Fingerprint(bytes): &Fingerprint) -> Self {
        // Canonical JSON never begins with `#`, and all fingerprints have the same length. So a
        // fingerprint cannot be confused with a value, and different sequences have different
        // fingerprints.
        self.0.update(b"#");
        self.0.update(bytes);
        self
    }

    pub(crate) fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finalize().into())
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Object(members) => self.object(members.iter().collect()),
            Value::Array(elements) => {
                self.0.update(b"[");
                for (index, element) in elements.iter().enumerate() {
                    self.separate(index);
                    self.value(element);
                }
                self.0.update(b"]");
            }
            Value::String(text) => self.scalar(text),
            Value::Null | Value::Bool(_) | Value::Number(_) => self.scalar(value),
        }
    }

    fn object(&mut self, mut members: Vec<(&String, &Value)>) {
        members.sort_unstable_by_key(|(name, _)| name.as_str());
        self.0.update(b"{");
        for (index, (name, member)) in members.into_iter().enumerate() {
            self.separate(index);
            self.scalar(name);
            self.0.update(b":");
            self.value(member);
        }
        self.0.update(b"}");
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.0.update(b",");
        }
    }

    fn scalar(&mut self, value: &(impl serde::Serialize + ?Sized)) {
        // Cannot fail, because serializing a scalar and writing to a hash cannot fail.
        serde_json::to_writer(Sink(&mut self.0), value).unwrap_or_default();
    }
}

/// A writer that feeds all written bytes to a hash function.
struct Sink<'h>(&'h mut Sha256);

// === impl Sink ===

impl io::Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{
        collection::{btree_map, vec},
        prelude::*,
    };
    use serde_json::json;

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-c\"\\\\\n,{}\\[\\]:é]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 4, |inner| {
            prop_oneof![
                vec(inner.clone(), 0..4).prop_map(Value::from),
                vec(("[a-c\"é]{0,2}", inner), 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn member_order_does_not_change_the_fingerprint(
            members in btree_map("[a-c\"é]{0,2}", value(), 0..6),
            seed in any::<u64>(),
        ) {
            let mut shuffled: Vec<_> = members.iter().collect();
            fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
            let mut object = Fingerprinter::default();
            object.object(shuffled);
            let mut sorted = Fingerprinter::default();
            sorted.object(members.iter().collect());
            prop_assert_eq!(object.finish(), sorted.finish());
        }

        #[test]
        fn fingerprints_differ_exactly_if_the_values_differ(one in value(), other in value()) {
            let printed = Value::to_string;
            let differ = printed(&one) != printed(&other);
            prop_assert_eq!(Fingerprint::of(&one) != Fingerprint::of(&other), differ);
        }
    }

    #[test]
    fn similar_values_have_different_fingerprints() {
        let values = [
            json!(null),
            json!("null"),
            json!(false),
            json!(0),
            json!(0.0),
            json!("0"),
            json!(1),
            json!(1.0),
            json!("1"),
            json!(""),
            json!([]),
            json!({}),
            json!([[]]),
            json!([[], []]),
            json!([{}]),
            json!({ "": {} }),
            json!({ "": [] }),
            json!({ "a": null }),
            json!(["a", null]),
            json!(["a"]),
            json!([["a"]]),
            json!(["a", "b"]),
            json!(["a,b"]),
            json!(["a\",\"b"]),
            json!([["a"], "b"]),
            json!(["a", ["b"]]),
            json!({ "a": { "b": 1 } }),
            json!({ "a": {}, "b": 1 }),
            json!({ "a": 1, "b": 2 }),
            json!({ "a": 2, "b": 1 }),
            json!({ "a\":1,\"b": 2 }),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1e300),
            json!("\n"),
            json!("\\n"),
        ];
        for (index, one) in values.iter().enumerate() {
            for other in &values[index + 1..] {
                assert_ne!(Fingerprint::of(one), Fingerprint::of(other), "{one} and {other}");
            }
        }
    }

    #[test]
    fn different_lists_of_values_have_different_fingerprints() {
        let of = |values: &[Value]| {
            values.iter().fold(Fingerprinter::default(), Fingerprinter::and).finish()
        };
        let lists = [
            vec![],
            vec![json!(12)],
            vec![json!(1), json!(2)],
            vec![json!([1, 2])],
            vec![json!("a"), json!("b")],
            vec![json!("a\nb")],
            vec![json!("b"), json!("a")],
        ];
        for (index, one) in lists.iter().enumerate() {
            for other in &lists[index + 1..] {
                assert_ne!(of(one), of(other), "{one:?} and {other:?}");
            }
        }
        let inner = Fingerprint::of(&json!(1));
        let outer = Fingerprinter::default().and_fingerprint(&inner).finish();
        assert_ne!(outer, of(&[json!(1)]));
        assert_ne!(outer, inner);
    }

    #[test]
    fn fingerprint_is_the_sha_256_of_canonical_json() {
        // printf '%s\n' '{"a":[1,2.5,null],"b":"\"é"}' | sha256sum
        let value = json!({ "b": "\"é", "a": [1, 2.5, null] });
        let expected = "95ac24dd705733fa53f0ecacb305123cf1394613fd419aa22fb7eb20fd5c8532";
        assert_eq!(Fingerprint::of(&value).to_string(), expected);
        assert_eq!(format!("{:?}", Fingerprint::of(&value)), expected);
        assert_eq!(
            u128::from_str_radix(&expected[..32], 16),
            Ok(u128::from_be_bytes(*Fingerprint::of(&value).as_bytes().first_chunk().unwrap()))
        );
    }
}
