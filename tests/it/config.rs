//! Files, from their text to their effect or all their errors.

mod documents;
mod keys;
mod nulls;
mod schema;
mod secrets;
mod targets;
mod views;

use std::{error::Error, fmt::Write, path::Path};

use cpu_time::ThreadTime;
use mcp_composite::config::{Config, ConfigError, Transport};
use proptest::prelude::*;

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
            if !is_supported(&text) {
                return;
            }
            let config = Config::from_toml_str_with_env(&text, environment);
            assert_eq!(config.is_ok(), name.starts_with("valid"), "{name}: {config:?}");
            match config {
                Ok(config) if config.backends().is_empty() => {
                    insta::assert_snapshot!(format!("{:#?}", config.composite_tools()));
                }
                Ok(config) => insta::assert_snapshot!(format!("{config:#?}")),
                Err(error) => insta::assert_snapshot!(report(&error)),
            }
        });
    });
}

/// Returns whether this build has the features that a file needs.
pub(crate) fn is_supported(file: &str) -> bool {
    let needed = [
        ("[caller]", cfg!(feature = "http")),
        ("[auth", cfg!(feature = "http")),
        ("[redis]", cfg!(feature = "redis")),
        ("[[cache]]", cfg!(feature = "cache")),
        ("cache = [", cfg!(feature = "cache")),
        ("store = \"redis\"", cfg!(feature = "redis")),
    ];
    needed.iter().all(|(text, is_built)| *is_built || !file.contains(text))
}

/// The environment variables of the files.
fn environment(name: &str) -> Option<String> {
    let value = match name {
        "BIN" => "/usr/bin",
        "TOKEN" => "t0k3n",
        "URL" => "http://localhost/${TOKEN}",
        "LINES" => "one\ntwo",
        "EMPTY" => "",
        "KEY" => "s3cret of at least thirty-two bytes",
        _ => return None,
    };
    Some(value.to_owned())
}

/// Returns the printed errors, and the path of each.
fn report(error: &ConfigError) -> String {
    let mut report = format!("{error}\n");
    for mistake in error.mistakes() {
        write!(report, "\n{} at `{}`", mistake.line(), mistake.path()).unwrap();
    }
    report
}

#[test]
fn errors_of_a_loaded_file_name_the_file() {
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
fn unreadable_file_returns_an_error_with_its_source() {
    let error = Config::load("no/such/file.toml").unwrap_err();
    assert_eq!(error.to_string(), "cannot read `no/such/file.toml`");
    assert!(error.source().is_some_and(|source| source.is::<std::io::Error>()));
    assert!(error.mistakes().is_empty());
}

/// The output of a `main` that returns the error: its `Debug` output.
#[test]
fn debug_output_of_an_error_equals_its_display() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs/unknown_key.toml");
    let error = Config::load(path).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    assert_eq!(format!("{error:#?}"), error.to_string());

    let error = Config::load("no/such/file.toml").unwrap_err();
    let cause = error.source().unwrap();
    assert_eq!(format!("{error:?}"), format!("cannot read `no/such/file.toml`: {cause}"));
}

#[test]
fn each_invalid_element_is_reported_at_its_position() {
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
fn consequential_errors_are_not_reported() {
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
fn environment_variables_are_expanded_in_backends() {
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

    // The value of a variable is not expanded again.
    let Transport::Http(server) = jira.transport() else { panic!("{jira:?}") };
    assert_eq!(server.url(), "http://localhost/${TOKEN}");
}

#[test]
fn hostile_files_are_rejected_quickly() {
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
        lines(|_| "[[aliases]]\nfrom = 'a'\nto = 'b'\n".to_owned(), 10_000),
        format!("[filter]\nhide_tools = ['{}']", "[".repeat(1 << 20)),
        format!("[filter]\nhide_tools = ['re:{}']", "(a|".repeat(1 << 18)),
        format!("[advertise]\ndeny = [{}]", "'[',".repeat(10_000)),
        format!("[[aliases]]\nfrom = 'a'\nto = '{}'", " b".repeat(1 << 19)),
        format!(
            "{composite}input_schema = {{ {} }}",
            lines(|key| format!("a{key} = 1979-05-27,"), 9_999)
        ),
    ];
    for text in files {
        let start = ThreadTime::now();
        let error = Config::from_toml_str(&text).unwrap_err();
        let printed = error.to_string();
        let beginning: String = text.chars().take(60).collect();
        assert!((1..=100).contains(&error.mistakes().len()), "{beginning}");
        assert!(printed.len() < 100_000, "{beginning}");
        assert!(start.elapsed().as_secs() < 20, "{beginning} took {:?}", start.elapsed());
    }
}

#[test]
fn error_messages_contain_no_control_characters() {
    for text in [
        "[filter]\nhide_tools = [\"[\\u001b\"]",
        "[[aliases]]\nprompt = \"a\\u001b\"\n[[aliases]]\nprompt = \"a\\u001b\"",
        "[[aliases]]\ntool = \"a\"\narguments = { b.rename = \"\\u202e\", \"\\u202e\".hide = false }",
    ] {
        let error = Config::from_toml_str(text).unwrap_err();
        let printed = format!("{error} {}", error.mistakes()[0]);
        assert!(printed.contains('\u{fffd}'), "{printed}");
        assert!(!printed.contains(['\u{1b}', '\u{202e}']), "{printed}");
    }
}

#[test]
fn only_the_first_hundred_errors_are_printed() {
    let keys: String = (0..250).map(|key| format!("key_{key} = 1\n")).collect();
    let printed = Config::from_toml_str(&keys).unwrap_err().to_string();
    assert!(printed.starts_with("250 mistakes in <string>\n"), "{printed}");
    assert!(printed.contains("<string>:100:1"), "{printed}");
    assert!(printed.ends_with("\n\nonly the first 100 mistakes are shown"), "{printed}");
}

#[test]
fn reading_stops_after_a_hundred_errors() {
    let text = format!("composite_tools = [{}]", "1,".repeat(150));
    let printed = Config::from_toml_str(&text).unwrap_err().to_string();
    assert!(printed.starts_with("at least 100 mistakes in <string>\n"), "{printed}");
    assert!(printed.ends_with("\n\nthe rest of the file may hold more mistakes"), "{printed}");
}

proptest! {
    #[test]
    fn arbitrary_text_does_not_panic(text in any::<String>()) {
        let _ = Config::from_toml_str(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn text_of_toml_characters_does_not_panic(text in "[\\[\\]{}=.,#\"'\\\\ \t\r\na-c0-9$é-]{0,80}") {
        let _ = Config::from_toml_str(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn changed_valid_file_does_not_panic(
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
}
