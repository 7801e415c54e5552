use cpu_time::ThreadTime;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::json;

use super::*;
use crate::{
    expr::number::to_integer,
    schema::generators::{some_scalar, some_type, some_value, whole_schema},
};

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(members) => members,
        other => panic!("{other} is no object"),
    }
}

fn coerced(schema: &Value, arguments: Value) -> Value {
    let mut arguments = arguments;
    coerce(&object(schema.clone()), &mut arguments, &mut { usize::MAX });
    arguments
}

/// Coerces `value` as an argument that has the schema `schema`.
fn argument(schema: &Value, value: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": { "a": schema } });
    coerced(&schema, json!({ "a": value }))["a"].take()
}

#[track_caller]
fn assert_becomes(schema: &Value, value: &Value, expected: &Value) {
    // Compares the JSON text, because `1` and `1.0` are different here, although they are equal in
    // JSON Schema.
    let (becomes, expected) = (argument(schema, value).to_string(), expected.to_string());
    assert_eq!(becomes, expected, "{value} for {schema}");
}

#[track_caller]
fn assert_stays(schema: &Value, value: &Value) {
    assert_becomes(schema, value, value);
}

#[test]
fn integer_text_becomes_an_integer() {
    for (text, number) in [
        ("42", json!(42)),
        ("-7", json!(-7)),
        ("-0", json!(0)),
        ("0", json!(0)),
        ("9223372036854775807", json!(i64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("18446744073709551615", json!(u64::MAX)),
    ] {
        assert_becomes(&json!({ "type": "integer" }), &json!(text), &number);
        assert_becomes(&json!({ "type": "number" }), &json!(text), &number);
    }
    for text in [
        "",
        " 42",
        "42 ",
        "42.0",
        "1e3",
        "0x10",
        "1_000",
        "--1",
        "+5",
        "007",
        "+",
        "abc",
        "<no value>",
        "true",
        "18446744073709551616",
        "-9223372036854775809",
        "٤٢",
    ] {
        assert_stays(&json!({ "type": "integer" }), &json!(text));
    }
}

#[test]
fn decimal_text_becomes_a_number() {
    for (text, number) in [
        ("1.5", json!(1.5)),
        ("-0.25", json!(-0.25)),
        ("42.0", json!(42.0)),
        ("1e3", json!(1000.0)),
        ("1E-2", json!(0.01)),
        ("2.5e+1", json!(25.0)),
    ] {
        assert_becomes(&json!({ "type": "number" }), &json!(text), &number);
    }
    for text in [
        "",
        "NaN",
        "inf",
        "Infinity",
        "-inf",
        "1e999",
        "0x1p-2",
        "1.5 ",
        "1,5",
        "+1.5",
        "5.",
        ".5",
        ".",
        "e",
        "1.2.3",
        "18446744073709551616",
    ] {
        assert_stays(&json!({ "type": "number" }), &json!(text));
    }
}

#[test]
fn four_words_become_booleans() {
    for (text, value) in [("true", true), ("false", false), ("1", true), ("0", false)] {
        assert_becomes(&json!({ "type": "boolean" }), &json!(text), &json!(value));
    }
    for value in [json!("True"), json!("yes"), json!(""), json!("2"), json!(1), json!(0)] {
        assert_stays(&json!({ "type": "boolean" }), &value);
    }
}

#[test]
fn json_text_becomes_an_array_or_object_of_its_kind() {
    let array = json!({ "type": "array" });
    let object = json!({ "type": "object" });
    assert_becomes(&array, &json!(" [1, {\"b\": null}] \n"), &json!([1, { "b": null }]));
    assert_becomes(&object, &json!("{\"b\": [\"c\"]}"), &json!({ "b": ["c"] }));
    for text in ["{}", "1", "null", "", "[1", "[1] [2]", "a,b", "\"[]\""] {
        assert_stays(&array, &json!(text));
    }
    for text in ["[]", "true", "{a: 1}", "{} {}"] {
        assert_stays(&object, &json!(text));
    }
    let parts = json!({ "type": "array", "items": { "type": "integer" } });
    assert_becomes(&parts, &json!("[\"1\", 2]"), &json!([1, 2]));
    assert_becomes(&parts, &json!("[\"1\", \"x\"]"), &json!([1, "x"]));
}

#[test]
fn text_whose_value_is_too_large_or_too_deep_is_not_read() {
    let array = json!({ "type": "array" });
    let large = |members: usize| json!(format!("[{}0]", r#"{"":0},"#.repeat(members)));
    assert!(argument(&array, &large(20_000)).is_array());
    assert_eq!(argument(&array, &large(30_000)), large(30_000));
    let deep = |levels: usize| json!(format!("{}{}", "[".repeat(levels), "]".repeat(levels)));
    assert!(argument(&array, &deep(127)).is_array());
    assert_stays(&array, &deep(10_000));
}

#[test]
fn numbers_and_booleans_become_text() {
    let text = json!({ "type": "string" });
    for (value, expected) in [
        (json!(42), "42"),
        (json!(1.5), "1.5"),
        (json!(true), "true"),
        (json!(u64::MAX), "18446744073709551615"),
    ] {
        assert_becomes(&text, &value, &json!(expected));
    }
    for value in [json!(null), json!([1]), json!({ "b": 1 })] {
        assert_stays(&text, &value);
    }
    assert_becomes(&json!({ "type": "string", "enum": ["1", "2"] }), &json!(2), &json!("2"));
    assert_stays(&json!({ "type": "string", "enum": ["1", "2"] }), &json!(3));
}

#[test]
fn value_of_a_declared_type_is_unchanged() {
    for (schema, value) in [
        (json!({ "type": "string" }), json!("42")),
        (json!({ "type": "number" }), json!(42)),
        (json!({ "type": ["integer", "string"] }), json!("42")),
        (json!({ "type": ["integer", "null"] }), json!(null)),
        (json!({ "type": ["integer", "null"] }), json!("null")),
        (json!({ "anyOf": [{ "type": "integer" }, { "type": "string" }] }), json!("42")),
        (json!({ "enum": [1, "1"] }), json!("1")),
        (json!({}), json!("42")),
        (json!(true), json!("42")),
        (json!(false), json!("42")),
        (json!({ "type": "whatever" }), json!("42")),
        (json!({ "type": 7 }), json!("42")),
    ] {
        assert_stays(&schema, &value);
    }
}

#[test]
fn text_is_coerced_to_the_preferred_matching_type() {
    for (schema, value, expected) in [
        (json!({ "type": ["integer", "null"] }), json!("42"), json!(42)),
        (json!({ "type": ["boolean", "integer"] }), json!("1"), json!(1)),
        (json!({ "type": ["boolean", "integer"] }), json!("true"), json!(true)),
        (json!({ "type": ["object", "array"] }), json!("[]"), json!([])),
        (json!({ "type": ["string", "null"] }), json!(1), json!("1")),
        (json!({ "anyOf": [{ "type": "integer" }, { "type": "null" }] }), json!("42"), json!(42)),
        (
            json!({ "anyOf": [{ "type": "boolean" }, { "type": "integer" }] }),
            json!("1"),
            json!(true),
        ),
        (json!({ "oneOf": [{ "type": "integer" }, { "type": "boolean" }] }), json!("1"), json!(1)),
        (
            json!({ "oneOf": [{ "type": "null" }, { "anyOf": [{ "type": "number" }] }] }),
            json!("1.5"),
            json!(1.5),
        ),
    ] {
        assert_becomes(&schema, &value, &expected);
    }
}

#[test]
fn value_becomes_the_enum_member_with_the_same_text() {
    for (schema, value, expected) in [
        (json!({ "enum": [1, 2] }), json!("1"), json!(1)),
        (json!({ "enum": [true, null] }), json!("true"), json!(true)),
        (json!({ "enum": ["1", "2"] }), json!(1), json!("1")),
        (json!({ "const": 1.5 }), json!("1.5"), json!(1.5)),
        (json!({ "type": "integer", "enum": [1, 2] }), json!("2"), json!(2)),
        (json!({ "anyOf": [{ "const": 1 }, { "const": 2 }] }), json!("2"), json!(2)),
    ] {
        assert_becomes(&schema, &value, &expected);
    }
    assert_stays(&json!({ "enum": [1, 2] }), &json!("3"));
    assert_stays(&json!({ "enum": [1, 2] }), &json!("1.0"));
    assert_stays(&json!({ "type": "boolean", "const": false }), &json!("1"));
}

#[test]
fn subschemas_that_apply_together_are_combined() {
    for (schema, value, expected) in [
        (
            json!({ "allOf": [{ "type": ["string", "integer"] }, { "type": "integer" }] }),
            json!("1"),
            json!(1),
        ),
        (json!({ "allOf": [{ "minimum": 1 }], "type": "integer" }), json!("1"), json!(1)),
        (
            json!({ "type": "integer", "anyOf": [{ "const": 1 }, { "const": 2 }] }),
            json!("2"),
            json!(2),
        ),
    ] {
        assert_becomes(&schema, &value, &expected);
    }
    // No value has both types that the schema requires.
    for value in [json!("1"), json!(1), json!(true)] {
        assert_stays(
            &json!({ "allOf": [{ "type": "boolean" }, { "type": "string" }, { "type": "integer" }] }),
            &value,
        );
    }
    let schema = json!({
        "allOf": [
            { "properties": { "a": { "type": "integer" } } },
            { "properties": { "b": { "type": "boolean" } } },
        ],
    });
    assert_eq!(coerced(&schema, json!({ "a": "1", "b": "1" })), json!({ "a": 1, "b": true }));
}

#[test]
fn values_within_arrays_and_objects_are_coerced() {
    let schema = json!({
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {
                    "timeout": { "type": "integer" },
                    "enabled": { "type": "boolean" },
                    "ratio": { "type": "number" },
                },
                "additionalProperties": { "type": "integer" },
            },
            "ids": { "type": "array", "items": { "type": "integer" } },
            "pair": { "prefixItems": [{ "type": "integer" }], "items": { "type": "boolean" } },
        },
    });
    let arguments = json!({
        "config": { "timeout": "30", "enabled": "true", "ratio": "0.5", "other": "1" },
        "ids": ["1", 2, "3"],
        "pair": ["1", "1"],
        "unknown": "1",
    });
    let expected = json!({
        "config": { "timeout": 30, "enabled": true, "ratio": 0.5, "other": 1 },
        "ids": [1, 2, 3],
        "pair": [1, true],
        "unknown": "1",
    });
    assert_eq!(coerced(&schema, arguments), expected);
}

#[test]
fn coercible_arguments_are_coerced_beside_invalid_ones() {
    let schema = json!({
        "properties": { "a": { "type": "integer" }, "b": { "type": "boolean" } },
        "required": ["a", "b", "c"],
    });
    let arguments = json!({ "a": "abc", "b": "true" });
    assert_eq!(coerced(&schema, arguments), json!({ "a": "abc", "b": true }));
}

/// The schema of a member that matches a pattern in `patternProperties` is ignored.
#[test]
fn members_beside_pattern_properties_are_unchanged() {
    let schema = json!({
        "patternProperties": { "^s_": { "type": "string" } },
        "additionalProperties": { "type": "integer" },
    });
    assert_stays(&schema, &json!({ "s_a": "1" }));
}

#[test]
fn references_within_the_schema_are_followed() {
    let schema = json!({
        "properties": { "a": { "$ref": "#/$defs/list", "description": "numbers" } },
        "$defs": {
            "list": { "type": "array", "items": { "$ref": "#/$defs/number" } },
            "number": { "type": "integer" },
        },
    });
    assert_eq!(coerced(&schema, json!({ "a": ["1"] })), json!({ "a": [1] }));
    let tree = json!({
        "properties": {
            "size": { "type": "integer" },
            "children": { "type": "array", "items": { "$ref": "#" } },
        },
    });
    let of = |size: Value| json!({ "children": [{ "children": [{ "size": size }] }] });
    assert_eq!(coerced(&tree, of(json!("3"))), of(json!(3)));
    for reference in ["https://example.com/integer", "#/$defs/none", "#integer"] {
        assert_stays(&json!({ "$ref": reference }), &json!("1"));
    }
}

#[test]
fn object_is_coerced_to_the_matching_alternative() {
    let by_kind = json!({
        "anyOf": [
            { "properties": { "kind": { "const": "circle" }, "n": { "type": "string" } } },
            { "properties": { "kind": { "const": "square" }, "n": { "type": "integer" } } },
        ],
    });
    assert_becomes(
        &by_kind,
        &json!({ "kind": "square", "n": "1" }),
        &json!({ "kind": "square", "n": 1 }),
    );
    assert_becomes(
        &by_kind,
        &json!({ "kind": "circle", "n": 1 }),
        &json!({ "kind": "circle", "n": "1" }),
    );
    assert_stays(&by_kind, &json!({ "kind": "line", "n": "1" }));
    let by_members = json!({
        "oneOf": [
            { "properties": { "n": { "type": "boolean" } }, "additionalProperties": false },
            { "properties": { "n": { "type": "integer" }, "m": {} }, "required": ["m"] },
        ],
    });
    assert_becomes(&by_members, &json!({ "n": "1", "m": 0 }), &json!({ "n": 1, "m": 0 }));
    // A branch that already matches the value takes precedence over a branch that requires
    // coercion.
    let either = json!({
        "anyOf": [
            { "properties": { "n": { "type": "integer" } } },
            { "properties": { "n": { "type": "string" } } },
        ],
    });
    assert_stays(&either, &json!({ "n": "1" }));
}

#[test]
fn keywords_of_older_dialects_are_respected() {
    let schema = |dialect: &str, a: Value| {
        json!({
            "$schema": dialect,
            "properties": { "a": a },
            "definitions": { "s": { "type": "string" } },
        })
    };
    let draft7 = "http://json-schema.org/draft-07/schema#";
    let beside = schema(draft7, json!({ "$ref": "#/definitions/s", "type": "integer" }));
    assert_eq!(coerced(&beside, json!({ "a": "1" })), json!({ "a": "1" }));
    assert_eq!(coerced(&beside, json!({ "a": 1 })), json!({ "a": "1" }));
    for dialect in [draft7, "https://json-schema.org/draft/2019-09/schema"] {
        let list =
            json!({ "items": [{ "type": "integer" }], "additionalItems": { "type": "boolean" } });
        let list = schema(dialect, list);
        assert_eq!(coerced(&list, json!({ "a": ["1", "1"] })), json!({ "a": [1, true] }));
    }
}

/// A small schema that refers to itself can have an astronomical number of parts.
#[test]
fn recursive_and_wide_schemas_are_processed_in_time() {
    let twice = json!([{ "$ref": "#" }, { "$ref": "#" }]);
    let wide: Vec<_> = (0..50_000).map(|n| json!({ "const": n })).collect();
    let below = json!([
        { "properties": { "a": { "$ref": "#" } }, "type": "object" },
        { "properties": { "a": { "$ref": "#" } }, "type": "object" },
    ]);
    let deep = (0..100).fold(json!("1"), |inner, _| json!({ "a": inner }));
    let list: Vec<_> = (0..1_000).map(|n| n.to_string()).collect();
    let list = json!({ "a": list });
    for (schema, value) in [
        (json!({ "$ref": "#" }), &list),
        (json!({ "$ref": "#", "$schema": "http://json-schema.org/draft-07/schema#" }), &list),
        (json!({ "allOf": twice }), &list),
        (json!({ "anyOf": twice, "type": "array" }), &list),
        (json!({ "anyOf": twice, "allOf": twice, "enum": [1] }), &deep),
        (
            json!({ "anyOf": below, "oneOf": below, "properties": { "a": { "type": "array" } } }),
            &deep,
        ),
        (json!({ "allOf": below }), &deep),
        (json!({ "anyOf": wide, "oneOf": wide }), &list),
        (json!({ "properties": { "a": { "type": "array", "anyOf": wide } } }), &list),
    ] {
        let start = ThreadTime::now();
        coerced(&schema, value.clone());
        assert!(start.elapsed() < std::time::Duration::from_secs(5), "{schema:.100}");
    }
}

#[test]
fn schema_with_long_lists_is_processed_in_time() {
    let names: Vec<_> = (0..4_000).map(|n| format!("n{n}")).collect();
    let members: JsonObject = names.iter().map(|name| (name.clone(), json!(0))).collect();
    let members = Value::Object(members);
    let types: Vec<_> = (0..4_000).map(|_| "null").collect();
    let long = "x".repeat(4_000);
    let (text, texts) = (json!(long), json!(vec![long + "y"; 4_000]));
    let mut other = members.clone();
    other["n999"] = json!("1");
    for (what, rule, value) in [
        ("`required`", json!({ "required": names }), &members),
        (
            "no other members",
            json!({ "additionalProperties": false, "properties": members }),
            &other,
        ),
        ("types", json!({ "type": types }), &members),
        ("`const`", json!({ "const": other }), &members),
        ("`enum`", json!({ "enum": [other, other] }), &members),
        ("long texts", json!({ "enum": texts }), &text),
        ("members of nothing", json!({}), &members),
    ] {
        let mut definitions = JsonObject::new();
        for place in 0..15 {
            let mut rule = rule.clone();
            let next = json!({ "$ref": format!("#/$defs/{}", place + 1) });
            rule["anyOf"] = json!([next, next]);
            definitions.insert(place.to_string(), rule);
        }
        definitions.insert("15".to_owned(), json!({ "type": "integer" }));
        let schema = json!({ "$ref": "#/$defs/0", "$defs": definitions });
        let start = ThreadTime::now();
        coerced(&schema, value.clone());
        let elapsed = start.elapsed();
        assert!(elapsed < std::time::Duration::from_secs(5), "{what}: {elapsed:?}");
    }
}

#[test]
fn array_text_with_an_oversized_value_stays_a_text() {
    let text = format!("[{}0]", r#"{"":0},"#.repeat(30_000));
    let schema = json!({ "type": "array" });
    assert!(argument(&schema, &json!(text)) == json!(text));
}

#[test]
fn value_is_unchanged_if_the_schema_is_too_wide() {
    let wide: Vec<_> = (0..300_000).map(|_| json!({ "const": 0 })).collect();
    assert_stays(&json!({ "anyOf": wide, "type": "integer" }), &json!("1"));
}

#[test]
fn long_lists_are_coerced_to_their_end() {
    let texts: Vec<_> = (0..20_000).map(|n| n.to_string()).collect();
    let numbers: Vec<_> = (0..20_000).collect();
    let schema = json!({ "type": "array", "items": { "type": "integer" } });
    assert!(argument(&schema, &json!(texts)) == json!(numbers));
}

/// Generates arbitrary JSON objects that resemble schemas but are mostly invalid.
fn no_schema() -> impl Strategy<Value = JsonObject> {
    let keyword = select(vec![
        "type",
        "enum",
        "const",
        "properties",
        "additionalProperties",
        "items",
        "prefixItems",
        "required",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "$schema",
    ])
    .prop_map(str::to_owned);
    let leaf = prop_oneof![
        some_scalar(),
        some_type(),
        select(vec!["#", "#/", "#/properties", "#/anyOf/0", "#/allOf"]).prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::btree_map(keyword.clone(), inner, 0..5)
                .prop_map(|all| json!(all)),
        ]
    });
    value.prop_filter_map("no object", |value| value.as_object().cloned())
}

/// Converts each float without a fraction in a value to an integer.
fn with_integers(value: Value) -> Value {
    match value {
        Value::Number(number) => to_integer(&number).unwrap_or(number).into(),
        Value::Array(elements) => elements.into_iter().map(with_integers).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(key, member)| (key, with_integers(member))).collect()
        }
        value => value,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_value_keeps_its_meaning(schema in whole_schema(), value in some_value()) {
        let Ok(validator) = jsonschema::validator_for(&schema) else { return Ok(()) };
        let root = object(schema);
        if validator.is_valid(&value) {
            let mut becomes = value.clone();
            coerce(&root, &mut becomes, &mut { usize::MAX });
            prop_assert_eq!(with_integers(becomes), with_integers(value));
        }
    }

    #[test]
    fn coercion_is_idempotent(schema in whole_schema(), value in some_value()) {
        let once = coerced(&schema, value);
        prop_assert_eq!(&coerced(&schema, once.clone()), &once);
    }

    #[test]
    fn coercion_accepts_any_json_as_a_schema(schema in no_schema(), value in some_value()) {
        let mut value = value;
        coerce(&schema, &mut value, &mut { usize::MAX });
    }

    #[test]
    fn integers_stay_exact(number: i64, large: u64) {
        for (text, number) in [(number.to_string(), json!(number)), (large.to_string(), json!(large))] {
            for kind in ["integer", "number"] {
                prop_assert_eq!(&argument(&json!({ "type": kind }), &json!(text)), &number);
            }
            prop_assert_eq!(&argument(&json!({ "type": "string" }), &number), &json!(text));
        }
    }
}
