//! Generates the guide with all sections and keys of a configuration file from the JSON Schema.

use std::{
    env,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use crate::config::Config;

/// The environment variable that makes the test write the guide instead of comparing it with the
/// generated text.
const UPDATE: &str = "UPDATE_SCHEMA";

const INTRODUCTION: &str = "\
# Configuration reference

All sections and keys of a configuration file. The module [`config`][config#composite-tools] shows
the same keys in examples, and explains how the sections work together. This page is generated from
the JSON Schema that [editors][guide::editor_support] use.

A table has one row for each key. In the headings, `[[…]]` is an array of tables, and `*` is a name
that the file chooses. A duration is a text such as `\"30s\"` or `\"1h 30m\"`. In each text, `${VAR}`
is replaced by the value of an environment variable.
";

/// A table of the file that the guide describes under a heading of its own.
struct Table {
    /// The path of the table, such as `backends.aliases`.
    path: String,
    /// Whether the table is an element of an array.
    is_element: bool,
    /// The name of its definition in the schema.
    definition: String,
}

/// Writes the guide. The tables are described in the order in which they are found.
struct Writer<'s> {
    definitions: &'s Map<String, Value>,
    tables: Vec<Table>,
    text: String,
}

#[test]
fn reference_lists_the_keys_of_the_schema() {
    let file: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/configuration.md");
    let text = generated();
    if env::var_os(UPDATE).is_some() {
        fs::write(file, text).unwrap();
    } else {
        let is_current = fs::read_to_string(file).unwrap() == text;
        assert!(
            is_current,
            "`configuration.md` is out of date: run `{UPDATE}=1 cargo test config`"
        );
    }
}

fn generated() -> String {
    let schema: Value = serde_json::from_str(Config::JSON_SCHEMA).unwrap();
    let definitions = schema["definitions"].as_object().unwrap();
    let mut writer = Writer { definitions, tables: Vec::new(), text: INTRODUCTION.to_owned() };
    writer.text += "\n# Top level\n\n";
    writer.keys("", &schema);
    let mut sections = Vec::new();
    for at in 0.. {
        let Some(Table { path, is_element, definition }) = writer.tables.get(at) else { break };
        let (path, table) = (path.clone(), &definitions[definition]);
        let heading = if *is_element { format!("[[{path}]]") } else { format!("[{path}]") };
        let level = if path.contains('.') { "##" } else { "#" };
        let about = one_line(&table["description"]);
        let begin = writer.text.len();
        write!(writer.text, "\n{level} `{heading}`\n\n{about}\n\n").unwrap();
        writer.keys(&path, table);
        sections.push((path, writer.text.split_off(begin)));
    }
    // Puts the tables of a section below the section.
    sections.sort_by(|(a, _), (b, _)| a.split('.').next().cmp(&b.split('.').next()));
    writer.text.extend(sections.into_iter().map(|(_, text)| text));
    writer.text += "\n[config#composite-tools]: ../config/mod.rs\n[guide::editor_support]: editor_support.md\n";
    writer.text
}

/// Returns a description of the schema as a single line of a Markdown table.
fn one_line(description: &Value) -> String {
    description
        .as_str()
        .unwrap_or_default()
        .replace("\n\n", " ")
        .replace('\n', " ")
        .replace('|', "\\|")
}

/// Returns the anchor of the heading of a table on GitHub and docs.rs.
fn anchor(path: &str) -> String {
    path.replace(['.', '*'], "")
}

// === impl Writer ===

impl Writer<'_> {
    /// Writes the table of the keys of `schema`, whose path in the file is `path`.
    fn keys(&mut self, path: &str, schema: &Value) {
        let required: Vec<_> = schema["required"].as_array().into_iter().flatten().collect();
        self.text += "| key | value | description |\n|---|---|---|\n";
        for (name, key) in schema["properties"].as_object().unwrap() {
            let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let value = self.value(&place, key, false);
            let mut about = one_line(&key["description"]);
            if required.iter().any(|required| *required == name) {
                about = format!("**Required.** {about}");
            }
            about += &self.choices(key);
            writeln!(self.text, "| `{name}` | {value} | {about} |").unwrap();
        }
    }

    /// Returns the definition to which a schema refers, with its name.
    fn definition<'v>(&self, schema: &'v Value) -> Option<&'v str> {
        let reference = match &schema["allOf"] {
            Value::Array(all) => &all[0]["$ref"],
            _ => &schema["$ref"],
        };
        reference.as_str()?.strip_prefix("#/definitions/")
    }

    /// Describes the values that `schema` accepts. `path` is the path of the key.
    fn value(&mut self, path: &str, schema: &Value, is_element: bool) -> String {
        if let Some(name) = self.definition(schema) {
            let definition = &self.definitions[name];
            if definition.get("properties").is_none() {
                return self.value(path, definition, is_element);
            }
            let known = self.tables.iter().find(|table| table.definition == name);
            let path = match known {
                Some(known) => known.path.clone(),
                None => {
                    let (path, definition) = (path.to_owned(), name.to_owned());
                    self.tables.push(Table { path: path.clone(), is_element, definition });
                    path
                }
            };
            return format!("[table](#{})", anchor(&path));
        }
        if let Some(choices) = schema.get("oneOf").or_else(|| schema.get("anyOf")) {
            let mut values = Vec::new();
            for choice in choices.as_array().unwrap() {
                values.push(self.value(path, choice, is_element));
            }
            return values.join(", ");
        }
        if let Some(word) = schema["const"].as_str() {
            return format!("`\"{word}\"`");
        }
        match schema["type"].as_str() {
            None => "any".to_owned(),
            Some("string") if schema.get("examples").is_some() => "duration".to_owned(),
            Some("array") => {
                let elements = self.value(path, &schema["items"], true);
                format!("array: {elements}")
            }
            Some("object") => {
                match (schema.get("properties"), schema.get("additionalProperties")) {
                    (Some(keys), _) => {
                        let keys: Vec<_> = keys.as_object().unwrap().keys().cloned().collect();
                        format!("table: `{}`", keys.join("`, `"))
                    }
                    (None, Some(values @ Value::Object(_))) => {
                        let values = self.value(&format!("{path}.*"), values, false);
                        format!("table of {values}")
                    }
                    (None, _) => "table".to_owned(),
                }
            }
            Some(other) => match (&schema["minimum"], &schema["maximum"]) {
                (Value::Null, _) => other.to_owned(),
                (minimum, Value::Null) => format!("{other}, at least {minimum}"),
                (minimum, maximum) => format!("{other}, {minimum} to {maximum}"),
            },
        }
    }

    /// Describes each of the words that a key accepts, and each key of a table that has no heading.
    fn choices(&self, schema: &Value) -> String {
        let schema = match self.definition(schema) {
            Some(name) => &self.definitions[name],
            None if schema["type"] == "array" => return self.choices(&schema["items"]),
            None => schema,
        };
        let mut text = String::new();
        for choice in schema["oneOf"].as_array().into_iter().flatten() {
            let about = one_line(&choice["description"]);
            if let Some(word) = choice["const"].as_str() {
                write!(text, "<br>`\"{word}\"`: {about}").unwrap();
            }
            for (key, schema) in choice["properties"].as_object().into_iter().flatten() {
                let about = match schema.get("description") {
                    Some(own) => one_line(own),
                    None => about.clone(),
                };
                write!(text, "<br>`{key}`: {about}").unwrap();
            }
        }
        for choice in schema["anyOf"].as_array().into_iter().flatten() {
            text += &self.choices(choice);
        }
        text
    }
}
