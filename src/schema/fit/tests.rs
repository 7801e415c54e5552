use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::json;

use super::*;

const UNKNOWN: PartialValue = PartialValue::Unknown { optional: false };
const OPTIONAL: PartialValue = PartialValue::Unknown { optional: true };

fn known(value: Value) -> PartialValue {
    PartialValue::Known(value)
}

fn object<const N: usize>(members: [(&str, PartialValue); N]) -> PartialValue {
    PartialValue::Object(members.map(|(name, member)| (name.to_owned(), member)).into())
}

fn array<const N: usize>(elements: [PartialValue; N]) -> PartialValue {
    PartialValue::Array(elements.into())
}

/// Returns the path and message of each misfit. The paths are JSON Pointers.
fn reported_misfits(schema: &Value, arguments: &PartialValue) -> Vec<(String, String)> {
    let schema = schema.as_object().unwrap();
    misfits(schema, arguments)
        .into_iter()
        .map(|misfit| (pointer(&misfit.path), misfit.message))
        .collect()
}

#[track_caller]
fn assert_misfits(schema: &Value, arguments: &PartialValue, expected: &[(&str, &str)]) {
    let misfits = reported_misfits(schema, arguments);
    let misfits: Vec<_> = misfits.iter().map(|(path, message)| (&**path, &**message)).collect();
    assert_eq!(misfits, expected, "{arguments:?} for {schema}");
}

/// Returns a typical input schema of a search tool.
fn search() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": { "type": "string" },
            "limit": { "type": "integer", "maximum": 50 },
            "sort": { "enum": ["new", "old"] },
            "filter": { "$ref": "#/$defs/filter" },
            "tags": { "type": "array", "items": { "type": "string", "maxLength": 3 } },
        },
        "required": ["query"],
        "$defs": {
            "filter": {
                "type": "object",
                "properties": { "author": { "type": ["string", "null"] }, "year": { "type": "integer" } },
                "required": ["author"],
            },
        },
    })
}

#[test]
fn arguments_that_may_be_valid_are_not_reported() {
    for arguments in [
        UNKNOWN,
        object([("query", UNKNOWN)]),
        object([("query", OPTIONAL)]),
        object([("query", UNKNOWN), ("limit", known(json!("10"))), ("tags", known(json!("[1]")))]),
        object([
            ("query", known(json!(42))),
            ("filter", UNKNOWN),
            ("tags", array([OPTIONAL, UNKNOWN])),
        ]),
        object([("query", UNKNOWN), ("filter", object([("author", OPTIONAL), ("year", UNKNOWN)]))]),
        known(json!({ "query": "x", "sort": "new", "filter": { "author": null } })),
    ] {
        assert_misfits(&search(), &arguments, &[]);
    }
}

#[test]
fn missing_required_member_is_reported() {
    let query = "`query` is required by the tool's schema";
    let author = "`author` is required by the tool's schema";
    for (arguments, expected) in [
        (object([]), vec![("", query)]),
        (known(json!({ "limit": 1 })), vec![("", query)]),
        (object([("limit", UNKNOWN)]), vec![("", query)]),
        (
            object([("query", UNKNOWN), ("filter", object([("year", UNKNOWN)]))]),
            vec![("/filter", author)],
        ),
        (object([("query", UNKNOWN), ("filter", known(json!({})))]), vec![("/filter", author)]),
        (object([("query", UNKNOWN), ("filter", known(json!("{}")))]), vec![("/filter", author)]),
        (object([("filter", object([]))]), vec![("", query), ("/filter", author)]),
    ] {
        assert_misfits(&search(), &arguments, &expected);
    }
}

#[test]
fn unknown_member_is_reported() {
    let slip = "the tool's schema has no `qurey`: did you mean `query`?";
    for schema in [
        json!({ "properties": { "query": {} } }),
        json!({ "properties": { "query": {} }, "additionalProperties": false }),
        json!({ "$id": "https://example.com/a", "properties": { "query": {} } }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "properties": { "query": {} } } } }),
    ] {
        for member in [UNKNOWN, OPTIONAL, known(json!(1))] {
            assert_misfits(&schema, &object([("qurey", member)]), &[("", slip)]);
        }
        assert_misfits(&schema, &known(json!({ "qurey": 1 })), &[("", slip)]);
        let other = object([("x", UNKNOWN)]);
        assert_misfits(&schema, &other, &[("", "the tool's schema has no `x`")]);
    }
    let inner =
        object([("query", UNKNOWN), ("filter", object([("author", UNKNOWN), ("yaer", UNKNOWN)]))]);
    let slip = "the tool's schema has no `yaer`: did you mean `year`?";
    assert_misfits(&search(), &inner, &[("/filter", slip)]);
}

#[test]
fn member_of_another_keyword_is_not_reported() {
    let properties = json!({ "query": {} });
    for schema in [
        json!({}),
        json!({ "properties": properties, "additionalProperties": true }),
        json!({ "properties": properties, "additionalProperties": { "type": "integer" } }),
        json!({ "properties": properties, "patternProperties": { "^q": {} } }),
        json!({ "properties": properties, "allOf": [{ "properties": { "qurey": {} } }] }),
        json!({ "properties": properties, "anyOf": [{}] }),
        json!({ "properties": properties, "if": {}, "then": {} }),
        json!({ "properties": properties, "$ref": "#/$defs/a", "$defs": { "a": {} } }),
        json!({ "properties": properties, "$ref": "https://example.com/a" }),
        json!({ "properties": properties, "unevaluatedProperties": {} }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$id": "a", "properties": properties } } }),
    ] {
        assert_misfits(&schema, &object([("qurey", UNKNOWN)]), &[]);
    }
}

#[test]
fn invalid_known_value_is_reported() {
    for (name, value, path, message) in [
        ("limit", json!("ten"), "/limit", "is a string: expected an integer"),
        ("limit", json!([1]), "/limit", "is an array: expected an integer"),
        ("limit", json!("60"), "/limit", "the value is greater than the maximum of 50"),
        ("query", json!(null), "/query", "is null: expected a string"),
        ("sort", json!("newest"), "/sort", "the value is not one of \"new\" or \"old\""),
        ("tags", json!(["abc", "abcd"]), "/tags/1", "the value is longer than 3 characters"),
        (
            "filter",
            json!({ "author": [] }),
            "/filter/author",
            "is an array: expected a string or null",
        ),
    ] {
        let mut members =
            vec![(name.to_owned(), known(value.clone())), ("query".to_owned(), UNKNOWN)];
        members.dedup_by(|one, other| one.0 == other.0);
        assert_misfits(&search(), &PartialValue::Object(members), &[(path, message)]);
    }
    let tags = array([OPTIONAL, known(json!("abcd"))]);
    let message = "the value is longer than 3 characters";
    assert_misfits(
        &search(),
        &object([("query", UNKNOWN), ("tags", tags)]),
        &[("/tags/1", message)],
    );
}

#[test]
fn unexpected_array_or_object_is_reported() {
    for (name, value, path, message) in [
        ("limit", array([UNKNOWN]), "/limit", "is an array: expected an integer"),
        ("limit", object([("a", UNKNOWN)]), "/limit", "is an object: expected an integer"),
        ("tags", object([("a", UNKNOWN)]), "/tags", "is an object: expected an array"),
        ("filter", array([UNKNOWN]), "/filter", "is an array: expected an object"),
    ] {
        assert_misfits(&search(), &object([("query", UNKNOWN), (name, value)]), &[(path, message)]);
    }
    assert_misfits(&search(), &array([UNKNOWN]), &[("", "is an array: expected an object")]);
}

/// The validity of a known part can depend on an unknown part.
#[test]
fn violations_that_depend_on_unknown_parts_are_not_reported() {
    let is = |value: &str| json!({ "properties": { "a": { "const": value } } });
    for schema in [
        json!({ "anyOf": [is("x"), is("y")] }),
        json!({ "if": { "required": ["b"] }, "then": is("x"), "else": is("y") }),
        json!({ "dependentSchemas": { "b": is("x") } }),
        json!({ "allOf": [{ "anyOf": [is("x"), { "required": ["b"] }] }] }),
        json!({ "minProperties": 3 }),
        json!({ "dependentRequired": { "a": ["c"] } }),
    ] {
        assert_misfits(&schema, &object([("a", known(json!("z"))), ("b", UNKNOWN)]), &[]);
    }
    let unique = json!({ "properties": { "a": { "uniqueItems": true, "minItems": 9 } } });
    assert_misfits(&unique, &object([("a", array([UNKNOWN, OPTIONAL]))]), &[]);
}

#[test]
fn all_violations_of_known_arguments_are_reported() {
    let is = |value: &str| json!({ "properties": { "a": { "const": value } } });
    let schema = json!({ "anyOf": [is("x"), is("y")] });
    let message = "the value is not valid under any of the schemas listed in the 'anyOf' keyword";
    assert_misfits(&schema, &known(json!({ "a": "z" })), &[("", message)]);
    assert_misfits(&schema, &object([("a", known(json!("z")))]), &[("", message)]);
    let within = json!({ "properties": { "b": schema } });
    assert_misfits(
        &within,
        &object([("b", object([("a", known(json!("z")))]))]),
        &[("/b", message)],
    );
}

#[test]
fn unusable_schema_still_reports_missing_members() {
    let schema =
        json!({ "properties": { "query": { "pattern": "(?=look)" } }, "required": ["query"] });
    let message = "`query` is required by the tool's schema";
    assert_misfits(&schema, &known(json!({})), &[("", message)]);
    assert_misfits(&schema, &known(json!({ "query": "x" })), &[]);
}

#[test]
fn number_of_reported_violations_is_limited() {
    let members: Vec<_> = (0..1_000).map(|n| (n.to_string(), UNKNOWN)).collect();
    let required: Vec<_> = (0..1_000).map(|n| format!("r{n}")).collect();
    let schema = json!({ "properties": { "a": {} }, "required": required });
    assert_eq!(reported_misfits(&schema, &PartialValue::Object(members)).len(), MAX_VIOLATIONS);
    let circle = json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/a" } } });
    assert_misfits(&circle, &object([("a", UNKNOWN)]), &[]);
}

fn some_key() -> impl Strategy<Value = String> {
    select(vec!["a", "b", "c/d"]).prop_map(str::to_owned)
}

/// Generates a schema together with a value that is valid, or becomes valid after coercion.
fn schema_and_value() -> impl Strategy<Value = (Value, Value)> {
    let leaf = select(vec![
        (json!({ "type": "integer", "maximum": 5 }), json!(3)),
        (json!({ "type": "integer" }), json!("42")),
        (json!({ "type": ["boolean", "null"] }), json!("true")),
        (json!({ "type": "string", "minLength": 2 }), json!(10)),
        (json!({ "type": "array", "minItems": 2 }), json!("[1, 2]")),
        (json!({ "enum": ["x", 1] }), json!("x")),
        (json!({ "anyOf": [{ "type": "null" }, { "type": "number" }] }), json!("1.5")),
        (json!({ "const": [1, { "a": 2 }] }), json!([1, { "a": 2 }])),
        (json!({ "$ref": "#/$defs/text" }), json!("x")),
        (json!({}), json!({ "any": 1 })),
    ]);
    leaf.prop_recursive(4, 24, 4, |inner| {
        let members =
            proptest::collection::btree_map(some_key(), (inner.clone(), any::<bool>()), 0..4);
        let others = select(vec![None, Some(json!(false)), Some(json!({ "type": "integer" }))]);
        prop_oneof![
            (inner.clone(), 1..3usize).prop_map(|((schema, value), n)| {
                (json!({ "type": "array", "items": schema, "minItems": n }), json!(vec![value; n]))
            }),
            (inner.clone(), inner.clone()).prop_map(|((one, first), (other, second))| {
                (
                    json!({ "prefixItems": [one], "items": other, "maxItems": 2 }),
                    json!([first, second]),
                )
            }),
            (members, others).prop_map(|(members, others)| {
                let mut schema = json!({ "type": "object", "minProperties": members.len() });
                schema["required"] = members
                    .iter()
                    .filter(|(_, (_, required))| *required)
                    .map(|(name, _)| name.as_str())
                    .collect();
                let value: Value = members
                    .iter()
                    .map(|(name, ((_, value), _))| (name.clone(), value.clone()))
                    .collect();
                schema["properties"] =
                    members.into_iter().map(|(name, ((schema, _), _))| (name, schema)).collect();
                if let Some(others) = others {
                    schema["additionalProperties"] = others;
                }
                (schema, value)
            }),
            inner.clone().prop_map(|(schema, value)| (json!({ "allOf": [schema, {}] }), value)),
            inner.clone().prop_map(|(schema, value)| (json!({ "oneOf": [false, schema] }), value)),
            inner.prop_map(|(schema, value)| {
                let has_a = json!({ "type": "object", "required": ["a"] });
                (json!({ "allOf": [schema], "if": { "not": has_a }, "else": has_a }), value)
            }),
        ]
    })
}

/// Replaces random parts of a value with unknown parts. `coins` contains the random numbers.
fn blanked(value: Value, coins: &mut impl Iterator<Item = u8>) -> PartialValue {
    match (coins.next().unwrap_or_default(), value) {
        (0, _) => UNKNOWN,
        (1, _) => OPTIONAL,
        (2, value) => known(value),
        (_, Value::Array(elements)) => PartialValue::Array(
            elements.into_iter().map(|element| blanked(element, coins)).collect(),
        ),
        (_, Value::Object(members)) => {
            let members = members.into_iter();
            PartialValue::Object(
                members.map(|(name, member)| (name, blanked(member, coins))).collect(),
            )
        }
        (_, value) => known(value),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arguments_that_can_become_valid_are_not_reported(
        (schema, value) in schema_and_value(),
        coins in vec(0..6u8, 30),
    ) {
        let schema = json!({
            "type": "object",
            "properties": { "a": schema },
            "$defs": { "text": { "type": "string" } },
        });
        let arguments = blanked(json!({ "a": value }), &mut coins.into_iter().cycle());
        prop_assert_eq!(reported_misfits(&schema, &arguments), []);
    }
}
