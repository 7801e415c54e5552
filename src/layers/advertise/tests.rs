use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::{
    index::Index,
    terms::{beginning, plain, words},
    tools::{Call, Search, list},
};
use crate::catalog::Tools;

fn split(text: &str) -> Vec<String> {
    words(text).collect()
}

#[test]
fn text_is_split_into_words_parts_and_compounds() {
    for (text, expected) in [
        ("", &[][..]),
        ("...!?", &[]),
        ("list_issues", &["list", "issues"]),
        ("fs/read-file.v", &["fs", "read", "file", "v"]),
        ("GitHub", &["git", "hub", "github"]),
        ("getHTTPResponse2xx", &["get", "http", "response", "2", "xx", "gethttpresponse2xx"]),
        ("oauth2", &["oauth", "2", "oauth2"]),
        ("ÜBER Straße", &["über", "straße"]),
        ("搜索", &["搜", "索", "搜索"]),
        ("a 🦀 b", &["a", "b"]),
        ("(.*)+[a-z]{2}\\d", &["a", "z", "2", "d"]),
        ("X", &["x"]),
        ("ABC", &["abc"]),
    ] {
        assert_eq!(split(text), expected, "{text}");
    }
}

#[test]
fn words_of_a_name_do_not_depend_on_its_spelling() {
    for name in ["createIssue", "create_issue", "Create issue", "CREATE-ISSUE", " create/issue "] {
        assert_eq!(plain(name), "create issue", "{name}");
    }
}

#[test]
fn prefix_ends_at_a_character_boundary() {
    for (text, most, expected) in
        [("", 3, ""), ("abc", 3, "abc"), ("abcd", 3, "abc"), ("aé", 2, "a"), ("🦀", 3, "")]
    {
        assert_eq!(beginning(text, most), expected);
    }
}

#[test]
fn long_words_are_truncated_to_a_prefix() {
    let long = "x".repeat(100_000);
    assert_eq!(split(&long), ["x".repeat(64)]);
}

#[test]
fn words_read_from_a_tool_and_a_query_are_limited() {
    let all: Vec<String> = (0..10_000).map(|number| format!("word{number:05}")).collect();
    let all = all.join(" ");
    let tools: Tools = [Tool::new("endless", all, JsonObject::new())].into_iter().collect();
    let index = Index::new(&tools, |_| true);
    let found = |query: &str| index.search(query, None, 10).total;

    assert_eq!(found("word00000"), 1);
    assert_eq!(found("00170"), 1);
    // Each compound counts as three words, such as `word`, `09999` and `word09999`.
    assert_eq!(found("09999"), 0);
    assert_eq!(found(&format!("{} word00000", "zzz ".repeat(1_000))), 0);
    let others: Vec<String> = (0..32).map(|number| format!("zz{number}")).collect();
    assert_eq!(found(&format!("{} word00000", others.join(" "))), 0);
}

#[test]
fn words_read_from_all_tools_together_are_limited() {
    let words = |tool: usize| {
        let words = (0..500).map(|word| (5_000_000 + tool * 500 + word).to_string());
        words.collect::<Vec<_>>().join(" ")
    };
    let tools: Tools = (0..2_100)
        .map(|tool| Tool::new(format!("t{tool:07}"), words(tool), JsonObject::new()))
        .collect();
    let index = Index::new(&tools, |_| true);
    let found = |query: &str| index.search(query, None, 10).total;
    assert_eq!((found("5000007"), found("6049999")), (1, 0));
    let best = index.search("t0002099", None, 1).positions;
    assert_eq!(best, [2099], "it has a name all the same");
}

/// Checks that the listed input schemas allow exactly the arguments that the layer accepts.
#[test]
fn accepted_arguments_are_those_that_fit_the_schemas() {
    let [search, call] = &list().tools[..] else { panic!("two tools") };
    let texts = [json!("x"), json!(""), json!(1), json!(null), json!(["x"]), json!({})];
    let limits = [
        json!(1),
        json!(50),
        json!(0),
        json!(51),
        json!(-1),
        json!(5.0),
        json!(5.5),
        json!("5"),
        json!(null),
        json!(1e300),
        json!(u64::MAX),
    ];
    let mut objects = vec![json!({}), json!({ "limit": 5 }), json!({ "arguments": {} })];
    for text in &texts {
        objects.push(json!({ "query": text }));
        objects.push(json!({ "query": text, "name": text }));
        objects.push(json!({ "name": text }));
        objects.push(json!({ "name": "x", "arguments": text }));
        objects.push(json!({ "name": text, "arguments": { "deep": [text] }, "more": 1 }));
    }
    objects.extend(limits.map(|limit| json!({ "query": "x", "limit": limit })));

    let (mut good, mut bad) = (0, 0);
    for object in objects {
        let Value::Object(arguments) = &object else { unreachable!("objects only") };
        for (tool, is_taken) in [
            (search, Search::read(Some(arguments)).is_ok()),
            (call, Call::take(Some(arguments.clone())).is_ok()),
        ] {
            let schema = Value::Object((*tool.input_schema).clone());
            assert_eq!(jsonschema::is_valid(&schema, &object), is_taken, "{} {object}", tool.name);
            *(if is_taken { &mut good } else { &mut bad }) += 1;
        }
    }
    assert!(good > 5 && bad > 5, "{good} and {bad}");
    assert!(Search::read(None).is_err() && Call::take(None).is_err());
}
