//! Tests of the filters that Jinja does not have.

use super::*;

fn assert_values<const N: usize>(cases: [(&str, Value); N]) {
    for (written, expected) in cases {
        assert_eq!(evaluate(written), Ok(expected), "{written}");
    }
}

fn assert_failures<const N: usize>(cases: [(&str, &str); N]) {
    for (written, expected) in cases {
        let error = evaluate(written).expect_err(written);
        assert!(error.contains(expected), "{written}: {error}");
    }
}

#[test]
fn flatten_replaces_arrays_of_the_given_levels() {
    assert_values([
        ("{{ [1, [2, [3, []]], 'a', {'b': [4]}] | flatten }}", json!([1, 2, 3, "a", { "b": [4] }])),
        ("{{ [1, [2, [3]]] | flatten(1) }}", json!([1, 2, [3]])),
        ("{{ [1, [2]] | flatten(levels=0) }}", json!([1, [2]])),
        ("{{ input.object | flatten }}", json!(["x"])),
        ("{{ input.people | groupby('age') | flatten(1) | length }}", json!(4)),
    ]);
    assert_failures([
        ("{{ 1 | flatten }}", "`flatten` needs an array and not a number"),
        ("{{ [1] | flatten('a') }}", "an argument must be an integer and not a string"),
    ]);
}

#[test]
fn merge_uses_the_last_member_of_each_name() {
    assert_values([
        ("{{ {'a': 1, 'b': 2} | merge({'b': 3}, {'c': 4}) }}", json!({ "a": 1, "b": 3, "c": 4 })),
        ("{{ {'a': {'b': 1}} | merge({'a': {'c': 2}}) }}", json!({ "a": { "c": 2 } })),
        (
            "{{ {'a': {'b': 1, 'c': [1]}} | merge({'a': {'c': [2]}}, deep=true) }}",
            json!({ "a": { "b": 1, "c": [2] } }),
        ),
        ("{{ {'a': 1} | merge({'a': {'b': 1}}, deep=true) }}", json!({ "a": { "b": 1 } })),
        ("{{ {'a': 1} | merge }}", json!({ "a": 1 })),
    ]);
    assert_failures([
        ("{{ {} | merge([1]) }}", "`merge` needs objects and not an array"),
        ("{{ [] | merge({}) }}", "`merge` needs an object and not an array"),
        ("{{ {} | merge({}, other=true) }}", "unknown argument `other`"),
    ]);
}

#[test]
fn format_rounds_and_groups_digits() {
    assert_values([
        ("{{ 1234567 | format(separator=',') }}", json!("1,234,567")),
        ("{{ -123456.789 | format(2, ' ') }}", json!("-123 456.79")),
        ("{{ 100 | format(2) }}", json!("100.00")),
        ("{{ 0.125 | format(2) }}", json!("0.12")),
        ("{{ 2.5 | format(0) }}", json!("2")),
        ("{{ 1.5 | format }}", json!("1.5")),
        ("{{ 999 | format(separator=',') }}", json!("999")),
        ("{{ input.big | format(separator='_') }}", json!("18_446_744_073_709_551_615")),
    ]);
    assert_failures([
        ("{{ 'a' | format }}", "`format` needs a number and not a string"),
        ("{{ 1 | format(21) }}", "`format` needs a number of decimals up to 20"),
        ("{{ 1 | format(-1) }}", "`format` needs a number of decimals up to 20"),
    ]);
}

#[test]
fn search_returns_groups_or_the_matched_text() {
    assert_values([
        ("{{ 'id 42, id 7' | search('[0-9]+') }}", json!("42")),
        ("{{ 'id 42, id 7' | search('[0-9]+', all=true) }}", json!(["42", "7"])),
        (
            "{{ 'a=1 b' | search('(?P<key>\\\\w)(=(?P<value>\\\\d))?', all=true) }}",
            json!([{ "key": "a", "value": "1" }, { "key": "b", "value": null }]),
        ),
        ("{{ 'Zoë' | search(pattern='(?i)ZOË') }}", json!("Zoë")),
        ("{{ 'tea' | search('coffee') | default('none') }}", json!("none")),
        ("{{ ('tea' | search('coffee')) is defined }}", json!(false)),
        ("{{ 'tea' | search('coffee', all=true) }}", json!([])),
        ("{{ 'ab' | search('', all=true) }}", json!(["", "", ""])),
        ("{{ ['a1', 'b2'] | map('search', '[0-9]') }}", json!(["1", "2"])),
    ]);
    assert_failures([
        ("{{ 'a' | search }}", "`search` needs a regular expression as a literal string"),
        ("{{ 'a' | search(input.text) }}", "`search` needs a regular expression as a literal"),
        ("{{ ['a'] | map('search') }}", "`search` needs a regular expression as a literal string"),
        ("{{ 'a' | search('(') }}", "invalid regular expression: unclosed group"),
        ("{{ 'a' | search('(a)\\\\1') }}", "backreferences are not supported"),
        ("{{ 'a' | search('\\\\w{500}') }}", "the regular expression needs more than 131072 bytes"),
        ("{{ 1 | search('a') }}", "`search` needs a string and not a number"),
    ]);
}

#[test]
fn search_with_a_costly_expression_runs_out_of_steps() {
    let data = json!({ "input": { "text": "ab".repeat(1 << 19) } });
    let found = evaluate_with("{{ input.text | search('[^a]c') is defined }}", data.clone());
    assert_eq!(found, Ok(json!(false)));
    let costly = "{{ input.text | search('(a|b|ab)*(a|b){150}c') is defined }}";
    let error = evaluate_with(costly, data).unwrap_err();
    assert!(error.contains("the evaluation takes more than 2000000 steps"), "{error}");
}

#[test]
fn date_adds_durations_and_formats() {
    assert_values([
        ("{{ '2026-01-31T12:00:00+01:00' | date }}", json!("2026-01-31T11:00:00Z")),
        ("{{ '2026-01-31T12:00:00.5Z' | date }}", json!("2026-01-31T12:00:00.5Z")),
        ("{{ '2026-01-31T12:00:00Z' | date(add='1 month') }}", json!("2026-02-28T12:00:00Z")),
        ("{{ '2026-01-31T12:00:00Z' | date(add='-1h 30m') }}", json!("2026-01-31T10:30:00Z")),
        ("{{ '2026-01-31T12:00:00Z' | date('%d.%m.%Y', '2 days') }}", json!("02.02.2026")),
        ("{{ 0 | date }}", json!("1970-01-01T00:00:00Z")),
        ("{{ 1.25 | date }}", json!("1970-01-01T00:00:01.25Z")),
        ("{{ '2026-01-31T12:00:00Z' | date('%s') | int }}", json!(1_769_860_800)),
        ("{{ '2026-01-31T12:00:00Z' | date < '2026-02-01T00:00:00Z' | date }}", json!(true)),
    ]);
    assert_failures([
        ("{{ 'yesterday' | date }}", "`date` needs a date such as `2026-01-31T12:00:00Z`"),
        ("{{ '2026-01-31' | date }}", "`date` needs a date such as `2026-01-31T12:00:00Z`"),
        ("{{ input.big | date }}", "`date` needs a date such as"),
        ("{{ 0 | date(add='soon') }}", "`soon` is not a duration such as `7 days`"),
        ("{{ 0 | date(add='20000 years') }}", "is not a duration"),
        ("{{ 0 | date(add='9000 years') }}", "the date is out of range"),
        ("{{ 0 | date('%!') }}", "invalid format of a date"),
    ]);
    let long = format!("{{{{ 0 | date('{}') }}}}", "x".repeat(1025));
    assert!(evaluate(&long).unwrap_err().contains("has more than 1024 bytes"));
}
