//! Tool names that each provider accepts.

use mcp_composite::normalize::{Provider, ToolNames};
use proptest::prelude::*;
use rmcp::model::Tool;
use serde_json::{Value, json};

/// Returns whether every provider accepts a name.
fn is_allowed(name: &str) -> bool {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let is_spelled = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    begins_well && is_spelled && name.len() <= 64
}

#[test]
fn allowed_name_is_unchanged() {
    let long = "x".repeat(64);
    for name in ["search", "get-issue_2", "_x", &long] {
        assert_eq!(ToolNames::new([name]).exposed(name), Some(name));
    }
}

#[test]
fn unsupported_characters_in_names_are_replaced() {
    for (name, exposed) in [
        ("github/search", "github_search"),
        ("a.b c:d", "a_b_c_d"),
        ("7zip", "_7zip"),
        ("-x", "_-x"),
        ("grün", "gr_n"),
    ] {
        assert_eq!(ToolNames::new([name]).exposed(name), Some(exposed));
    }
}

#[test]
fn long_names_are_truncated_and_stay_unique() {
    let names = ["a", "b"].map(|end| format!("{}{end}", "x".repeat(127)));
    let map = ToolNames::new(names.clone());
    let exposed = names.clone().map(|name| map.exposed(&name).unwrap().to_owned());
    assert!(exposed.iter().all(|name| name.len() == 64 && name.starts_with("xxxx")));
    assert_ne!(exposed[0], exposed[1]);
    assert_eq!(map.original(&exposed[1]), Some(&*names[1]));
}

#[test]
fn tool_names_do_not_collide() {
    let names = ToolNames::new(["a/b", "a_b", "a.b"]);
    assert_eq!(names.original("a_b"), Some("a_b"));
    let [slash, dot] = ["a/b", "a.b"].map(|name| names.exposed(name).unwrap());
    assert_ne!(slash, dot);
    assert_eq!((names.original(slash), names.original(dot)), (Some("a/b"), Some("a.b")));
    assert_eq!(names.original("a/b"), None);
    // Of two conflicting names, neither gets the plain one, unless it is an original name.
    assert_eq!(ToolNames::new(["a/b", "a.b"]).original("a_b"), None);
}

#[test]
fn definitions_follow_the_format_of_each_provider() {
    let schema = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
    let tool = Tool::new("web/search", "Searches", schema.as_object().unwrap().clone());
    let names = ToolNames::of(std::slice::from_ref(&tool));
    let function = json!({ "name": "web_search", "description": "Searches", "parameters": schema });
    let expected = [
        (
            Provider::OpenAiResponses,
            json!([{ "type": "function", "name": "web_search", "description": "Searches",
                "parameters": schema, "strict": false }]),
        ),
        (Provider::OpenAiChat, json!([{ "type": "function", "function": function }])),
        (
            Provider::Anthropic,
            json!([{ "name": "web_search", "description": "Searches", "input_schema": schema }]),
        ),
        (
            Provider::Gemini,
            json!([{ "functionDeclarations": [{ "name": "web_search", "description": "Searches",
                "parametersJsonSchema": schema }] }]),
        ),
        (Provider::Lfm, json!([function])),
        (Provider::Hermes, json!([{ "type": "function", "function": function }])),
    ];
    for (provider, expected) in expected {
        let definitions = provider.definitions(std::slice::from_ref(&tool), &names);
        assert_eq!(Value::Array(definitions), expected, "{provider:?}");
        assert!(provider.definitions(&[], &names).is_empty());
    }
}

proptest! {
    #[test]
    fn exposed_names_resolve_in_any_order(
        mut tools in proptest::collection::vec("[ab]{0,2}[/._]?[abé7-]{0,2}|[x/]{60,70}", 0..12),
        seed in any::<u64>(),
    ) {
        let names = ToolNames::new(tools.clone());
        fastrand::Rng::with_seed(seed).shuffle(&mut tools);
        let others = ToolNames::new(tools.clone());
        for tool in &tools {
            let exposed = names.exposed(tool).unwrap();
            prop_assert!(is_allowed(exposed), "{}", exposed);
            prop_assert_eq!(names.original(exposed), Some(&**tool));
            prop_assert_eq!(others.exposed(tool), Some(exposed));
        }
    }
}
