//! Tests of expressions whose meaning could plausibly be different.

use super::*;

#[test]
fn operators_and_filters_return_the_expected_values() {
    let cases = [
        // Filters that are not tested elsewhere.
        ("'hello World'|capitalize", json!("Hello world")),
        ("input.n|bool", json!(true)),
        ("input.list|reject('odd')|list", json!([2])),
        ("input.list|sum(start=10)", json!(16)),
        ("input.object|list", json!(["x"])),
        ("input.people|sum('age', 5)", json!(85)),
        // A group has named parts, even after a filter.
        ("(input.people|groupby('age')|first).grouper", json!(20)),
        ("(input.people|groupby('age')|last)[0]", json!(30)),
        ("[{'k': 'x'}, {}]|groupby('k', default='x')|length", json!(1)),
        ("[1.5, 0.5, 1]|sort", json!([0.5, 1, 1.5])),
        ("[true, false]|sort", json!([false, true])),
        // A part of an object is compared only if the parts before it are equal.
        ("[{'a': 1}, {'b': 'x'}]|sort|length", json!(2)),
        // A negative start of a slice counts from the end of the list.
        ("input.list[-1:]", json!([3])),
        ("{1: 'a'}", json!({ "1": "a" })),
        ("{'a': 1, 'b': [2]} ~ ''", json!("{\"a\":1,\"b\":[2]}")),
        ("[1]|tojson(indent=true)", json!("[\n  1\n]")),
        // A slice or range includes its start, and excludes its end.
        ("input.list[0:2]", json!([1, 2])),
        ("input.list[:0]", json!([])),
        ("range(3, 0, -1)", json!([3, 2, 1])),
        // Integers can be combined with floats.
        ("1 + 0.5", json!(1.5)),
        ("0.5 + 1", json!(1.5)),
        ("[input.empty is empty, input.list is empty]", json!([true, false])),
        ("7.5 is divisibleby 2", json!(false)),
        ("8 is divisibleby 2.5", json!(false)),
        ("1e-3", json!(0.001)),
        ("2E+2", json!(200.0)),
        // An optional value is used if it is present.
        ("(input.people|first)['name']|default('z')", json!("Ann")),
        // A `-` is an operator, except in the names of steps.
        ("input.n-1", json!(2)),
        ("steps.a.output.items[0]-1", json!(0)),
        // A list can be longer than the nesting limit of brackets.
        (&format!("[{}]|length", "(1), ".repeat(100)), json!(100)),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(&format!("{{{{ {written} }}}}")), Ok(expected), "{written}");
    }
}

/// The expected values are those of Python, whose operators Jinja uses.
#[test]
fn quotients_are_rounded_down_and_remainders_have_the_sign_of_the_divisor() {
    let cases = [
        ("[7 // 2, -7 // 2, 7 // -2, -7 // -2]", json!([3, -4, -4, 3])),
        ("[7 % 3, -7 % 3, 7 % -3, -7 % -3, -6 % 3]", json!([1, 2, -2, -1, 0])),
        ("[7.5 // 2, -7.5 // 2, 7.5 // -2, -7.5 // -2]", json!([3.0, -4.0, -4.0, 3.0])),
        ("[7.5 % 2, -7.5 % 2, 7.5 % -2, -7.5 % -2, 6.0 % 3]", json!([1.5, 0.5, -0.5, -1.5, 0.0])),
        ("[7 / 2, 6 / 2, 2.5 - 1, 2.5 * 2]", json!([3.5, 3.0, 1.5, 5.0])),
        ("[2 ** 10, 2 ** -1, 4 ** 0.5, 0.0 ** 0]", json!([1024, 0.5, 2.0, 1.0])),
        ("[5 % -1, -(2 ** 126) * 2 % -1]", json!([0, 0])),
        ("(-(2 ** 126) * 2) // -1", json!(1.701_411_834_604_692_3e38)),
        (
            "[1 in 'a1', 2 in 'a1', 1.5 not in 'a1', 1 in {'1': 2}]",
            json!([true, false, true, false]),
        ),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(&format!("{{{{ {written} }}}}")), Ok(expected), "{written}");
    }
    for written in ["1 / 0", "1 // 0", "1 % 0", "1.5 // 0", "1.5 % 0.0", "0 ** -1", "2 ** 127 * 2"]
    {
        assert!(evaluate(&format!("{{{{ {written} }}}}")).is_err(), "{written}");
    }
}

#[test]
fn loop_variable_provides_the_parts_of_an_element() {
    let cases = [
        ("{% for pair in [[1, 2], [3, 4]] %}{{ pair[0] }}{% endfor %}", "13"),
        ("{% for n in input.list %}{{ loop.revindex ~ loop.revindex0 }} {% endfor %}", "32 21 10 "),
        ("{% for one in [{'a': 1}] %}{{ one.a }}{% endfor %}", "1"),
        ("{% for g in input.people|groupby('age') %}{{ g.grouper }} {% endfor %}", "20 30 "),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(written), Ok(json!(expected)), "{written}");
    }
    // A string has no elements.
    let error = "`word[0]` has no value".to_owned();
    assert_eq!(evaluate("{% for word in input.words %}{{ word[0] }}{% endfor %}"), Err(error));
}

#[test]
fn errors_quote_the_text_at_their_position() {
    let at =
        |reason: &str, column| format!("at line 1, character {column} of the template: {reason}");
    let cases = [
        ("{{ 1 + in }}", at("expected an expression and not `in`", 8)),
        ("{{ 1 + * 2 }}", at("expected an expression and not `*`", 8)),
        ("{{ 1 ! 2 }}", at("unexpected `!`", 6)),
        ("{{ {'a': 1) }}", at("unclosed `{`", 4)),
        ("{{ '\\u+123' }}", at("unknown escape: write `\\\\` for a backslash", 5)),
        ("{{ (input.list)[] }}", at("expected a key", 17)),
        ("{{ input.list[0:1:2:3] }}", at("expected `]` and not `:`", 20)),
        ("{{ input.+ }}", at("expected a key and not `+`", 10)),
        (
            "{{ input.list|sort(reverse=true, 1) }}",
            at("positional arguments must precede named ones", 34),
        ),
        (
            "{{ input.people|selectattr('age', 'od') }}",
            at("unknown test `od`: did you mean `odd`?", 17),
        ),
        (
            "{{ loop.index }}",
            at(
                "unknown name `loop`: expected `input`, `prev`, `steps`, `item`, `index`, `workflow`",
                4,
            ),
        ),
        (
            "{% for one in input.list %}{{ query }}{% endfor %}",
            at(
                "unknown name `query`: expected `one`, `input`, `prev`, `steps`, `item`, `index`, `workflow`, `loop`",
                31,
            ),
        ),
        (
            "{{ steps }}",
            at(
                "`steps` is not a value: write `steps['a'].output`, or another of `.output`, `.content`, `.blocks`, `.text`, `.status`, `.error`",
                4,
            ),
        ),
        ("{% if true %}{{ 1 }}{% endif x %}", at("expected nothing after `endif`", 30)),
        // The name `loop` is defined only in the body of a loop.
        (
            "{% for one in [1] if loop.first %}{{ one }}{% endfor %}",
            at(
                "unknown name `loop`: expected `one`, `input`, `prev`, `steps`, `item`, `index`, `workflow`",
                22,
            ),
        ),
        ("{{ steps.nope }}", "there is no step `nope`, which `steps.nope` refers to".to_owned()),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(written), Err(expected), "{written}");
    }
    for (written, expected) in [
        ("{{ input.nothing|upper }}", "`upper` needs a string and not null"),
        ("{{ input.flag|upper }}", "`upper` needs a string and not a boolean"),
        ("{{ (1 if input.empty)|upper }}", "`upper` needs a string and not nothing"),
        ("{{ (1 if input.empty)['x'] }}", "a value is missing"),
        ("{{ range() }}", "an argument is missing"),
        ("{{ input.list[::0] }}", "the step of a slice must be a positive integer"),
        ("{{ input.object[input.name] }}", "an object has no such key"),
        ("{{ input.name[input.n - 3] }}", "the value has no keys"),
        ("{{ input.n|sum }}", "`sum` needs an array and not a number"),
        ("{{ input.name|batch(2) }}", "`batch` needs an array and not a string"),
        ("{{ input.list + 1 }}", "`+` cannot add an array and a number"),
        ("{{ 1 + input.list }}", "`+` cannot add a number and an array"),
        ("{{ input.words|sum(start='x') }}", "the start of `sum` must be a number"),
        ("{{ input.words|sum('x', 'y') }}", "the start of `sum` must be a number"),
    ] {
        let error = evaluate(written).unwrap_err();
        assert_eq!(error.split(" in the template").next(), Some(expected), "{written}");
    }
}

#[test]
fn names_outside_the_scope_are_unknown() {
    let names = ScopeNames::default();
    for (written, name) in [
        ("{{ steps.a.output }}", "steps"),
        ("{{ steps.a }}", "steps"),
        ("{{ prev.a }}", "prev"),
        ("{{ index }}", "index"),
        ("{{ item.id }}", "item"),
        ("{{ workflow.id }}", "workflow"),
        ("{{ loop.index }}", "loop"),
    ] {
        let error = Template::parse(written, &names).unwrap_err().to_string();
        let expected = format!("unknown name `{name}`: expected `input`");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn numbers_are_compared_by_their_values_however_large() {
    let least = "((0 - 2 ** 126) * 2)";
    let greatest = "((2 ** 126 - 1) * 2 + 1)";
    let cases = [
        (format!("[{least}, -1e40]|sort|first"), json!(-1e40)),
        (format!("[1e40, {greatest}]|sort|last"), json!(1e40)),
        // Two different texts of the same number are equal.
        (format!("[{least}, -1.7014118346046923e38]|unique|length"), json!(1)),
        // NaN is sorted last.
        ("[1e308 * 10 - 1e308 * 10, 5]|sort|first".to_owned(), json!(5)),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(&format!("{{{{ {written} }}}}")), Ok(expected), "{written}");
    }
}

#[test]
fn reference_into_a_scalar_has_no_value() {
    let data = Everything(data());
    for written in ["$index.x", "$steps.a.status[0]", "$workflow.id.x"] {
        let reference = Expression::parse_in(&json!(written), &NAMES).unwrap();
        let error = reference.evaluate_in(&data).unwrap_err().to_string();
        assert_eq!(error, format!("`{written}` has no value"));
    }
}
