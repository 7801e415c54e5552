mod filters;
mod guide;
mod limits;
mod meanings;

use std::borrow::Cow;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{filters::FILTERS, *};
use crate::expr::{Collection, Condition, Expression, Field, KEYWORDS, Previous, names::RESERVED};

/// A run that has data for every root.
#[derive(Clone, Debug)]
struct Everything(Value);

impl Data for Everything {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        let (step, field) = match root {
            Root::Input => return self.0.get("input").map(Cow::Borrowed),
            Root::Item => return self.0.get("item").map(Cow::Borrowed),
            Root::Index => return Some(Cow::Owned(json!(7))),
            Root::WorkflowId => return Some(Cow::Owned(json!("run-1"))),
            Root::WorkflowName => return Some(Cow::Owned(json!("flow"))),
            Root::WorkflowStartedAt => return Some(Cow::Owned(json!("2026-01-31T12:00:00Z"))),
            Root::Step { step, field } => (step, field),
        };
        match field {
            Field::Status => Some(Cow::Owned(json!("completed"))),
            _ => self.0.get("steps")?.get(step)?.get(field.name()).map(Cow::Borrowed),
        }
    }
}

const STEPS: [&str; 4] = ["a", "get-logs", "get", "late"];

const NAMES: ScopeNames<'_> = ScopeNames {
    steps: &STEPS,
    previous: Previous::Step(0),
    before: Some(3),
    item: Some("item"),
    run: true,
    variables: None,
    allows_secrets: false,
    lenient: false,
};

fn data() -> Value {
    json!({
        "input": {
            "name": "Zoë",
            "n": 3,
            "ratio": 0.5,
            "big": u64::MAX,
            "small": i64::MIN,
            "flag": true,
            "nothing": null,
            "list": [1, 2, 3],
            "words": ["b", "a", "c"],
            "people": [
                { "name": "Ann", "age": 30 },
                { "name": "Bob", "age": 20 },
                { "name": "Cy", "age": 30 },
            ],
            "object": { "x": { "y": [10, { "z": "deep" }] } },
            "odd key": "odd",
            "empty": [],
            "text": "",
            "json": "{\"k\": [1, 2.5]}",
            "evil": "{{ input.name }} $input.name {% if %}",
        },
        "item": { "id": 5 },
        "steps": [
            { "output": { "items": [1, 2] }, "text": "said" },
            { "output": { "count": 4 } },
            { "output": { "logs": 1 } },
        ],
    })
}

fn evaluate(text: &str) -> Result<Value, String> {
    evaluate_with(text, data())
}

fn evaluate_with(text: &str, data: Value) -> Result<Value, String> {
    let template = Template::parse(text, &NAMES).map_err(|error| error.to_string())?;
    let data = Everything(data);
    template.evaluate(&data).map_err(|error| error.to_string())
}

#[test]
fn single_expression_keeps_its_type() {
    let input = data()["input"].clone();
    let cases = [
        ("{{ input }}", input),
        ("{{input.big}}", json!(u64::MAX)),
        ("{{ input.small }}", json!(i64::MIN)),
        ("{{ params.ratio }}", json!(0.5)),
        ("{{ input.nothing }}", json!(null)),
        ("{{- input.list -}}", json!([1, 2, 3])),
        ("{{ input['odd key'] }}", json!("odd")),
        ("{{ input.object.x.y[1].z }}", json!("deep")),
        ("{{ input.object['x']['y'].0 }}", json!(10)),
        ("{{ prev.items }}", json!([1, 2])),
        ("{{ steps.a.output.items[0] }}", json!(1)),
        ("{{ steps[0].text }}", json!("said")),
        ("{{ steps['get-logs'].output.count }}", json!(4)),
        ("{{ steps.a.status }}", json!("completed")),
        ("{{ item.id }}", json!(5)),
        ("{{ index + 1 }}", json!(8)),
        ("{{ workflow.id }}", json!("run-1")),
        ("{{ workflow.name }}", json!("flow")),
        ("{{ workflow.started_at | date('%Y') }}", json!("2026")),
        ("{{ (input.big) }}", json!(u64::MAX)),
        ("{{ [input.big, input.small, 1.0, none] }}", json!([u64::MAX, i64::MIN, 1.0, null])),
        (
            "{{ {'a': input.list, \"b\": {'c': input.flag}} }}",
            json!({ "a": [1, 2, 3], "b": { "c": true } }),
        ),
        ("{{ input.ratio * 100 }}", json!(50.0)),
        ("{{ input.n * 2 + 10 // 3 - 2 ** 3 }}", json!(1)),
        ("{{ -input.n|abs }}", json!(3)),
        ("{{ 1 + 2 ~ 3 }}", json!("error")),
        ("{{ 'a' ~ 1 ~ none ~ [1, 'x'] ~ input.flag }}", json!("a1null[1,\"x\"]true")),
        ("{{ 'a' + 'b' }}", json!("ab")),
        ("{{ input.list + [4] }}", json!([1, 2, 3, 4])),
        ("{{ input.n > 2 and not input.empty }}", json!(true)),
        ("{{ 1 < input.n <= 3 }}", json!(true)),
        ("{{ 2 in input.list }}", json!(true)),
        ("{{ 'x' not in input.object }}", json!(false)),
        ("{{ input.list == [1, 2, 3] }}", json!(true)),
        ("{{ input.object == {'x': {'y': [10, {'z': 'deep'}]}} }}", json!(true)),
        ("{{ input.list is sequence }}", json!(true)),
        ("{{ input.object is mapping }}", json!(true)),
        ("{{ input.n is divisibleby 3 }}", json!(true)),
        ("{{ input.n is not even }}", json!(true)),
        ("{{ 'yes' if input.flag else 'no' }}", json!("yes")),
        ("{{ input if input.n == 4 else input.empty }}", json!([])),
        ("{{ input.list[-1] }}", json!(3)),
        ("{{ input.list[1:] }}", json!([2, 3])),
        ("{{ input.name[:2] }}", json!("Zo")),
        ("{{ input.list[::2] }}", json!([1, 3])),
        ("{{ input.list[input.n - 1] }}", json!(3)),
        ("{{ input['na' ~ 'me'] }}", json!("Zoë")),
        ("{{ (input.people|first).name }}", json!("Ann")),
        ("{{ range(2) }}", json!([0, 1])),
        ("{{ range(3, 0, -2) }}", json!([3, 1])),
        ("{{ 18446744073709551615 }}", json!(u64::MAX)),
        ("{{ 1e3 }}", json!(1000.0)),
        ("{{ 'it\\'s \\u00e9\\n\\ud83d\\ude00' }}", json!("it's é\n😀")),
        ("{{ \"}}\" }}", json!("}}")),
        ("{{ '{{' }}", json!("{{")),
    ];
    for (written, expected) in cases {
        if expected == "error" {
            let reason = "`+` cannot add a number and a string in the template `1 + 2 ~ 3`";
            assert_eq!(evaluate(written), Err(reason.to_owned()));
        } else {
            assert_eq!(evaluate(written), Ok(expected), "{written}");
        }
    }
}

#[test]
fn filters_and_tests_apply_to_input_data() {
    let cases = [
        ("input.name|upper|lower|title", json!("Zoë")),
        ("input.name|length", json!(3)),
        ("input.people|length", json!(3)),
        ("input.object|length", json!(1)),
        ("input.words|sort|join('-')", json!("a-b-c")),
        ("input.people|sort(attribute='age')|map(attribute='name')|join", json!("BobAnnCy")),
        ("input.people|join(', ', attribute='name')", json!("Ann, Bob, Cy")),
        (
            "input.people|selectattr('age', 'eq', 30)|map(attribute='name')|list",
            json!(["Ann", "Cy"]),
        ),
        ("input.people|rejectattr('age', 'gt', 20)|first", json!({ "name": "Bob", "age": 20 })),
        ("input.people|groupby('age')|map('last')|map('length')|list", json!([1, 2])),
        ("input.words|map('upper')|list", json!(["B", "A", "C"])),
        ("input.list|select('odd')|list", json!([1, 3])),
        ("input.list|sum", json!(6)),
        ("input.people|sum(attribute='age')", json!(80)),
        ("input.list|max", json!(3)),
        ("input.list|reverse", json!([3, 2, 1])),
        ("input.list|batch(2)", json!([[1, 2], [3]])),
        ("[1, 2, 1]|unique", json!([1, 2])),
        ("input.list|zip(input.words)|list", json!([[1, "b"], [2, "a"], [3, "c"]])),
        ("input.list|chain([9])|list", json!([1, 2, 3, 9])),
        ("input.object|items|list", json!([["x", { "y": [10, { "z": "deep" }] }]])),
        ("input.object|keys", json!(["x"])),
        ("input.people[0]|values|list|length", json!(2)),
        ("input.people[0]|dictsort", json!([["age", 30], ["name", "Ann"]])),
        ("input.object|tojson", json!("{\"x\":{\"y\":[10,{\"z\":\"deep\"}]}}")),
        ("input.list|tojson(indent=1)", json!("[\n 1,\n 2,\n 3\n]")),
        ("input.json|fromjson", json!({ "k": [1, 2.5] })),
        ("(input.json|fromjson).k[0]", json!(1)),
        ("'a\"<\n'|quote", json!("\"a\\\"<\\n\"")),
        ("input.nothing|string", json!("null")),
        ("input.list|string", json!("[1,2,3]")),
        ("'a-b'|replace('-', '+')", json!("a+b")),
        ("'a,b'|split(',')", json!(["a", "b"])),
        ("'a\nb'|lines", json!(["a", "b"])),
        ("'a\nb'|indent(2)", json!("a\n  b")),
        ("' x '|trim", json!("x")),
        ("'a b&c'|urlencode", json!("a%20b%26c")),
        ("'12'|int + 1", json!(13)),
        ("'1.5'|float", json!(1.5)),
        ("1.26|round(1)", json!(1.3)),
        ("input.empty|first|default('none')", json!("none")),
        ("input.none.at.all|default('x')", json!("x")),
        ("input.list[9]|d(0)", json!(0)),
        ("input.object[input.name].more|default('y')", json!("y")),
        ("steps.a.output.no|default([])", json!([])),
        ("input.text|default('z', true)", json!("z")),
        ("input.nothing|default('kept')", json!(null)),
        ("input.no is defined", json!(false)),
        ("input.no.deeper is not defined", json!(true)),
        ("input.name is startingwith 'Z'", json!(true)),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(&format!("{{{{ {written} }}}}")), Ok(expected), "{written}");
    }
}

#[test]
fn template_with_surrounding_text_returns_a_string() {
    let cases = [
        ("Hi {{ input.name }}!", "Hi Zoë!"),
        (" {{ input.n }}", " 3"),
        ("{{ input.big }}{{ input.ratio }}", "184467440737095516150.5"),
        ("{{ input.object }}.", "{\"x\":{\"y\":[10,{\"z\":\"deep\"}]}}."),
        ("{{ input.nothing }}, {{ input.flag }}, {{ 2.0 }}", "null, true, 2.0"),
        ("{{ input.n }}\n", "3\n"),
        ("{# {{ input.n }} #}", "{# 3 #}"),
        ("a  {{- input.n -}}  b", "a3b"),
        ("{% raw %}{{ x }}{% endraw %}{{ input.n }}", "{{ x }}3"),
        ("a {%- raw -%} {{ x }} {%- endraw -%} b{{ '' }}", "a{{ x }}b"),
        (
            "{% if input.n > 2 %}many{% elif input.n %}{{ input.n }}{% else %}none{% endif %}",
            "many",
        ),
        ("{% if input.n > 5 %}many{% elif input.n %}{{ input.n }}{% else %}none{% endif %}", "3"),
        ("{% if input.empty %}x{% else %}{{ 'none' }}{% endif %}", "none"),
        ("{% for x in input.list %}{{ x }},{% endfor %}", "1,2,3,"),
        (
            "{% for x in input.list if x > 1 %}{{ loop.index }}/{{ loop.length }}={{ x }} {% endfor %}",
            "1/2=2 2/2=3 ",
        ),
        (
            "{% for p in input.people %}{{ p.name }}{{ ', ' if not loop.last }}{% endfor %}",
            "Ann, Bob, Cy",
        ),
        (
            "{% for k, v in input.people[0]|items %}{{ k ~ '=' ~ v }};{% endfor %}",
            "age=30;name=Ann;",
        ),
        ("{% for k in input.object %}{{ k }}{% endfor %}", "x"),
        ("{% for x in input.empty %}{{ x }}{% else %}empty{% endfor %}", "empty"),
        (
            "{% for a in input.list %}{% for b in input.words %}{{ a ~ b if loop.first }}{% endfor %}{{ loop.index0 }}{% endfor %}",
            "1b02b13b2",
        ),
        ("{{ input.evil }}!", "{{ input.name }} $input.name {% if %}!"),
        ("$input.n {{ input.n }}", "$input.n 3"),
        ("{% if input.flag %}yes{% endif %}", "yes"),
        ("$input.n{% if input.flag %}!{% endif %}", "$input.n!"),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(written), Ok(json!(expected)), "{written}");
        let expression = Expression::parse_in(&json!([written]), &NAMES).unwrap();
        let data = Everything(data());
        assert_eq!(expression.evaluate_in(&data), Ok(Some(json!([expected]))), "{written}");
    }
}

#[test]
fn syntax_errors_have_a_position() {
    let at =
        |reason: &str, column| format!("at line 1, character {column} of the template: {reason}");
    let cases = [
        ("{{ input.name", at("missing `}}`", 1)),
        ("ü{% if input.n %}{{ 1 }}", at("missing `endif`", 4)),
        ("{{ (1 }}", at("unclosed `(`", 4)),
        ("{{ [1) }}", at("unclosed `[`", 4)),
        ("{{ 'x }}", at("unclosed string", 4)),
        ("{{ '\\q' }}", at("unknown escape: write `\\\\` for a backslash", 5)),
        ("{{ $input.n }}", at("in templates names have no `$`", 4)),
        (
            "{{ input.ü }}",
            at("names are of the letters a to z; others are written as `['key']`", 10),
        ),
        ("{{ }}", at("expected an expression and not the end", 4)),
        ("{{ 1 + }}", at("expected an expression and not the end", 8)),
        ("{{ 1 2 }}", at("expected an operator or the end and not `2`", 6)),
        ("{{ 99999999999999999999 }}", at("this number is too large", 4)),
        ("{{ inptu.n }}", at("unknown name `inptu`: did you mean `input`?", 4)),
        (
            "{{ query }}",
            at(
                "unknown name `query`: expected `input`, `prev`, `steps`, `item`, `index`, `workflow`",
                4,
            ),
        ),
        ("{{ input.n|uper }}", at("unknown filter `uper`: did you mean `upper`?", 12)),
        ("{{ input.words|map('uper') }}", at("unknown filter `uper`: did you mean `upper`?", 16)),
        ("{{ input.n is od }}", at("unknown test `od`: did you mean `odd`?", 15)),
        ("{{ rage(3) }}", at("unknown function `rage`: did you mean `range`?", 4)),
        ("{{ upper(input.n) }}", at("`upper` is a filter: write `… | upper`", 4)),
        (
            "{{ input.name.upper() }}",
            at("`.upper()` is a method, and values have none: write `… | upper`", 14),
        ),
        (
            "{{ steps.get-logs.output }}",
            at("`steps.get-logs` is a subtraction: write `steps['get-logs']`", 4),
        ),
        (
            "{{ steps.get-lgs.output }}",
            at("`steps.get-lgs` is a subtraction: write `steps['get-logs']`", 4),
        ),
        (
            "{{ steps.a }}",
            at(
                "`steps.a` is not a value: write `steps.a.output`, or another of `.output`, `.content`, `.blocks`, `.text`, `.status`, `.error`",
                4,
            ),
        ),
        (
            "{{ steps[input.n].output }}",
            at("expected a literal step: `steps.a`, `steps['a-b']` or `steps[0]`", 4),
        ),
        (
            "{{ workflow.x }}",
            at(
                "`workflow.x` is not a value: write `workflow.id`, `workflow.name` or `workflow.started_at`",
                4,
            ),
        ),
        (
            "{% set x = 1 %}{{ x }}",
            at(
                "unknown statement `set`: expected `if`, `elif`, `else`, `endif`, `for`, `endfor` or `raw`",
                4,
            ),
        ),
        ("{% endif %}{{ 1 }}", at("unexpected `endif`: no statement is open", 4)),
        (
            "{% for x in input.list %}{{ x }}{% endif %}",
            at("expected `endfor` and not `endif`", 36),
        ),
        (
            "{% for steps in input.list %}{{ 1 }}{% endfor %}",
            at("`steps` is reserved: choose another name for the loop variable", 8),
        ),
        (
            "{% for item in input.list %}{{ 1 }}{% endfor %}",
            at("`item` is reserved: choose another name for the loop variable", 8),
        ),
        ("{% for x in input recursive %}{{ 1 }}{% endfor %}", at("loops cannot be recursive", 19)),
        ("{% raw %}{{ x }}", at("`{% raw %}` has no `{% endraw %}`", 1)),
        (
            "{{ steps.b.output }}",
            "there is no step `b`, which `steps.b.output` refers to".to_owned(),
        ),
        (
            "{{ steps.late.output }}",
            "`steps.late.output` refers to step `late`, which has not run by then".to_owned(),
        ),
        (
            "{{ steps.a.items }}",
            "a step has no `items`: did you mean `steps.a.output.items`?".to_owned(),
        ),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(written), Err(expected), "{written}");
    }
}

#[test]
fn loop_variable_with_a_reserved_name_is_rejected() {
    let words = KEYWORDS.iter().chain(&["True", "False", "None", "params", "loop", "item"]);
    for name in words.chain(&RESERVED) {
        let result = evaluate(&format!("{{% for {name} in [1] %}}{{{{ {name} }}}}{{% endfor %}}"));
        let expected = format!("`{name}` is reserved: choose another name for the loop variable");
        assert!(result.as_ref().is_err_and(|error| error.ends_with(&expected)), "{result:?}");
    }
    assert_eq!(evaluate("{% for range in [1] %}{{ range }}{% endfor %}"), Ok(json!("1")));
}

#[test]
fn errors_have_a_line() {
    let error = evaluate("{{ input.n }}\n\n  {{ x }}").unwrap_err();
    assert!(error.starts_with("at line 3, character 6 of the template: "), "{error}");
}

#[test]
fn evaluation_errors_contain_no_data() {
    let cases = [
        ("{{ input.no }}", "`input.no` has no value"),
        ("a {{ input.no.more }}", "`input.no.more` has no value"),
        ("{{ input.no ~ 1 }}", "`input.no` has no value"),
        ("{% if input.no %}{{ 1 }}{% endif %}", "`input.no` has no value"),
        ("{% for p in input.people %}{{ p.no }}{% endfor %}", "`p.no` has no value"),
        ("{{ input.name.x }}", "`input.name.x` has no value"),
        (
            "{{ input.list[input.n] }}",
            "an array has no such element in the template `input.list[input.n]`",
        ),
        (
            "{{ input.list * 3 }}",
            "`*` needs numbers and not an array in the template `input.list * 3`",
        ),
        (
            "{{ input.name * 3 }}",
            "`*` needs numbers and not a string in the template `input.name * 3`",
        ),
        (
            "{{ input.n|upper }}",
            "`upper` needs a string and not a number in the template `input.n|upper`",
        ),
        (
            "{{ input.name|fromjson }}",
            "`fromjson` is applied to a text that is not JSON in the template `input.name|fromjson`",
        ),
        (
            "{{ input.name|int }}",
            "`int` cannot be applied to these values in the template `input.name|int`",
        ),
        ("{{ input.n // 0 }}", "invalid operation for these values in the template `input.n // 0`"),
        ("{{ input.empty|first }}", "the result is undefined in the template `input.empty|first`"),
        ("{{ 1 if input.empty }}", "the result is undefined in the template `1 if input.empty`"),
        (
            "{{ 2 ** 100 }}",
            "the result is a number that JSON cannot represent in the template `2 ** 100`",
        ),
        (
            "{{ 1e308 * 10 }}",
            "the result is a number that JSON cannot represent in the template `1e308 * 10`",
        ),
        (
            "{% for x in input.n %}{{ x }}{% endfor %}",
            "a number is not a list in the template `input.n`",
        ),
        (
            "{% for a, b in input.people %}{{ a }}{% endfor %}",
            "the loop has 2 variables, but an element is an object in the template `input.people`",
        ),
        (
            "{{ 1 in input.n }}",
            "`in` needs an array, an object or a string and not a number in the template `1 in input.n`",
        ),
    ];
    for (written, expected) in cases {
        assert_eq!(evaluate(written), Err(expected.to_owned()), "{written}");
    }
}

#[test]
fn numbers_at_their_limits_do_not_panic() {
    let zero = Err("the divisor must not be 0");
    let least = "((0 - 2 ** 126) * 2)";
    let cases = [
        ("input.n is divisibleby input.zero", zero.clone()),
        ("input.n is divisibleby(0.0)", zero),
        ("input.list|select('divisibleby', 0)|list", Err("the divisor must not be 0")),
        ("input.n is divisibleby 'x'", Err("`divisibleby` needs numbers and not a string")),
        ("7.5 is divisibleby 2.5", Ok(json!(true))),
        ("7 is divisibleby 2", Ok(json!(false))),
        (&format!("{least} is divisibleby(-1)"), Ok(json!(true))),
        (&format!("{least} // -1 > 0"), Ok(json!(true))),
        (&format!("{least} % -1"), Ok(json!(0))),
        (&format!("{least}|abs"), Err("`abs` cannot be applied to these values")),
        (&format!("-{least} > 0"), Err("invalid operation for these values")),
        (&format!("[{least}, {least}]|sum"), Err("`sum` cannot be applied to these values")),
        (&format!("{least}|round(-2147483648)"), Ok(json!(0))),
        (&format!("{least}|round(-38, 'floor')"), Err("`round` cannot be applied to these values")),
        ("input.ratio|round(2147483647)", Ok(json!(0.5))),
        (
            "input.ratio|round(-2147483647, 'ceil')",
            Err("`round` cannot be applied to these values"),
        ),
        ("(0.0 - 1.5e308)|round(-308)", Err("`round` cannot be applied to these values")),
        ("1e308|int", Err("the result is a number that JSON cannot represent")),
        ("'nan'|int", Ok(json!(0))),
        ("'-'|int(base=16, default=3)", Ok(json!(3))),
        ("'12'|int(base=99)", Ok(json!(12))),
        ("1 // 0", Err("invalid operation for these values")),
        ("1 % 0", Err("invalid operation for these values")),
        ("input.list|batch(0)", Err("`batch` needs a size up to 100000")),
        ("range(9223372036854775806, 9223372036854775807, 9)", Ok(json!([i64::MAX - 1]))),
        (
            "input.list[-9223372036854775807:9223372036854775807:9223372036854775807]",
            Ok(json!([1])),
        ),
        ("'a b'|split(' ', 9223372036854775807)", Ok(json!(["a", "b"]))),
    ];
    for (written, expected) in cases {
        let mut data = data();
        data["input"]["zero"] = json!(0);
        let found = evaluate_with(&format!("{{{{ {written} }}}}"), data);
        let found =
            found.map_err(|error| error.split(" in the template").next().unwrap().to_owned());
        assert_eq!(found, expected.map_err(str::to_owned), "{written}");
    }
}

#[test]
fn evaluation_over_a_resource_limit_is_an_error() {
    let long = "x".repeat(MAX_RENDERED_BYTES / 2 + 1);
    let data = json!({ "input": {
        "long": long,
        "very": "x".repeat(MAX_RENDERED_BYTES + 1),
        "many": vec![0; 10_000],
        "pairs": vec![json!([[], []]); 100_000],
        "wide": (0..=100_000).map(|n| (n.to_string(), json!(0))).collect::<serde_json::Map<_, _>>(),
        "nested": ["x".repeat(MAX_RENDERED_BYTES + 1)],
        "list": vec!["some text that is not short"; 100],
    } });
    let large = [
        "{{ input.long }}{{ input.long }}",
        "{{ input.long ~ input.long }}",
        "{{ input.long + input.long }}",
        "{{ [input.long, input.long]|join }}",
        "{{ input.long|replace('x', 'xy') }}",
        "{{ input.long|replace('', 'xy') }}",
        "{{ 'a\nb'|indent(2000000) }}",
        "{{ input.very|length }}",
        "{{ input.nested|first|length }}",
        "{{ input.nested|list }}",
        "{% for x in input.nested %}{{ 1 }}{% endfor %}",
        "{{ [input.long, input.long]|tojson }}",
        "{{ [input.long, input.long] ~ '' }}",
    ];
    for written in large {
        let error = evaluate_with(written, data.clone()).unwrap_err();
        let expected = "has more than 1048576 bytes";
        assert!(error.ends_with(expected), "{written}: {error}");
    }
    let often = format!("{{{{ [{}] }}}}", ["input.long"; 33].join(","));
    let others = [
        ("{{ range(1000000000) }}", "a list has more than 100000 elements"),
        ("{% for k in input.wide %}{{ k }}{% endfor %}", "a list has more than 100000 elements"),
        ("{{ input.long|split('') }}", "a list has more than 100000 elements"),
        ("{{ input.list|batch(1000000, 'x') }}", "`batch` needs a size up to 100000"),
        (
            "{% for a in input.many %}{% for b in input.many %}{{ '' }}{% endfor %}{% endfor %}",
            "the evaluation takes more than 2000000 steps",
        ),
        (&often, "intermediate values take more than 16777216 bytes"),
        ("{{ input.pairs|sort }}", "the evaluation takes more than 2000000 steps"),
    ];
    for (written, expected) in others {
        let error = evaluate_with(written, data.clone()).unwrap_err();
        assert!(error.starts_with(expected), "{written}: {error}");
    }
}

#[test]
fn large_lists_with_common_prefixes_are_ordered() {
    // Shuffled numbers. Each comes after parts that are equal in all rows.
    let shuffled = (0..20_000_u64).map(|n| n * 7919 % 20_000);
    let rows: Vec<_> = shuffled.map(|n| json!([1, { "same": [1, 2] }, n])).collect();
    let data = json!({ "input": { "rows": rows } });
    let cases = [
        ("(input.rows|sort|last)[2]", json!(19_999)),
        ("(input.rows|sort(reverse=true)|last)[2]", json!(0)),
        ("(input.rows|max)[2]", json!(19_999)),
        ("(input.rows|min)[2]", json!(0)),
        ("input.rows|unique|length", json!(20_000)),
        ("(input.rows|groupby('1')|first).list|length", json!(20_000)),
        ("(input.rows|groupby('2')|last)[0]", json!(19_999)),
    ];
    for (written, expected) in cases {
        let found = evaluate_with(&format!("{{{{ {written} }}}}"), data.clone());
        assert_eq!(found, Ok(expected), "{written}");
    }
}

#[test]
fn sorting_compares_values_of_one_kind_only() {
    let data = json!({ "input": {
        "mixed": [{ "a": 1 }, [2], "b", 1.5, "A", 1, true, null, [1, 9], 9007199254740993_u64, 9007199254740992.0],
        "partly": [{ "k": 2 }, {}, { "k": { "x": 1 } }, 7, { "k": 1 }, { "k": null }],
        "texts": ["b", "Ä", "a", "B", "ä"],
        "object": { "b": 1, "A": 3, "c": 2 },
    } });
    let cases = [
        (
            "input.mixed|select('number')|reject('boolean')|sort",
            json!([1, 1.5, 9007199254740992.0, 9007199254740993_u64]),
        ),
        ("input.mixed|select('string')|sort", json!(["A", "b"])),
        ("[[2], [1, 9], [1, none, 2], [1, none, 1]]|sort", no("sort", "null", "a number")),
        ("[[2], [1, 9], [1]]|sort", json!([[1], [1, 9], [2]])),
        ("[[none, 2], [none, 1]]|sort", json!([[null, 1], [null, 2]])),
        ("[{'a': 2}, {'a': 1}]|sort", json!([{ "a": 1 }, { "a": 2 }])),
        ("[1, '2']|sort", no("sort", "a string", "a number")),
        ("[{'k': 1}, {'k': none}]|sort(attribute='k')", no("sort", "null", "a number")),
        ("[{'k': 1}, {}]|sort(attribute='k')", no("sort", "nothing", "a number")),
        ("[1, 2]|sort(attribute='')", no("sort", "nothing", "nothing")),
        ("[{'k': 1}, {'k': 'a'}]|sort(attribute='k, k')", no("sort", "a string", "a number")),
        ("['9', 50]|max", no("max", "a string", "a number")),
        ("[true, 0]|min", no("min", "a boolean", "a number")),
        ("{'a': 1, 'b': '2'}|dictsort(by='value')", no("dictsort", "a string", "a number")),
        ("{'a': 1, 'b': '2'}|dictsort|length", json!(2)),
        // Equality is defined for any two values.
        ("input.mixed|unique|length", json!(11)),
        ("input.partly|select('mapping')|groupby('k')|length", json!(5)),
        ("[input.mixed[1], [2]]|unique", json!([[2]])),
        ("input.texts|sort", json!(["a", "b", "B", "Ä", "ä"])),
        ("input.texts|sort(case_sensitive=true)", json!(["B", "a", "b", "Ä", "ä"])),
        ("input.texts|unique", json!(["b", "Ä", "a", "B", "ä"])),
        ("input.texts|unique(case_sensitive=false)", json!(["b", "Ä", "a"])),
        ("[{'k': 'A'}, {'k': 'a'}]|groupby('k')|map('first')", json!(["A", "a"])),
        ("[{'k': 'A'}, {'k': 'a'}]|groupby('k', case_sensitive=false)|length", json!(1)),
        ("input.texts|max", json!("ä")),
        ("input.texts|groupby('none', default='x')", json!([["x", ["b", "Ä", "a", "B", "ä"]]])),
        ("input.object|dictsort", json!([["A", 3], ["b", 1], ["c", 2]])),
        ("input.object|dictsort(by='value', reverse=true)", json!([["A", 3], ["c", 2], ["b", 1]])),
        ("[2 ** 100, 1, 1e40]|sort|first", json!(1)),
        ("[]|max|default('none')", json!("none")),
        (
            "[1]|sort(revers=true)",
            json!("unknown argument `revers` in the template `[1]|sort(revers=true)`"),
        ),
    ];
    for (written, expected) in cases {
        let found = evaluate_with(&format!("{{{{ {written} }}}}"), data.clone());
        let found = found.unwrap_or_else(|error| match error.split_once(" in the template") {
            Some((reason, _)) if reason.contains("cannot compare") => json!(reason),
            _ => json!(error),
        });
        assert_eq!(found, expected, "{written}");
    }
}

/// Returns the error message if two values cannot be ordered.
fn no(symbol: &str, left: &str, right: &str) -> Value {
    let why = match [left, right].contains(&"null") {
        true => ": compare null with `==` or `!=`",
        false => "",
    };
    json!(format!("`{symbol}` cannot compare {left} with {right}{why}"))
}

#[test]
fn comparing_values_of_different_kinds_is_an_error() {
    let data = json!({ "input": {
        "three": "3", "five": 5, "list": [], "object": {}, "nothing": null, "flag": true,
        "rows": [{ "score": "9" }, { "score": 60 }, {}],
        "numbers": [{ "score": 9 }, { "score": 60 }],
    } });
    let cases = [
        ("input.three > input.five", no(">", "a string", "a number")),
        ("input.list > input.five", no(">", "an array", "a number")),
        ("input.object <= input.list", no("<=", "an object", "an array")),
        ("input.nothing >= 100", no(">=", "null", "a number")),
        ("100 < input.nothing", no("<", "a number", "null")),
        ("input.nothing <= input.nothing", no("<=", "null", "null")),
        ("input.flag > 0", no(">", "a boolean", "a number")),
        ("1 < input.five < input.three", no("<", "a number", "a string")),
        ("[1, 'a'] < [1, input.five]", no("<", "a string", "a number")),
        ("input.three is gt 2", no(">", "a string", "a number")),
        ("[1] is lessthan input.five", no("<", "an array", "a number")),
        ("input.rows|selectattr('score', 'gt', 50)", no(">", "a string", "a number")),
        ("input.rows|rejectattr('score', 'le', 50)", no("<=", "a string", "a number")),
        ("input.rows[1:]|selectattr('score', 'ge', 50)", no(">=", "nothing", "a number")),
        ("[1, '2']|select('lt', 3)", no("<", "a string", "a number")),
        ("[1, none]|reject('lt', 3)", no("<", "null", "a number")),
        ("input.numbers|selectattr('score', 'gt', 50)|length", json!(1)),
        // Equality is defined for any two values.
        ("input.nothing == 100", json!(false)),
        ("input.nothing != 100", json!(true)),
        ("input.nothing == none", json!(true)),
        ("input.three == 3", json!(false)),
        ("1 in [input.three, none, 1]", json!(true)),
        // Values of the same type can be ordered.
        ("5 > 4.5", json!(true)),
        ("9007199254740993 > 9007199254740992.0", json!(true)),
        ("'b' >= 'a'", json!(true)),
        ("false < true", json!(true)),
        ("[1, 2] < [1, 3]", json!(true)),
        ("[1] < [1, none]", json!(true)),
        // After the first false comparison, the operands that follow are not evaluated.
        ("5 < 1 < input.missing", json!(false)),
        ("1 < (input.five if 1 < 2 else 3) <= 5 != 6", json!(true)),
        ("1 < 2 < (1 if 1 < 2 < 3 else 0)", json!(false)),
        ("1 < (2 if 1 < 2 < 3 else 3) < 4", json!(true)),
    ];
    for (written, expected) in cases {
        let found = evaluate_with(&format!("{{{{ {written} }}}}"), data.clone());
        let found = found.unwrap_or_else(|error| match error.split_once(" in the template") {
            Some((reason, _)) => json!(reason),
            None => json!(error),
        });
        assert_eq!(found, expected, "{written}");
    }
}

#[test]
fn comparison_of_known_different_kinds_is_a_parse_error() {
    for (written, at, expected) in [
        ("\"3\" > 5", 5, no(">", "a string", "a number")),
        ("[] > 5", 4, no(">", "an array", "a number")),
        ("input.n >= none", 9, no(">=", "a value", "null")),
        ("none < input.n", 6, no("<", "null", "a value")),
        ("none < none", 6, no("<", "null", "null")),
        ("1 < input.n < 'a' ~ 'b' < 3", 25, no("<", "a string", "a number")),
        ("input.list|length > '3'", 19, no(">", "a number", "a string")),
        ("steps.a.status < 3", 16, no("<", "a string", "a number")),
        ("index < workflow.id", 7, no("<", "a number", "a string")),
        ("(input.n > 3) > 0", 15, no(">", "a boolean", "a number")),
        ("{'a': 1} is gt 3", 13, no(">", "an object", "a number")),
    ] {
        let error = Template::parse_expression(written, &NAMES).unwrap_err().to_string();
        let expected = expected.as_str().unwrap();
        assert_eq!(
            error,
            format!("at line 1, character {at} of the template: {expected}"),
            "{written}"
        );
    }
}

#[test]
fn too_deep_or_too_long_template_is_rejected() {
    let deepest = [
        ("(", ")"),
        ("[", "]"),
        ("-", ""),
        ("not ", ""),
        ("1 ~ ", ""),
        ("(1 + ", ")"),
        ("{'a': ", "}"),
        ("(input.n * ", ")"),
        ("1 if true else ", ""),
    ];
    for (open, close) in deepest {
        for (count, fits) in [(20, true), (10_000, false)] {
            let text = format!("{{{{ {}1{} }}}}", open.repeat(count), close.repeat(count));
            let parsed = Template::parse(&text, &NAMES);
            assert_eq!(parsed.is_ok(), fits, "{count} {open}: {parsed:?}");
        }
    }
    let nested = |count: usize| {
        format!("{}{{{{ 1 }}}}{}", "{% if true %}".repeat(count), "{% endif %}".repeat(count))
    };
    assert!(Template::parse(&nested(20), &NAMES).is_ok());
    assert!(Template::parse(&nested(2000), &NAMES).is_err());
    assert!(
        Template::parse(&format!("{{{{ 1 }}}}{}", " ".repeat(MAX_TEMPLATE_BYTES)), &NAMES).is_err()
    );
}

#[test]
fn uses_list_the_references_of_a_template() {
    let uses = |text: &str| -> Vec<(String, bool, bool)> {
        let template = Template::parse(text, &NAMES).unwrap();
        let uses = template.uses(&[]).into_iter();
        uses.map(|used| (used.text.to_owned(), used.optional, used.bare)).collect()
    };
    type Found<'f> = &'f [(&'f str, bool, bool)];
    let cases: [(&str, Found<'_>); 9] = [
        ("{{ input.a.b }}", &[("input.a.b", false, true)]),
        ("{{ (input.a) }}", &[("input.a", false, true)]),
        ("x{{ input.a }}", &[("input.a", false, false)]),
        ("{{ input.a|default(input.b) }}", &[("input.a", true, false), ("input.b", false, false)]),
        ("{{ input.a|upper|default(1) }}", &[("input.a", false, false)]),
        (
            "{% if input.a is defined %}{{ input.a.b }}{% endif %}",
            &[("input.a", true, false), ("input.a.b", true, false)],
        ),
        ("{{ input[item.id].x }}", &[("input", false, false), ("item.id", false, false)]),
        (
            "{% for x in prev.items if x > input.n %}{{ x.y }}{% endfor %}{{ '' }}",
            &[("prev.items", false, false), ("input.n", false, false)],
        ),
        ("{{ params['a'].b }}", &[("params['a'].b", false, true)]),
    ];
    for (written, expected) in cases {
        let expected: Vec<_> =
            expected.iter().map(|(text, o, b)| ((*text).to_owned(), *o, *b)).collect();
        let mut found = uses(written);
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "{written}");
    }
    let template = Template::parse("{{ steps['get-logs'].text }}", &NAMES).unwrap();
    let [used] = &template.uses(&[])[..] else { panic!("{template}") };
    assert_eq!(used.root, Root::Step { step: 1, field: Field::Text });
    assert_eq!(used.path, []);
}

#[test]
fn reference_in_a_conditional_branch_is_not_certain() {
    let cases: [(&str, &[&str], &[&str]); 12] = [
        ("{{ input.a }}", &["input.a"], &[]),
        ("{{ input.a if input.flag else input.b }}", &["input.flag"], &["input.a", "input.b"]),
        ("{{ input.a if input.b if input.flag }}", &["input.flag"], &["input.a", "input.b"]),
        ("{{ input.a and input.b or input.c }}", &["input.a"], &["input.b", "input.c"]),
        ("{{ not input.a or [input.b, {'k': input.c}] }}", &["input.a"], &["input.b", "input.c"]),
        ("{{ input.a < input.b < input.c }}", &["input.a", "input.b"], &["input.c"]),
        ("{{ (input.a or input.b) + input.c }}", &["input.a", "input.c"], &["input.b"]),
        (
            "{{ input.a|default(input.b)|replace('x', input.c) }}",
            &["input.a", "input.b", "input.c"],
            &[],
        ),
        (
            "{{ input.a }}{% if input.b %}{{ input.c }}{% elif input.d %}{% else %}{{ input.e }}{% endif %}",
            &["input.a", "input.b"],
            &["input.c", "input.d", "input.e"],
        ),
        (
            "{% for x in input.a if input.b %}{{ x ~ input.c }}{% else %}{{ input.d }}{% endfor %}",
            &["input.a"],
            &["input.b", "input.c", "input.d"],
        ),
        (
            "{% if input.a %}{% for x in input.b %}{{ x }}{% endfor %}{% endif %}{{ input.c }}",
            &["input.a", "input.c"],
            &["input.b"],
        ),
        ("{{ input.a if input.flag }} {{ input.a }}", &["input.flag", "input.a"], &["input.a"]),
    ];
    for (written, certain, others) in cases {
        let template = Template::parse(written, &NAMES).unwrap();
        let of = |certain: bool| {
            let uses = template.uses(&[]).into_iter().filter(|used| used.certain == certain);
            uses.map(|used| used.text).collect::<Vec<_>>()
        };
        let (mut found, mut expected) = (of(true), certain.to_vec());
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!((found, of(false)), (expected, others.to_vec()), "{written}");
    }
    let expression = Expression::parse(&json!(["$input.a", "$input.b?"])).unwrap();
    assert!(expression.uses().iter().all(|used| used.certain));
}

#[test]
fn condition_requires_a_boolean_or_its_text() {
    let data = Everything(data());
    let cases = [
        ("$input.flag", Ok(true)),
        (" {{ input.n > 5 }} ", Ok(false)),
        ("input.n == 3", Ok(true)),
        ("input.n > 1e-3", Ok(true)),
        ("true", Ok(true)),
        ("'false'", Ok(false)),
        ("{% if input.flag %}true{% else %}false{% endif %}", Ok(true)),
        ("{{ input.flag }}{{ '' }}", Ok(true)),
        ("input.n", Err("it is a number: expected a boolean, or the text `true` or `false`")),
        ("'True'", Err("it is a string: expected a boolean, or the text `true` or `false`")),
        ("input.nothing", Err("it is null: expected a boolean, or the text `true` or `false`")),
        ("input.no", Err("`input.no` has no value")),
        ("$input.no?", Err("it is nothing: expected a boolean, or the text `true` or `false`")),
    ];
    for (written, expected) in cases {
        let condition = Condition::parse(written, &NAMES).unwrap();
        let found = condition.evaluate(&data).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{written}");
    }
    assert_eq!(
        Condition::parse("$input.n == 3", &NAMES).unwrap_err().to_string(),
        "at line 1, character 1 of the template: in templates names have no `$`",
    );
}

/// Servers that use FastMCP return arrays in such objects.
#[test]
fn error_about_a_wrapped_array_suggests_its_member() {
    let data = json!({
        "found": { "result": [{ "id": 7 }] },
        "page": { "result": [{ "id": 7 }], "next": 1 },
        "text": "{\"result\": [1]}",
    });
    let hint = ": the array is in `result`, so write `.result` before the index";
    for (written, reference, hint) in [
        ("$input.found[0].id", "$input.found[0].id", hint),
        ("$input.found.0", "$input.found.0", hint),
        ("{{ input.found[0].id }}", "input.found[0].id", hint),
        ("the id {{ input.found[0].id }}", "input.found[0].id", hint),
        ("{{ input.found.0.id + 1 }}", "input.found.0.id", hint),
        ("$input.found.id", "$input.found.id", ""),
        ("$input.found.result[1]", "$input.found.result[1]", ""),
        ("$input.page[0]", "$input.page[0]", ""),
        ("{{ input.page[0] }}", "input.page[0]", ""),
    ] {
        let error = Expression::parse(&json!(written)).unwrap().evaluate(&data).unwrap_err();
        assert_eq!(error.to_string(), format!("`{reference}` has no value{hint}"), "{written}");
    }
    let wrapped = "it is an object whose only member is the array `result`: expected an array, so \
                   append `.result`";
    let other = "it is an object: expected an array, or a text that is a JSON array";
    for (written, expected) in
        [("$input.found", wrapped), ("input.text", wrapped), ("$input.page", other)]
    {
        let collection = Collection::parse(&json!(written), &NAMES).unwrap();
        assert_eq!(collection.evaluate(&data).unwrap_err().to_string(), expected, "{written}");
    }
}

#[test]
fn collection_requires_an_array_or_its_json_text() {
    let data = Everything(data());
    let cases = [
        (json!("$input.list"), Ok(json!([1, 2, 3]))),
        (json!("{{ input.list }}"), Ok(json!([1, 2, 3]))),
        (json!("input.people|map(attribute='age')"), Ok(json!([30, 20, 30]))),
        (json!("[1, \"$input.n\"]"), Ok(json!([1, "$input.n"]))),
        (json!([1, "$input.n", "{{ input.flag }}"]), Ok(json!([1, 3, true]))),
        (json!("'[4, 5]'"), Ok(json!([4, 5]))),
        (json!("[\"{{ input.name }}\", \"$input.n\"]"), Ok(json!(["Zoë", "$input.n"]))),
        (json!("[{{ input.n }}, 1]"), Ok(json!([3, 1]))),
        (json!("[{% if input.flag %}1{% endif %}]"), Ok(json!([1]))),
        (
            json!("$input.json"),
            Err("it is an object: expected an array, or a text that is a JSON array"),
        ),
        (
            json!("$input.name"),
            Err("it is a text that is not JSON: expected an array, or a text that is a JSON array"),
        ),
        (
            json!("$input.nothing"),
            Err("it is null: expected an array, or a text that is a JSON array"),
        ),
    ];
    for (written, expected) in cases {
        let collection = Collection::parse(&written, &NAMES).unwrap();
        let found = collection.evaluate(&data).map(Value::Array).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned), "{written}");
    }
}

#[test]
fn template_processes_ten_thousand_elements() {
    let people: Vec<_> =
        (0..10_000).map(|n| json!({ "id": n, "name": format!("person {n}") })).collect();
    let data = json!({ "input": { "people": people } });
    let ids: Vec<_> = (0..10_000).collect();
    assert_eq!(
        evaluate_with("{{ input.people|map(attribute='id') }}", data.clone()),
        Ok(json!(ids))
    );
    assert_eq!(evaluate_with("{{ input.people|list }}", data.clone()), Ok(json!(people)));
    let expected: String = (0..10_000).map(|n| format!("{n}:person {n};")).collect();
    let text = "{% for p in input.people %}{{ p.id }}:{{ p.name }};{% endfor %}";
    assert_eq!(evaluate_with(text, data), Ok(json!(expected)));
}

/// Data that a template does not read costs nothing, even if it is next to data that the template
/// reads.
#[test]
fn evaluation_cost_does_not_depend_on_unread_data() {
    let texts = [
        "{{ input.n }}",
        "{{ input.n + 1 }}",
        "{{ input.n }} and {{ input.name|upper }}",
        "{{ input.rest|length }}",
    ];
    for text in texts {
        let template = Template::parse(text, &NAMES).unwrap();
        let measure = |len: usize| {
            let rest: Vec<_> = (0..len).map(|n| json!({ "id": n })).collect();
            let data = json!({ "input": { "n": 1, "name": "x", "rest": rest } });
            let data = Everything(data);
            template.evaluate(&data).unwrap();
            allocation_counter::measure(|| {
                template.evaluate(&data).unwrap();
            })
        };
        let (small, large) = (measure(5), measure(10_000));
        assert_eq!(
            (small.count_total, small.bytes_total),
            (large.count_total, large.bytes_total),
            "{text}",
        );
    }
}

/// Generates JSON values of any shape.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,30}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            proptest::collection::hash_map(".{0,8}", inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Generates templates from parts in any order.
fn any_template() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "{{",
        "}}",
        "{%",
        "%}",
        "{{-",
        "-%}",
        "{#",
        " ",
        "\n",
        "input",
        "input.x",
        "input.y",
        "x",
        ".",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        "'",
        "\"",
        "'a'",
        "\\",
        "1",
        "0",
        "-1",
        "1e9",
        "9999999999",
        "|",
        "|upper",
        "|join(input.x)",
        "|replace('', input.x)",
        "|list",
        "|tojson",
        "|batch(99999)",
        "|map('upper')",
        "|map('list')",
        "|indent(99999)",
        "|fromjson",
        "|split('')",
        "|default(1)",
        "*",
        "**",
        "~",
        "+",
        "-",
        "/",
        "//",
        "%",
        "==",
        "<",
        "in",
        "not",
        "and",
        "or",
        "if",
        "else",
        "endif",
        "for",
        "endfor",
        "for x in input.y",
        "is defined",
        "raw",
        "endraw",
        "range(99999)",
        ",",
        ":",
        "=",
        "é",
        "true",
        "steps.a-b",
    ]);
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.join(" "))
}

/// Generates valid expressions over `input.x` (a string), `input.y` (a list), `input.o` (an object)
/// and numbers.
fn any_expression() -> impl Strategy<Value = String> {
    let leaf = proptest::sample::select(vec![
        "input.x",
        "input.y",
        "input.o",
        "input.n",
        "input.no",
        "1",
        "-7",
        "99999",
        "'a'",
        "','",
        "''",
        "none",
        "true",
        "[]",
        "{}",
        "range(99999)",
        "0.5",
    ]);
    // The filter `search` requires a literal regular expression.
    let names = FILTERS.iter().map(|filter| filter.name).filter(|name| *name != "search");
    let filters = proptest::sample::select(names.collect::<Vec<_>>());
    leaf.prop_map(str::to_owned).prop_recursive(6, 24, 3, move |inner| {
        let operators = proptest::sample::select(vec![
            "+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "not in", "and", "or",
        ]);
        let plain = (inner.clone(), filters.clone())
            .prop_filter_map("needs names", |(of, filter)| {
                (!["map"].contains(&filter)).then(|| format!("({of})|{filter}"))
            });
        let mapped = (inner.clone(), filters.clone())
            .prop_map(|(of, filter)| format!("({of})|map('{filter}')"));
        let with_argument = (inner.clone(), filters.clone(), inner.clone()).prop_filter_map(
            "needs names",
            |(of, filter, argument)| {
                let named = ["map", "select", "reject", "selectattr", "rejectattr"];
                (!named.contains(&filter)).then(|| format!("({of})|{filter}({argument})"))
            },
        );
        let searched =
            inner.clone().prop_map(|of| format!("({of})|search('(?P<a>a*)|[0-9]', all=true)"));
        let two = (inner.clone(), inner.clone(), inner.clone())
            .prop_map(|(of, from, to)| format!("({of})|replace({from}, {to})"));
        prop_oneof![
            plain,
            mapped,
            with_argument,
            searched,
            two,
            (inner.clone(), operators, inner.clone())
                .prop_map(|(a, operator, b)| format!("({a}) {operator} ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a})[{b}:]")),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| format!("({a}) if ({b}) else ({c})")),
            (inner.clone(), inner.clone())
                .prop_map(|(a, b)| format!("[{a}, {b}, {a}, {b}, {a}, {b}, {a}, {b}]")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{{'a': {a}, 'b': {b}}}")),
        ]
    })
}

proptest! {
    #[test]
    fn parsing_never_panics(text in r"[{}%#\-$'\x22\\a-z.|()\[\] 0-9é~*]{0,40}", built in any_template()) {
        for text in [text, built] {
            for text in [format!("{{{{ {text} }}}}"), format!("{{{{{text}"), text] {
                let _ = Template::parse(&text, &NAMES);
                let _ = Template::parse_expression(&text, &NAMES);
                let _ = Expression::parse_in(&json!(text), &NAMES);
            }
        }
    }

    #[test]
    fn values_pass_unchanged(value in any_json()) {
        let data = json!({ "input": { "x": value } });
        for text in ["{{ input.x }}", "{{ input['x'] if true else 1 }}", "{{ ([input.x]|first) }}"] {
            prop_assert_eq!(evaluate_with(text, data.clone()), Ok(value.clone()), "{}", text);
        }
        let rebuilt = evaluate_with("{{ [[input.x], {'a': input.x}] }}", data.clone());
        prop_assert_eq!(rebuilt, Ok(json!([[value], { "a": value }])));
        let text = evaluate_with("{{ input.x|tojson }}", data.clone()).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(text.as_str().unwrap()).unwrap(), value);
        prop_assert_eq!(evaluate_with("{{ input.x == input['x'] }}", data), Ok(json!(true)));
    }

    #[test]
    fn data_is_never_evaluated_as_a_template(value in r"[{}%$'\x22a-z. ]{0,20}|.{0,20}") {
        let data = json!({ "input": { "x": value } });
        prop_assert_eq!(evaluate_with("{{ input.x }}{{ input.x ~ '' }}", data), Ok(json!(format!("{value}{value}"))));
    }

    #[test]
    fn string_literal_is_read_as_written(text in r"\PC{0,30}|[\x00-\x7f]{0,20}") {
        let quoted: String = text.chars().flat_map(|c| match c {
            '\'' | '\\' => vec!['\\', c],
            c => vec![c],
        }).collect();
        prop_assert_eq!(evaluate(&format!("{{{{ '{quoted}' }}}}")), Ok(json!(text)));
    }
}

proptest! {
    // Each case takes long, because its values are large.
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// The memory is at most a few times the limit for all created values. The evaluation does not
    /// panic either.
    #[test]
    fn memory_of_random_templates_is_bounded(first in any_expression(), second in any_expression(), x in 0..2_000_000_usize) {
        let record = json!({ "a": 1, "text": "some text of which there is more" });
        let data = json!({ "input": {
            "x": "a,".repeat(x / 2), "n": x, "y": vec![record.clone(); x / 200], "o": record,
        } });
        let data = Everything(data);
        let loops = format!("{{% for z in ({first}) %}}{{{{ {second} }}}}{{{{ z }}}}{{% endfor %}}");
        for text in [format!("{{{{ {first} }}}}"), loops] {
            let template = match Template::parse(&text, &NAMES) {
                // An error that is detected before the evaluation, because the types of the
                // operands are known.
                Err(ExpressionError::Template { reason, .. }) if reason.contains("` cannot compare ") => continue,
                template => template,
            };
            prop_assert!(template.is_ok(), "{template:?}: {text}");
            let template = template.unwrap();
            let measured = allocation_counter::measure(|| drop(template.evaluate(&data)));
            prop_assert!(measured.bytes_max < 3 * budget::MAX_MADE_BYTES as u64, "{measured:?}: {text}");
        }
    }
}

/// Tests the most expensive known ways to create values.
#[test]
fn memory_of_hostile_templates_is_bounded() {
    let small: Vec<_> = (0..100_000).map(|n| json!({ "a": n })).collect();
    let data = json!({ "input": {
        "x": "ŉ".repeat(MAX_RENDERED_BYTES / 2),
        "objects": small,
        "numbers": (0..100_000).collect::<Vec<_>>(),
        "json": format!("[{}1]", "{\"a\":1},".repeat(130_000)),
        "lists": format!("[{}1]", "[],".repeat(340_000)),
        "wide": (0..100_000).map(|n| (n.to_string(), json!([n]))).collect::<serde_json::Map<_, _>>(),
    } });
    let data = Everything(data);
    let list = |element: &str| format!("[{}]", vec![element; 2500].join(","));
    let expressions = [
        list("input.x"),
        list("input.numbers"),
        list("input.json|fromjson"),
        list("range(99999)"),
        format!("{}|tojson", list("input.x")),
        format!("{}|join", list("input.x")),
        "input.json|fromjson".to_owned(),
        "input.lists|fromjson".to_owned(),
        "input.x|upper".to_owned(),
        "input.x|urlencode".to_owned(),
        "input.objects|groupby('a')".to_owned(),
        "input.objects|zip(input.objects, input.objects)|list".to_owned(),
        "input.wide|items|list".to_owned(),
        "input.objects|map('items')|list".to_owned(),
    ];
    for expression in expressions {
        let excerpt: String = expression.chars().take(40).collect();
        let template = Template::parse(&format!("{{{{ {expression} }}}}"), &NAMES).unwrap();
        let measured = allocation_counter::measure(|| drop(template.evaluate(&data)));
        assert!(measured.bytes_max < 3 * budget::MAX_MADE_BYTES as u64, "{measured:?}: {excerpt}");
    }
}
