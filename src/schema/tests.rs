use std::time::Duration;

use cpu_time::ThreadTime;
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::json;

use super::*;

fn compiled(schema: &Value) -> Result<Compiled, Unusable> {
    compile(schema.as_object().unwrap())
}

fn violations_of_call(schema: Value, arguments: &Value) -> Vec<(String, String)> {
    let Value::Object(schema) = schema else { panic!("no object") };
    let schema = InputSchema::new(Arc::new(schema));
    match schema.check("t", arguments, |unusable| panic!("{unusable}")) {
        Ok(()) => Vec::new(),
        Err(Refusal::InvalidArguments { tool, violations }) => {
            assert_eq!(tool, "t");
            violations.into_iter().map(|violation| (violation.path, violation.message)).collect()
        }
        Err(other) => panic!("{other}"),
    }
}

/// Each case has a schema, arguments, and the path and message of the expected violation.
#[test]
fn violations_name_arguments_in_their_path_only() {
    let names = json!({ "secret": 1, "other": 2 });
    for (schema, arguments, path, message) in [
        (json!({ "required": ["secret"] }), json!({}), "/secret", "is required"),
        (
            json!({ "properties": { "a": { "required": ["secret"] } } }),
            json!({ "a": {} }),
            "/a/secret",
            "is required",
        ),
        (
            json!({ "dependentRequired": { "a": ["secret"] } }),
            json!({ "a": 1 }),
            "/secret",
            "is required",
        ),
        (
            json!({ "$schema": "http://json-schema.org/draft-07/schema#", "dependencies": { "a": ["secret"] } }),
            json!({ "a": 1 }),
            "/secret",
            "is required",
        ),
        (
            json!({ "additionalProperties": false }),
            json!({ "secret": 1 }),
            "/secret",
            "is not known to the tool",
        ),
        (
            json!({ "unevaluatedProperties": false }),
            json!({ "secret": 1 }),
            "/secret",
            "is not known to the tool",
        ),
        (
            json!({ "additionalProperties": false }),
            json!({ "a/b~secret": 1 }),
            "/a~1b~0secret",
            "is not known to the tool",
        ),
        (
            json!({ "propertyNames": { "pattern": "^[a-d]+$" } }),
            json!({ "secret": 1 }),
            "/secret",
            "its name does not match \"^[a-d]+$\"",
        ),
        (
            json!({ "propertyNames": { "enum": ["secret_too"] } }),
            json!({ "secret": 1 }),
            "/secret",
            "its name is not one of those allowed",
        ),
        (
            json!({ "propertyNames": { "maxLength": 3 } }),
            json!({ "secret": 1 }),
            "/secret",
            "its name is longer than 3 characters",
        ),
        (
            json!({ "propertyNames": false }),
            json!({ "secret": 1 }),
            "/secret",
            "is not known to the tool",
        ),
        (
            json!({ "properties": { "a": { "enum": [{ "secret": 1 }] } } }),
            json!({ "a": 1 }),
            "/a",
            "the value is not one of those allowed",
        ),
        (
            json!({ "properties": { "a": { "enum": ["x", 2] } } }),
            json!({ "a": "secret" }),
            "/a",
            "the value is not one of \"x\" or 2",
        ),
        (
            json!({ "properties": { "a": { "const": { "secret": 1 } } } }),
            json!({ "a": 1 }),
            "/a",
            "the value is not the expected value",
        ),
        (
            json!({ "properties": { "a": { "const": "x" } } }),
            json!({ "a": "secret" }),
            "/a",
            "\"x\" was expected",
        ),
        (
            json!({ "not": { "required": ["secret"] } }),
            json!({ "secret": 1 }),
            "",
            "the value matches a schema that `not` forbids",
        ),
        (
            json!({ "properties": { "secret": false } }),
            json!({ "secret": 1 }),
            "/secret",
            "the value is not allowed",
        ),
        (
            json!({ "anyOf": [{ "required": ["secret"] }] }),
            json!({}),
            "",
            "the value is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            json!({ "oneOf": [{ "required": ["secret"] }, { "required": ["other"] }] }),
            names.clone(),
            "",
            "the value is valid under more than one of the schemas listed in the 'oneOf' keyword",
        ),
        (json!({ "maxProperties": 1 }), names, "", "the value has more than 1 property"),
        (
            json!({ "properties": { "a": { "items": { "type": "integer" } } } }),
            json!({ "a": [1, "secret"] }),
            "/a/1",
            "the value is not of type \"integer\"",
        ),
        (
            json!({ "properties": { "a": { "prefixItems": [{}], "unevaluatedItems": false } } }),
            json!({ "a": [1, "secret"] }),
            "/a",
            "Unevaluated items are not allowed (1 item)",
        ),
        (
            json!({ "properties": { "a": { "contains": { "const": 1 } } } }),
            json!({ "a": ["secret"] }),
            "/a",
            "None of the value are valid under the given schema",
        ),
        (
            json!({ "properties": { "a": { "maximum": 5 } } }),
            json!({ "a": 7 }),
            "/a",
            "the value is greater than the maximum of 5",
        ),
        (
            json!({ "properties": { "a": { "multipleOf": 5 } } }),
            json!({ "a": 7 }),
            "/a",
            "the value is not a multiple of 5",
        ),
        (
            json!({ "properties": { "a": { "uniqueItems": true } } }),
            json!({ "a": ["secret", "secret"] }),
            "/a",
            "the value has non-unique elements",
        ),
    ] {
        let violations = violations_of_call(schema.clone(), &arguments);
        assert_eq!(violations, [(path.to_owned(), message.to_owned())], "{schema}");
    }
}

#[test]
fn each_argument_has_its_own_violation() {
    let schema =
        json!({ "required": ["a", "b"], "properties": { "c": {} }, "additionalProperties": false });
    let violations = violations_of_call(schema, &json!({ "x": 1, "y": 2 }));
    let paths: Vec<_> = violations.iter().map(|(path, _)| &**path).collect();
    assert_eq!(paths, ["/a", "/b", "/x", "/y"]);
}

#[test]
fn violations_are_bounded() {
    let arguments: JsonObject = (0..1000).map(|n| (n.to_string(), Value::Null)).collect();
    let arguments = Value::Object(arguments);
    for schema in [
        json!({ "additionalProperties": false }),
        json!({ "additionalProperties": { "type": "string" } }),
    ] {
        let violations = violations_of_call(schema, &arguments);
        assert_eq!(violations.len(), MAX_VIOLATIONS);
    }
    let schema = json!({ "properties": { "a": { "const": "x".repeat(10_000) } } });
    let violations = violations_of_call(schema, &json!({ "a": 1 }));
    assert_eq!(violations[0].1.chars().count(), unusable::MAX_DISPLAYED_SCHEMA + 1);
}

/// If the validation would take too long, the arguments are rejected without a validation. If only
/// collecting the violations would take too long, a single violation is reported.
#[test]
fn arguments_over_the_step_limit_are_rejected() {
    let twice = json!([
        { "properties": { "a": { "$ref": "#" } }, "type": "object" },
        { "properties": { "a": { "$ref": "#" } } },
    ]);
    let schema = json!({ "allOf": twice });
    let arguments = |levels| (0..levels).fold(json!(1), |inner, _| json!({ "a": inner }));
    let violations = |levels| violations_of_call(schema.clone(), &arguments(levels));
    assert!(violations(4).iter().all(|(path, _)| path == "/a/a/a/a"));
    let one = |message: &str| vec![(String::new(), message.to_owned())];
    assert_eq!(violations(14), one("the value is not valid, and too large to report where"));
    let too_long = "the value is too large to check against the schema, which would take more \
                    than 1500000 steps";
    assert_eq!(violations(100), one(too_long));
}

/// A single keyword can take long, without any recursion in the schema.
#[test]
fn arguments_with_a_costly_keyword_check_are_rejected() {
    let times = |n: usize, schema: Value| {
        let all = vec![json!({ "$ref": "#/$defs/a" }); n];
        json!({ "allOf": all, "$defs": { "a": schema } })
    };
    let mixed: Vec<_> = (0..4000).flat_map(|n| [json!(n.to_string()), json!([n])]).collect();
    let required: Vec<_> = (0..1000).map(|n| n.to_string()).collect();
    let counted = "^(a|b)*a(a|b){300}$";
    let names: JsonObject = (0..2000).map(|n| (format!("b{n:0100}"), json!(1))).collect();
    for (schema, value) in [
        (times(2000, json!({ "pattern": "^a[a-z]*$" })), json!("a".repeat(100_000))),
        (json!({ "pattern": counted }), json!("ab".repeat(10_000))),
        (json!({ "patternProperties": { counted: {} } }), names.clone().into()),
        (json!({ "propertyNames": { "pattern": counted } }), names.into()),
        (times(2000, json!({ "enum": mixed })), json!("value")),
        (times(2000, json!({ "const": mixed })), json!(mixed)),
        (json!({ "uniqueItems": true }), json!(vec![json!([]); 1_000_000])),
        (times(2000, json!({ "maxLength": 9 })), json!("a".repeat(100_000))),
        (times(2000, json!({ "required": required })), json!({ "a": 1, "b": 2 })),
        (
            times(2000, json!({ "properties": { "a": {}, "b": {} } })),
            json!({ "b".repeat(1 << 20): 1 }),
        ),
    ] {
        let definitions = schema.get("$defs").cloned().unwrap_or_else(|| json!({}));
        let schema = json!({ "properties": { "value": schema }, "$defs": definitions });
        let violations = violations_of_call(schema.clone(), &json!({ "value": value }));
        let is_too_long = |(_, message): &(_, String)| message.contains("too large to check");
        assert!(violations.iter().any(is_too_long), "{violations:?}");
    }
}

#[test]
fn large_arguments_are_checked() {
    let row = json!({ "properties": { "id": { "type": "integer" } }, "required": ["id"] });
    for (schema, value) in [
        (json!({ "pattern": "^data:[a-z/]+;base64,[A-Za-z0-9+/]*=*$" }), {
            json!(format!("data:image/png;base64,{}", "abcd".repeat(500_000)))
        }),
        (json!({ "items": row }), json!(vec![json!({ "id": 1, "name": "Ada" }); 50_000])),
        (json!({ "items": { "type": "integer" }, "uniqueItems": true }), {
            json!((0..50_000).collect::<Vec<_>>())
        }),
    ] {
        let schema = json!({ "properties": { "value": schema } });
        assert_eq!(violations_of_call(schema.clone(), &json!({ "value": value })), []);
    }
}

#[test]
fn unique_items_are_compared_as_json_schema_defines() {
    for (elements, unique) in [
        (json!([1, 1.0]), false),
        (json!([0, -0.0]), false),
        (json!([1, "1", true, null, 1.5, [1], { "a": 1 }]), true),
        (json!([[], [[]], [[[]]], {}]), true),
        (json!([{ "a": 1, "b": [2] }, { "b": [2.0], "a": 1 }]), false),
        (json!([9_007_199_254_740_993_u64, 9_007_199_254_740_992_u64]), true),
        (json!([18_446_744_073_709_551_615_u64, 1e300, -1]), true),
    ] {
        let schema = json!({ "properties": { "a": { "uniqueItems": true } } });
        let violations = violations_of_call(schema, &json!({ "a": elements }));
        let expected = [("/a".to_owned(), "the value has non-unique elements".to_owned())];
        assert_eq!(violations, if unique { &[][..] } else { &expected[..] }, "{elements}");
    }
    let schema = json!({ "properties": { "a": { "uniqueItems": false } } });
    assert_eq!(violations_of_call(schema, &json!({ "a": [1, 1] })), []);
}

#[test]
fn usual_regular_expressions_compile() {
    for pattern in [
        r"^\d{4}-\d{2}-\d{2}$",
        r"^[\w.+-]+@[\w-]+\.[\w.-]+$",
        r"^\p{L}[\p{L}\p{N} _-]*$",
        r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$",
        r"^[^/]{1,255}$",
    ] {
        let compiled = compiled(&json!({ "pattern": pattern }));
        assert!(compiled.is_ok(), "{pattern}: {:?}", compiled.err());
    }
}

#[test]
fn unusable_schema_accepts_everything_and_is_reported_once() {
    for (schema, reason) in [
        (json!({ "type": 7 }), "(at `/type`)"),
        (json!({ "$ref": "https://example.com/schema.json" }), "example.com"),
        (json!({ "$ref": "file:///etc/passwd" }), "passwd"),
        (json!({ "$schema": "https://example.com/own" }), "example.com"),
        (json!({ "properties": { "a": { "pattern": "(?=look)around" } } }), "regex"),
        (json!({ "properties": { "a": { "pattern": "(a)\\1" } } }), "regex"),
        (
            json!({ "properties": { "a": { "pattern": r"(?:\pL{1,20}x){1,8}" } } }),
            "more than 1048576 bytes when compiled",
        ),
        (json!({ "description": "x".repeat(MAX_SCHEMA_BYTES) }), "larger than 1048576 bytes"),
        (doubling(20), "more than 4096 times"),
        (nested(200), "it is nested too deep"),
    ] {
        let Value::Object(members) = schema.clone() else { panic!("no object") };
        let input = InputSchema::new(Arc::new(members));
        let mut reported = Vec::new();
        for _ in 0..3 {
            let checked = input.check("t", &json!({ "a": 1 }), |unusable| reported.push(unusable));
            assert_eq!(checked, Ok(()), "{schema}");
        }
        assert_eq!(reported.len(), 1, "{schema}");
        let text = reported[0].to_string();
        assert!(text.contains(reason), "{text}");
    }
}

/// Returns a schema in which each definition refers twice to the next definition.
fn doubling(levels: usize) -> Value {
    let twice = |level: usize| vec![json!({ "$ref": format!("#/$defs/d{level}") }); 2];
    let definitions: JsonObject = (0..levels)
        .map(|level| (format!("d{level}"), json!({ "allOf": twice(level + 1) })))
        .chain([(format!("d{levels}"), json!({ "required": ["x"] }))])
        .collect();
    json!({ "$ref": "#/$defs/d0", "$defs": definitions })
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({ "type": "object" }), |inner, _| json!({ "not": inner }))
}

#[test]
fn recursive_schema_is_checked_up_to_the_depth_limit() {
    let schema = json!({
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "properties": { "next": { "$ref": "#/$defs/node" }, "value": { "type": "integer" } },
            },
        },
    });
    let list = |levels, end: Value| (1..levels).fold(end, |inner, _| json!({ "next": inner }));
    let bad = json!({ "value": "x" });
    assert_eq!(violations_of_call(schema.clone(), &list(100, json!({ "value": 1 }))), []);
    let violations = violations_of_call(schema.clone(), &list(100, bad.clone()));
    assert_eq!(violations[0].0, format!("{}/value", "/next".repeat(99)));

    let Value::Object(schema) = schema else { panic!("no object") };
    let input = InputSchema::new(Arc::new(schema));
    let refusal = input.check("t", &list(129, bad), |_| ()).unwrap_err();
    assert_eq!(refusal, Refusal::too_deep(128));
}

#[test]
fn schema_within_the_transport_depth_compiles() {
    assert!(compiled(&nested(120)).is_ok());
}

#[test]
fn schema_dialect_is_respected() {
    let schema = |dialect: &str| json!({ "$schema": dialect, "properties": { "a": { "items": [{ "type": "integer" }] } } });
    let violations = violations_of_call(
        schema("http://json-schema.org/draft-07/schema#"),
        &json!({ "a": ["x"] }),
    );
    assert_eq!(violations[0].0, "/a/0");
    // The default dialect does not support an array of schemas in `items`.
    let unsaid = json!({ "properties": { "a": { "items": [{ "type": "integer" }] } } });
    assert!(compiled(&unsaid).is_err());
}

#[test]
fn arguments_are_coerced_before_they_are_checked() {
    let schema = json!({
        "properties": { "limit": { "type": "integer", "maximum": 50 }, "tags": { "type": "array" } },
        "required": ["limit"],
    });
    for (arguments, expected, expected_path) in [
        (json!({ "limit": "10" }), json!({ "limit": 10 }), None),
        (json!({ "limit": 10, "tags": "[]" }), json!({ "limit": 10, "tags": [] }), None),
        (json!({ "limit": "60" }), json!({ "limit": 60 }), Some("/limit")),
        (json!({ "limit": "ten" }), json!({ "limit": "ten" }), Some("/limit")),
        (json!({}), json!({}), Some("/limit")),
    ] {
        let schema = InputSchema::new(Arc::new(schema.as_object().unwrap().clone()));
        let mut fitted = arguments.clone();
        let refused = schema.fit("t", &mut fitted, |unusable| panic!("{unusable}"));
        assert_eq!(fitted, expected);
        let path = refused.err().map(|refusal| match refusal {
            Refusal::InvalidArguments { violations, .. } => violations[0].path.clone(),
            other => panic!("{other}"),
        });
        assert_eq!(path.as_deref(), expected_path, "{arguments}");
    }
}

/// The parsed string alone is not nested too deep, but it exceeds the limit within the arguments.
#[test]
fn coerced_arguments_over_the_depth_limit_are_rejected() {
    let items = (0..100).fold(json!({ "type": "array" }), |inner, _| json!({ "items": inner }));
    let schema = json!({ "properties": { "a": items } });
    let schema = InputSchema::new(Arc::new(schema.as_object().unwrap().clone()));
    let text = format!("{}{}", "[".repeat(100), "]".repeat(100));
    let mut arguments = json!({ "a": (0..100).fold(json!(text), |inner, _| json!([inner])) });
    let refused = schema.fit("t", &mut arguments, |unusable| panic!("{unusable}"));
    assert_eq!(refused, Err(Refusal::too_deep(128)));
}

#[test]
fn arguments_are_coerced_to_an_unusable_schema() {
    let schema = json!({ "properties": { "a": { "type": "integer", "pattern": "(?=look)" } } });
    let schema = InputSchema::new(Arc::new(schema.as_object().unwrap().clone()));
    let mut reports = 0;
    for _ in 0..2 {
        let mut arguments = json!({ "a": "1" });
        assert_eq!(schema.fit("t", &mut arguments, |_| reports += 1), Ok(()));
        assert_eq!(arguments, json!({ "a": 1 }));
    }
    assert_eq!(reports, 1);
}

#[test]
fn arguments_are_unchanged_if_coercion_would_take_too_long() {
    let twice = |next: usize| json!([{ "$ref": format!("#/$defs/{next}") }, { "$ref": format!("#/$defs/{next}") }]);
    let mut definitions: JsonObject =
        (0..15).map(|at| (at.to_string(), json!({ "anyOf": twice(at + 1) }))).collect();
    definitions.insert("15".to_owned(), json!({}));
    let properties = json!({ "a": { "type": "integer" }, "b": { "$ref": "#/$defs/0" } });
    let schema = json!({ "properties": properties, "$defs": definitions });
    let schema = InputSchema::new(Arc::new(schema.as_object().unwrap().clone()));
    let mut arguments = json!({ "a": "1" });
    assert_eq!(schema.fit("t", &mut arguments, drop), Ok(()));
    assert_eq!(arguments, json!({ "a": "1" }));
}

#[test]
fn whole_floats_become_integers_where_integers_are_declared() {
    let fitted = |schema: Value, value: Value| {
        let schema = json!({ "properties": { "x": schema } });
        let Value::Object(schema) = schema else { panic!("no object") };
        let mut arguments = json!({ "x": value });
        let fits = InputSchema::new(Arc::new(schema)).fit("t", &mut arguments, drop);
        fits.map(|()| arguments["x"].take())
    };
    let integer = || json!({ "type": "integer" });
    for (schema, value, expected) in [
        (integer(), json!(5.0), json!(5)),
        (integer(), json!(-0.0), json!(0)),
        (integer(), json!(1e300), json!(1e300)),
        (json!({ "type": ["integer", "null"] }), json!(5.0), json!(5)),
        (json!({ "type": ["integer", "string"] }), json!(5.0), json!(5)),
        (json!({ "anyOf": [{ "type": "string" }, integer()] }), json!(5.0), json!(5)),
        (json!({ "type": "integer", "enum": [5, 6] }), json!(5.0), json!(5)),
        (json!({ "type": "integer", "const": 5.0 }), json!(5.0), json!(5)),
        (json!({ "type": "array", "items": integer() }), json!([1.0, 2]), json!([1, 2])),
        // A schema that accepts any number does not change the value.
        (json!({ "type": "number" }), json!(5.0), json!(5.0)),
        (json!({ "anyOf": [{ "type": "number" }, integer()] }), json!(5.0), json!(5.0)),
        (json!({}), json!(5.0), json!(5.0)),
    ] {
        assert_eq!(fitted(schema.clone(), value.clone()), Ok(expected), "{value} for {schema}");
    }
    assert!(fitted(integer(), json!(5.5)).is_err());
}

fn cpu_time(work: impl FnOnce()) -> Duration {
    let begun = ThreadTime::now();
    work();
    begun.elapsed()
}

/// The maximum CPU time of a check: 50 ms with optimizations. Without optimizations, it is ten
/// times the time of checks that take 5 ms with optimizations.
fn time_limit() -> Duration {
    static LIMIT: OnceLock<Duration> = OnceLock::new();

    if !cfg!(debug_assertions) {
        return Duration::from_millis(50);
    }
    *LIMIT.get_or_init(|| {
        let text = |n: u32| format!("{}", char::from(b'a' + u8::try_from(n % 26).unwrap()));
        let row = |n: u32| json!({ "a": n, "b": n, "c": n, "d": n });
        let ordinary = [
            (json!({ "type": "integer" }), vec![json!(1); 700_000]),
            (json!({ "pattern": "^[a-z]+$" }), (0..120_000).map(|n| json!(text(n))).collect()),
            (json!({ "properties": row(0) }), (0..10_000).map(row).collect()),
        ];
        let times = ordinary.map(|(items, value)| {
            let items =
                if items["properties"].is_null() { items } else { json!({ "minProperties": 1 }) };
            let unique = items["minProperties"] == json!(1);
            let schema =
                json!({ "properties": { "value": { "items": items, "uniqueItems": unique } } });
            let Value::Object(schema) = schema else { panic!("no object") };
            let schema = InputSchema::new(Arc::new(schema));
            assert!(schema.compiled(drop).is_ok());
            let value = json!({ "value": value });
            cpu_time(|| assert_eq!(schema.check("t", &value, drop), Ok(())))
        });
        10 * times.into_iter().max().unwrap()
    })
}

/// Compiles a schema and checks a value against it. Asserts that both are fast enough.
fn assert_in_time(schema: &Value, value: &Value) -> Result<(), Refusal> {
    let Value::Object(members) = schema.clone() else { panic!("no object") };
    let input = InputSchema::new(Arc::new(members));
    let compiling = cpu_time(|| {
        let _ = input.compiled(drop);
    });
    assert!(compiling < time_limit(), "{compiling:?} to compile {schema:.300}");
    let mut arguments = json!({ "value": value });
    let before = format!("{arguments:.300}");
    let mut fits = Ok(());
    let fitting = cpu_time(|| fits = input.fit("t", &mut arguments, drop));
    assert!(fitting < time_limit(), "{fitting:?} to check {before} against {schema:.300}");
    fits
}

fn times(count: usize, keyword: &str, part: &Value) -> Value {
    let all = vec![json!({ "$ref": "#/$defs/part" }); count];
    json!({ "properties": { "value": { keyword: all } }, "$defs": { "part": part } })
}

/// Returns a string of random letters from a range of characters.
fn letters(script: std::ops::RangeInclusive<char>, count: usize) -> String {
    let letters: Vec<_> = script.filter(|letter| letter.is_alphabetic()).collect();
    let mut random = fastrand::Rng::with_seed(7);
    (0..count).map(|_| letters[random.usize(..letters.len())]).collect()
}

fn parts_of(text: &str, length: usize) -> Value {
    let letters: Vec<_> = text.chars().collect();
    letters.chunks(length).map(|part| part.iter().collect::<String>()).collect()
}

#[test]
fn large_arguments_are_checked_in_time_or_rejected() {
    let cyrillic = letters('а'..='я', 100_000);
    let any = letters('a'..='\u{30000}', 100_000);
    let names: JsonObject = (0..100_000).map(|n| (format!("k{n}"), json!(n))).collect();
    let long_name = "k".repeat(3_000_000);
    let integers = json!({ "additionalProperties": { "items": { "type": "integer" } } });
    let tight = json!({ "anyOf": [{ "pattern": r"^\p{L}{3}x" }, { "maxLength": 99 }] });
    for (count, part, value) in [
        (2_000, json!({ "propertyNames": { "type": "string" } }), json!({ long_name.as_str(): 1 })),
        (1, json!({ "propertyNames": { "maxLength": 99 } }), json!(names)),
        (1, json!({ "pattern": r"\b\p{L}+\b.*\bq" }), json!(any)),
        (
            1,
            json!({ "pattern": r"\b\p{L}+\b.*\bq" }),
            json!(any.chars().take(20_000).collect::<String>()),
        ),
        (1, json!({ "pattern": r"\bq\b" }), json!(cyrillic)),
        (1, json!({ "pattern": r"\p{L}*a\p{L}{20}x" }), json!(cyrillic)),
        (
            1,
            json!({ "pattern": r"\p{L}*a\p{L}{20}x" }),
            json!(cyrillic.chars().take(10_000).collect::<String>()),
        ),
        (1, json!({ "items": tight }), parts_of(&any, 5)),
        (1, json!({ "items": { "multipleOf": 1e-300 } }), json!(vec![1e300; 100_000])),
        (1, json!({ "items": { "type": "integer" } }), json!(vec!["1"; 100_000])),
        // Each string that is converted to an integer has a path that contains the long name.
        (1, integers, json!({ long_name.as_str(): vec!["1"; 50_000] })),
    ] {
        if let Err(refusal) = assert_in_time(&times(count, "allOf", &part), &value) {
            assert!(matches!(refusal, Refusal::InvalidArguments { .. }), "{refusal}");
        }
    }
}

#[test]
fn violations_of_alternatives_copy_no_large_arguments() {
    let part = json!({ "anyOf": [{ "type": "integer" }] });
    for keyword in ["anyOf", "oneOf"] {
        let value = json!(vec![json!(["1", 1.0, []]); 8192]);
        let refusal = assert_in_time(&times(127, keyword, &part), &value).unwrap_err();
        let Refusal::InvalidArguments { violations, .. } = refusal else { panic!("{refusal}") };
        assert!(violations[0].message.contains("too large to report where"), "{violations:?}");
    }
}

#[test]
fn schemas_are_compiled_in_time_or_rejected() {
    let members = |count: usize, part: &Value| -> Value {
        (0..count).map(|n| (n.to_string(), part.clone())).collect::<JsonObject>().into()
    };
    let copying = json!({ "unevaluatedProperties": false, "$ref": "#/$defs/all" });
    let all: Vec<_> = (0..900).map(|n| json!({ "properties": { n.to_string(): {} } })).collect();
    let nested = |n: usize| (0..n % 90).fold(json!([]), |inner, _| json!([inner]));
    let deep = json!({ "$ref": format!("#/$defs/a{}", "/not".repeat(100)) });
    let part = json!({ "type": ["string", "null"], "minLength": 1, "required": ["a"] });
    for schema in [
        json!({ "pattern": r"\s".repeat(8_000) }),
        json!({ "pattern": "(?i:[a-\u{ffff}])".repeat(500) }),
        json!({ "pattern": r"\pL".repeat(5_000) }),
        json!({ "enum": (0..5_000).map(nested).collect::<Vec<_>>() }),
        json!({ "$schema": "http://json-schema.org/draft-04/schema#", "required": vec![json!([]); 20_000] }),
        json!({ "properties": members(300, &copying), "$defs": { "all": { "allOf": all } } }),
        json!({ "properties": members(1_000, &deep), "$defs": { "a": self::nested(100) } }),
        json!({ "properties": members(4_900, &part) }),
        json!({ "examples": vec![json!([1]); 400_000] }),
    ] {
        assert_eq!(assert_in_time(&schema, &json!(1)), Ok(()));
    }
}

/// Generates schemas that are expensive to validate in different ways.
fn costly_part() -> BoxedStrategy<Value> {
    let patterns = || {
        select(vec![
            "^[a-z]+$",
            r"\bx\b",
            r"\b\p{L}+\b.*\bq",
            r"\p{L}*a\p{L}{20}x",
            r"[ab]*a[ab]{40}x",
            r"(\p{L}|\p{N})*x",
            r"^\S{1,500}\d$",
            "(?:(?:a?b?)*c?)*x",
            "[^a]*a[^a]{3}",
        ])
    };
    let values = |count: usize| -> Vec<Value> {
        (0..count).map(|n| if n % 50 == 0 { json!([n]) } else { json!(format!("k{n}")) }).collect()
    };
    let names = |count: usize| -> Vec<_> { (0..count).map(|n| format!("k{n}")).collect() };
    let leaf = prop_oneof![
        Just(json!({ "uniqueItems": true })),
        patterns().prop_map(|pattern| json!({ "pattern": pattern })),
        patterns()
            .prop_map(|pattern| json!({ "patternProperties": { pattern: { "type": "integer" } } })),
        (1..1_000_usize).prop_map(move |count| json!({ "enum": values(count) })),
        (1..1_000_usize).prop_map(move |count| json!({ "required": names(count) })),
        select(vec!["integer", "string", "array", "object"])
            .prop_map(|kind| json!({ "type": kind })),
        Just(json!({ "multipleOf": 1e-300 })),
        Just(json!({ "maxLength": 10 })),
        Just(json!({ "additionalProperties": false })),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        let of_one = ["items", "contains", "not", "propertyNames", "additionalProperties"];
        let of_many = ["allOf", "anyOf", "oneOf", "prefixItems"];
        prop_oneof![
            (select(of_one.to_vec()), inner.clone())
                .prop_map(|(keyword, part)| json!({ keyword: part })),
            (select(of_many.to_vec()), vec(inner.clone(), 1..4))
                .prop_map(|(keyword, parts)| json!({ keyword: parts })),
            inner.clone().prop_map(|part| json!({ "dependentSchemas": { "k0": part } })),
            (inner.clone(), inner)
                .prop_map(|(one, other)| json!({ "allOf": [one], "unevaluatedProperties": other })),
        ]
    })
    .boxed()
}

/// Functions that create values of up to a few megabytes.
const LARGE_VALUES: [fn(usize) -> Value; 9] = [
    |size| json!("ab".repeat(size)),
    |size| json!(letters('а'..='я', size)),
    |size| json!(letters('a'..='\u{30000}', size)),
    |size| parts_of(&letters('a'..='\u{30000}', size), 5),
    |size| json!((0..size).collect::<Vec<_>>()),
    |size| json!(vec![json!(["1", 1.0, []]); size / 4]),
    |size| (0..size / 4).map(|n| (format!("k{n}"), json!("1"))).collect::<JsonObject>().into(),
    |size| json!({ "k".repeat(4 * size): vec!["1"; size / 4] }),
    |size| (0..size / 4).map(|n| (0..n % 40).fold(json!([]), |inner, _| json!([inner]))).collect(),
];

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        max_shrink_iters: 32,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_check_ends_in_time(
        count in 1..=12_u32,
        keyword in select(vec!["allOf", "anyOf", "oneOf"]),
        part in costly_part(),
        kind in 0..LARGE_VALUES.len(),
        size in 0..=16_u32,
    ) {
        let value = LARGE_VALUES[kind](1 << size);
        if let Err(refusal) = assert_in_time(&times((1 << count) - 1, keyword, &part), &value) {
            prop_assert!(matches!(refusal, Refusal::InvalidArguments { .. }), "{refusal}");
        }
    }
}
