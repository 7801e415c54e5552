//! Files with labeled tools, each with the mistakes that the check must report.
//!
//! A file begins with a comment about what it shows. Lines that begin with `#!` are the expected
//! mistakes, each with its path in the file and its message, or the word `ok`.

use std::{collections::BTreeSet, fs, path::PathBuf};

use mcp_composite::config::{Config, Mistake};

/// The end of each message, which the files omit.
const ADVICE: &str = "; remove this use, let a person approve the value first, or set \
                      `allow_flow` to the reason why it is safe";

/// Two labeled tools. The result of the first must not reach the second.
const LABELS: &str = r#"
[[flow]]
tools = ["mail_read"]
labels = ["private"]

[[flow]]
tools = ["web_post"]
labels = ["egress"]
"#;

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "flows"].iter().collect()
}

/// Returns the names and texts of all files in a folder.
fn files(folder: &str) -> Vec<(String, String)> {
    let entries = fs::read_dir(self::folder().join(folder)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.filter(|path| path.extension().is_some_and(|name| name == "toml"));
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    files.map(read).collect()
}

fn described(mistake: &Mistake) -> String {
    format!("{}: {}", mistake.path(), mistake.message().replace(ADVICE, ""))
}

/// Returns the mistake of a file that must have only one.
fn only_mistake(file: &str) -> Mistake {
    let error = Config::from_toml_str(file).unwrap_err();
    let [mistake] = error.mistakes() else { panic!("{error}") };
    mistake.clone()
}

/// Returns the expected and the reported mistakes of the files for which they differ.
fn differences(files: &[(String, String)]) -> Vec<String> {
    let mut differing = Vec::new();
    for (name, text) in files {
        let expected = text.lines().filter_map(|line| line.strip_prefix("#! "));
        let expected: Vec<_> = expected.map(str::to_owned).collect();
        let found = match Config::from_toml_str(text) {
            Ok(_) => vec!["ok".to_owned()],
            Err(error) => error.mistakes().iter().map(described).collect(),
        };
        if found != expected {
            let [expected, found] = [expected, found].map(|list| list.join("\n  "));
            differing.push(format!("{name}: expected\n  {expected}\nfound\n  {found}\n"));
        }
    }
    differing
}

#[test]
fn each_file_has_the_expected_mistakes() {
    let files = files("");
    assert!(files.len() >= 60, "{}", files.len());
    let differing = differences(&files);
    assert!(differing.is_empty(), "{}", differing.concat());
    let accepted = files.iter().filter(|(_, text)| text.contains("#! ok")).count();
    assert!((20..files.len() - 20).contains(&accepted), "{accepted}");
}

#[test]
fn published_incidents_are_rejected() {
    let files = files("incidents");
    let names: BTreeSet<_> = files.iter().map(|(name, _)| name.as_str()).collect();
    let expected = [
        "github_issue_to_public_repository",
        "postmark_mail_with_a_hidden_copy",
        "supabase_ticket_to_sql",
        "whatsapp_messages_to_an_attacker",
    ];
    assert_eq!(names, expected.into());
    assert!(files.iter().all(|(_, text)| !text.contains("#! ok")));
    let differing = differences(&files);
    assert!(differing.is_empty(), "{}", differing.concat());
}

/// Each rejected file is accepted without its labels, so nothing else is wrong with it.
#[test]
fn files_without_labels_are_accepted() {
    for (name, text) in [files(""), files("incidents")].concat() {
        let labels = ["private", "untrusted", "egress", "destructive"];
        let harmless = labels
            .iter()
            .fold(text, |text, label| text.replace(&format!("\"{label}\""), "\"private\""));
        // Without sinks, nothing is forbidden.
        let result = Config::from_toml_str(&harmless);
        assert!(result.is_ok(), "{name}: {}", result.unwrap_err());
    }
}

#[test]
fn mistakes_in_the_section_are_reported() {
    let file = r#"
[[flow]]
tools = ["mail_*"]

[[flow]]
labels = ["private"]

[[flow]]
backends = ["mall"]
labels = []

[[flow]]
tools = ["("]
labels = ["secret"]

[[flow]]
tools = ["mail/read"]
labels = ["private"]

[[backends]]
name = "mail"
command = "mail-mcp"

[[composite_tools]]
name = "run"
description = "Runs"
strategy = "pipeline"
steps = [{ id = "read", tool = "mail/read", allow_flow = " " }]
"#;
    let error = Config::from_toml_str(file).unwrap_err();
    let found: Vec<_> = error.mistakes().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [
            "2:1: missing key `labels`",
            "5:1: missing key `tools` or `backends`",
            "9:13: unknown backend `mall`: did you mean `mail`?",
            "10:10: no labels: expected at least one",
            "14:11: unknown value `secret`: expected one of `private`, `untrusted`, `egress`, \
             `destructive`",
            "17:10: `mail/read` matches no tool: expected the prefix of the backend, as in \
             `mail_read`",
            "28:58: `allow_flow` is blank",
        ]
    );
}

/// A table without tools would label nothing.
#[test]
fn empty_lists_are_reported() {
    let file = r#"
[[flow]]
tools = []
labels = ["private"]

[[flow]]
backends = []
labels = ["private"]
"#;
    let error = Config::from_toml_str(file).unwrap_err();
    let found: Vec<_> = error.mistakes().iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        ["3:9: no tools: expected at least one", "7:12: no backends: expected at least one"]
    );
}

#[test]
fn views_are_checked_and_cannot_replace_the_labels() {
    let file = |view: &str| format!("{LABELS}\n[[views]]\npath = \"/a\"\n{view}\n");
    let composite = r#"
[[views.composite_tools]]
name = "run"
description = "Runs"
strategy = "pipeline"
steps = [
    { id = "read", tool = "mail_read" },
    { id = "post", tool = "web_post", arguments = { body = "$prev.text" } },
]
"#;
    let mistake = only_mistake(&file(composite));
    assert_eq!(mistake.path(), "views[0].composite_tools[0].steps[1].arguments.body");
    assert!(mistake.message().contains("private data reaches an `egress` tool"), "{mistake}");

    let mistake = only_mistake(&file("flow = []"));
    assert!(mistake.message().contains("all views share it"), "{mistake}");
}

/// An alias of a view can give a name in an inherited composite another meaning.
#[test]
fn aliases_of_views_determine_the_labels() {
    let composite = r#"
[[composite_tools]]
name = "run"
description = "Runs"
strategy = "pipeline"
steps = [
    { id = "read", tool = "news" },
    { id = "post", tool = "web_post", arguments = { body = "$prev.text" } },
]
"#;
    let file = format!("{LABELS}{composite}");
    assert!(Config::from_toml_str(&file).is_ok());
    let view = "[[views]]\npath = \"/a\"\naliases = [{ tool = \"mail_read\", name = \"news\" }]\n";
    let mistake = only_mistake(&format!("{file}{view}"));
    assert_eq!(mistake.path(), "composite_tools[0].steps[1].arguments.body");
    assert!(mistake.message().ends_with(" (in the view `/a`)"), "{mistake}");
}

#[test]
fn exception_without_effect_is_remarked() {
    let composite = r#"
[[composite_tools]]
name = "run"
description = "Runs"
strategy = "pipeline"
steps = [
    { id = "read", tool = "mail_read", allow_flow = "it needs none" },
    { id = "post", tool = "web_post", arguments = { body = "$prev.text" }, allow_flow = "needed" },
]
"#;
    let file = format!("{LABELS}{composite}");
    let config = Config::from_toml_str(&file).unwrap();
    assert_eq!(
        config.composite_layer().remarks(),
        ["composite `run`: step `read` needs no `allow_flow`: it uses no forbidden data"]
    );
}
