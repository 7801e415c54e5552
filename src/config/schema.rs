//! The JSON Schema of a file, generated from its table types.

use std::{borrow::Cow, env, fs, path::Path};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Value, json};

use super::{Config, duration::Duration, file::FileTable};

/// Path of the schema in the package.
const FILE: &str = "src/config/mcp-composite.schema.json";
/// Environment variable that makes the test write the schema.
const UPDATE: &str = "UPDATE_SCHEMA";

#[test]
fn the_schema_is_that_of_the_types() {
    let schema = generated();
    if env::var_os(UPDATE).is_some() {
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE), &schema).unwrap();
    } else {
        let written: Value = serde_json::from_str(Config::JSON_SCHEMA).unwrap();
        let is_current = written == serde_json::from_str::<Value>(&schema).unwrap();
        assert!(is_current, "{FILE} is out of date: write it with `{UPDATE}=1 cargo test schema`");
    }
}

#[test]
fn every_key_is_described() {
    fn undescribed(path: &str, schema: &Value, found: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            // `quorum`, the only key of `{ quorum = 2 }`, is described by its variant.
            if property.get("description").is_none() && name != "quorum" {
                found.push(format!("{path}.{name}"));
            }
        }
        for (name, definition) in schema["definitions"].as_object().into_iter().flatten() {
            undescribed(name, definition, found);
        }
    }

    let mut found = Vec::new();
    undescribed("", &serde_json::from_str(Config::JSON_SCHEMA).unwrap(), &mut found);
    assert_eq!(found, [""; 0]);
}

fn generated() -> String {
    let settings = SchemaSettings::draft07();
    let mut schema = settings.into_generator().into_root_schema_for::<FileTable>().to_value();
    schema["title"] = json!("A file of mcp-composite");
    tidy(&mut schema);
    format!("{:#}\n", schema)
}

/// Removes keywords without meaning for TOML files: TOML has no null, defaults are not values, and
/// the widths of Rust's integers are not checked.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|key, value| match key.as_str() {
                // `default` is also the name of a key.
                "default" => value.get("description").is_some(),
                "format" => !value.is_string(),
                _ => true,
            });
            if let Some(Value::Array(types)) = members.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [kind] = types.as_slice() {
                    let kind = kind.clone();
                    members.insert("type".to_owned(), kind);
                }
            }
            if let Some(Value::Array(choices)) = members.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                // `$ref` overrides its sibling keywords, except in `allOf`.
                if choices.len() == 1
                    && let Some(choice) = members.remove("anyOf")
                {
                    members.insert("allOf".to_owned(), choice);
                }
            }
            members.values_mut().for_each(tidy);
        }
        Value::Array(elements) => elements.iter_mut().for_each(tidy),
        _ => (),
    }
}

// === impl Duration ===

impl JsonSchema for Duration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^\\s*([0-9]+(\\.[0-9]+)?\\s*[A-Za-zµ]+\\s*)+$",
            "examples": ["30s", "5m", "1h 30m"],
        })
    }
}
