use proptest::prelude::*;
use serde_json::{Value, json};

use super::{reference::Reference, *};

#[expect(clippy::needless_pass_by_value, reason = "the cases read better without `&`")]
fn evaluate(written: Value, input: Value) -> Result<Option<Value>, String> {
    let expression = Expression::parse(&written).map_err(|errors| errors.to_string())?;
    expression.evaluate(&input).map_err(|missing| missing.to_string())
}

#[test]
fn reference_keeps_the_type_of_its_value() {
    let input = || json!({ "a": { "b": [10, { "c": null }] }, "odd key": true, "it's": 1, "big": u64::MAX });
    let cases = [
        ("$input", input()),
        ("$input.a.b[0]", json!(10)),
        ("$input.a.b[1].c", json!(null)),
        ("$input['odd key']", json!(true)),
        ("$input[\"it's\"]", json!(1)),
        ("$input.big", json!(u64::MAX)),
        ("$input.a?", json!({ "b": [10, { "c": null }] })),
        ("$null", json!(null)),
        ("$$5.00", json!("$5.00")),
        ("$$5 {{ input.big }}", json!("$5 18446744073709551615")),
        ("$5 {{ input.big }}", json!("$5 18446744073709551615")),
        ("a $$ {{ input.big }}", json!("a $$ 18446744073709551615")),
        ("{{ '$$' }}", json!("$$")),
        ("plain", json!("plain")),
        ("5$", json!("5$")),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(json!(written), input()), Ok(Some(expected)), "{written}");
    }
}

/// `.0` is an object key, an array index, or a step by its ID or its position.
#[test]
fn reference_means_the_same_with_and_without_braces() {
    let data = json!({
        "l": [10, [20, 21], { "0": 30 }], "o": { "0": "zero", "00": "double", "l": ["a"] }, "t": "text",
    });
    for (path, expected) in [
        ("l.0", Some(json!(10))),
        ("l[0]", Some(json!(10))),
        ("l['0']", Some(json!(10))),
        ("l.1.1", Some(json!(21))),
        ("l.2.0", Some(json!(30))),
        ("l.2[0]", None),
        ("l.3", None),
        ("l.00", None),
        ("o.0", Some(json!("zero"))),
        ("o['0']", Some(json!("zero"))),
        ("o.00", Some(json!("double"))),
        ("o.l.0", Some(json!("a"))),
        ("o[0]", None),
        ("t.0", None),
    ] {
        let gives = |written: String| evaluate(json!(written), data.clone()).ok();
        let found = [
            gives(format!("$input.{path}")),
            gives(format!("{{{{ input.{path} }}}}")),
            gives(format!("{{{{ (input).{path} }}}}")),
            gives(format!("{{{{ [input.{path}] | first }}}}")),
        ];
        for found in found {
            assert_eq!(found, expected.clone().map(Some), "{path}");
        }
        assert_eq!(gives(format!("$input.{path}?")), Some(expected.clone()), "{path}");
        let local = format!("{{% for x in [input] %}}{{{{ x.{path} }}}}{{% endfor %}}");
        let printed = expected.map(|value| match value {
            Value::String(text) => Some(json!(text)),
            other => Some(json!(other.to_string())),
        });
        assert_eq!(gives(local), printed, "{path}");
    }

    let names = ScopeNames { steps: &["a", "0", "c"], ..ScopeNames::default() };
    for (reference, step) in [
        ("steps.0", 1),
        ("steps['0']", 1),
        ("steps[0]", 0),
        ("steps.1", 1),
        ("steps[1]", 1),
        ("steps.2", 2),
        ("steps.a", 0),
    ] {
        for written in [format!("${reference}.text"), format!("{{{{ {reference}.text }}}}")] {
            let expression = Expression::parse_in(&json!(written), &names).unwrap();
            let [used] = &expression.uses()[..] else { panic!("{written}") };
            assert_eq!(used.root, Root::Step { step, field: Field::Text }, "{written}");
        }
    }
    for written in ["$steps.3.text", "{{ steps.3.text }}", "$steps.01.text", "{{ steps.01.text }}"]
    {
        assert!(Expression::parse_in(&json!(written), &names).is_err(), "{written}");
    }
}

#[test]
fn missing_value_is_omitted_only_if_optional() {
    let written = json!({ "a": "$input.no?", "b": ["$input.no.deeper?", 1], "c": "$input.yes?" });
    let expected = json!({ "b": [1], "c": 2 });
    assert_eq!(evaluate(written, json!({ "yes": 2 })), Ok(Some(expected)));
    assert_eq!(evaluate(json!("$input.no?"), json!({})), Ok(None));
    for written in ["$input.no", "$input.no[0]", "$input['o d']", "$input.text.b"] {
        let expected = Err(format!("`{written}` has no value"));
        assert_eq!(evaluate(json!([written]), json!({ "text": "x" })), expected);
    }
}

#[test]
fn invalid_reference_is_reported_with_its_character() {
    let cases = [
        (
            "$inputs.a",
            "unknown reference `$inputs.a`: expected `$input`, `$null`, or `$$` for a literal `$`",
        ),
        ("$", "unknown reference `$`: expected `$input`, `$null`, or `$$` for a literal `$`"),
        (
            "$input!",
            "unknown reference `$input!`: expected `$input`, `$null`, or `$$` for a literal `$`",
        ),
        (
            "$input.",
            "malformed reference `$input.` at character 8: expected a key of letters, digits, `_` and `-`; others as `['key']`",
        ),
        (
            "$input[x]",
            "malformed reference `$input[x]` at character 8: expected a number from zero or a quoted key",
        ),
        ("$input['x]", "malformed reference `$input['x]` at character 9: expected a closing quote"),
        ("$input['x'", "malformed reference `$input['x'` at character 11: expected `]`"),
        (
            "$input.ü!",
            "malformed reference `$input.ü!` at character 9: expected `.`, `[`, `?` or the end",
        ),
        ("$input?.a", "malformed reference `$input?.a` at character 8: expected the end after `?`"),
        (
            "$input[99999999999999999999]",
            "malformed reference `$input[99999999999999999999]` at character 8: expected a number from zero or a quoted key",
        ),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(json!(written), json!({})), Err(expected.to_owned()));
    }
}

#[test]
fn unknown_reference_is_a_literal_text_in_lenient_mode() {
    let names = ScopeNames { lenient: true, ..ScopeNames::default() };
    let texts =
        ["$5.00 off", "$5,00", "$a.b c", "$US[x]", "$US['x", "$.a", "$", "$prev.x y", "$steps"];
    for text in texts {
        let expression = Expression::parse_in(&json!(text), &names).unwrap();
        assert_eq!(expression.as_literal(), Some(&json!(text)));

        let error = Expression::parse(&json!(text)).unwrap_err().to_string();
        let expected = "expected `$input`, `$null`, or `$$` for a literal `$`";
        assert_eq!(error, format!("unknown reference `{text}`: {expected}"));
    }
    for text in ["$input.", "$input[x]", "$input.a b"] {
        let errors = Expression::parse_in(&json!(text), &names).unwrap_err();
        assert!(errors.to_string().starts_with("malformed reference"), "{errors}");
    }
    for text in ["{{ inptu }}", "{{ input.a b }}"] {
        assert!(Expression::parse_in(&json!(text), &names).is_err(), "{text}");
    }
    let expression = Expression::parse_in(&json!("{{ input.a }}"), &names).unwrap();
    let missing = expression.evaluate(&json!({})).unwrap_err();
    assert_eq!(missing.to_string(), "`input.a` has no value");
}

#[test]
fn all_errors_are_reported_with_their_position() {
    let errors =
        Expression::parse(&json!({ "a": ["x", "$y"], "b": { "c": "$z" }, "$d": 1 })).unwrap_err();
    let places: Vec<_> = errors.iter().map(|(path, _)| path.to_vec()).collect();
    let key = |key: &str| PathSegment::Key(key.to_owned());
    assert_eq!(places, [vec![key("a"), PathSegment::Index(1)], vec![key("b"), key("c")]]);
}

#[test]
fn reference_to_an_unknown_step_or_field_is_rejected() {
    let names = ScopeNames { steps: &["a", "b"], ..ScopeNames::default() };
    assert!(Expression::parse_in(&json!("$steps[1].text"), &names).is_ok());
    for (written, expected) in [
        ("$steps[2].text", "there is no step `2`, which `$steps[2].text` refers to"),
        ("$steps[2]", "there is no step `2`, which `$steps[2]` refers to"),
        (
            "$steps.a['odd key']",
            "a step has no `['odd key']`: did you mean `$steps.a.output['odd key']`?",
        ),
    ] {
        let error = Expression::parse_in(&json!(written), &names).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
}

#[test]
fn key_is_displayed_in_parsable_form() {
    let written = |key: &str| PathSegment::from(key).to_string();
    let keys = ["a", "get-logs", "ü_1", "odd key", "a.b", "", "it's"].map(written);
    let expected = [".a", ".get-logs", ".ü_1", "['odd key']", "['a.b']", "['']", "[\"it's\"]"];
    assert_eq!(keys, expected);
    assert_eq!(PathSegment::from(7).to_string(), "[7]");
}

#[test]
fn value_without_references_is_a_literal() {
    let value = json!({ "a": [1, { "b": null }], "c": "text" });
    assert_eq!(Expression::parse(&value).unwrap().as_literal(), Some(&value));
    let value = json!({ "a": [1, { "b": "$input.x" }], "c": "text" });
    assert_eq!(Expression::parse(&value).unwrap().as_literal(), None);
}

#[test]
fn templates_are_equal_if_text_and_meaning_are_equal() {
    let parse = |text: &str, steps: &[&str]| {
        let names = ScopeNames { steps, ..ScopeNames::default() };
        Expression::parse_in(&json!(text), &names).unwrap()
    };
    let text = "{{ steps.a.output }}";
    let template = parse(text, &["a", "b"]);
    assert_eq!(template, parse(text, &["a", "c"]));
    assert_ne!(template, parse(text, &["b", "a"]), "it is another step");
    assert_ne!(template, parse("{{steps.a.output}}", &["a", "b"]));
}

proptest! {
    #[test]
    fn parsing_never_panics(text in r"\$?(input)?[\[\]'.?a-zé0-9 $\x22]{0,12}") {
        let _ = Expression::parse(&json!(text));
    }

    #[test]
    fn printed_reference_parses_to_the_same_reference(
        path in proptest::collection::vec(prop_oneof![
            "[a-z' ü.\\[]{0,6}".prop_map(PathSegment::Key),
            any::<usize>().prop_map(PathSegment::Index),
        ], 0..5),
        optional: bool,
    ) {
        let segments = path.iter().map(|segment| match segment {
            PathSegment::Key(key) if key.contains('\'') => format!("[\"{key}\"]"),
            PathSegment::Key(key) => format!("['{key}']"),
            PathSegment::Index(index) => format!("[{index}]"),
        });
        let end = if optional { "?" } else { "" };
        let text = format!("$input{}{end}", segments.collect::<String>());
        let reference = Reference::parse(&text, &ScopeNames::default()).unwrap();
        prop_assert_eq!(reference.path(), &path);
        prop_assert_eq!(Reference::parse(&reference.to_string(), &ScopeNames::default()).unwrap(), reference);
    }

    #[test]
    fn data_is_never_parsed_as_a_reference(text in r"\$.{0,20}|.{0,20}") {
        let input = json!({ "x": text, "y": [text] });
        let written = json!({ "a": "$input.x", "b": ["$input.y"] });
        prop_assert_eq!(evaluate(written, input).unwrap(), Some(json!({ "a": text, "b": [[text]] })));
    }
}
