//! Templates, their translations, and the values of these.

use serde_json::json;

use super::*;
use crate::expr::Expression;

fn scope() -> Scope<'static> {
    Scope { item_var: Some("item"), ..Scope::default() }
}

fn message(text: &str) -> (String, &str) {
    let error = value(text, scope()).unwrap_err();
    (error.message, &text[error.span])
}

#[test]
fn values_are_translated() {
    let expected = [
        ("plain", "plain"),
        ("$5", "$$5"),
        ("{{.params.topic}}", "$input.topic"),
        ("{{ $.params.topic }}", "$input.topic"),
        ("Search {{.params.topic}}!", "Search {{ input.topic }}!"),
        ("{{json .steps.a.output.hits}}", "$steps.a.output.hits"),
        ("{{.steps.a.output.hits | json}} x", "{{ steps.a.output.hits | tojson }} x"),
        ("{{index .steps \"my-step\" \"output\" \"x\"}}", "$steps['my-step'].output.x"),
        ("{{(index .steps \"my-step\").output.x}}", "$steps['my-step'].output.x"),
        ("{{(index .steps.a.output.list 0).id}}", "$steps.a.output.list[0].id"),
        (
            "{{(index (fromJson .steps.a.output.text).papers 0).id}}",
            "{{ (steps.a.output.text | fromjson).papers[0].id }}",
        ),
        ("{{len .params.list}}", "{{ input.list | length }}"),
        ("{{quote .params.x}}", "{{ input.x | quote }}"),
        ("{{printf \"%s-%d%%\" .params.a .params.b}}", "{{ input.a ~ '-' ~ input.b ~ '\\u0025' }}"),
        ("{{.forEach.item.url}} {{.forEach.index}}", "{{ item.url }} {{ index }}"),
        ("{{.workflow.id}}", "$workflow.id"),
        ("{{.steps.a.error}}", "$steps.a.error.message?"),
        ("{{or .params.x \"none\"}}", "{{ input.x | default(none) or 'none' }}"),
        (
            "{{if .params.x}}a{{else if eq .params.y 1 2}}b{{else}}c{{end}}",
            "{% if input.x | default(false) %}a{% elif input.y in [1, 2] %}b{% else %}c{% endif %}",
        ),
        ("a {{- /* note */ -}} b {{- .params.x -}} c", "ab{{ input.x }}c"),
        ("{{slice .params.x 1 3}}", "{{ input.x[1:3] }}"),
        ("{{.params.in}}", "$input['in']"),
        ("{{.workflow.start_time}}", "$workflow.started_at"),
        ("{{printf \"%.2f EUR\" .params.x}}", "{{ input.x | format(2) ~ ' EUR' }}"),
        (
            "{{range .params.l}}- {{.}}\n{{end}}",
            "{% for element in input.l | default([]) %}- {{ element }}\n{% endfor %}",
        ),
        (
            "{{range $i, $e := .params.l}}{{$i}}: {{$e.id}} of {{$.params.x}}{{else}}none{{end}}",
            "{% for element in input.l | default([]) %}{{ loop.index0 }}: {{ element.id }} of \
             {{ input.x }}{% else %}none{% endfor %}",
        ),
        (
            "{{range .params.l}}{{range .tags}}{{.}}{{end}}{{end}}",
            "{% for element in input.l | default([]) %}{% for element2 in element.tags | \
             default([]) %}{{ element2 }}{% endfor %}{% endfor %}",
        ),
        (
            "{{with .params.x}}{{.name}}{{else}}none{{end}}",
            "{% if input.x | default(false) %}{{ input.x.name }}{% else %}none{% endif %}",
        ),
        (
            "{{with $x := index .params.l 0}}{{$x.id}}{{end}}",
            "{% if input.l[0] | default(false) %}{{ input.l[0].id }}{% endif %}",
        ),
        ("{{`raw \"x\"`}}", "{{ 'raw \"x\"' }}"),
    ];
    for (text, translated) in expected {
        assert_eq!(value(text, scope()).unwrap(), translated, "{text}");
    }
}

#[test]
fn conditions_are_translated() {
    let expected = [
        ("true", "true"),
        ("{{.params.ok}}", "input.ok"),
        ("{{eq .params.env \"prod\"}}", "input.env == 'prod'"),
        ("{{if eq .params.env \"prod\"}}true{{else}}false{{end}}", "input.env == 'prod'"),
        ("{{if .params.x}}false{{else}}true{{end}}", "not input.x | default(false)"),
        ("{{if .params.x}}true{{else}}false{{end}}", "true if input.x | default(false) else false"),
        (
            "{{and (eq .steps.a.status \"completed\") (not (gt (len .params.l) 3))}}",
            "steps.a.status == 'completed' and not input.l | length > 3",
        ),
        (
            "{{and (or (eq .params.a 1) (eq .params.b 2)) (ne .params.c 10.0)}}",
            "(input.a == 1 or input.b == 2) and input.c != 10.0",
        ),
        (
            "{{if .steps.a.error}}true{{else}}false{{end}}",
            "true if steps.a.error | default(false) else false",
        ),
    ];
    for (text, translated) in expected {
        assert_eq!(condition(text, scope()).unwrap(), translated, "{text}");
    }
    assert!(condition("not_boolean", scope()).is_err());
    assert!(condition("{{if .params.x}}yes{{else}}no{{end}}", scope()).is_err());
}

#[test]
fn optional_parameters_can_be_left_out() {
    let optional = HashSet::from(["tone".to_owned()]);
    let scope = Scope { optional: Some(&optional), ..Scope::default() };
    assert_eq!(value("{{.params.tone}}", scope).unwrap(), "$input.tone?");
    assert_eq!(value("In {{.params.tone}}", scope).unwrap(), "In {{ input.tone | default('') }}");
}

#[test]
fn constructs_without_equivalent_are_named() {
    let expected = [
        (
            "{{$x := .params.y}}",
            "variables have no equivalent, except in `range` and `with`",
            "{{$x := .params.y}}",
        ),
        (
            "{{range $i :, $e := .params.l}}{{end}}",
            "variables have no equivalent, except in `range` and `with`",
            "{{range $i :, $e := .params.l}}",
        ),
        ("{{$x}}", "the variable `$x` is not defined", "$x"),
        (
            "{{range $i, $e := .params.l}}{{range $e}}{{$i}}{{end}}{{end}}",
            "the index `$i` of an outer `range` has no equivalent",
            "$i",
        ),
        ("{{range .params.l}}{{break}}{{end}}", "`break` has no equivalent", "{{break}}"),
        ("{{range .params.l}}x", "the block has no `end`", "{{range .params.l}}"),
        ("{{template \"x\"}}", "`template` has no equivalent", "{{template \"x\"}}"),
        ("{{exec \"ls\"}}", "ToolHive has no function `exec`, either", "exec"),
        ("{{urlquery .params.x}}", "the function `urlquery` has no equivalent", "urlquery"),
        (
            "{{printf \"%5.2f\" .params.x}}",
            "`printf`: only `%s`, `%v`, `%d`, `%t`, `%q`, `%.2f` and `%%` have an equivalent",
            "printf",
        ),
        ("{{.vars.x}}", "`.vars` is always empty in ToolHive", ".vars.x"),
        (
            "{{.timestamp}}",
            "ToolHive has no `.timestamp`, either: write `.workflow.start_time`",
            ".timestamp",
        ),
        (
            "{{.inputs.x}}",
            "no value is called `inputs`: expected `params`, `steps`, `workflow` or `forEach`",
            ".inputs.x",
        ),
        (
            "{{.workflow.duration_ms}}",
            "`.workflow` has an equivalent only for `id` and `start_time`",
            ".workflow.duration_ms",
        ),
        ("{{.steps.a}}", "expected a part of a step, such as `.steps.a.output`", ".steps.a"),
        (
            "{{.steps.a.action}}",
            "a step has no `action`: a step has `output`, `content`, `status` and `error`",
            ".steps.a.action",
        ),
        ("{{.forEach.row}}", "`.forEach` has `item` and `index`, not `row`", ".forEach.row"),
        ("{{if .params.x}}a", "the `if` has no `end`", "{{if .params.x}}"),
        ("{{if .params.x}}a{{else}}b", "the `else` has no `end`", "{{else}}"),
        ("a{{end}}", "`end` without an `if`", "{{end}}"),
        ("{{.params.x", "the braces are not closed", "{{"),
        ("{{}}", "the braces are empty", "{{}}"),
        ("{{(.params.x}}", "the parenthesis is not closed", "("),
        ("{{.params.x .params.y}}", "a value cannot have arguments", "{{.params.x .params.y}}"),
        ("{{.}}", "the whole data has no equivalent: name a value, such as `.params.x`", "."),
    ];
    for (text, reason, place) in expected {
        assert_eq!(message(text), (reason.to_owned(), place), "{text}");
    }
    let (reason, place) = message("{{.steps.my-step.output}}");
    assert!(reason.starts_with("unexpected `-`"), "{reason}");
    assert_eq!(place, "-");
    let (reason, _) = message("{{.steps.a.action == 'accept'}}");
    assert!(
        reason.contains("functions instead of operators") || reason.contains("arguments"),
        "{reason}"
    );
    assert_eq!(message(&"{{if true}}".repeat(40)).0, "more than 32 nested blocks");
    assert_eq!(
        message(&format!("{{{{{}", "(".repeat(40) + "}}")).0,
        "more than 32 nested parentheses"
    );
}

#[test]
fn translations_give_the_values_of_go() {
    let input =
        json!({ "a": "x", "n": 3, "l": ["p", "q"], "o": { "in": 1 }, "yes": true, "no": false });
    let expected = [
        ("{{.params.n}}", json!(3)),
        ("{{.params.a}}-{{.params.n}}", json!("x-3")),
        ("{{if gt .params.n 2.0}}many{{else}}few{{end}}", json!("many")),
        ("{{if .params.none}}a{{else}}b{{end}}", json!("b")),
        ("{{if and .params.yes (not .params.no)}}a{{end}}", json!("a")),
        ("{{or .params.none \"d\"}}", json!("d")),
        ("{{index .params.l 1}}", json!("q")),
        ("{{index .params \"o\" \"in\"}}", json!(1)),
        ("{{len .params.l}}", json!(2)),
        ("{{printf \"%s={%d}\" .params.a .params.n}}", json!("x={3}")),
        ("{{json .params.l}}", json!(["p", "q"])),
        ("{\"data\": {{json .params.o}}}", json!("{\"data\": {\"in\":1}}")),
        ("list {{json .params.l}}", json!("list [\"p\",\"q\"]")),
        ("{{eq .params.a \"y\" \"x\"}}", json!(true)),
        ("{{slice .params.a 0 1}}", json!("x")),
        ("{% not ours %}", json!("{% not ours %}")),
        ("$$5 {{.params.a}}", json!("$$5 x")),
        ("line {{.params.a}}\n", json!("line x\n")),
        ("{{range $i, $e := .params.l}}{{$i}}{{$e}} {{end}}", json!("0p 1q ")),
        ("{{range .params.none}}x{{else}}empty{{end}}", json!("empty")),
        ("{{with .params.o}}{{.in}} {{$.params.a}}{{end}}", json!("1 x")),
        ("{{with .params.no}}x{{end}}", json!("")),
        ("{{printf \"%.1f|%s\" .params.n .params.a}}", json!("3.0|x")),
    ];
    for (text, given) in expected {
        let translated = value(text, scope()).unwrap();
        let expression = Expression::parse(&json!(translated)).expect(&translated);
        assert_eq!(expression.evaluate(&input).unwrap(), Some(given), "{text}: {translated}");
    }
}
