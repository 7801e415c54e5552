//! Files of ToolHive, their conversion, and the behavior of the result.

mod cases;
mod templates;

use std::{fs, path::Path};

use mcp_composite::{
    config::Config,
    testing::{self, Person, Server},
};
use proptest::{prelude::*, sample::Index};
use serde_json::json;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/configs/toolhive");

fn environment(name: &str) -> Option<String> {
    Some(format!("http://{}.example/mcp", name.to_lowercase().replace('_', "-")))
}

fn config(file: &str) -> Config {
    let text = fs::read_to_string(Path::new(FOLDER).join(file)).unwrap();
    Config::from_toolhive_str_with_env(&text, environment).unwrap()
}

#[test]
fn files_of_toolhive_give_toml_or_every_mistake() {
    insta::with_settings!({
        snapshot_path => "../configs/toolhive/snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::glob!("../configs/toolhive", "*.yaml", |path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = fs::read_to_string(path).unwrap();
            let config = Config::from_toolhive_str_with_env(&text, environment);
            assert_eq!(config.is_ok(), name.starts_with("valid"), "{name}: {config:?}");
            let folder = path.parent().unwrap().to_str().unwrap();
            let output = Config::toolhive_to_toml(path)
                .unwrap_or_else(|error| error.to_string().replace(folder, "…"));
            insta::assert_snapshot!(output);
        });
    });
}

/// Pieces of YAML and Go templates that change the meaning of a text.
const PIECES: [&str; 20] = [
    "",
    "\n",
    "\t",
    " ",
    "é",
    "- ",
    ": ",
    "{",
    "}",
    "[",
    "\"",
    "'",
    "&a ",
    "*a ",
    "<<: ",
    "{{",
    "}}",
    "{{range $i, $é := .",
    "{{printf \"%",
    "{{- end -}}",
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn changed_files_are_read_or_have_a_located_mistake(
        file in proptest::sample::select(vec!["valid_deploy.yaml", "valid_kubernetes.yaml", "valid_anchors.yaml"]),
        changes in proptest::collection::vec((any::<Index>(), 0..8_usize, proptest::sample::select(PIECES.to_vec())), 1..4),
    ) {
        let mut text: Vec<char> = fs::read_to_string(Path::new(FOLDER).join(file)).unwrap().chars().collect();
        for (place, removed, piece) in changes {
            let start = place.index(text.len());
            let end = text.len().min(start + removed);
            text.splice(start..end, piece.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(error) = Config::from_toolhive_str_with_env(&text, environment) {
            let lines = text.lines().count().max(1);
            prop_assert!(!error.mistakes().is_empty());
            for mistake in error.mistakes() {
                prop_assert!((1..=lines + 1).contains(&mistake.line()), "{error}");
            }
        }
    }
}

#[test]
fn mistakes_in_files_of_toolhive_show_no_secrets() {
    for file in ["secrets.yaml", "secret_in_bad_syntax.yaml"] {
        let text = fs::read_to_string(Path::new(FOLDER).join(file)).unwrap();
        let error = Config::from_toolhive_str_with_env(&text, environment).unwrap_err();
        assert!(text.contains("hunter2") && !error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn authorization_without_equivalent_is_an_error() {
    let text = fs::read_to_string(Path::new(FOLDER).join("oidc.yaml")).unwrap();
    let error = Config::from_toolhive_str_with_env(&text, environment).unwrap_err();
    let [policies] = error.mistakes() else { panic!("{error}") };
    assert_eq!((policies.line(), policies.column()), (5, 3));
    assert!(policies.message().contains("Cedar"), "{error}");
}

#[tokio::test]
async fn imported_workflow_asks_and_calls_with_types() {
    let config = config("valid_deploy.yaml");
    let registry = Server::new().gives("get_release", json!({ "version": "1.2" }));
    let cluster = Server::new().gives("deploy", json!({ "url": "https://prod" }));
    let service =
        testing::stack(&config, [("registry", registry.clone()), ("cluster", cluster.clone())]);
    let tools = testing::listed(&service).await;
    let names: Vec<_> = tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["registry_get_release", "deploy"]);
    testing::refused(&service, "cluster_roll_out", json!({})).await;

    let mut person = Person::new().accepts("approve", json!({ "environment": "staging" }));
    let result = person.call(&service, "deploy", json!({ "service": "shop" })).await;
    let output = json!({ "version": "1.2", "url": "https://prod" });
    assert_eq!(result.structured_content, Some(output), "{result:?}");
    assert_eq!(person.asked(), [("approve".to_owned(), "Deploy 1.2?".to_owned())]);
    // The note is left out, and the number stays one.
    let target = json!({ "environment": "staging" });
    let expected = json!({ "service": "shop", "version": "1.2", "replicas": 2, "target": target });
    assert_eq!(cluster.arguments("deploy"), Some(expected));

    let mut person = Person::new().declines("approve");
    let result = person.call(&service, "deploy", json!({ "service": "shop" })).await;
    assert_eq!(result.is_error, Some(false), "{result:?}");
    assert_eq!((registry.calls().len(), cluster.calls().len()), (2, 1));
}

#[tokio::test]
async fn imported_loop_reads_each_element() {
    let config = config("valid_definitions.yaml");
    let hits = json!({ "hits": [{ "url": "a", "title": "A" }, { "url": "b", "title": "B" }] });
    let papers = Server::new().says("search", hits.to_string()).says("read", "text");
    let service = testing::stack(&config, [("papers", papers)]);
    let result = testing::call(&service, "read_papers", json!({ "topic": "tea" })).await;
    assert_eq!(result.structured_content, Some(json!({ "count": 2 })), "{result:?}");
}

#[tokio::test]
async fn imported_failure_under_continue_goes_on() {
    let config = config("valid_priority.yaml");
    let jira = Server::new().says("create_issue", "created");
    let github = Server::new().fails("create_pr", "no such branch");
    let service = testing::stack(&config, [("jira", jira), ("github", github)]);
    let result = testing::call(&service, "file_and_fix", json!({ "what": "it" })).await;
    assert_eq!(result.is_error, Some(false), "{result:?}");
}
