use serde_json::json;

use super::*;

fn steps(schema: &Value, value: &Value) -> Option<usize> {
    Steps::read(schema).unwrap_or_else(|unusable| panic!("{unusable}")).count(value, 10_000)
}

/// Returns a schema in which each definition refers twice to the next definition.
fn doubling(levels: usize, twice: impl Fn(&str) -> Value) -> Value {
    let definitions: JsonObject = (0..levels)
        .map(|level| (format!("d{level}"), twice(&format!("#/$defs/d{}", level + 1))))
        .chain([(format!("d{levels}"), json!({}))])
        .collect();
    json!({ "$ref": "#/$defs/d0", "$defs": definitions })
}

#[test]
fn each_schema_that_applies_to_a_value_counts_as_a_step() {
    for (schema, value, expected) in [
        (json!({}), json!({ "a": [1] }), 1),
        (json!(true), json!(1), 1),
        (json!({ "allOf": [{}, true], "not": {}, "if": {}, "then": {} }), json!(1), 6),
        (json!({ "$ref": "#/$defs/a", "$defs": { "a": {}, "b": {} } }), json!(1), 2),
        (json!({ "$ref": "#there", "$defs": { "a": { "$anchor": "there" } } }), json!(1), 2),
        (json!({ "$ref": "#/%24defs/a", "$defs": { "a": {} } }), json!(1), 2),
        (json!({ "$ref": "other", "$defs": { "a": { "$id": "other", "not": {} } } }), json!(1), 3),
        (json!({ "items": { "type": "integer" } }), json!([1, 2, 3]), 4),
        // The cost includes looking up each name in `properties`.
        (json!({ "additionalProperties": {} }), json!({ "a": 1, "b": 2 }), 9),
        (json!({ "dependentSchemas": { "a": {} } }), json!({}), 5),
        // Finding the member takes one step, and applying its schema takes another.
        (json!({ "properties": { "a": {} } }), json!({ "a": 1, "b": 2 }), 3),
        (json!({ "properties": { "a": {}, "b": {} } }), json!({ "b": 1 }), 3),
        // To find unevaluated properties, the validator checks the subschemas in `allOf` again.
        (json!({ "allOf": [{}], "unevaluatedProperties": false }), json!({}), 4),
    ] {
        assert_eq!(steps(&schema, &value), Some(expected), "{schema}");
    }
}

#[test]
fn reference_to_a_standard_metaschema_is_followed() {
    for dialect in
        ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
    {
        let schema = json!({ "properties": { "schema": { "$ref": dialect } } });
        let steps = steps(&schema, &json!({ "schema": { "type": "object" } }));
        assert!(steps.is_some_and(|steps| steps > 5), "{steps:?}");
    }
}

#[test]
fn schema_applied_too_often_to_one_value_is_rejected() {
    let all = |next: &str| json!({ "allOf": [{ "$ref": next }, { "$ref": next }] });
    let any = |next: &str| json!({ "anyOf": [{ "$ref": next }, { "$ref": next }] });
    let left_over =
        |next: &str| json!({ "allOf": [{ "$ref": next }], "unevaluatedProperties": false });
    let once = |next: &str| json!({ "$ref": next });
    for (schema, fits) in [
        (doubling(9, all), true),
        (doubling(20, all), false),
        (doubling(20, any), false),
        (doubling(20, left_over), false),
        (doubling(100, once), true),
        (doubling(5_000, once), false),
        (json!({ "allOf": [{ "$ref": "#" }] }), false),
        (json!({ "properties": { "a": { "allOf": [{ "$ref": "#/properties/a" }] } } }), false),
        (json!({ "properties": { "a": { "$ref": "#" } } }), true),
        // A reference of a schema to itself restricts no value. The validator does not follow it.
        (json!({ "$ref": "#" }), true),
    ] {
        assert_eq!(Steps::read(&schema).is_ok(), fits, "{schema:.100}");
    }
}

#[test]
fn schema_applied_twice_to_a_member_counts_steps_twice() {
    let schema = json!({
        "allOf": [
            { "properties": { "a": { "$ref": "#" } } },
            { "properties": { "a": { "$ref": "#" } } },
        ],
    });
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    assert_eq!(steps(&schema, &nested(1)), Some(13));
    assert_eq!(steps(&schema, &nested(2)), Some(33));
    assert_eq!(steps(&schema, &nested(100)), None);
}

#[test]
fn nested_steps_are_limited() {
    let chain = doubling(100, |next| json!({ "$ref": next }));
    let mut schema = chain;
    schema["$defs"]["d100"] = json!({ "items": { "$ref": "#" } });
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(steps(&schema, &nested(3)).is_some());
    assert_eq!(steps(&schema, &nested(10)), None);
}

#[test]
fn regular_expressions_are_limited_in_number_and_size() {
    let schema = |patterns: usize, bytes: usize| {
        let pattern = |n: usize| json!({ "pattern": format!("{n:0bytes$}") });
        let properties: JsonObject =
            (0..patterns).map(|n| (n.to_string(), pattern(n / 2))).collect();
        json!({ "properties": properties })
    };
    assert!(Steps::read(&schema(2 * MAX_PATTERNS, 4)).is_ok(), "the same is one");
    assert!(Steps::read(&schema(2 * MAX_PATTERNS + 1, 4)).is_err());
    assert!(Steps::read(&schema(2, MAX_PATTERN_BYTES)).is_ok());
    assert!(Steps::read(&schema(2, MAX_PATTERN_BYTES + 1)).is_err());
    let named: JsonObject = (0..=MAX_PATTERNS).map(|n| (n.to_string(), json!({}))).collect();
    assert!(Steps::read(&json!({ "patternProperties": named })).is_err());
}

#[test]
fn schema_that_takes_long_to_read_is_rejected() {
    let long = format!("#/$defs/{}", "x".repeat(MAX_REFERENCE));
    let identities =
        |n: usize| -> Vec<_> { (0..n).map(|n| json!({ "$id": n.to_string() })).collect() };
    let parts = |n: usize| vec![json!({}); n];
    for (schema, reason) in [
        (json!({ "$ref": long }), "reference"),
        (
            json!({ "examples": vec![json!({ "$ref": "#/a".repeat(100) }); 1_000] }),
            "references have",
        ),
        (json!({ "examples": identities(MAX_IDENTITIES + 1) }), "identities"),
        (json!({ "prefixItems": parts(MAX_SUBSCHEMAS) }), "parts"),
    ] {
        let error = Steps::read(&schema).map(drop).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let schema = json!({ "prefixItems": parts(MAX_SUBSCHEMAS - 1), "examples": identities(9) });
    assert!(Steps::read(&schema).is_ok());
}

/// The translation time of an expression is quadratic in the number of its character classes. If
/// the expression ignores case, the parser looks up each character of a range.
#[test]
fn expressions_that_take_long_to_parse_are_rejected() {
    for pattern in [
        r"\s".repeat(100),
        r"[\S]".repeat(100),
        "(?i:[a-\u{ffff}])".to_owned(),
        r"(?i)[a-\uffff]".to_owned(),
        r"(?m-i)(?si)\x{0}".to_owned(),
        format!("(?i){}", r"\p{L}".repeat(60)),
        r"\pL".repeat(4_000),
    ] {
        let error = Steps::read(&json!({ "pattern": pattern })).map(drop).unwrap_err().to_string();
        assert!(error.contains("classes of characters"), "{error}");
    }
    for pattern in
        [r"^[\w.+-]+@[\w-]+(\.[\w-]+)+$", r"(?i)^[a-z]+\p{L}$", r"(?<i>é)", r"(?:\u0069)"]
    {
        assert!(Steps::read(&json!({ "pattern": pattern })).is_ok(), "{pattern}");
    }
}

#[test]
fn compiled_expressions_are_limited_in_size() {
    let schema = |patterns: usize| {
        let pattern = |n: usize| json!({ "pattern": format!(r"^{n}[\p{{L}}]{{10}}$") });
        let properties: JsonObject = (0..patterns).map(|n| (n.to_string(), pattern(n))).collect();
        json!({ "properties": properties })
    };
    assert!(Steps::read(&schema(2)).is_ok());
    let error = Steps::read(&schema(50)).map(drop).unwrap_err().to_string();
    assert!(error.contains("1048576 bytes when compiled"), "{error}");
}

#[test]
fn parts_that_a_validator_copies_are_limited() {
    let schema = |count: usize| {
        let part = json!({ "$ref": "#/$defs/all", "unevaluatedProperties": false });
        let properties: JsonObject = (0..count).map(|n| (n.to_string(), part.clone())).collect();
        let all: Vec<_> = (0..100).map(|n| json!({ "minProperties": n })).collect();
        json!({ "properties": properties, "$defs": { "all": { "allOf": all } } })
    };
    assert!(Steps::read(&schema(10)).is_ok());
    let error = Steps::read(&schema(50)).map(drop).unwrap_err().to_string();
    assert!(error.contains("`unevaluatedProperties`"), "{error}");
}

#[test]
fn lists_compared_in_quadratic_time_are_rejected() {
    let nested = |n: usize| (0..n % 90).fold(json!([]), |inner, _| json!([inner]));
    let arrays = |count: usize| (0..count).map(nested).collect::<Vec<_>>();
    let large: Vec<_> = (0..2_000).map(|n| u64::MAX - n).collect();
    for (schema, fits) in [
        (json!({ "enum": arrays(100) }), true),
        (json!({ "enum": (0..20_000).collect::<Vec<_>>() }), true),
        (json!({ "enum": arrays(2_000) }), false),
        (json!({ "properties": { "a": { "enum": large } } }), false),
        (json!({ "required": arrays(2_000) }), false),
        (json!({ "dependentRequired": { "a": arrays(2_000) } }), false),
        (json!({ "examples": arrays(2_000) }), true),
    ] {
        assert_eq!(Steps::read(&schema).is_ok(), fits, "{schema:.100}");
    }
}

#[test]
fn word_boundaries_and_unicode_classes_cost_more_than_plain_text() {
    let cost = |pattern: &str| Pattern::new(pattern, &mut { MAX_REGEX_BYTES }).unwrap().cost();
    let plain = cost("^[a-z]+$");
    for cheap in [".*x", "https?://x", r"^\d{4}-\d{2}$", "^(foo|bar)[a-z]*$"] {
        assert_eq!(cost(cheap), plain, "{cheap}");
    }
    for costly in [r"\bx\b", r"\p{L}x", "[ab]*a[ab]{12}x"] {
        assert!(cost(costly) > 20 * plain, "{costly}: {}", cost(costly));
    }
}

#[test]
fn names_count_steps_each_time_they_are_copied() {
    let schema = json!({
        "allOf": vec![json!({ "$ref": "#/$defs/a" }); 10],
        "$defs": { "a": { "propertyNames": { "type": "string" } } },
    });
    let count = |bytes: usize| steps(&schema, &json!({ "x".repeat(bytes): 1 })).unwrap();
    assert!(count(6_400) > count(64) + 900);
}
