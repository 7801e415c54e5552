use jsonschema::PatternOptions;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::json;

use super::*;
use crate::alias::arguments::Argument;

/// Argument names, used both as original names and as clients' names.
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

/// Returns aliases that rename `a` to `x`, hide `b` with the default 1, and hide `c` without a
/// default.
fn arguments() -> Arguments {
    Arguments::new(vec![
        argument("a", Some("x"), None),
        argument("b", None, Some(json!(1))),
        argument("c", None, None),
    ])
}

fn client_schema(schema: Value) -> Value {
    rewrite(&object(schema), &arguments()).schema.into()
}

fn is_valid(schema: &Value, value: &Value) -> Option<bool> {
    let validator =
        jsonschema::options().with_pattern_options(PatternOptions::regex()).build(schema).ok()?;
    Some(validator.is_valid(value))
}

/// Returns the schema of the argument `k` that clients see.
fn client_schema_of_k(schema: &Value) -> Value {
    client_schema(json!({ "properties": { "k": schema } }))["properties"]["k"].clone()
}

#[test]
fn root_lists_the_properties_visible_to_clients() {
    let integer = || json!({ "type": "integer" });
    let properties = || json!({ "a": integer(), "b": integer(), "c": integer(), "k": integer() });
    let client_properties = || json!({ "x": integer(), "k": integer() });
    let cases = [
        (
            json!({ "properties": properties(), "required": ["a", "b", "k"], "additionalProperties": false }),
            json!({ "properties": client_properties(), "required": ["x", "k"], "additionalProperties": false }),
        ),
        (
            json!({ "properties": properties(), "additionalProperties": integer(), "title": "t", "x-own": 1 }),
            json!({ "properties": client_properties(), "additionalProperties": integer(), "title": "t" }),
        ),
        // It is unknown which arguments the other keywords describe.
        (
            json!({ "properties": properties(), "patternProperties": { "^k": {} }, "additionalProperties": false }),
            json!({ "properties": client_properties() }),
        ),
        (
            json!({ "properties": properties(), "anyOf": [{ "required": ["a"] }], "minProperties": 1, "default": { "a": 1 } }),
            json!({ "properties": client_properties() }),
        ),
        (
            json!({ "properties": { "k": { "properties": { "a": integer() }, "required": ["a"] } } }),
            json!({ "properties": { "k": { "properties": { "a": integer() }, "required": ["a"] } } }),
        ),
        (json!({}), json!({})),
    ];
    for (schema, expected) in cases {
        let mut expected = object(expected);
        expected.insert("type".to_owned(), "object".into());
        assert_eq!(client_schema(schema.clone()), Value::Object(expected), "{schema}");
    }
}

#[test]
fn names_declared_only_in_subschemas_are_listed() {
    let properties = || json!({ "properties": { "a": { "type": "integer" }, "b": {}, "k": {} } });
    for schema in [
        json!({ "allOf": [properties()] }),
        json!({ "oneOf": [properties(), { "required": ["k"] }] }),
        json!({ "if": {}, "then": properties() }),
        json!({ "dependentSchemas": { "k": properties() } }),
        json!({ "$ref": "#/$defs/All", "$defs": { "All": properties() } }),
        json!({ "$ref": "#/$defs/A", "$defs": { "A": { "allOf": [{ "$ref": "#/$defs/B" }] }, "B": properties() } }),
    ] {
        let expected = json!({ "type": "object", "properties": { "x": {}, "k": {} } });
        assert_eq!(client_schema(schema.clone()), expected, "{schema}");
    }
}

#[test]
fn schema_of_an_argument_is_copied_if_all_of_it_is_understood() {
    for schema in [
        json!({ "type": "string", "description": "d", "default": { "x-own": 1 } }),
        json!({ "oneOf": [{ "type": "string" }, { "type": "integer" }], "not": { "const": 1 } }),
        json!({ "type": "array", "items": { "type": "integer", "minimum": 3 }, "uniqueItems": true }),
        json!({ "items": [true, { "enum": [1] }], "additionalItems": false }),
        json!(true),
    ] {
        assert_eq!(client_schema_of_k(&schema), schema);
    }
    let named = json!({ "$anchor": "k", "$defs": { "d": {} }, "type": "string", "x-own": "v" });
    assert_eq!(client_schema_of_k(&named), json!({ "type": "string" }));
}

#[test]
fn argument_that_is_not_understood_keeps_its_type_and_description() {
    let described = |more: Value| {
        let mut schema = object(json!({ "type": "string", "title": "t", "description": "d" }));
        schema.extend(object(more));
        Value::from(schema)
    };
    for more in [
        json!({ "not": { "$ref": "#nowhere" } }),
        json!({ "items": { "$id": "http://example.com/", "type": "string" } }),
        json!({ "anyOf": [{ "$dynamicRef": "#k" }] }),
        json!({ "allOf": [{ "$ref": "#/properties/a" }] }),
        json!({ "properties": { "tree": { "$ref": "#" } } }),
        json!({ "extends": {} }),
    ] {
        assert_eq!(client_schema_of_k(&described(more.clone())), described(json!({})), "{more}");
    }
    // Up to draft 7, the type beside a reference is ignored.
    let beside = json!({ "$ref": "http://example.com/", "type": "string", "description": "d" });
    assert_eq!(client_schema_of_k(&beside), json!({ "description": "d" }));
}

#[test]
fn only_definitions_that_visible_arguments_use_are_shown() {
    let schema = json!({
        "properties": { "c": { "$ref": "#/$defs/Secret" }, "k": { "$ref": "#/$defs/Open" } },
        "$defs": {
            "Open": { "items": { "$ref": "#/$defs/Deep" } },
            "Deep": { "anyOf": [{ "type": "string" }, { "$ref": "#/$defs/Open" }] },
            "Secret": { "type": "string" },
        },
    });
    let rewritten = client_schema(schema.clone());
    assert_eq!(rewritten["properties"]["k"], schema["properties"]["k"]);
    let expected = json!({ "Deep": schema["$defs"]["Deep"], "Open": schema["$defs"]["Open"] });
    assert_eq!(rewritten["$defs"], expected);
}

#[test]
fn definition_of_all_arguments_is_not_shown() {
    let whole =
        json!({ "properties": { "b": { "const": "internal" }, "k": {} }, "required": ["b"] });
    for speaks in [
        json!({ "not": { "$ref": "#/$defs/Whole" } }),
        json!({ "allOf": [{ "$ref": "#/$defs/Other" }] }),
        json!({ "dependentSchemas": { "k": { "$ref": "#/$defs/Whole" } } }),
        json!({ "anyOf": [{ "$ref": "#whole" }] }),
        json!({ "$ref": "#/$defs/a%20b" }),
    ] {
        let mut schema = object(speaks.clone());
        schema.insert("properties".to_owned(), json!({ "k": { "$ref": "#/$defs/Whole" } }));
        let mut anchored = whole.clone();
        anchored["$anchor"] = json!("whole");
        let definitions = json!({ "Whole": anchored, "Other": { "$ref": "#/$defs/Whole" }, "a b": { "$ref": "#/$defs/Whole" } });
        schema.insert("$defs".to_owned(), definitions);
        let expected = json!({ "type": "object", "properties": { "k": {} } });
        assert_eq!(client_schema(schema.into()), expected, "{speaks}");
    }
}

#[test]
fn rewriting_cyclic_references_terminates() {
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
        assert_eq!(client_schema(schema)["type"], "object");
    }
}

#[test]
fn schema_is_copied_up_to_a_depth_and_a_size() {
    type Around = fn(Value) -> Value;
    // The number is the number of nesting levels that the function adds.
    let around: [(usize, Around); 3] = [
        (1, |schema| json!({ "items": schema })),
        (2, |schema| json!({ "anyOf": [schema] })),
        (2, |schema| json!({ "properties": { "p": schema } })),
    ];
    for (levels, around) in around {
        let nested = |depth: usize| (0..depth).fold(json!(true), |schema, _| around(schema));
        let deepest = nested(128 / levels);
        assert_eq!(client_schema_of_k(&deepest), deepest);
        assert_eq!(client_schema_of_k(&nested(128 / levels + 1)), json!({}));
    }
    let of = |data: Value| client_schema_of_k(&json!({ "default": data, "type": "string" }));
    for data in
        [json!("x".repeat(1 << 20)), json!(vec![1; 600_000]), json!({ "": vec![1; 600_000] })]
    {
        assert_eq!(of(data), json!({ "type": "string" }));
    }
    let less = json!("x".repeat(1 << 18));
    assert_eq!(of(less.clone())["default"], less);
}

#[test]
fn schemas_are_not_copied_if_too_many_describe_all_arguments() {
    let properties = |count: usize| {
        let many = vec![json!({ "required": ["k"] }); count];
        let schema = json!({ "properties": { "k": { "minimum": 1 } }, "allOf": many });
        client_schema(schema)["properties"].clone()
    };
    // The root counts as one of the visited schemas.
    assert_eq!(properties(999), json!({ "k": { "minimum": 1 } }));
    assert_eq!(properties(1_000), json!({ "k": {} }));
}

#[test]
fn argument_that_clients_cannot_set_is_reported() {
    let arguments = Arguments::new(vec![argument("a", Some("k"), None), argument("c", None, None)]);
    let schema = json!({
        "properties": { "a": {}, "k": {}, "c": {} },
        "anyOf": [{ "required": ["d"] }, { "$ref": "#/$defs/needs_c" }],
        "allOf": [{ "$ref": "#/$defs/needs_c" }],
        "$defs": { "needs_c": { "required": ["c"] } },
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

/// Creates a schema whose definitions are all at the root, because `$ref` refers to them there.
fn with_root_definitions(schema: Value) -> JsonObject {
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
    fn rewritten_schema_allows_what_the_tool_accepts(
        schema in some_schema(),
        arguments in some_arguments(),
        given in vec(proptest::collection::btree_map(some_name(), some_value(), 0..4), 8),
    ) {
        let original = with_root_definitions(schema);
        let rewritten = rewrite(&original, &arguments);
        let (original, rewritten) = (Value::Object(original), Value::Object(rewritten.schema));
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
            if taken == Some(true) {
                prop_assert_eq!(
                    is_valid(&rewritten, &given), taken,
                    "{} -> {}: {} is sent as {}", original, rewritten, given, sent
                );
            }
        }
    }
}

// === Random schemas that mention hidden arguments ===

/// The name of a hidden argument, the default of this argument, and the original name of a renamed
/// argument.
const SECRETS: [&str; 3] = ["organisation", "acme-internal", "long_query"];

fn some_secret() -> impl Strategy<Value = String> {
    select(&SECRETS[..]).prop_map(str::to_owned)
}

fn some_argument() -> impl Strategy<Value = String> {
    select(vec!["organisation", "long_query", "k"]).prop_map(str::to_owned)
}

/// Returns schema keywords that mention a hidden argument.
fn revealing() -> impl Strategy<Value = Value> {
    let keywords = [
        json!({ "default": "acme-internal", "enum": ["acme-internal"] }),
        json!({ "$ref": "#/$defs/organisation" }),
        json!({ "anyOf": [{ "const": "acme-internal" }, { "$ref": "#organisation" }] }),
    ];
    select(keywords.to_vec())
}

/// Returns schema keywords that mention only a visible argument.
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

/// Returns a schema that describes the whole arguments object.
fn some_revealing_schema() -> impl Strategy<Value = Value> {
    let member = prop_oneof![
        (revealing(), harmless(), harmless()).prop_map(|(organisation, query, k)| {
            ("properties", json!({ "organisation": organisation, "long_query": query, "k": k }))
        }),
        (some_argument(), revealing()).prop_map(|(name, schema)| {
            let of_hidden = if name == "organisation" { schema } else { json!({}) };
            ("properties", json!({ name: of_hidden }))
        }),
        (some_secret(), revealing()).prop_map(|(name, schema)| {
            ("patternProperties", json!({ format!("^{name}$"): schema, "^k": {} }))
        }),
        revealing().prop_map(|schema| ("patternProperties", json!({ "^organi[sz]": schema }))),
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
    fn rewritten_schema_contains_no_secret(
        schema in some_revealing_schema(),
        all in some_revealing_schema(),
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
        // Add a reference in case only the alias would reveal the secret.
        schema.entry("$ref").or_insert_with(|| "#/$defs/All".into());
        let arguments = Arguments::new(vec![
            argument("organisation", None, Some(json!("acme-internal"))),
            argument("long_query", Some("short"), None),
        ]);
        let rewritten = Value::Object(rewrite(&schema, &arguments).schema).to_string();
        for secret in SECRETS {
            prop_assert!(
                !rewritten.contains(secret),
                "{secret}: {} -> {rewritten}", Value::from(schema)
            );
        }
    }
}
