mod details;

use jsonschema::PatternOptions;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::{Map, json};

use super::*;
use crate::alias::arguments::Argument;

/// Names of arguments, of clients and tools.
const NAMES: [&str; 5] = ["a", "b", "c", "x", "y"];

fn object(value: Value) -> JsonObject {
    match value {
        Value::Object(members) => members,
        other => panic!("no object: {other}"),
    }
}

fn argument(original: &str, name: Option<&str>, default: Option<Value>) -> Argument {
    let name = name.map(str::to_owned);
    Argument { original: original.to_owned(), name, default, description: None }
}

/// `a` is renamed to `x`, `b` is hidden and always 1, `c` is hidden and always absent.
fn arguments() -> Arguments {
    Arguments::new(vec![
        argument("a", Some("x"), None),
        argument("b", None, Some(json!(1))),
        argument("c", None, None),
    ])
}

fn shown(schema: Value) -> Value {
    rewrite(&object(schema), &arguments()).schema.into()
}

fn is_valid(schema: &Value, value: &Value) -> Option<bool> {
    let validator =
        jsonschema::options().with_pattern_options(PatternOptions::regex()).build(schema).ok()?;
    Some(validator.is_valid(value))
}

#[test]
fn schemas_speak_of_the_arguments_that_clients_know() {
    let integer = || json!({ "type": "integer" });
    let properties = || json!({ "a": integer(), "b": integer(), "c": integer(), "k": integer() });
    let shown_properties = || json!({ "x": integer(), "k": integer() });
    let cases = [
        (
            json!({ "properties": properties(), "required": ["a", "b", "k"], "additionalProperties": false }),
            json!({ "properties": shown_properties(), "required": ["x", "k"], "additionalProperties": false }),
        ),
        (
            json!({ "allOf": [{ "properties": properties() }], "unevaluatedProperties": false }),
            json!({ "allOf": [{ "properties": shown_properties() }], "unevaluatedProperties": false }),
        ),
        (
            json!({ "$ref": "#/$defs/All", "$defs": { "All": { "properties": properties() } } }),
            json!({ "properties": shown_properties() }),
        ),
        (
            json!({ "dependentRequired": { "a": ["b", "k"], "k": ["a"], "b": ["a"], "c": ["a"] } }),
            json!({ "dependentRequired": { "x": ["k"], "k": ["x"] }, "allOf": [{ "required": ["x"] }] }),
        ),
        (
            json!({ "dependentSchemas": { "a": { "required": ["k"] }, "c": false } }),
            json!({ "dependentSchemas": { "x": { "required": ["k"] } } }),
        ),
        (
            json!({ "anyOf": [{ "required": ["a"] }, { "required": ["c"] }] }),
            json!({ "anyOf": [{ "required": ["x"] }, false] }),
        ),
        (
            json!({ "if": { "required": ["a"] }, "then": { "required": ["k"] } }),
            json!({ "if": { "required": ["x"] }, "then": { "required": ["k"] } }),
        ),
        (json!({ "not": { "required": ["c"] } }), json!({ "not": false })),
        (json!({ "not": { "enum": [{}] } }), json!({})),
        (
            json!({ "properties": { "a": integer(), "k": { "$ref": "#/properties/a" } } }),
            json!({ "properties": { "x": integer(), "k": { "$ref": "#/properties/x" } } }),
        ),
        (
            json!({ "properties": { "b": integer(), "k": { "$ref": "#/properties/b" } } }),
            json!({
                "properties": { "k": { "$ref": "#/$defs/shared_1" } },
                "$defs": { "shared_1": integer() },
            }),
        ),
        (
            json!({ "properties": { "a": integer(), "k": { "$ref": "#" } } }),
            json!({
                "properties": { "x": integer(), "k": { "$ref": "#/$defs/shared_1" } },
                "$defs": {
                    "shared_1": { "properties": { "k": { "$ref": "#/$defs/shared_1" } } },
                },
            }),
        ),
        (
            json!({ "properties": { "k": { "properties": { "a": integer() }, "required": ["a"] } } }),
            json!({ "properties": { "k": { "properties": { "a": integer() }, "required": ["a"] } } }),
        ),
        (
            json!({ "examples": [{ "a": 1, "b": 2 }], "default": { "a": 1, "c": 3, "k": 4 } }),
            json!({ "examples": [{ "x": 1 }], "default": { "x": 1, "k": 4 } }),
        ),
        (
            json!({ "minProperties": 2, "maxProperties": 3 }),
            json!({ "minProperties": 1, "maxProperties": 2 }),
        ),
    ];
    for (schema, expected) in cases {
        let mut expected = object(expected);
        expected.insert("type".to_owned(), "object".into());
        assert_eq!(shown(schema.clone()), Value::Object(expected), "{schema}");
    }
}

#[test]
fn what_nothing_refers_to_any_more_is_not_shown() {
    let schema = json!({
        "$ref": "#/$defs/All",
        "$defs": {
            "All": { "properties": { "c": { "$ref": "#/$defs/Secret" }, "k": { "$ref": "#/$defs/Open" } } },
            "Open": { "items": { "$ref": "#/$defs/Deep" } },
            "Deep": { "type": "string" },
            "Secret": { "type": "string" },
        },
    });
    let shown = shown(schema);
    let definitions: Vec<_> =
        shown["$defs"].as_object().into_iter().flatten().map(|d| d.0).collect();
    assert_eq!(definitions, ["Deep", "Open"]);
}

#[test]
fn schemas_that_lead_round_in_a_circle_come_to_an_end() {
    let twice = |name: &str| json!({ "allOf": [{ "$ref": name }, { "$ref": name }] });
    let mut definitions = JsonObject::new();
    for level in 0..40 {
        definitions.insert(level.to_string(), twice(&format!("#/$defs/{}", level + 1)));
    }
    for schema in [
        json!({ "$ref": "#" }),
        json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } } }),
        json!({ "$ref": "#/$defs/0", "$defs": definitions }),
        json!({ "allOf": 1, "properties": [], "required": {}, "$ref": 5, "not": "x", "$defs": 3 }),
        json!({ "properties": { "k": { "$ref": "#/nowhere" }, "l": { "$ref": "#anchor" } } }),
    ] {
        assert_eq!(shown(schema)["type"], "object");
    }
}

#[test]
fn references_lead_to_nothing_but_what_they_name() {
    let leaf = || json!({ "type": "string" });
    let definitions = || json!({ "a b": leaf(), "All": { "properties": { "b": {}, "s": leaf() } }, "n": { "$anchor": "n", "type": "string" }, "b": { "enum": ["b"] } });
    for reference in ["#/$defs/a%20b", "#/$defs/All/properties/s", "#n", "/self#/$defs/a%20b"] {
        let schema = json!({
            "$id": "/self",
            "properties": { "k": { "$ref": reference } },
            "$defs": definitions(),
        });
        let shown = shown(schema);
        let definitions = shown["$defs"].as_object().expect("definitions");
        assert_eq!(definitions.values().collect::<Vec<_>>(), [&leaf()], "{reference}");
        assert_eq!(is_valid(&shown, &json!({ "k": "s" })), Some(true), "{shown}");
        assert_eq!(is_valid(&shown, &json!({ "k": 1 })), Some(false), "{shown}");
    }
}

#[test]
fn a_reference_that_leads_out_of_the_schema_forbids_nothing() {
    let embedded = json!({ "$id": "http://example.com/other", "type": "string" });
    for reference in ["http://example.com/other", "#nowhere", "#/$defs/other", "#%zz"] {
        let schema = json!({
            "properties": {
                "k": { "$ref": reference },
                "l": { "not": { "$ref": reference } },
                "m": { "oneOf": [{ "$ref": reference }, { "type": "integer" }] },
            },
            "$defs": { "other": embedded },
        });
        let shown = shown(schema);
        for name in ["k", "l", "m"] {
            for value in [json!(1), json!("s")] {
                let given = json!({ name: value });
                assert_eq!(is_valid(&shown, &given), Some(true), "{reference}: {given}: {shown}");
            }
        }
    }
}

#[test]
fn names_of_arguments_are_listed_as_clients_know_them() {
    let listed = json!({ "propertyNames": { "enum": ["a", "b", "c", "k"] } });
    assert_eq!(shown(listed)["propertyNames"], json!({ "enum": ["k", "x"] }));
    let pattern = json!({ "propertyNames": { "pattern": "^[k-z]$" } });
    assert_eq!(
        shown(pattern)["propertyNames"],
        json!({ "anyOf": [{ "enum": ["x"] }, { "pattern": "^[k-z]$" }] })
    );
}

#[test]
fn a_schema_that_is_too_much_is_shown_as_the_names_of_arguments() {
    let names = |count: usize| (0..count).map(|n| format!("some_rather_long_name_{n}"));
    // Each definition is inlined where it is referred to.
    let all: JsonObject = names(1000).map(|name| (name, json!({ "type": "string" }))).collect();
    let schema = json!({
        "properties": { "a": { "type": "integer" }, "b": {}, "k": { "type": "string" } },
        "allOf": vec![json!({ "$ref": "#/$defs/All" }); 500],
        "$defs": { "All": { "properties": all } },
    });
    assert_eq!(shown(schema), json!({ "type": "object", "properties": { "x": {}, "k": {} } }));
}

/// Returns the part of the budget that a schema takes.
fn cost(schema: &Value) -> usize {
    let arguments = arguments();
    let mut rewriter = Rewriter::new(schema, &arguments, false);
    rewriter.root();
    rewriter.spent()
}

#[test]
fn what_a_schema_costs_grows_as_it_does() {
    type Schema = fn(usize) -> Value;
    let shapes: [(&str, Schema); 3] = [
        ("references to the root", |count| {
            let all = (0..count).map(|n| (format!("p{n:04}"), json!({ "$ref": "#" })));
            json!({ "properties": all.collect::<JsonObject>() })
        }),
        ("references to a definition", |count| {
            let all = (0..count).map(|n| (format!("p{n:04}"), json!({ "$ref": "#/$defs/d" })));
            let list: Vec<_> = (0..count).collect();
            json!({ "properties": all.collect::<JsonObject>(), "$defs": { "d": { "enum": list } } })
        }),
        ("references by a name", |count| {
            let all = (0..count).map(|n| (format!("p{n:04}"), json!({ "$ref": "#d" })));
            json!({ "properties": all.collect::<JsonObject>(), "$defs": { "d": { "$anchor": "d" } } })
        }),
    ];
    for (shape, schema) in shapes {
        let (small, large) = (cost(&schema(100)), cost(&schema(400)));
        assert!(large < 5 * small, "{shape}: {small} and then {large}");
    }
}

#[test]
fn definitions_that_nothing_refers_to_cost_as_many_as_they_are() {
    let schema = |count: usize| {
        let all = (0..count).map(|n| (format!("d{n:04}"), json!({})));
        json!({ "$defs": all.collect::<JsonObject>() })
    };
    assert!(cost(&schema(1000)) >= cost(&schema(0)) + 1000);
}

#[test]
fn patterns_are_compiled_within_bounds() {
    let patterns = |pattern: &str, count: usize| -> JsonObject {
        (0..count).map(|n| (format!("{pattern}{n}"), json!({ "type": "string" }))).collect()
    };
    let kept = |patterns: JsonObject| {
        let shown = shown(json!({ "patternProperties": patterns }));
        shown["patternProperties"].as_object().map_or(0, Map::len)
    };
    assert_eq!(kept(patterns("^k-", 10)), 10);
    assert_eq!(kept(patterns("^k-", 100)), 32, "how many");
    assert_eq!(kept(patterns(&"k".repeat(300), 10)), 0, "how long");
    assert_eq!(kept(patterns(r"(?:\pL{1,20}k){1,8}", 10)), 0, "how much it takes");
}

#[test]
fn what_nobody_can_set_is_told() {
    let arguments = Arguments::new(vec![argument("a", Some("k"), None), argument("c", None, None)]);
    let schema = json!({
        "properties": { "a": {}, "k": {}, "c": {} },
        "allOf": [{ "required": ["c"] }],
        "required": ["k"],
    });
    let rewritten = rewrite(&object(schema), &arguments);
    assert_eq!(rewritten.unset.iter().collect::<Vec<_>>(), ["c", "k"]);
    assert_eq!(rewritten.shadowed.iter().collect::<Vec<_>>(), ["k"]);
    assert_eq!(rewritten.declared.len(), 3);
}

// === Random schemas and arguments ===

fn some_name() -> impl Strategy<Value = String> {
    select(&NAMES[..]).prop_map(str::to_owned)
}

fn some_value() -> impl Strategy<Value = Value> {
    let object = json!({ "a": 1, "b": { "c": "s" }, "x": 2 });
    select(vec![json!(1), json!(2), json!("s"), json!(null), json!({}), object])
}

fn leaf() -> impl Strategy<Value = Value> {
    let leaf = [
        json!(true),
        json!(false),
        json!({}),
        json!({ "type": "integer" }),
        json!({ "const": 1 }),
        json!({ "minimum": 2 }),
        json!({ "enum": ["s", 2] }),
        json!({ "$ref": "#" }),
        json!({ "$ref": "#/$defs/d0" }),
        json!({ "not": { "$ref": "#" } }),
        json!({ "oneOf": [{ "$ref": "#/$defs/d0" }, { "type": "integer" }] }),
        json!({ "$ref": "#/properties/b" }),
    ];
    select(leaf.to_vec())
}

fn some_schema() -> impl Strategy<Value = Value> {
    let plain = (
        proptest::option::of(proptest::collection::btree_map(some_name(), leaf(), 0..4)),
        proptest::option::of(vec(some_name(), 0..2)),
        proptest::option::weighted(0.3, leaf()),
        proptest::option::weighted(0.2, (select(vec!["^[ab]$", "x", "^[b-x]"]), leaf())),
        proptest::option::weighted(0.2, (some_name(), vec(some_name(), 0..2))),
        proptest::option::weighted(0.15, 0u64..4),
        proptest::option::weighted(0.15, 0u64..4),
        proptest::option::weighted(0.1, vec(some_name(), 0..4)),
    );
    let plain = plain.prop_map(
        |(properties, required, additional, pattern, dependent, min, max, names)| {
            let mut schema = JsonObject::new();
            let mut put = |key: &str, value: Option<Value>| {
                schema.extend(value.map(|value| (key.to_owned(), value)));
            };
            put("properties", properties.map(|p| json!(p)));
            put(
                "required",
                required.map(|r| {
                    let unique: BTreeSet<_> = r.into_iter().collect();
                    json!(unique)
                }),
            );
            put("additionalProperties", additional);
            put("patternProperties", pattern.map(|(pattern, schema)| json!({ pattern: schema })));
            put(
                "dependentRequired",
                dependent.map(|(name, needed)| {
                    let needed: BTreeSet<_> = needed.into_iter().collect();
                    json!({ name: needed })
                }),
            );
            put("minProperties", min.map(Value::from));
            put("maxProperties", max.map(Value::from));
            put("propertyNames", names.map(|names| json!({ "enum": names })));
            Value::Object(schema)
        },
    );
    plain.prop_recursive(3, 12, 3, |inner| {
        let several = || vec(inner.clone(), 1..3);
        prop_oneof![
            several().prop_map(|parts| json!({ "allOf": parts })),
            several().prop_map(|parts| json!({ "anyOf": parts })),
            several().prop_map(|parts| json!({ "oneOf": parts })),
            inner.clone().prop_map(|part| json!({ "not": part })),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| json!({ "if": a, "then": b, "else": c })),
            (some_name(), inner.clone())
                .prop_map(|(n, part)| json!({ "dependentSchemas": { n: part } })),
            (inner.clone(), inner.clone()).prop_map(
                |(part, def)| json!({ "allOf": [part], "$ref": "#/$defs/d", "$defs": { "d": def } })
            ),
            (inner, leaf())
                .prop_map(|(part, rest)| json!({ "allOf": [part], "unevaluatedProperties": rest })),
        ]
    })
}

/// A `$ref` refers to the root's definitions, so those of parts are moved there.
fn whole(schema: Value) -> JsonObject {
    fn lift(schema: &mut Value, definitions: &mut JsonObject) {
        match schema {
            Value::Object(members) => {
                if let Some(Value::Object(own)) = members.remove("$defs") {
                    for (_, mut own) in own {
                        lift(&mut own, definitions);
                        let name = format!("d{}", definitions.len());
                        members.insert("$ref".to_owned(), format!("#/$defs/{name}").into());
                        definitions.insert(name, own);
                    }
                }
                members.values_mut().for_each(|value| lift(value, definitions));
            }
            Value::Array(elements) => elements.iter_mut().for_each(|e| lift(e, definitions)),
            _ => (),
        }
    }
    let (mut schema, mut definitions) = (schema, JsonObject::new());
    lift(&mut schema, &mut definitions);
    let mut schema = object(schema);
    schema.insert("$defs".to_owned(), definitions.into());
    schema
}

fn some_arguments() -> impl Strategy<Value = Arguments> {
    let fate = (0..5usize, some_name(), some_value());
    let aliases = proptest::collection::btree_map(select(&["a", "b", "c"][..]), fate, 0..3);
    aliases.prop_map(|aliases| {
        let mut names = BTreeSet::new();
        let arguments = aliases.into_iter().filter_map(|(original, (fate, name, default))| {
            let (name, default) = match fate {
                0 => (None, None),
                1 => (None, Some(default)),
                2 => (Some(name), Some(default)),
                _ => (Some(name), None),
            };
            let is_free = name.as_ref().is_none_or(|name| names.insert(name.clone()));
            is_free.then(|| argument(original, name.as_deref(), default))
        });
        Arguments::new(arguments.collect())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_is_forbidden_that_the_tool_takes(
        schema in some_schema(),
        arguments in some_arguments(),
        given in vec(proptest::collection::btree_map(some_name(), some_value(), 0..4), 8),
    ) {
        let original = whole(schema);
        let rewritten = rewrite(&original, &arguments);
        let (original, shown) = (Value::Object(original), Value::Object(rewritten.schema));
        for given in given {
            let mut sent = Some(given.clone().into_iter().collect::<JsonObject>());
            if arguments.translate(&mut sent).is_err() {
                continue;
            }
            let given = json!(given);
            let sent = json!(sent);
            let taken = is_valid(&original, &sent);
            if taken.is_none() {
                continue; // it is no schema
            }
            let allowed = is_valid(&shown, &given);
            if taken == Some(true) || rewritten.is_exact {
                prop_assert_eq!(
                    taken, allowed, "{} -> {}: {} is sent as {}", original, shown, given, sent
                );
            }
        }
    }
}

// === Random schemas that mention hidden arguments ===

/// The name of a hidden argument, its fixed value, and the original name of a renamed argument.
const SECRETS: [&str; 3] = ["organisation", "acme-internal", "long_query"];

fn some_secret() -> impl Strategy<Value = String> {
    select(&SECRETS[..]).prop_map(str::to_owned)
}

fn some_argument() -> impl Strategy<Value = String> {
    select(vec!["organisation", "long_query", "k"]).prop_map(str::to_owned)
}

/// Schema keywords that mention a hidden argument.
fn telling() -> impl Strategy<Value = Value> {
    let telling = [
        json!({ "default": "acme-internal", "enum": ["acme-internal"] }),
        json!({ "$ref": "#/$defs/organisation" }),
        json!({ "anyOf": [{ "const": "acme-internal" }, { "$ref": "#organisation" }] }),
    ];
    select(telling.to_vec())
}

/// Schema keywords that mention a visible argument.
fn harmless() -> impl Strategy<Value = Value> {
    let references = [
        "#",
        "#/$defs/All",
        "#/$defs/All/properties/k",
        "#/$defs/All/allOf/0",
        "#/$defs/a%20b",
        "#/$defs/organisation%20of%20k",
        "#tree",
        "#nowhere",
        "#/properties/long_query",
        "http://example.com/organisation",
    ];
    let reference = select(references.to_vec()).prop_map(|to| json!({ "$ref": to }));
    prop_oneof![
        Just(json!({ "type": "string" })),
        reference.clone(),
        reference.clone().prop_map(|to| json!({ "items": to, "oneOf": [{ "not": to }] })),
        (reference, some_secret())
            .prop_map(|(to, secret)| json!({ "anyOf": [to], "x-if": secret })),
        some_secret().prop_map(|secret| json!({ "type": "string", "x-order": [{ secret: 1 }] })),
    ]
}

/// A schema of all arguments.
fn some_telling_schema() -> impl Strategy<Value = Value> {
    let member = prop_oneof![
        (telling(), harmless(), harmless()).prop_map(|(organisation, query, k)| {
            ("properties", json!({ "organisation": organisation, "long_query": query, "k": k }))
        }),
        (some_argument(), telling()).prop_map(|(name, schema)| {
            let of_hidden = if name == "organisation" { schema } else { json!({}) };
            ("properties", json!({ name: of_hidden }))
        }),
        (some_secret(), telling()).prop_map(|(name, schema)| {
            ("patternProperties", json!({ format!("^{name}$"): schema, "^k": {} }))
        }),
        telling().prop_map(|schema| ("patternProperties", json!({ "^organi[sz]": schema }))),
        some_argument().prop_map(|name| ("propertyNames", json!({ "enum": ["j", name] }))),
        some_secret()
            .prop_map(|name| ("propertyNames", json!({ "pattern": format!("^(k|{name})$") }))),
        some_secret().prop_map(|name| ("propertyNames", json!({ "not": { "const": name } }))),
        (some_argument(), some_argument())
            .prop_map(|(one, other)| ("dependentRequired", json!({ one: [other] }))),
        (some_argument(), some_argument())
            .prop_map(|(one, other)| ("dependencies", json!({ one: other }))),
        some_argument().prop_map(|name| ("required", json!([name]))),
        some_secret().prop_map(|name| ("enum", json!([{ name: "acme-internal" }]))),
        some_secret().prop_map(|name| ("default", json!({ name: "acme-internal" }))),
        some_secret().prop_map(|name| ("examples", json!({ name: "acme-internal" }))),
        some_secret().prop_map(|name| ("examples", json!([{ &name: "acme-internal" }, name]))),
        some_secret().prop_map(|name| ("x-order", json!(["k", name]))),
        some_secret().prop_map(|name| ("$comment", json!(name))),
        some_secret().prop_map(|name| ("$anchor", json!(name))),
        some_secret().prop_map(|name| ("$dynamicRef", json!(format!("#{name}")))),
        harmless().prop_map(|schema| ("additionalProperties", schema)),
    ];
    let plain = vec(member, 1..5).prop_map(|members| {
        let members = members.into_iter().map(|(key, value)| (key.to_owned(), value));
        Value::Object(members.collect())
    });
    plain.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..3).prop_map(|parts| json!({ "allOf": parts })),
            vec(inner.clone(), 1..3).prop_map(|parts| json!({ "oneOf": parts })),
            inner.clone().prop_map(|part| json!({ "not": part })),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({ "if": a, "then": b })),
            (some_argument(), inner.clone())
                .prop_map(|(name, part)| json!({ "dependentSchemas": { name: part } })),
            (inner, harmless()).prop_map(|(part, k)| {
                json!({ "$ref": "#/$defs/All", "properties": { "k": k }, "allOf": [part] })
            }),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn nothing_is_shown_of_what_clients_do_not_see(
        schema in some_telling_schema(),
        all in some_telling_schema(),
    ) {
        let mut schema = object(schema);
        schema.insert(
            "$defs".to_owned(),
            json!({
                "All": { "properties": { "k": { "type": "string" } }, "allOf": [all] },
                "a b": { "$anchor": "tree", "items": { "$ref": "#tree" } },
                "organisation": { "$anchor": "organisation", "enum": ["acme-internal"] },
                "organisation of k": { "type": "string" },
            }),
        );
        // If only the alias reveals it.
        schema.entry("$ref").or_insert_with(|| "#/$defs/All".into());
        let arguments = Arguments::new(vec![
            argument("organisation", None, Some(json!("acme-internal"))),
            argument("long_query", Some("short"), None),
        ]);
        let shown = Value::Object(rewrite(&schema, &arguments).schema).to_string();
        for secret in SECRETS {
            prop_assert!(!shown.contains(secret), "{secret}: {} -> {shown}", Value::from(schema));
        }
    }
}
