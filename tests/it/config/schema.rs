//! Checks the JSON Schema of files against files.

use std::{fs, path::Path};

use jsonschema::Validator;
use mcp_composite::config::Config;
use serde_json::Value;

use super::documents;
use crate::support::config_files;

/// Returns the errors that an editor shows for a file.
fn wrong(schema: &Validator, text: &str) -> Vec<String> {
    let file: Value = toml::from_str(text).unwrap();
    schema.iter_errors(&file).map(|error| format!("{}: {error}", error.instance_path())).collect()
}

fn schema() -> Validator {
    jsonschema::draft7::new(&serde_json::from_str(Config::JSON_SCHEMA).unwrap()).unwrap()
}

#[test]
fn valid_files_conform_to_the_schema() {
    let folders = ["tests/configs", "tests/configs/include", "examples", "examples/replicas"];
    let files = folders.into_iter().flat_map(|folder| {
        let is_valid =
            move |name: &str| folder.starts_with("examples") || name.starts_with("valid");
        config_files(folder).into_iter().filter(move |(name, _)| is_valid(name))
    });
    let mut files: Vec<_> = files.collect();
    assert!(files.len() > 5, "{files:?}");
    files.extend(documents::files());
    let schema = schema();
    for (name, text) in files {
        assert_eq!(wrong(&schema, &text), [""; 0], "{name}");
    }
}

#[test]
fn schema_rejects_unknown_keys_and_wrong_types() {
    let backend = "[[backends]]\nname = 'a'\ncommand = 'b'\n";
    let schema = schema();
    for (before, right, wrong_text) in [
        ("", "include = []", "includes = []"),
        ("", "include = ['a']", "include = 'a'"),
        ("[router]", "separator = '/'", "separator = ''"),
        ("[router]", "conflicts = 'manual'", "conflicts = 'none'"),
        ("[validate]", "schema = 'warn'", "schema = true"),
        ("[validate]", "max_depth = 8", "max_depth = 0"),
        ("[validate]", "max_argument_bytes = 8", "max_argument_bytes = '8 KiB'"),
        ("[filter]", "hide_tools = ['a']", "hide_tools = 'a'"),
        ("[filter]", "hide_tools = ['a']", "hide_tool = ['a']"),
        ("[filter]", "read_only_only = true", "read_only_only = 'yes'"),
        ("[advertise]", "mode = 'search'", "mode = 'find'"),
        ("[advertise]", "calls = 'allow'", "calls = false"),
        ("[[aliases]]\ntool = 'a'", "name = 'b'", "nam = 'b'"),
        ("[[aliases]]\nfrom = 'a'", "to = 'b'", "to = ['b']"),
        ("[[aliases]]\ntool = 'a'", "arguments.b.default = 1", "arguments.b = 1"),
        ("[[aliases]]\ntool = 'a'", "arguments.b.hide = true", "arguments.b.hidden = true"),
        (
            "[[aliases]]\ntool = 'a'",
            "annotations.readOnlyHint = true",
            "annotations.readOnly = true",
        ),
        (backend, "timeout = '30s'", "timeout = 30"),
        (backend, "timeout = '1h 30m'", "timeout = 'soon'"),
        (backend, "hide_tools = ['a']", "hide = ['a']"),
        (backend, "validate.schema = 'off'", "validate.schema = 'no'"),
        (backend, "aliases = [{ from = 'a' }]", "aliases = { from = 'a' }"),
        ("[[backends]]\ncommand = 'a'", "name = 'a'", "prefix = 'a'"),
        ("[[composite_tools]]\nname = 'a'", "description = 'b'", "title = 'b'"),
        (
            "[[composite_tools]]\nname = 'a'\ndescription = 'b'",
            "success = 'any'",
            "success = 'some'",
        ),
        (
            "[[composite_tools]]\nname = 'a'\ndescription = 'b'",
            "success = { quorum = 2 }",
            "success = { quorum = '2' }",
        ),
        (
            "[[composite_tools]]\nname = 'a'\ndescription = 'b'",
            "targets = [{ tool = 'a' }]",
            "targets = [{ id = 'a' }]",
        ),
    ] {
        let file = |key: &str| wrong(&schema, &format!("{before}\n{key}\n"));
        assert_eq!(file(right), [""; 0], "{right}");
        assert_eq!(file(wrong_text).len(), 1, "{wrong_text}: {:?}", file(wrong_text));
    }
}

#[test]
fn schema_rejects_invalid_example_files() {
    let schema = schema();
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs");
    for name in [
        "bad_strategy",
        "duration_as_a_number",
        "table_instead_of_an_array",
        "unknown_key",
        "unknown_key_of_a_backend",
        "unknown_key_of_a_target",
        "unknown_section",
        "wrong_type",
        "wrong_type_of_a_name",
        "wrong_type_of_a_section",
        "wrong_type_of_an_element",
        "unknown_words_in_sections",
    ] {
        let text = fs::read_to_string(configs.join(name).with_extension("toml")).unwrap();
        assert_ne!(wrong(&schema, &text), [""; 0], "{name}");
    }
}
