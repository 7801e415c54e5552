//! Random schemas and values for property tests.

use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Value, json};

pub(crate) fn some_type() -> impl Strategy<Value = Value> {
    select(vec![
        json!("integer"),
        json!("number"),
        json!("boolean"),
        json!("array"),
        json!("object"),
        json!("string"),
        json!("null"),
        json!(["integer", "null"]),
        json!(["boolean", "string"]),
        json!(["array", "integer"]),
    ])
}

pub(crate) fn some_scalar() -> impl Strategy<Value = Value> {
    select(vec![
        json!(null),
        json!(true),
        json!(0),
        json!(1),
        json!(1.0),
        json!(1.5),
        json!(""),
        json!("0"),
        json!("1"),
        json!("1.5"),
        json!("true"),
        json!("null"),
        json!("[\"1\", {\"a\": \"1\"}]"),
        json!("{\"a\": \"1\", \"b\": [\"true\"]}"),
        json!("x"),
    ])
}

pub(crate) fn some_key() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "c"]).prop_map(str::to_owned)
}

pub(crate) fn some_value() -> impl Strategy<Value = Value> {
    some_scalar().prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(some_key(), inner, 0..3).prop_map(|all| json!(all)),
        ]
    })
}

fn some_schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        4 => some_type().prop_map(|kind| json!({ "type": kind })),
        1 => some_value().prop_map(|value| json!({ "const": value })),
        1 => vec(some_scalar(), 1..4).prop_map(|values| json!({ "enum": values })),
        1 => select(vec![json!(true), json!(false), json!({}), json!({ "minLength": 2 })]),
        1 => select(vec!["#", "#/$defs/a", "#/$defs/b"])
            .prop_map(|reference| json!({ "$ref": reference })),
    ];
    leaf.prop_recursive(3, 24, 3, |inner| {
        let several = || vec(inner.clone(), 1..3);
        let members = || proptest::collection::btree_map(some_key(), inner.clone(), 0..3);
        prop_oneof![
            (members(), proptest::option::of(inner.clone())).prop_map(|(properties, other)| {
                match other {
                    Some(other) => {
                        json!({ "properties": properties, "additionalProperties": other })
                    }
                    None => {
                        json!({ "type": "object", "properties": properties, "required": ["a"] })
                    }
                }
            }),
            inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            (several(), inner.clone())
                .prop_map(|(first, items)| json!({ "prefixItems": first, "items": items })),
            several().prop_map(|parts| json!({ "anyOf": parts })),
            several().prop_map(|parts| json!({ "oneOf": parts })),
            several().prop_map(|parts| json!({ "allOf": parts })),
            (some_type(), inner.clone())
                .prop_map(|(kind, part)| json!({ "type": kind, "allOf": [part] })),
            inner.prop_map(|part| json!({ "not": part })),
        ]
    })
}

pub(crate) fn whole_schema() -> impl Strategy<Value = Value> {
    let part = || some_schema();
    (proptest::collection::btree_map(some_key(), part(), 0..4), part(), part(), part()).prop_map(
        |(properties, rest, a, b)| {
            json!({ "properties": properties, "allOf": [rest], "$defs": { "a": a, "b": b } })
        },
    )
}
