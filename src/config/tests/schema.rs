//! Generates the JSON Schema of a configuration file from the table types. The schemas of
//! composites come from a separate file that is written by hand, because composites have no table
//! types.

use std::{borrow::Cow, collections::BTreeSet, env, fs, path::Path};

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};
use serde_json::{Value, json};

use crate::{
    composite::{BranchOrder, JsonType, Labels, OnLimit, TaskMode, Then, Trace},
    config::{
        Config, composite_tools,
        duration::Duration,
        file::FileTable,
        output, steps,
        table::{self, Variants},
    },
    named::Named,
};

/// Path of the generated schema file in the package.
const FILE: &str = "src/config/mcp-composite.schema.json";
/// The environment variable that makes the test write the schema file instead of comparing it with
/// the generated schema.
const UPDATE: &str = "UPDATE_SCHEMA";

#[test]
fn schema_file_matches_the_types() {
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
            // The description of `quorum`, the only key of `{ quorum = 2 }`, is in its variant.
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

/// Returns the JSON Schema of composites, which is written by hand.
fn composites() -> Value {
    serde_json::from_str(include_str!("../composite_tools.schema.json")).expect("it is JSON")
}

#[test]
fn schema_lists_the_composite_keys_that_are_read() {
    fn union<T>(
        common: &[&'static str],
        tag: &'static str,
        variants: &Variants<T>,
    ) -> BTreeSet<&'static str> {
        let own = variants.iter().flat_map(|(_, keys, _)| keys.iter());
        common.iter().chain([&tag]).chain(own).copied().collect()
    }
    fn words(schema: &Value) -> Vec<&str> {
        schema["oneOf"]
            .as_array()
            .expect("words")
            .iter()
            .filter_map(|one| one["const"].as_str())
            .collect()
    }
    fn named<T: Named>() -> Vec<&'static str> {
        T::ALL.iter().map(|(name, _)| *name).collect()
    }

    let schema = composites();
    let keys = |name: &str| -> BTreeSet<String> {
        schema[name]["properties"].as_object().expect("keys").keys().cloned().collect()
    };
    for (name, expected) in [
        (
            "CompositeTool",
            union(&composite_tools::COMPOSITE, "strategy", composite_tools::STRATEGIES),
        ),
        ("Target", composite_tools::TARGET.into()),
        ("Step", union(&steps::STEP, "type", steps::TYPES)),
        ("Case", steps::CASE.into()),
        ("OtherwiseTable", steps::CALL.into()),
        ("OnErrorTable", union(&[], "action", steps::ON_ERROR)),
        ("TargetOnErrorTable", union(&[], "action", steps::TARGET_ON_ERROR)),
        ("OnRefusalTable", union(&[], "action", steps::ON_REFUSAL)),
        ("Output", output::OUTPUT.into()),
        ("OutputProperty", output::PROPERTY.into()),
    ] {
        assert!(keys(name).iter().eq(&expected), "{name}: {:?}, {expected:?}", keys(name));
    }
    for (name, expected) in [
        ("Strategy", table::names(composite_tools::STRATEGIES)),
        ("StepType", table::names(steps::TYPES)),
        ("OnErrorAction", table::names(steps::ON_ERROR)),
        ("TargetOnErrorAction", table::names(steps::TARGET_ON_ERROR)),
        ("OnRefusalAction", table::names(steps::ON_REFUSAL)),
        ("OnLimit", named::<OnLimit>()),
        ("TaskMode", named::<TaskMode>()),
        ("Trace", named::<Trace>()),
        ("Order", named::<BranchOrder>()),
        ("Labels", named::<Labels>()),
        ("Then", named::<Then>()),
        ("JsonType", named::<JsonType>()),
    ] {
        assert_eq!(words(&schema[name]), expected, "{name}");
    }
}

fn generated() -> String {
    let settings = SchemaSettings::draft07();
    let mut schema = settings.into_generator().into_root_schema_for::<FileTable>().to_value();
    let definitions = schema["definitions"].as_object_mut().expect("it has tables");
    definitions.extend(composites().as_object().expect("an object").clone());
    schema["title"] = json!("A file of mcp-composite");
    tidy(&mut schema);
    format!("{:#}\n", schema)
}

/// Removes keywords that do not apply to TOML files: the type `null`, default values and integer
/// formats.
fn tidy(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.retain(|key, value| match key.as_str() {
                // A property can also be named `default`, so only keyword uses of `default` are
                // removed.
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
                // A `$ref` overrides other keywords next to it, unless it is in `allOf`.
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

/// A placeholder for composites in the generated schema. It becomes a reference to the schema that
/// is written by hand.
pub(in crate::config) struct Composite;

impl JsonSchema for Composite {
    fn schema_name() -> Cow<'static, str> {
        "CompositeTool".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::default()
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
