use std::{collections::BTreeSet, error::Error, fmt::Write, path::Path};

use mcp_composite::config::{Config, ConfigError, Transport};
use proptest::prelude::*;
use serde_json::json;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use crate::scripted::{Server, call};

const VALID: &str = include_str!("../configs/valid_full.toml");

#[test]
fn files_give_definitions_or_every_mistake() {
    insta::with_settings!({
        snapshot_path => "../configs/snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::glob!("../configs", "*.toml", |path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(path).unwrap();
            let config = Config::from_toml_str_with_env(&text, environment);
            assert_eq!(config.is_ok(), name.starts_with("valid"), "{name}: {config:?}");
            match config {
                Ok(config) if config.backends().is_empty() => {
                    insta::assert_snapshot!(format!("{:#?}", config.composite_tools()));
                }
                Ok(config) => insta::assert_snapshot!(format!("{config:#?}")),
                Err(error) => insta::assert_snapshot!(told(&error)),
            }
        });
    });
}

/// The variables of the files.
fn environment(name: &str) -> Option<String> {
    let value = match name {
        "BIN" => "/usr/bin",
        "TOKEN" => "t0k3n",
        "URL" => "http://localhost/${TOKEN}",
        "LINES" => "one\ntwo",
        "EMPTY" => "",
        _ => return None,
    };
    Some(value.to_owned())
}

/// What is printed, and the path of each mistake.
fn told(error: &ConfigError) -> String {
    let mut told = format!("{error}\n");
    for mistake in error.mistakes() {
        write!(told, "\n{} at `{}`", mistake.line(), mistake.path()).unwrap();
    }
    told
}

/// Each key of a file: a table that has it, and what it must have done.
///
/// The values are such that a key that is read but not used is noticed.
const KEYS: [(&str, &str, &str, &str); 42] = [
    ("", "include", "[\"no/*.toml\"]", "include: [\"no/*.toml\"]"),
    ("", "backends", "", "BackendConfig"),
    ("", "router", "", "RouterConfig"),
    ("", "composite_tools", "", "name: \"base\""),
    ("composite_tools", "name", "\"other\"", "name: \"other\""),
    ("composite_tools", "description", "\"another\"", "description: \"another\""),
    ("composite_tools", "title", "\"Title\"", "title: Some(\"Title\")"),
    ("composite_tools", "input_schema", "{ a = 1 }", "input_schema: Some({\"a\": Number(1)})"),
    ("composite_tools", "parameters", "{ a = 2 }", "input_schema: Some({\"a\": Number(2)})"),
    ("composite_tools", "output_schema", "{ a = 3 }", "output_schema: Some({\"a\": Number(3)})"),
    ("composite_tools", "annotations", "{}", "annotations: Some("),
    ("composite_tools", "timeout", "\"1h 30m\"", "timeout: Some(5400s)"),
    ("composite_tools", "strategy", "\"sequential\"", "strategy: Sequential"),
    ("composite_tools", "success", "{ quorum = 1 }", "success: Some(Quorum(1))"),
    ("composite_tools", "order", "\"completion\"", "order: Some(Completion)"),
    ("composite_tools", "report", "false", "report: Some(false)"),
    ("composite_tools", "max_parallel", "1", "max_parallel: Some(1)"),
    ("composite_tools", "tools", "[\"short\"]", "targets: [Target { tool: \"short\","),
    ("composite_tools", "targets", "[{ tool = \"long\" }]", "targets: [Target { tool: \"long\","),
    ("targets", "id", "\"branch\"", "id: Some(\"branch\")"),
    ("targets", "tool", "\"called\"", "tool: \"called\""),
    ("targets", "arguments", "{ a = 4 }", "arguments: Some(Object {\"a\": Number(4)})"),
    ("targets", "timeout", "\"7s\"", "timeout: Some(7s)"),
    ("targets", "optional", "true", "optional: Some(true)"),
    ("annotations", "title", "\"Hint\"", "title: Some(\"Hint\")"),
    ("annotations", "readOnlyHint", "true", "read_only_hint: Some(true)"),
    ("annotations", "destructiveHint", "true", "destructive_hint: Some(true)"),
    ("annotations", "idempotentHint", "true", "idempotent_hint: Some(true)"),
    ("annotations", "openWorldHint", "true", "open_world_hint: Some(true)"),
    ("router", "separator", "\"/\"", "separator: \"/\""),
    ("router", "conflicts", "\"manual\"", "conflicts: Manual"),
    ("backends", "name", "\"other\"", "name: \"other\""),
    ("backends", "transport", "\"http\"", "transport: Http("),
    ("backends", "timeout", "\"7s\"", "timeout: Some(7s)"),
    ("backends", "connect_timeout", "\"8s\"", "connect_timeout: Some(8s)"),
    ("backends", "prefix", "\"other_\"", "prefix: \"other_\""),
    ("backends", "command", "\"other\"", "command: \"other\""),
    ("backends", "args", "[\"a\", \"b\"]", "args: […, …]"),
    ("backends", "env", "{ A = \"b\" }", "env: {\"A\": …}"),
    ("backends", "cwd", "\"/other\"", "cwd: Some(\"/other\")"),
    ("backends", "url", "\"http://other\"", "url: \"http://other\""),
    ("backends", "headers", "{ A = \"b\" }", "headers: {\"A\": …}"),
];

#[test]
fn every_key_does_something() {
    for (table, key, value, effect) in &KEYS {
        // A file of its own, since a text can include none.
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("every_key.toml");
        std::fs::write(&path, file(table, Some((key, value)))).unwrap();
        let config = Config::load(&path).unwrap_or_else(|error| panic!("{error}"));
        let definition = format!("{config:?}");
        assert!(definition.contains(effect), "`{key}` of `{table}`: {definition}");

        let without = Config::from_toml_str(&file(table, None));
        let definition = format!("{without:?}");
        assert!(table.is_empty() || !definition.contains(effect), "`{key}` is not what does it");
    }

    for table in ["", "composite_tools", "targets", "annotations", "router", "backends"] {
        let tried: BTreeSet<_> =
            KEYS.iter().filter(|row| row.0 == table).map(|row| row.1.to_owned()).collect();
        assert_eq!(tried, keys_of(table), "the keys of `{table}`");
    }
}

/// A file with one key more, or another value of it, in one of its tables.
fn file(table: &str, entry: Option<(&str, &str)>) -> String {
    match (table, entry) {
        ("", Some(("include", _))) => return lines(entry),
        ("router", _) | ("", Some(("router", _))) => return format!("[router]\n{}", lines(entry)),
        ("backends", _) | ("", Some(("backends", _))) => return backend(entry),
        _ => (),
    }
    let mut entries =
        vec![("name", "\"base\""), ("description", "\"base\""), ("tools", "[\"base\"]")];
    let inner = entry.map_or(String::new(), |(key, value)| format!("{key} = {value}"));
    let targets = match entry {
        Some(("tool", _)) => format!("[{{ {inner} }}]"),
        Some(_) => format!("[{{ tool = \"base\", {inner} }}]"),
        None => "[{ tool = \"base\" }]".to_owned(),
    };
    let annotations = format!("{{ {inner} }}");
    match (table, entry) {
        ("composite_tools", Some((key, value))) => {
            entries.retain(|(name, _)| *name != key && !(*name == "tools" && key == "targets"));
            entries.push((key, value));
        }
        ("targets", _) => {
            entries.retain(|(name, _)| *name != "tools");
            entries.push(("targets", &targets));
        }
        ("annotations", _) => entries.push(("annotations", &annotations)),
        _ => (),
    }
    let entries = entries.iter().map(|(key, value)| format!("{key} = {value}\n"));
    format!("[[composite_tools]]\n{}", entries.collect::<String>())
}

fn backend(entry: Option<(&str, &str)>) -> String {
    let mut entries = match entry {
        Some(("transport" | "url" | "headers", _)) => vec![("url", "\"http://base\"")],
        _ => vec![("command", "\"base\"")],
    };
    entries.push(("name", "\"base\""));
    entries.retain(|(key, _)| entry.is_none_or(|(name, _)| name != *key));
    entries.extend(entry);
    format!("[[backends]]\n{}", lines(entries))
}

fn lines<'e>(entries: impl IntoIterator<Item = (&'e str, &'e str)>) -> String {
    let entries = entries.into_iter().filter(|(_, value)| !value.is_empty());
    entries.map(|(key, value)| format!("{key} = {value}\n")).collect()
}

/// The keys that a mistake says a table can have.
fn keys_of(table: &str) -> BTreeSet<String> {
    let unknown = match table {
        "" => "zzzzzzzzzzzzzzzz = 1".to_owned(),
        _ => file(table, Some(("zzzzzzzzzzzzzzzz", "1"))),
    };
    let error = Config::from_toml_str(&unknown).unwrap_err();
    let [mistake] = error.mistakes() else { panic!("{error}") };
    let (_, expected) = mistake.message().split_once("expected ").unwrap();
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn a_file_is_loaded_and_named_in_its_mistakes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs");
    let config = Config::load(folder.join("valid_full.toml")).unwrap();
    assert_eq!(config.composite_tools().len(), 4);

    let path = folder.join("unknown_key.toml");
    let error = Config::load(&path).unwrap_err();
    assert_eq!(error.file(), Some(path.as_path()));
    let text = error.to_string();
    assert!(text.starts_with(&format!("1 mistake in {}\n", path.display())), "{text}");
    assert!(text.contains(&format!(" --> {}:4:1\n", path.display())), "{text}");
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_with_a_source() {
    let error = Config::load("no/such/file.toml").unwrap_err();
    assert_eq!(error.to_string(), "cannot read `no/such/file.toml`");
    assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));
    assert!(error.mistakes().is_empty());
}

#[test]
fn each_wrong_element_is_told_at_its_place() {
    let error = Config::from_toml_str(
        r#"
composite_tools = [
    1,
    { name = "a", description = "a", tools = [1, "", 2, " "], success = { quorum = 4 } },
    "two",
    { name = "b", description = "b", targets = [{ tool = 3 }, 4, { tool = "c", timeout = "0s" }] },
]
"#,
    )
    .unwrap_err();
    let paths: Vec<_> = error.mistakes().iter().map(|mistake| mistake.path()).collect();
    assert_eq!(
        paths,
        [
            "composite_tools[0]",
            "composite_tools[1].tools[0]",
            "composite_tools[1].tools[1]",
            "composite_tools[1].tools[2]",
            "composite_tools[1].tools[3]",
            "composite_tools[2]",
            "composite_tools[3].targets[0].tool",
            "composite_tools[3].targets[1]",
            "composite_tools[3].targets[2].timeout",
        ],
        "{error}"
    );
}

#[test]
fn what_follows_from_a_mistake_is_not_told() {
    for mistaken in [
        "name = 1\ndescription = \"d\"\ntools = [\"a\"]",
        "name = \"n\"\ndescription = 1\ntools = [\"a\"]",
        "name = \"n\"\ndescription = \"d\"\ntools = \"a\"",
        "name = \"n\"\ndescription = \"d\"\ntols = [\"a\"]",
        "name = \"n\"\ndescripton = \"d\"\ntools = [\"a\"]",
        "name = \"n\"\ndescription = \"d\"\ntools = [1]",
        "name = \"n\"\ndescription = \"d\"\ntargets = [1]",
        "name = \"n\"\ndescription = \"d\"\ntargets = [{ tool = 1 }]",
        "name = \"n\"\ndescription = \"d\"\ntargets = [{ tol = \"a\", tool = \"a\" }]",
        "name = \"n\"\ndescription = \"d\"\ntools = [\"a\", 1]\nsuccess = { quorum = 2 }",
        "name = \"n\"\ndescription = \"d\"\ntools = [\"a\"]\nsuccess = { quorum = \"x\" }",
        "name = \"n\"\ndescription = \"d\"\ntools = [\"a\"]\ninput_schema = { a = [2026-01-01] }",
    ] {
        let error = Config::from_toml_str(&format!("[[composite_tools]]\n{mistaken}")).unwrap_err();
        assert_eq!(error.mistakes().len(), 1, "{error}");
    }
}

#[test]
fn backends_have_the_values_of_the_environment() {
    let text = include_str!("../configs/valid_backends.toml");
    let config = Config::from_toml_str_with_env(text, environment).unwrap();
    let [github, _, docs, jira] = config.backends() else { panic!("{config:?}") };

    let Transport::Stdio(child) = github.transport() else { panic!("{github:?}") };
    assert_eq!(child.command(), "/usr/bin/github-mcp");
    assert_eq!(child.args(), ["--token", "t0k3n", "${literal}"]);
    assert_eq!(child.env()["TOKEN"], "Bearer t0k3n");
    assert_eq!(child.cwd(), Some("/srv"));
    assert_eq!((github.timeout().as_secs(), github.connect_timeout().as_secs()), (30, 5));
    assert_eq!((docs.timeout().as_secs(), docs.connect_timeout().as_secs()), (60, 30));

    let Transport::Http(server) = docs.transport() else { panic!("{docs:?}") };
    assert_eq!(server.headers()["X-Plain"], "as it is");
    let said = docs.secrets().redact("t0k3n: me:pass, key=value, value, as it is, docs, d/");
    assert_eq!(said, "***: ***, ***, ***, ***, docs, d/");

    // What comes out of a variable is not looked at again.
    let Transport::Http(server) = jira.transport() else { panic!("{jira:?}") };
    assert_eq!(server.url(), "http://localhost/${TOKEN}");
}

#[test]
fn targets_are_resolved_to_what_clients_see() {
    let git = [("git", ""), ("git_hub", ""), ("docs", "prefix = \"d.\"")];
    let main = [("git_hub", ""), ("main", "prefix = \"\"")];
    let odd = [("git_hub", ""), ("a", "prefix = \"docs.\""), ("docs", "")];
    let two = [("git_hub", ""), ("b", "")];
    let one = [("git_hub", "")];
    for (router, backends, target, name) in [
        ("", &git[..], "git/search", Some("git_search")),
        ("", &git, "git.search", Some("git_search")),
        ("", &git, "git_search", Some("git_search")),
        ("", &git, "git_hub/search", Some("git_hub_search")),
        ("", &git, "git_hub_search", Some("git_hub_search")),
        ("", &git, "git/a/b.c", Some("git_a/b.c")),
        ("", &git, "git_all", Some("git_all")),
        ("", &git, "docs/search", Some("d.search")),
        ("", &git, "d.search", Some("d.search")),
        ("", &git, "docs_search", None),
        ("", &git, "outer", None),
        ("", &git, "git", None),
        ("", &git, "git/", None),
        ("separator = '/'", &git, "git/search", Some("git/search")),
        ("separator = '/'", &git, "git_search", None),
        ("separator = '.'", &git, "git/search", Some("git.search")),
        ("", &main, "anything", Some("anything")),
        ("", &main, "main/search", Some("search")),
        ("", &odd, "docs.search", Some("docs.search")),
        ("", &odd, "docs/search", Some("docs_search")),
        // Which of the two it is of would be forgotten.
        ("conflicts = 'priority'", &two, "b/search", None),
        ("conflicts = 'manual'", &two, "b.search", None),
        ("conflicts = 'priority'", &two, "search", Some("search")),
        ("conflicts = 'priority'", &one, "git_hub/search", Some("search")),
        ("conflicts = 'manual'", &one, "git_hub.search", Some("search")),
        ("conflicts = 'manual'", &two, "c/search", Some("c/search")),
        ("", &[], "git/search", Some("git/search")),
    ] {
        assert_eq!(resolved(router, backends, target).as_deref(), name, "{target} {router}");
    }
}

/// What the target of a composite becomes in a file with backends.
fn resolved(router: &str, backends: &[(&str, &str)], target: &str) -> Option<String> {
    let mut text = format!("[router]\n{router}\n");
    for (name, more) in backends {
        writeln!(text, "[[backends]]\nname = '{name}'\ncommand = 'a'\n{more}").unwrap();
    }
    for (name, target) in [("outer", target), ("git_all", "git_hub.search")] {
        let keys = format!("name = '{name}'\ndescription = 'd'\ntools = ['{target}']");
        writeln!(text, "[[composite_tools]]\n{keys}").unwrap();
    }
    // What is mistaken with bare names is of no interest in the other composite.
    let text = match (router.contains("conflicts"), backends.len()) {
        (true, 2..) => text.replace("git_hub.search", "search"),
        _ => text,
    };
    let config = Config::from_toml_str(&text).ok()?;
    let definition = format!("{:?}", config.composite_tools()[0]);
    let (_, tool) = definition.split_once("tool: \"")?;
    Some(tool.split_once('"')?.0.to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_target_of_a_backend_is_never_a_composite_that_wraps_it() {
    let server = Server::new().says("github_search", "the tool");
    for (wrapper, helper, called) in [
        // Written one in the other, they are no circle, since the tool is meant.
        (r#"["github/search", "helper"]"#, "github/search", "the tool"),
        (r#"["github/search"]"#, "github.search", "the tool"),
        (r#"["github/search", "github/search"]"#, "github/search", "the tool"),
        // As clients see it, it is the wrapper.
        (r#"["github/search", "github/search"]"#, "github_search", "the tool the tool"),
    ] {
        let text = format!(
            r#"
[[backends]]
name = "github"
command = "a"

[[composite_tools]]
name = "github_search"
description = "The tool, and more"
tools = {wrapper}

[[composite_tools]]
name = "helper"
description = "The tool alone"
report = false
tools = ["{helper}"]
"#
        );
        let config = Config::from_toml_str(&text).unwrap_or_else(|error| panic!("{error}"));
        let service = config.composite_layer().layer(server.clone());
        let reply = service.oneshot(call("helper", json!({}))).await.unwrap();
        let content = &reply.tool_result().unwrap().content;
        let texts: Vec<_> = content.iter().map(|block| &*block.as_text().unwrap().text).collect();
        assert_eq!(texts.join(" "), called, "{text}");
    }
}

#[test]
fn links_with_a_token_in_their_path_are_secret() {
    let text = "[[backends]]\nname = 'a'\nurl = 'https://host/api/s/t0kenOfMine/mcp?a=b1#top-most'";
    let config = Config::from_toml_str(text).unwrap();
    let said = config.backends()[0].secrets().redact(
        "https://host/api/s/t0kenOfMine/mcp: /s/t0kenOfMine, /api/s/t0kenOfMine/mcp?a=b1, api, #top-most",
    );
    assert_eq!(said, "https://host/api/s/***/mcp: /s/***, /api/s/***/mcp?***, api, #***");
}

/// What has `s3cret` in it where it is one, and a mistake.
const SECRETS: [&str; 35] = [
    "env = { A = \"s3cret\", B = 1 }",
    "env = { A = \"s3cret\" }\nwrong = 1",
    "env.A = \"s3cret\"\nenv.B = 1",
    "env = { A = \"s3cret\", A = \"s3cret\" }",
    "env = { A = s3cret }",
    "env = { A = \"s3cret }",
    "env = [\"A=s3cret\"]",
    "env = \"A=s3cret\"",
    "env = { \"A=s3cret\" = \"\" }",
    "env = { A = \"\"\"\ns3cret\"\"\", B = 1 }",
    "env.A = '''\na\ns3cret\n''' wrong",
    "env.A = '''\ns3cret=\ns3cret=='''\nenv.B = '",
    "[backends.env]\nA = \"s3cret\"\nA = \"s3cret\"",
    "[backends.env]\nA = \"s3cret\" \"wrong\"",
    "[backends.env]\nA = \"${UNSET} s3cret\"",
    "[backends.env]\nA = \"${s3cret\"",
    "[backends.envs]\nA = \"s3cret\"",
    "args = [\"${UNSET}\", \"${VARIABLE}\", \"s3cret\"]",
    "headers = { Accept = \"s3cret\", A = \"${VARIABLE}\\n\" }\nurl = \"${VARIABLE}\"",
    "url = \"ftp://s3cret@host\"",
    "transport = \"http\"\nheaders.\"Authorization: s3cret\" = \"\"\nurl = \"x:${VARIABLE}\"",
    "password = \"s3cret\"",
    "[[backend]]\nenv.A = \"s3cret\"\n[[composite_tools]]\nenv.A = \"s3cret\"",
    "env = { A = \"s3cret\" }\n[[composite_tools]]\nheaders = { A = s3cret }",
    "\"Authorization: Bearer s3cret\" = \"x\"",
    "\"Authorization: Bearer s3cret\" = 1\n\"Authorization: Bearer s3cret\" = 2",
    "\"Authorization: Bearer s3cret\".A = 1\n\"A: s3cret\".\"B: s3cret\" = 1",
    "env.\"TOKEN=s3cret\" = 1",
    "env.\"TOKEN s3cret\" = \"\\u0000\"",
    "headers.\"Authorization: s3cret\" = 1",
    "transport = { \"TOKEN=s3cret\" = 1 }",
    "[\"Authorization: s3cret\"]",
    "[[\"Authorization: s3cret\"]]\n\"TOKEN=s3cret\" = 1",
    "[[composite_tools]]\n\"TOKEN=s3cret\" = 1\n\"TOKEN=s3cret\" = 1",
    "[[composite_tools]]\ntargets = [{ \"TOKEN=s3cret\" = 1, 'A: s3cret'.'B: s3cret' = 2 }]",
];

#[test]
fn secrets_are_never_told() {
    let environment = |name: &str| (name == "VARIABLE").then(|| "s3cret".to_owned());
    let told = |text: &str| match Config::from_toml_str_with_env(text, environment) {
        Ok(config) => (true, format!("{config:?} {config:#?}")),
        Err(error) => (false, format!("{error} {error:?} {error:#?} {:?}", error.mistakes())),
    };
    for text in SECRETS {
        let file = format!("[[backends]]\nname = \"a\"\ncommand = \"b\"\n{text}\n");
        let (valid, told) = told(&file);
        assert!(!valid && !told.contains("s3cret"), "{file}{told}");
    }
    for text in [
        "command = \"${VARIABLE}\"\nargs = [\"${VARIABLE}\", \"s3cret\"]\ncwd = \"${VARIABLE}\"",
        "command = \"a\"\nenv = { A = \"s3cret\", B = \"x${VARIABLE}\" }",
        "url = \"https://s3cret:s3cret@host/s3cret?s3cret=s3cret#s3cret\"",
        "url = \"http://${VARIABLE}\"\nheaders = { A = \"s3cret\", B = \"x ${VARIABLE}\" }",
    ] {
        let file = format!("[[backends]]\nname = \"a\"\n{text}\n");
        let (valid, told) = told(&file);
        assert!(valid && !told.contains("s3cret"), "{file}{told}");
    }
}

#[test]
fn a_key_that_is_no_word_is_not_told() {
    let told = |text: &str| {
        let error = Config::from_toml_str(&format!("[[backends]]\n{text}")).unwrap_err();
        let mistakes = error.mistakes().iter();
        let mut mistakes = mistakes.map(|mistake| {
            let message = mistake.message().split(':').next().unwrap_or_default();
            (mistake.path().to_owned(), message.to_owned())
        });
        (mistakes.next_back().unwrap(), error.to_string())
    };
    let word = "a".repeat(64);
    let (mistake, printed) = told(&format!("{word} = 1"));
    assert_eq!(mistake, (format!("backends[0].{word}"), format!("unknown key `{word}`")));
    assert!(printed.contains(&format!("2 | {word}")), "{printed}");

    for key in ["\"Authorization: Bearer hunter2\"", "'a b'", "\"\"", &"a".repeat(65)] {
        let (mistake, printed) = told(&format!("{key} = 1"));
        assert_eq!(mistake, ("backends[0].\"…\"".to_owned(), "unknown key".to_owned()));
        assert!(printed.contains("\n2 | *** = ***\n  | ^^^"), "{printed}");
    }
}

#[test]
fn hostile_files_are_refused_in_time() {
    let composite = "[[composite_tools]]\nname = \"n\"\ndescription = \"d\"\n";
    let lines = |line: fn(usize) -> String, count| (0..count).map(line).collect::<String>();
    let valid = "[[composite_tools]]\nname = \"n\"\ndescription = \"d\"\ntools = [\"a\"]\n";
    let backend = |at| format!("[[backends]]\nname = 'b{at}'\ncommand = 'c'\n");
    let files = [
        lines(|_| "[[backends]]\nname = 1\n".to_owned(), 10_000),
        format!("{}{}", lines(backend, 1_000), valid.repeat(1_000)),
        format!("[[backends]]\nenv = {{ {} }}", lines(|key| format!("a{key} = '${{B}}',"), 9_999)),
        format!("[[backends]]\ncommand = '{}'", "${".repeat(1 << 18)),
        format!("[[backends]]\ncommand = '{}'", "${A}".repeat(1 << 17)),
        format!("{}{composite}tools = [{}]", valid.repeat(1_000), "1,".repeat(200)),
        "[".repeat(1 << 20),
        format!("a = {}", "[".repeat(1 << 20)),
        format!("a = {}", "{a=".repeat(1 << 18)),
        format!("{}a = 1", "a.".repeat(1 << 18)),
        format!("[{}a]", "a.".repeat(1 << 18)),
        format!("{} = 1", "a".repeat(1 << 20)),
        lines(|key| format!("key_{key} = 1\n"), 10_000),
        format!("{composite}{}", lines(|key| format!("name_{key} = 1\n"), 10_000)),
        format!("{composite}tools = [{}]", "1,".repeat(10_000)),
        format!("{composite}tools = [{}]", "'',".repeat(10_000)),
        format!("{composite}{}", "name = 1\n".repeat(10_000)),
        lines(|_| "[[composite_tools]]\nname = 1\n".to_owned(), 10_000),
        lines(|_| "[[composite_tools]]\n".to_owned(), 10_000),
        format!(
            "{composite}input_schema = {{ {} }}",
            lines(|key| format!("a{key} = 1979-05-27,"), 9_999)
        ),
    ];
    for text in files {
        let start = Instant::now();
        let error = Config::from_toml_str(&text).unwrap_err();
        let printed = error.to_string();
        let beginning: String = text.chars().take(60).collect();
        assert!((1..=100).contains(&error.mistakes().len()), "{beginning}");
        assert!(printed.len() < 100_000, "{beginning}");
        assert!(start.elapsed().as_secs() < 20, "{beginning} took {:?}", start.elapsed());
    }
}

#[test]
fn only_the_first_hundred_mistakes_are_shown() {
    let keys: String = (0..250).map(|key| format!("key_{key} = 1\n")).collect();
    let printed = Config::from_toml_str(&keys).unwrap_err().to_string();
    assert!(printed.starts_with("250 mistakes in <string>\n"), "{printed}");
    assert!(printed.contains("<string>:100:1"), "{printed}");
    assert!(printed.ends_with("\n\nonly the first 100 mistakes are shown"), "{printed}");
}

#[test]
fn reading_stops_after_a_hundred_mistakes() {
    let text = format!("composite_tools = [{}]", "1,".repeat(150));
    let printed = Config::from_toml_str(&text).unwrap_err().to_string();
    assert!(printed.starts_with("at least 100 mistakes in <string>\n"), "{printed}");
    assert!(printed.ends_with("\n\nthe rest of the file may hold more mistakes"), "{printed}");
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in any::<String>()) {
        let _ = Config::from_toml_str(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn no_text_of_toml_characters_makes_it_panic(text in "[\\[\\]{}=.,#\"'\\\\ \t\r\na-c0-9$é-]{0,80}") {
        let _ = Config::from_toml_str(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn no_change_of_a_valid_file_makes_it_panic(
        at in 0..VALID.len(),
        length in 0..40_usize,
        replacement in prop::sample::select(vec![
            "", "1", "\"", "'''", "[", "]", "{", "}", "=", "\n", "1979-05-27", "nan", "é",
            "true", "[1]", "name", "\t", "\u{feff}", "{ quorum = 2 }", "[[composite_tools]]",
        ]),
    ) {
        let end = (at + length).min(VALID.len());
        prop_assume!(VALID.is_char_boundary(at) && VALID.is_char_boundary(end));
        let text = format!("{}{replacement}{}", &VALID[..at], &VALID[end..]);
        if let Err(error) = Config::from_toml_str(&text) {
            prop_assert!(!error.mistakes().is_empty());
            let lines = text.split('\n').count();
            for mistake in error.mistakes() {
                prop_assert!((1..=lines).contains(&mistake.line()) && mistake.column() >= 1);
            }
            prop_assert!(!error.to_string().is_empty());
        }
    }
    #[test]
    fn no_change_of_a_file_tells_its_secrets(
        at in 0..SECRET.len(),
        length in 0..30_usize,
        replacement in prop::sample::select(vec![
            "", "1", "\"", "'''", "\"\"\"", "[", "]", "{", "}", "=", "\n", ",", "1979-05-27", "nan",
            "[[backends]]", "[a]", "name", "\t", "# ", "${", "${A}", "env = ", "url.",
        ]),
    ) {
        let end = (at + length).min(SECRET.len());
        let text = format!("{}{replacement}{}", &SECRET[..at], &SECRET[end..]);
        let told = match Config::from_toml_str_with_env(&text, |_| None) {
            Ok(config) => format!("{config:?}"),
            Err(error) => format!("{error}{error:?}"),
        };
        prop_assert!(!told.contains("s3cret"), "{}\n{}", text, told);
    }
}

/// A file that is full of secrets; the comments keep changes from making one
/// of them the value of another key.
const SECRET: &str = r#"
[router]
separator = "/"
# ............................................................
[[backends]]
name = "a"
command = "b"
# ............................................................
args = ["s3cret", '--a=s3cret', """
s3cret
"""]
env = { A = "s3cret", B = 's3cret', "C" = "s3cret" }
# ............................................................
[[backends]]
name = "c"
# ............................................................
[backends.headers]
A = "s3cret"
B = '''
s3cret'''
# ............................................................
[[backends]]
name = "d"
# ............................................................
headers.A = "s3cret"
url = "https://s3cret@host?s3cret"
# ............................................................
[[composite_tools]]
name = "e"
description = "f"
tools = ["g"]
"#;

#[test]
fn the_files_of_the_readme_are_accepted() {
    let readme = include_str!("../../README.md");
    let files: Vec<_> =
        readme.split("```toml\n").skip(1).map(|block| block.split_once("```").unwrap().0).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        Config::from_toml_str_with_env(file, |_| Some("value".to_owned())).unwrap();
    }
}
