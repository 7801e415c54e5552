use super::*;
use crate::expr::PathSegment;

/// Evaluates an output block that has these properties.
#[expect(clippy::needless_pass_by_value, reason = "the cases read better without `&`")]
fn evaluate(properties: Value, required: &[&str], input: Value) -> Result<Value, String> {
    output(&[], &properties, required).evaluate(&RunState::new(input, 0))
}

#[test]
fn value_is_coerced_to_its_declared_type_if_unambiguous() {
    let cases = [
        ("string", json!("x"), json!("x")),
        ("string", json!(""), json!("")),
        ("string", json!(1.5), json!("1.5")),
        ("string", json!(true), json!("true")),
        ("integer", json!(42), json!(42)),
        ("integer", json!(u64::MAX), json!(u64::MAX)),
        ("integer", json!(3.0), json!(3)),
        ("integer", json!(-0.0), json!(0)),
        ("integer", json!(1e300), json!(1e300)),
        ("integer", json!("-42"), json!(-42)),
        ("integer", json!("18446744073709551615"), json!(u64::MAX)),
        ("number", json!(42), json!(42)),
        ("number", json!("0.5"), json!(0.5)),
        ("number", json!("42"), json!(42)),
        ("boolean", json!(false), json!(false)),
        ("boolean", json!("true"), json!(true)),
        ("boolean", json!("0"), json!(false)),
        ("object", json!({ "a": [1] }), json!({ "a": [1] })),
        ("object", json!(" {\"a\": 1} "), json!({ "a": 1 })),
        ("array", json!([1, "2"]), json!([1, "2"])),
        ("array", json!("[1]"), json!([1])),
    ];
    for (kind, value, expected) in cases {
        let property = json!({ "x": { "type": kind, "value": "$input" } });
        let output = evaluate(property, &["x"], value.clone());
        assert_eq!(output, Ok(json!({ "x": expected })), "{value} as {kind}");
    }
}

#[test]
fn value_of_another_type_is_rejected_or_replaced_by_the_default() {
    let large = json!(format!("[{}0]", r#"{"":0},"#.repeat(30_000)));
    let cases = [
        ("string", json!([1]), "an array where a string"),
        ("integer", json!(1.5), "a number where an integer"),
        ("integer", json!("1.0"), "a string where an integer"),
        ("integer", json!("+1"), "a string where an integer"),
        ("integer", json!("0x10"), "a string where an integer"),
        ("integer", json!("secret"), "a string where an integer"),
        ("integer", json!(true), "a boolean where an integer"),
        ("number", json!("inf"), "a string where a number"),
        ("number", json!(" 1"), "a string where a number"),
        ("number", json!(""), "a string where a number"),
        ("boolean", json!(1), "a number where a boolean"),
        ("boolean", json!("True"), "a string where a boolean"),
        ("object", json!("[1]"), "a string where an object"),
        ("object", json!([]), "an array where an object"),
        ("array", json!("{}"), "a string where an array"),
        ("array", json!("not json"), "a string where an array"),
        ("array", large.clone(), "a text whose value is too large where an array"),
        ("number", large, "a string where a number"),
    ];
    for (kind, value, expected) in cases {
        let property = json!({ "x": { "type": kind, "value": "$input" } });
        let output = evaluate(property, &[], value.clone());
        assert_eq!(output, Err(format!("output.x: {expected} is declared")), "{value} as {kind}");

        let property = json!({ "x": { "type": kind, "value": "$input", "default": "default" } });
        let output = evaluate(property, &["x"], value);
        assert_eq!(output, Ok(json!({ "x": "default" })));
    }
}

#[test]
fn missing_value_is_rejected_defaulted_or_omitted() {
    let property = |value: &str, default: Option<Value>| {
        let mut property = json!({ "x": { "type": "string", "value": value } });
        if let Some(default) = default {
            property["x"]["default"] = default;
        }
        property
    };
    let default = || Some(json!("default"));
    let missing = Err("output.x: `$input.no` has no value".to_owned());
    let required = Err("output.x: it is required and has no value".to_owned());
    let null = Err("output.x: it is required and has no value".to_owned());
    let caused =
        Err("output.x: it is required and has no value: `$input.no` has no value".to_owned());
    let with_default = Ok(json!({ "x": "default" }));
    let cases = [
        ("$input.no", None, &[][..], missing.clone()),
        ("$input.no", None, &["x"][..], missing),
        ("$input.no", default(), &["x"], with_default.clone()),
        ("$input.no?", None, &[], Ok(json!({}))),
        ("$input.no?", None, &["x"], required),
        ("$input.no?", default(), &["x"], with_default.clone()),
        // No declared type accepts null, so null counts as missing.
        ("$null", None, &[], Ok(json!({}))),
        ("$null", None, &["x"], null),
        ("$null", default(), &["x"], with_default),
        // A default may be null, which does not satisfy a required property.
        ("$input.no", Some(Value::Null), &[], Ok(json!({ "x": null }))),
        ("$input.no", Some(Value::Null), &["x"], caused),
    ];
    for (value, default, required, expected) in cases {
        let property = property(value, default);
        assert_eq!(evaluate(property.clone(), required, json!({})), expected, "{property}");
    }
}

#[test]
fn objects_are_built_from_their_properties() {
    let properties = |default: Option<Value>| {
        let mut properties = json!({
            "summary": { "type": "object", "properties": {
                "count": { "type": "integer", "value": "$input.count" },
                "deeper": { "type": "object", "properties": {
                    "all": { "type": "array", "value": ["$input.count", "$input.no?"] },
                } },
            } },
            "fixed": { "type": "string", "value": "x" },
        });
        if let Some(default) = default {
            properties["summary"]["default"] = default;
        }
        properties
    };
    let whole = json!({ "summary": { "count": 2, "deeper": { "all": [2] } }, "fixed": "x" });
    assert_eq!(evaluate(properties(None), &["summary"], json!({ "count": 2 })), Ok(whole));

    let bad = || json!({ "count": "many" });
    let expected = "output.summary.count: a string where an integer is declared";
    assert_eq!(evaluate(properties(None), &[], bad()), Err(expected.to_owned()));

    let expected = json!({ "summary": { "count": 0 }, "fixed": "x" });
    assert_eq!(evaluate(properties(Some(json!({ "count": 0 }))), &[], bad()), Ok(expected));
}

#[test]
fn references_in_an_output_are_reported_with_their_path() {
    let properties = json!({
        "x": { "type": "string", "value": "$steps.a.text" },
        "y": { "type": "object", "properties": {
            "z": { "type": "array", "value": [1, "$steps.b.output"], "default": [] },
        } },
        "d": { "type": "object", "default": {}, "properties": {
            "e": { "type": "string", "value": "$input.q" },
        } },
    });
    let output = output(&["a", "b"], &properties, &[]);
    let mut uses: Vec<_> = output
        .uses()
        .into_iter()
        .map(|used| {
            let place: String = used.place.iter().map(PathSegment::to_string).collect();
            (used.text.to_owned(), place, used.optional)
        })
        .collect();
    uses.sort();
    let expected = [
        ("$input.q", ".properties.d.properties.e.value", true),
        ("$steps.a.text", ".properties.x.value", false),
        ("$steps.b.output", ".properties.y.properties.z.value[1]", true),
    ];
    let expected =
        expected.map(|(text, place, optional)| (text.to_owned(), place.to_owned(), optional));
    assert_eq!(uses, expected);
}

#[tokio::test(start_paused = true)]
async fn output_is_built_from_the_outcomes_of_the_steps() {
    let properties = json!({
        "status": { "type": "string", "value": "$steps.a.status" },
        "x": { "type": "integer", "value": "$steps.a.output.x" },
        "count": { "type": "integer", "value": "$steps.loop.output.count" },
        "default": { "type": "string", "value": "$steps.skipped.output.text" },
        "name": { "type": "string", "value": "$workflow.name" },
    });
    let answer = output(&["a", "loop", "skipped"], &properties, &["x"]);
    let steps = json!([
        { "id": "a", "arguments": { "x": "7", "unread": "z" } },
        { "id": "loop", "collection": [1, 2], "arguments": {} },
        { "id": "skipped", "condition": "$input.no", "default_results": { "text": "none" } },
    ]);
    let plan = plan(&steps, 10, RunOutput::Output(answer));
    let state = run_new(&plan, json!({ "no": false })).await;
    assert!(state.outcomes.iter().flatten().all(|outcome| outcome.result.is_none()));
    let RunOutput::Output(output) = &plan.answer else { panic!("an output block") };
    let expected =
        json!({ "status": "completed", "x": 7, "count": 2, "default": "none", "name": "test" });
    assert_eq!(output.evaluate(&state), Ok(expected));
}
