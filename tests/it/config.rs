use std::{collections::BTreeSet, error::Error, fmt::Write, path::Path};

use mcp_composite::config::{Config, ConfigError};
use proptest::prelude::*;
use tokio::time::Instant;

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
            let config = Config::from_toml_str(&std::fs::read_to_string(path).unwrap());
            assert_eq!(config.is_ok(), name.starts_with("valid"), "{name}: {config:?}");
            match config {
                Ok(config) => insta::assert_snapshot!(format!("{:#?}", config.composite_tools())),
                Err(error) => insta::assert_snapshot!(told(&error)),
            }
        });
    });
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
const KEYS: [(&str, &str, &str, &str); 26] = [
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
];

#[test]
fn every_key_does_something() {
    for (table, key, value, effect) in &KEYS {
        let with = file(table, Some((key, value)));
        let config = Config::from_toml_str(&with).unwrap_or_else(|error| panic!("{error}"));
        let definition = format!("{:?}", config.composite_tools());
        assert!(definition.contains(effect), "`{key}` of `{table}`: {definition}");

        let without = Config::from_toml_str(&file(table, None));
        let definition = format!("{:?}", without.map(|config| config.composite_tools().to_vec()));
        assert!(table.is_empty() || !definition.contains(effect), "`{key}` is not what does it");
    }

    for table in ["", "composite_tools", "targets", "annotations"] {
        let tried: BTreeSet<_> =
            KEYS.iter().filter(|row| row.0 == table).map(|row| row.1.to_owned()).collect();
        assert_eq!(tried, keys_of(table), "the keys of `{table}`");
    }
}

/// A file with one key more, or another value of it, in one of its tables.
fn file(table: &str, entry: Option<(&str, &str)>) -> String {
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
fn hostile_files_are_refused_in_time() {
    let composite = "[[composite_tools]]\nname = \"n\"\ndescription = \"d\"\n";
    let lines = |line: fn(usize) -> String, count| (0..count).map(line).collect::<String>();
    let valid = "[[composite_tools]]\nname = \"n\"\ndescription = \"d\"\ntools = [\"a\"]\n";
    let files = [
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
}
