//! The rewriting of single keywords, and the limit of inspected schema.

use super::{super::fits::fits, *};

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

fn rewritten(schema: Value, arguments: Vec<Argument>) -> (Value, bool) {
    let rewritten = rewrite(&object(schema), &Arguments::new(arguments));
    (rewritten.schema.into(), rewritten.is_exact)
}

/// Returns whether the shown schema allows only arguments that the tool accepts.
fn is_exact(schema: Value) -> bool {
    rewrite(&object(schema), &arguments()).is_exact
}

/// Returns the schema of the argument `k` as clients see it.
#[expect(clippy::needless_pass_by_value, reason = "the cases read better without `&`")]
fn shown_of_k(schema: Value) -> Value {
    shown(json!({ "properties": { "k": schema } }))["properties"]["k"].clone()
}

#[test]
fn it_is_plain_to_see_whether_a_value_fits_or_nobody_says() {
    let (yes, no, unclear) = (Some(true), Some(false), None);
    let cases = [
        (json!(true), json!(1), yes),
        (json!(false), json!(1), no),
        (json!("x"), json!(1), unclear),
        (json!({}), json!(1), yes),
        (json!({ "type": "null" }), json!(null), yes),
        (json!({ "type": "boolean" }), json!(true), yes),
        (json!({ "type": "string" }), json!("s"), yes),
        (json!({ "type": "array" }), json!([]), yes),
        (json!({ "type": "object" }), json!({}), yes),
        (json!({ "type": "number" }), json!(1.5), yes),
        (json!({ "type": "integer" }), json!(1), yes),
        (json!({ "type": "integer" }), json!(1.0), unclear),
        (json!({ "type": "integer" }), json!("1"), no),
        (json!({ "type": "string" }), json!(1), no),
        (json!({ "type": "any" }), json!(1), unclear),
        (json!({ "type": ["string", "integer"] }), json!(1), yes),
        (json!({ "type": ["string", "null"] }), json!(1), no),
        (json!({ "type": ["string", "any"] }), json!(1), unclear),
        (json!({ "const": 1 }), json!(1), yes),
        (json!({ "const": "s" }), json!(1), no),
        (json!({ "const": 1.0 }), json!(1), unclear),
        (json!({ "const": [1.0] }), json!([1]), unclear),
        (json!({ "const": { "a": 1.0 } }), json!({ "a": 1 }), unclear),
        (json!({ "enum": ["s", 1] }), json!(1), yes),
        (json!({ "enum": ["s", null] }), json!(1), no),
        (json!({ "enum": ["s", 2] }), json!(1), unclear),
        (json!({ "description": "a number", "type": "integer" }), json!(1), yes),
        (json!({ "minimum": 0, "type": "integer" }), json!(1), unclear),
        (json!({ "minimum": 0, "type": "string" }), json!(1), no),
    ];
    for (schema, value, expected) in cases {
        assert_eq!(fits(&schema, &value), expected, "{value} and {schema}");
    }
}

#[test]
fn what_is_shown_is_exact_if_nothing_was_left_out() {
    for schema in [
        json!({ "properties": { "k": { "type": "integer" } } }),
        json!({ "properties": { "b": { "type": "integer" } }, "additionalProperties": false }),
        json!({ "minProperties": 2, "maxProperties": 3 }),
    ] {
        assert!(is_exact(schema.clone()), "{schema}");
    }
    for schema in [
        json!({ "properties": { "b": { "minimum": 0 } } }),
        json!({ "properties": { "b": { "type": "string" } } }),
        json!({ "required": ["c"] }),
        json!({ "additionalProperties": { "type": "integer" } }),
        json!({ "propertyNames": { "pattern": "^k" } }),
        json!({ "$dynamicRef": "#k" }),
        json!({ "minProperties": "two" }),
        json!({ "allOf": [{ "$id": "http://example.com/", "required": ["k"] }] }),
    ] {
        assert!(!is_exact(schema.clone()), "{schema}");
    }
}

#[test]
fn what_has_a_default_may_or_may_not_be_sent() {
    let open = || vec![argument("a", Some("x"), Some(json!(1)))];
    let (shown, is_exact) = rewritten(json!({ "minProperties": 2, "maxProperties": 3 }), open());
    assert_eq!((&shown["minProperties"], &shown["maxProperties"]), (&json!(1), &json!(3)));
    assert!(!is_exact);
    let hidden = || vec![argument("b", None, Some(json!(1)))];
    let (shown, _) =
        rewritten(json!({ "anyOf": [{ "maxProperties": 0 }, { "maxProperties": 1 }] }), hidden());
    assert_eq!(shown["anyOf"], json!([false, { "maxProperties": 0 }]));
}

#[test]
fn names_of_arguments_are_exact_if_all_are_sent_as_they_are() {
    let hidden = || vec![argument("c", None, None)];
    for (names, arguments, expected) in [
        (json!({ "enum": ["k"] }), hidden(), true),
        (json!({ "maxLength": 3 }), hidden(), true),
        (json!(true), hidden(), true),
        (json!({ "enum": ["k"], "maxLength": 3 }), hidden(), false),
        (json!({ "maxLength": 3 }), vec![argument("a", Some("x"), None)], false),
        (json!({ "maxLength": 3 }), vec![argument("b", None, Some(json!(1)))], false),
    ] {
        let (_, is_exact) = rewritten(json!({ "propertyNames": names }), arguments);
        assert_eq!(is_exact, expected, "{names}");
    }
    let renamed = || vec![argument("a", Some("x"), None)];
    for (names, arguments, expected) in [
        (json!({ "type": "string" }), hidden(), Some(json!({ "type": "string" }))),
        (json!(false), hidden(), Some(json!(false))),
        (json!(false), renamed(), None),
    ] {
        let (shown, _) = rewritten(json!({ "propertyNames": names }), arguments);
        assert_eq!(shown.get("propertyNames"), expected.as_ref(), "{names}");
    }
}

#[test]
fn arguments_that_depend_on_others_depend_on_those_that_clients_know() {
    let cases = [
        (
            json!({ "dependentRequired": { "a": ["c"] } }),
            json!({ "allOf": [{ "not": { "required": ["x"] } }] }),
        ),
        (json!({ "dependentRequired": { "b": ["b"] } }), json!({})),
        (
            json!({ "anyOf": [{ "dependentRequired": { "b": ["c"] } }] }),
            json!({ "anyOf": [false] }),
        ),
        (
            json!({ "dependencies": { "a": ["k", "b"], "c": ["k"], "k": { "required": ["a"] } } }),
            json!({ "dependencies": { "x": ["k"], "k": { "required": ["x"] } } }),
        ),
        (
            json!({ "$schema": "s", "allOf": [{ "$schema": "s", "title": "t" }] }),
            json!({ "$schema": "s", "allOf": [{ "title": "t" }] }),
        ),
        (
            json!({ "allOf": [{ "$dynamicRef": "#k" }], "unevaluatedProperties": false }),
            json!({ "allOf": [{}] }),
        ),
    ];
    for (schema, expected) in cases {
        let mut expected = object(expected);
        expected.insert("type".to_owned(), "object".into());
        assert_eq!(shown(schema.clone()), Value::Object(expected), "{schema}");
    }
}

#[test]
fn the_schema_of_an_argument_stays_as_it_is_but_for_names() {
    for schema in [
        json!({ "type": "string", "description": "d", "x-own": "v" }),
        json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }] }),
        json!({ "type": "integer", "minimum": 3 }),
    ] {
        assert_eq!(shown_of_k(schema.clone()), schema);
    }
    let named = json!({ "$anchor": "k", "$id": "#k", "$defs": { "d": {} }, "type": "string" });
    assert_eq!(shown_of_k(named), json!({ "type": "string" }));
}

#[test]
fn where_something_is_left_out_nothing_turns_that_around() {
    let beside = |schema: Value| {
        let lossy = json!({ "not": { "$ref": "#nowhere" } });
        shown(json!({ "properties": { "l": lossy, "k": schema } }))["properties"].clone()
    };
    let (string, integer) = (json!({ "type": "string" }), json!({ "type": "integer" }));
    let one = json!({ "oneOf": [string] });
    assert_eq!(beside(one), json!({ "l": {}, "k": { "anyOf": [string] } }));
    let both = json!({ "anyOf": [integer], "oneOf": [string] });
    assert_eq!(beside(both), json!({ "l": {}, "k": { "anyOf": [integer] } }));
}

#[test]
fn up_to_draft_7_nothing_counts_beside_a_reference() {
    let beside = json!({ "$ref": "#/definitions/d", "minimum": 3, "description": "told" });
    let schema = |dialect: &str| {
        json!({
            "$schema": dialect,
            "properties": { "k": beside, "l": { "type": "integer", "minimum": 3 } },
            "definitions": { "d": { "type": "integer" } },
        })
    };
    let old = shown(schema(DRAFT_7));
    assert_eq!(
        old["properties"],
        json!({
            "k": { "$ref": "#/definitions/d", "description": "told" },
            "l": { "type": "integer", "minimum": 3 },
        })
    );
    let new = shown(schema("https://json-schema.org/draft/2020-12/schema"));
    assert_eq!(new["properties"]["k"], beside);

    // So beside a reference of the root there are no arguments.
    let schema = shown(json!({
        "$schema": DRAFT_7,
        "$ref": "#/definitions/all",
        "definitions": { "all": { "properties": { "l": { "$ref": "#/properties/k" } } } },
        "properties": { "k": { "type": "string" } },
    }));
    assert_eq!(schema["properties"], json!({ "l": { "$ref": "#/$defs/shared_1" } }));
    assert_eq!(schema["$defs"]["shared_1"], json!({ "type": "string" }));
}

#[test]
fn a_reference_to_an_argument_follows_that_to_its_new_name() {
    let schema = || {
        json!({
            "$ref": "#/$defs/all",
            "$defs": { "all": {} },
            "properties": { "a": { "type": "string" }, "k": { "$ref": "#/properties/a" } },
        })
    };
    let of_k = |name: &str| {
        let (shown, _) = rewritten(schema(), vec![argument("a", Some(name), None)]);
        shown["properties"]["k"].clone()
    };
    assert_eq!(of_k("x-1"), json!({ "$ref": "#/properties/x-1" }));
    // A name that needs escaping in a reference.
    assert_eq!(of_k("x/1"), json!({ "$ref": "#/$defs/shared_1" }));
}

#[test]
fn nothing_is_told_of_an_argument_that_clients_do_not_see() {
    let schema = shown(json!({ "properties": {
        "b": { "type": "integer", "description": "internal", "default": 1 },
        "k": { "$ref": "#/properties/b", "description": "told" },
    } }));
    assert_eq!(schema["$defs"]["shared_1"], json!({ "type": "integer" }));
    assert_eq!(schema["properties"]["k"]["description"], "told");
    for speaks in [
        json!({ "not": { "$ref": "#/$defs/Whole" } }),
        json!({ "if": { "$ref": "#/$defs/Whole" } }),
        json!({ "dependentSchemas": { "k": { "$ref": "#/$defs/Whole" } } }),
        json!({ "anyOf": [{ "$ref": "#/$defs/Whole" }] }),
    ] {
        let mut schema = object(speaks.clone());
        schema.insert("properties".to_owned(), json!({ "k": { "$ref": "#/$defs/Whole" } }));
        let all = json!({ "properties": { "b": { "const": "internal" } }, "required": ["b"] });
        schema.insert("$defs".to_owned(), json!({ "Whole": all }));
        let shown = shown(schema.into());
        assert_eq!(shown["$defs"]["Whole"], json!({ "properties": {} }), "{speaks}");
    }
}

#[test]
fn a_reference_leads_to_where_its_words_say() {
    let string = || json!({ "type": "string" });
    let other = json!({ "$id": "http://example.com/", "$defs": { "z": { "$anchor": "z", "type": "string" } } });
    let schema = |reference: &str| {
        json!({
            "properties": { "k": { "$ref": reference } },
            "allOf": [{ "$anchor": "first", "type": "string" }],
            "$defs": { "a-b": string(), "other": other },
        })
    };
    for (reference, expected) in [
        ("#/$defs/a%2Db", true),
        ("#/$defs/a%2db", true),
        ("#first", true),
        ("#/allOf/0", true),
        ("#/allOf/1", false),
        // In another document that happens to be embedded in this one.
        ("#z", false),
        ("#/$defs/other/$defs/z", false),
    ] {
        let shown = shown(schema(reference));
        let definitions = shown["$defs"].as_object().into_iter().flatten();
        assert_eq!(definitions.map(|(_, d)| d).any(|d| *d == string()), expected, "{reference}");
        let is_reference = shown["properties"]["k"].get("$ref").is_some();
        assert_eq!(is_reference, expected, "{reference}: {shown}");
    }
}

#[test]
fn schemas_that_apply_in_place_are_followed_so_deep_and_no_deeper() {
    type Around = fn(Value) -> Value;
    let around: [(&str, Around); 8] = [
        ("allOf", |schema| json!({ "allOf": [schema] })),
        ("anyOf", |schema| json!({ "anyOf": [schema] })),
        ("oneOf", |schema| json!({ "oneOf": [schema] })),
        ("not", |schema| json!({ "not": schema })),
        ("if", |schema| json!({ "if": schema })),
        ("then", |schema| json!({ "if": true, "then": schema })),
        ("dependentSchemas", |schema| json!({ "dependentSchemas": { "k": schema } })),
        ("dependencies", |schema| json!({ "dependencies": { "k": schema } })),
    ];
    let innermost = || json!({ "title": "innermost" });
    let is_shown = |schema: Value| shown(schema).to_string().contains("innermost");
    for (keyword, around) in around {
        let nested = |depth: usize| (0..depth).fold(innermost(), |schema, _| around(schema));
        assert!(is_shown(nested(32)), "{keyword}");
        assert!(!is_shown(nested(33)), "{keyword}");
    }
    let led_to = |depth: usize| {
        let definition =
            |n: usize| json!({ "$ref": format!("#/$defs/d{}", n + 1), "minLength": n });
        let mut definitions: JsonObject =
            (1..depth).map(|n| (format!("d{n}"), definition(n))).collect();
        definitions.insert(format!("d{depth}"), innermost());
        json!({ "$ref": "#/$defs/d1", "$defs": definitions })
    };
    assert!(is_shown(led_to(32)) && !is_shown(led_to(33)));

    let many = vec![innermost(); 1_200];
    let shown = shown(json!({ "allOf": many })).to_string();
    assert_eq!(shown.matches("innermost").count(), 999, "besides the root");
}

#[test]
fn the_schemas_of_arguments_are_copied_so_deep_and_no_deeper() {
    type Around = fn(Value) -> Value;
    // With the number of levels of each.
    let around: [(usize, Around); 3] = [
        (1, |schema| json!({ "items": schema })),
        (2, |schema| json!({ "anyOf": [schema] })),
        (2, |schema| json!({ "properties": { "p": schema } })),
    ];
    let outline = json!({ "type": "object", "properties": { "k": {} } });
    for (levels, around) in around {
        let nested = |depth: usize| {
            let schema = (0..depth).fold(json!(true), |schema, _| around(schema));
            json!({ "type": "object", "properties": { "k": schema } })
        };
        let deepest = nested(128 / levels);
        assert_eq!(shown(deepest.clone()), deepest);
        assert_eq!(shown(nested(128 / levels + 1)), outline, "{}", around(json!({})));
    }
    // Also if `oneOf` is replaced since a part was removed.
    let schema = (0..100).fold(json!(true), |schema, _| json!({ "oneOf": [schema] }));
    let shown = shown(json!({ "properties": { "k": { "$ref": "#no", "allOf": [schema] } } }));
    assert_eq!(shown, outline);
}

#[test]
fn the_data_of_a_schema_counts_as_much_as_it_is() {
    let outline = json!({});
    for data in [
        json!("x".repeat(1 << 20)),
        json!(vec![1; 200_000]),
        json!({ "": vec![1; 200_000] }),
        (0..100_000).map(|n| (n.to_string(), json!(1))).collect::<JsonObject>().into(),
    ] {
        assert_eq!(shown_of_k(json!({ "default": data, "type": "string" })), outline);
    }
    let less = json!({ "default": "x".repeat(1 << 18), "type": "string" });
    assert_eq!(shown_of_k(less.clone()), less);

    let names = |count: usize| (0..count).map(|n| format!("k{n}")).collect::<Vec<_>>();
    let of = |count: usize| cost(&json!({ "required": names(count) }));
    assert_eq!(of(1_000) - of(10), 990);
}

#[test]
fn patterns_may_be_as_long_as_the_limit() {
    let is_kept = |length: usize| {
        let schema = shown(json!({ "patternProperties": { "k".repeat(length): {} } }));
        schema["patternProperties"].as_object().is_some_and(|kept| !kept.is_empty())
    };
    assert!(is_kept(256) && !is_kept(257));
}

#[test]
fn a_pattern_may_match_an_argument_that_keeps_its_name() {
    let schema = json!({ "patternProperties": { "^k": {} } });
    let shown = |name| {
        let arguments = Arguments::new(vec![argument("k", Some(name), Some(json!(1)))]);
        rewrite(&object(schema.clone()), &arguments).schema["patternProperties"].clone()
    };
    assert_eq!((shown("k"), shown("l")), (json!({ "^k": {} }), json!({})));
}

#[test]
fn what_a_default_decides_is_not_turned_around() {
    let integer = || json!({ "type": "integer" });
    for schema in [
        json!({ "properties": { "k": integer() } }),
        json!({ "patternProperties": { "^k": integer() } }),
        json!({ "additionalProperties": integer() }),
        json!({ "unevaluatedProperties": integer() }),
    ] {
        // Without the argument, the tool receives a value that fits no part of the schema.
        let arguments = Arguments::new(vec![argument("k", Some("k"), Some(json!("s")))]);
        let shown = rewrite(&object(json!({ "not": schema })), &arguments).schema;
        assert!(!shown.contains_key("not"), "{schema}");
    }
}
