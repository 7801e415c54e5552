use std::{fmt::Write as _, time::Duration};

use cpu_time::ThreadTime;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::normalize::{MalformedKind, OutputError, ParseLimits, Provider};

const START: &str = "<|tool_call_start|>";
const END: &str = "<|tool_call_end|>";

/// Encloses calls in the markers of LFM models.
fn lfm(calls: &str) -> String {
    format!("{START}[{calls}]{END}")
}

/// Returns the calls in a text. Each item contains the call's arguments or its error message.
fn read(provider: Provider, text: &str) -> Vec<Result<Value, String>> {
    let calls = provider.calls_in(text).unwrap();
    calls
        .into_iter()
        .map(|call| match call {
            Ok(call) => Ok(json!([call.name, call.arguments])),
            Err(malformed) => Err(malformed.to_string()),
        })
        .collect()
}

/// Returns the names of the calls in a text, with `!` for each malformed call.
fn names(provider: Provider, text: &str) -> Vec<String> {
    let calls = provider.calls_in(text).unwrap();
    calls.into_iter().map(|call| call.map_or("!".to_owned(), |call| call.name)).collect()
}

#[test]
fn python_and_json_literals_are_parsed() {
    let literals = [
        ("True", json!(true)),
        ("true", json!(true)),
        ("False", json!(false)),
        ("false", json!(false)),
        ("None", json!(null)),
        ("null", json!(null)),
        ("0", json!(0)),
        ("-7", json!(-7)),
        ("9223372036854775807", json!(i64::MAX)),
        ("9223372036854775808", json!(9_223_372_036_854_775_808_u64)),
        ("18446744073709551615", json!(u64::MAX)),
        ("-9223372036854775808", json!(i64::MIN)),
        ("1.5", json!(1.5)),
        ("1e3", json!(1000.0)),
        ("0.1000000000000000055", json!(0.1)),
        ("''", json!("")),
        (r#""it's""#, json!("it's")),
        (r#"'say "no"'"#, json!("say \"no\"")),
        (r"'a\nb\tc\\d\'e\x41\u00e9\U0001F600'", json!("a\nb\tc\\d'eA\u{e9}\u{1F600}")),
        (r"'\ud83d\ude00'", json!("\u{1F600}")),
        (r"'\101\0'", json!("A\0")),
        (r"'\d+'", json!(r"\d+")),
        ("'one\ntwo'", json!("one\ntwo")),
        ("'one\\\ntwo'", json!("onetwo")),
        ("'grün 🌱'", json!("grün 🌱")),
        ("[]", json!([])),
        ("[1, 'a', [2], {}]", json!([1, "a", [2], {}])),
        ("[1,]", json!([1])),
        ("{}", json!({})),
        (r#"{'a': 1, "b": {'c': [None]},}"#, json!({ "a": 1, "b": { "c": [null] } })),
        (r"'),]}'", json!("),]}")),
        ("'<|tool_call_end|>'", json!("<|tool_call_end|>")),
        (r"'\'<|tool_call_end|>'", json!("'<|tool_call_end|>")),
    ];
    for (literal, value) in literals {
        let read = read(Provider::Lfm, &lfm(&format!("f(x={literal})")));
        assert_eq!(read, [Ok(json!(["f", { "x": value }]))], "{literal}");
    }
}

#[test]
fn invalid_literal_makes_the_call_malformed() {
    let literals = [
        "",
        "x",
        "inf",
        "nan",
        "1_000",
        "0x10",
        "007",
        "+1",
        "1.",
        ".5",
        "1e",
        "--1",
        "(1,2)",
        "'a' 'b'",
        "1 2",
        "1) + g(b=')'",
        "TRUE",
        "yes",
        "r'a'",
        "f'a'",
        "[,]",
        "[1 2]",
        "{1: 2}",
        "{'a'}",
        "{'a': 1 'b': 2}",
        "{'a': 1, 'a': 2}",
        "{,}",
        "[1",
        "{'a': 1",
        "'a",
        "$x",
        "`a`",
        "18446744073709551616",
        "-9223372036854775809",
        "1e999",
        r"'\x4'",
        r"'\xg0'",
        r"'\u12'",
        r"'\ud800'",
        r"'\ud800\u0041'",
        r"'\N{DASH}'",
        r"'\U00110000'",
        "1, y=",
        "1, x=2",
        "1, 2",
        "1 y=2",
        "1,, y=2",
        "os.system('ls')",
        "[g()]",
        "not True",
        "1 if True else 2",
    ];
    for literal in literals {
        let text = lfm(&format!("f(x={literal})")) + "\n" + &lfm("g()");
        let read = names(Provider::Lfm, &text);
        assert!(read[0] == "!" && !read[1..].contains(&"f".to_owned()), "{literal}: {read:?}");
    }
}

#[test]
fn malformed_call_reports_what_was_expected() {
    let texts = [
        (
            "f(x=)",
            "malformed call of `f`: expected a text, a number or another value for `x`, found `)`",
        ),
        ("f(x='a' 'b')", "malformed call of `f`: expected `,` or `)` after a value, found `'b')`"),
        ("f(x=1) + g()", "malformed call of `f`: expected nothing after a call, found `+ g()`"),
        ("f(1)", "malformed call of `f`: expected the name of an argument, found `1)`"),
        ("f(x)", "malformed call of `f`: expected `=` after `x`, found `)`"),
        ("f(x=1, x=2)", "malformed call of `f`: the argument `x` is there twice"),
        (
            "f(x=99999999999999999999)",
            "malformed call of `f`: the number `99999999999999999999` cannot be kept exactly",
        ),
        ("f(x='\\xzz')", "malformed call of `f`: no text has an escape like `\\xzz')`"),
        ("f", "malformed call: expected `name(argument=value)`, found `f`"),
        (
            "please call f, thank you",
            "malformed call: expected `name(argument=value)`, found `please call f`",
        ),
        (", f()", "malformed call: expected `name(argument=value)`, found nothing"),
        ("f(x=(1)", "malformed call: a `]` closes nothing"),
        ("f(x=[1)", "malformed call: a `)` closes nothing"),
        ("f()]", "malformed call: expected nothing after the list, found `]`"),
    ];
    for (call, expected) in texts {
        assert_eq!(read(Provider::Lfm, &lfm(call))[0], Err(expected.to_owned()), "{call}");
    }
    let read = read(Provider::Lfm, &format!("{START}[f(x=1){END}"));
    assert_eq!(read, [Err("malformed call: there is a `]` missing".to_owned())]);
}

#[test]
fn malformed_call_in_a_list_does_not_affect_the_others() {
    let read = names(Provider::Lfm, &lfm("f(a=1), g(b=oops), h(c='x, y()', d=[1, 2]), "));
    assert_eq!(read, ["f", "!", "h"]);
}

#[test]
fn tool_names_may_contain_separators() {
    let names = names(Provider::Lfm, &lfm("github/search(), a.b-c:d_1(), _x()"));
    assert_eq!(names, ["github/search", "a.b-c:d_1", "_x"]);
}

#[test]
fn call_lists_may_be_empty_bare_or_json() {
    let texts = [
        (format!("{START}{END}"), vec![]),
        (format!("{START}[]{END}"), vec![]),
        (format!("{START} [ \n ] {END}"), vec![]),
        (format!("{START}f(a=1){END}"), vec![Ok(json!(["f", { "a": 1 }]))]),
        (format!("{START}f(), g(){END}"), vec![Ok(json!(["f", {}])), Ok(json!(["g", {}]))]),
        (
            format!(r#"{START}[{{"name": "f", "arguments": {{"a": "it's"}}}}]{END}"#),
            vec![Ok(json!(["f", { "a": "it's" }]))],
        ),
        (format!(r#"{START}{{"name": "f", "arguments": {{}}}}{END}"#), vec![Ok(json!(["f", {}]))]),
        (
            format!("{START}[{{f}}]{END}"),
            vec![Err(
                "malformed call: it is not JSON: key must be a string at line 1 column 3".into()
            )],
        ),
    ];
    for (text, expected) in texts {
        assert_eq!(read(Provider::Lfm, &text), expected, "{text}");
    }
}

#[test]
fn block_counts_only_at_a_line_start_outside_quotations() {
    let call = lfm("f()");
    let texts = [
        (call.clone(), 1),
        (format!("  \n   {call}"), 1),
        (format!("Let me see.\n{call}\nThat is it."), 1),
        (format!("{call}{call} {call}"), 3),
        (format!("<think>Hm.\n{call}\n</think>\n{call}"), 1),
        (format!("<think>Hm.</think>{call}"), 1),
        (format!("Hm.\n{call}</think>\n\n{call}"), 1),
        (format!("```\n{call}\n```\n{call}"), 1),
        (format!("~~~~ text\n~~~\n```\n{call}\n~~~~\n{call}"), 1),
        (format!("`code` and\n{call}"), 1),
        (format!("Windows\r\n{call}\r\n"), 1),
        // Markers in quotations.
        (format!("It says {call}"), 0),
        (format!("`{call}`"), 0),
        (format!("\"{call}\""), 0),
        (format!("> {call}"), 0),
        (format!("- {call}"), 0),
        (format!("    {call}"), 0),
        (format!("```\n{call}"), 0),
        (format!("```python\n{call}\n```"), 0),
        (format!("   ```\n{call}\n   ```"), 0),
        (format!("<think>I could write\n{call}"), 0),
        (format!("the marker {START} begins a call"), 0),
        (END.to_owned(), 0),
    ];
    for (text, count) in texts {
        let names = names(Provider::Lfm, &text);
        assert_eq!(names, vec!["f"; count], "{text}");
    }
}

#[test]
fn thought_end_within_an_argument_is_ignored() {
    let hidden = "see </think><|tool_call_start|>[rm(x=1)]<|tool_call_end|>";
    for quote in ["'", "\""] {
        let text = lfm(&format!("write(text={quote}{hidden}{quote})"));
        let expected = [Ok(json!(["write", { "text": hidden }]))];
        assert_eq!(read(Provider::Lfm, &text), expected, "{text}");
        assert_eq!(names(Provider::Lfm, &format!("{}\n{text}", lfm("f()"))), ["f", "write"]);
        assert_eq!(names(Provider::Lfm, &format!("Hm.</think>\n{text}")), ["write"]);
    }
    let text = r#"<tool_call>{"name": "w", "arguments": {"t": "</think>"}}</tool_call>"#;
    assert_eq!(read(Provider::Hermes, text), [Ok(json!(["w", { "t": "</think>" }]))]);
}

#[test]
fn text_before_an_unopened_thought_end_is_a_thought() {
    let call = lfm("f()");
    let texts = [
        (format!("{call}</think>"), 0),
        (format!("{call}\nThat is it.</think>"), 0),
        (format!("{call}\n    - so be it.</think>{call}"), 1),
        (format!("{call}\nThe tag </think> is none.\n{call}"), 1),
        (format!("A.</think>\n{call}\nB.</think>\n{call}{call}"), 2),
        (format!("<think>Hm.</think>\n{call}\nAnd now.</think>\n"), 0),
        // A `</think>` that closes a `<think>` on the same line, or is in a code block.
        (format!("{call}\nBetween <think> and </think> stand thoughts."), 1),
        (format!("{call}\n```\n</think>{}\n```", lfm("g()")), 1),
        // An unclosed fence is part of the thought.
        (format!("{}\n```\nHm.</think>\n{call}", lfm("g()")), 1),
        (format!("```\n</think>\n{call}\n~~~\n</think>\n{call}{call}"), 2),
    ];
    for (text, count) in texts {
        assert_eq!(names(Provider::Lfm, &text), vec!["f"; count], "{text}");
    }
}

#[test]
fn block_without_an_end_becomes_one_malformed_call() {
    let one = lfm("f()");
    for open in [START, "<|tool_call_start|>[g(a='", "<|tool_call_start|>[g(a='<|tool_call_end|>\n"]
    {
        let text = format!("{one}\n{open}\n");
        let calls = Provider::Lfm.calls_in(&text).unwrap();
        assert_eq!(calls.len(), 2, "{text}");
        assert_eq!(calls[0].as_ref().unwrap().name, "f");
        assert_eq!(calls[1].as_ref().unwrap_err().kind(), MalformedKind::Incomplete);
    }
}

#[test]
fn calls_of_hermes_are_json_between_tags() {
    let tagged = |json: &str| format!("<tool_call>\n{json}\n</tool_call>");
    let texts = [
        (tagged(r#"{"name": "f", "arguments": {"a": [1]}}"#), Ok(json!(["f", { "a": [1] }]))),
        (tagged(r#"{"name": "f"}"#), Ok(json!(["f", {}]))),
        (tagged(r#"{"name": "f", "arguments": "{\"a\": 1}"}"#), Ok(json!(["f", { "a": 1 }]))),
        (
            tagged(r#"{"name": "f", "arguments": {"a": "</tool_call>\n"}}"#),
            Ok(json!(["f", { "a": "</tool_call>\n" }])),
        ),
        (
            tagged(r#"{"name": "f", "arguments": [1]}"#),
            Err("malformed call of `f`: the arguments have to be an object, found a list".into()),
        ),
        (tagged(r#"{"arguments": {}}"#), Err("malformed call: it has no name".into())),
        (tagged(r#"{"name": "f""#), Err("malformed call: it is truncated".into())),
        (
            tagged("{'name': 'f'}"),
            Err("malformed call: it is not JSON: key must be a string at line 2 column 2".into()),
        ),
        (tagged("5"), Err("malformed call: expected an object with `name` and `arguments`".into())),
        (
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}".to_owned(),
            Err("malformed call: there is no `</tool_call>` after it".into()),
        ),
    ];
    for (text, expected) in texts {
        assert_eq!(read(Provider::Hermes, &text), [expected], "{text}");
    }
    let two = format!("First\n{}\n{}", tagged(r#"{"name": "f"}"#), tagged(r#"{"name": "g"}"#));
    assert_eq!(names(Provider::Hermes, &two), ["f", "g"]);
    assert_eq!(names(Provider::Hermes, &format!("```\n{two}\n```")), [""; 0]);
}

#[test]
fn calls_before_an_unsplittable_rest_are_parsed() {
    let texts = [
        ("[f(a=1), g(a=[)]", ["f", "!"].as_slice()),
        ("[f(a=1), g(b=2), h(", &["f", "g", "!"]),
        ("[f(a=1), g(a='x", &["!"]),
        ("[f(a=1), g(b=2)", &["f", "!"]),
        ("f(a=1), g(b=2), (", &["f", "g", "!"]),
        ("[f(a=1)", &["!"]),
        // An expression that contains a list of calls, but is not one.
        ("[f(a=1), g()] + [h()]", &["!"]),
    ];
    for (body, expected) in texts {
        let text = format!("{START}{body}{END}");
        assert_eq!(names(Provider::Lfm, &text), expected, "{body}");
    }
    let texts = [
        (r#"[{"name": "f"}, {"name": "g"}, {"name": oops}, {"name": "h"}]"#, ["f", "g", "!"]),
        (r#"[{"name": "f"}, {"name": "g"}, {"na": "#, ["f", "g", "!"]),
        (r#"[{"name": "f"}, {"name": "g"} {"name": "h"}]"#, ["f", "g", "!"]),
        (r#"[{"name": "f"}, 5, {"name": "g"}]"#, ["f", "!", "g"]),
    ];
    for (body, expected) in texts {
        let text = format!("{START}{body}{END}");
        assert_eq!(names(Provider::Lfm, &text), expected, "{body}");
    }
}

#[test]
fn block_with_invalid_json_ends_at_the_next_end_tag() {
    let good = r#"<tool_call>{"name": "f"}</tool_call>"#;
    for bad in [r#"{"name": "g, "arguments": {}}"#, r#"{"name": "g"#, "\"", "{'it\"s'}"] {
        let bad = format!("<tool_call>{bad}</tool_call>");
        let text = format!("{good}{bad}\n{good}{good}");
        assert_eq!(names(Provider::Hermes, &text), ["f", "!", "f", "f"], "{bad}");
    }
    // A call within a JSON string is not a call, because its quotes are escaped.
    let quoted = json!(format!("</tool_call>\n{good}")).to_string();
    let text = format!(r#"<tool_call>{{"name": "g", "arguments": {{"t": {quoted}}}</tool_call>"#);
    assert!(!names(Provider::Hermes, &text).contains(&"f".to_owned()), "{text}");
}

#[test]
fn calls_beyond_the_limit_are_one_malformed_call() {
    let begin = ThreadTime::now();
    for call in ["a(),", "a,", ",", "a(x=["] {
        let calls = Provider::Lfm.calls_in(&lfm(&call.repeat((1 << 19) / call.len()))).unwrap();
        assert!(calls.len() <= 129, "{call}: {}", calls.len());
    }
    let blocks = [
        (Provider::Lfm, lfm("a()")),
        (
            Provider::Lfm,
            format!(r#"{START}[{}{{"name": "a"}}]{END}"#, r#"{"name": "a"},"#.repeat(500)),
        ),
        (Provider::Hermes, r#"<tool_call>{"name": "a"}</tool_call>"#.to_owned()),
        (Provider::Hermes, r#"<tool_call>\"</tool_call>"#.to_owned()),
    ];
    for (provider, block) in blocks {
        let calls = provider.calls_in(&block.repeat((1 << 20) / block.len())).unwrap();
        assert_eq!(calls.len(), 129, "{block}");
        let last = calls[128].as_ref().unwrap_err();
        assert_eq!(last.kind(), MalformedKind::OverLimit, "{block}");
        assert_eq!(last.message(), "an answer may have at most 128 calls");
    }
    let text = "<tool_call>\\\"</tool_call></think>".repeat(30_000);
    assert!(names(Provider::Hermes, &text).len() <= 1);
    assert!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
}

#[test]
fn deep_nesting_costs_no_stack_and_little_time() {
    let begin = ThreadTime::now();
    for (open, close) in [("[", "]"), ("{'a':", "}"), ("(", ")"), ("f(a=", ")"), ("[", "")] {
        let text = lfm(&format!("f(x={}1{})", open.repeat(100_000), close.repeat(100_000)));
        assert_eq!(names(Provider::Lfm, &text), ["!"], "{open}");
        let text = format!("{START}{}{END}", open.repeat(100_000));
        assert_eq!(names(Provider::Lfm, &text), ["!"], "{open}");
    }
    let text = format!("<tool_call>{}</tool_call>", "[".repeat(100_000));
    assert_eq!(names(Provider::Hermes, &text), ["!"]);
    let text = format!("{}{START}", "<think></think>```\n```\n>".repeat(40_000));
    assert_eq!(names(Provider::Lfm, &text), [""; 0]);
    for part in
        [lfm(""), "<think></think>".to_owned(), "</think>".to_owned(), "a</think>".to_owned()]
    {
        assert_eq!(names(Provider::Lfm, &part.repeat((1 << 20) / part.len())), [""; 0]);
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "it took {:?}", begin.elapsed());
}

#[test]
fn values_are_nested_up_to_the_limit() {
    let nested = |levels: usize| lfm(&format!("f(x={}{})", "[".repeat(levels), "]".repeat(levels)));
    assert_eq!(names(Provider::Lfm, &nested(127)), ["f"]);
    let calls = Provider::Lfm.calls_in(&nested(128)).unwrap();
    assert_eq!(calls[0].as_ref().unwrap_err().kind(), MalformedKind::OverLimit);
    let limits = ParseLimits::new().max_depth(1);
    let calls = Provider::Lfm.calls_within(&json!(lfm("f(a=1), g(a={})")), &limits).unwrap();
    assert_eq!(calls.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false]);
}

#[test]
fn text_over_max_bytes_is_rejected() {
    let limits = ParseLimits::new().max_bytes(10);
    let error = Provider::Lfm.calls_within(&json!(lfm("f()")), &limits).unwrap_err();
    assert_eq!(error, OutputError::TooLarge { limit: 10 });
    assert_eq!(error.to_string(), "the text has more than 10 bytes (`max_bytes`)");
}

/// Writes a value as a Python literal.
fn python(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("None"),
        Value::Bool(truth) => text.push_str(if *truth { "True" } else { "False" }),
        Value::Number(number) => write!(text, "{number}").unwrap(),
        Value::String(string) => {
            let escaped = string.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n");
            write!(text, "'{escaped}'").unwrap();
        }
        Value::Array(elements) => {
            text.push('[');
            for element in elements {
                python(element, text);
                text.push_str(", ");
            }
            text.push(']');
        }
        Value::Object(members) => {
            text.push('{');
            for (key, member) in members {
                python(&json!(key), text);
                text.push_str(": ");
                python(member, text);
                text.push(',');
            }
            text.push('}');
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "[\\\\'\"\n<|>(){},=\\[\\]]{0,8}(<\\|tool_call_end\\|>)?".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(any::<String>(), inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Generates texts of the parser's tokens in any order.
fn text() -> impl Strategy<Value = String> {
    let pieces = proptest::sample::select(vec![
        START,
        END,
        "<tool_call>",
        "</tool_call>",
        "<think>",
        "</think>",
        "```",
        "~~~",
        "\n",
        ">",
        " ",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        "=",
        ":",
        "'",
        "\"",
        "\\",
        "\\x4",
        "\\u12",
        "f(",
        "a=",
        "1",
        "-",
        "1e",
        "True",
        "null",
        "name",
        "é",
        "🌱",
        "\"name\":",
        "\"f\"",
    ]);
    proptest::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn python_literal_is_read_as_written(value in value()) {
        let mut literal = String::new();
        python(&value, &mut literal);
        let read = read(Provider::Lfm, &lfm(&format!("f(x={literal})")));
        prop_assert_eq!(read, vec![Ok(json!(["f", { "x": value }]))]);
    }

    #[test]
    fn any_text_is_read_without_a_panic(text in text(), other in any::<String>()) {
        for text in [format!("{START}{text}"), format!("<tool_call>{text}"), text, other] {
            for provider in [Provider::Lfm, Provider::Hermes] {
                let calls = provider.calls_in(&text).unwrap();
                prop_assert!(calls.len() <= text.len());
            }
        }
    }
}
