//! Writes readable TOML, for example without inline tables that are longer than a line.

use std::ops::Range;

use serde_json::{Map, Value};

use super::import::{Fields, camel};

/// Maximum number of characters in a line. A longer array or object is written in several lines.
const MAX_LINE: usize = 100;

/// A TOML table, and the byte ranges of the YAML text from which it was converted.
#[derive(Debug, Default)]
pub(super) struct Table {
    header: &'static str,
    origin: Range<usize>,
    /// The camel-case keys of the YAML map from which the table was converted, with their byte
    /// ranges.
    keys: Vec<(String, Range<usize>)>,
    pairs: Vec<(String, Value, Range<usize>)>,
}

/// A TOML document, and the byte range of the YAML text for each line.
#[derive(Debug, Default)]
pub(super) struct Document {
    pub(super) toml: String,
    /// For each line, the byte range in the YAML file from which the line was converted.
    pub(super) origins: Vec<Range<usize>>,
}

// === impl Document ===

impl Document {
    /// Appends whole lines. `origin` is the byte range in the YAML file from which they were
    /// converted.
    fn push(&mut self, lines: &str, origin: &Range<usize>) {
        self.toml += lines;
        self.origins.extend(lines.matches('\n').map(|_| origin.clone()));
    }
}

// === impl Table ===

impl Table {
    /// Creates an empty table with a header such as `[[backends]]`. `origin` is the byte range in
    /// the YAML file from which the table is converted.
    pub(super) fn new(header: &'static str, origin: &Range<usize>) -> Self {
        Self { header, origin: origin.clone(), ..Self::default() }
    }

    /// Creates an empty table for values that are converted from the YAML map `fields`.
    pub(super) fn from_fields(header: &'static str, fields: &Fields<'_>) -> Self {
        let mut table = Self::new(header, &fields.span());
        table.locate(fields);
        table
    }

    /// Adds the keys of another YAML map from which this table is converted, with their byte
    /// ranges.
    pub(super) fn locate(&mut self, fields: &Fields<'_>) {
        self.keys.extend(fields.keys());
    }

    pub(super) fn set(&mut self, key: &str, value: impl Into<Value>) {
        let camel = camel(key);
        let origin = self.keys.iter().find(|(name, _)| *name == camel);
        let origin = origin.map_or(&self.origin, |(_, span)| span).clone();
        self.pairs.push((bare(key), value.into(), origin));
    }

    pub(super) fn set_some(&mut self, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(key, value);
        }
    }

    /// Sets the key of a nested table, written as a dotted key such as `properties.name`.
    pub(super) fn set_in(
        &mut self,
        table: &str,
        key: &str,
        value: impl Into<Value>,
        origin: &Range<usize>,
    ) {
        self.pairs.push((format!("{table}.{}", bare(key)), value.into(), origin.clone()));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

/// Converts the tables to a TOML document, with an empty line between tables.
pub(super) fn write(tables: &[Table]) -> Document {
    let mut document = Document::default();
    for table in tables {
        let separator = if document.toml.is_empty() { "" } else { "\n" };
        document.push(&format!("{separator}{}\n", table.header), &table.origin);
        for (key, value, origin) in &table.pairs {
            let mut text = String::new();
            pair(&mut text, key, value);
            document.push(&text, origin);
        }
    }
    document
}

/// Appends a key and its value to `text`. If an object is too long for one line, each of its
/// members is written with a dotted key, such as `output.type`.
fn pair(text: &mut String, key: &str, value: &Value) {
    let line = inline(value);
    let is_long = key.chars().count() + " = ".len() + line.chars().count() > MAX_LINE;
    match value {
        Value::Object(members) if is_long && !members.is_empty() => {
            for (member, value) in ordered(members) {
                pair(text, &format!("{key}.{}", bare(member)), value);
            }
        }
        Value::Array(elements) if is_long && !elements.is_empty() => {
            text.extend([key, " = [\n"]);
            for element in elements {
                text.extend(["    ", &inline(element), ",\n"]);
            }
            text.push_str("]\n");
        }
        Value::String(content) if content.contains('\n') => {
            text.extend([key, " = ", &lines(content), "\n"]);
        }
        _ => text.extend([key, " = ", &line, "\n"]),
    }
}

/// Returns the members of an object in a fixed order: the most important keys first, such as
/// `type`, and then the others by name. The order of the map itself depends on the features of
/// `serde_json`.
fn ordered(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    const FIRST: [&str; 7] =
        ["action", "type", "description", "value", "properties", "required", "default"];
    let place = |key: &str| FIRST.iter().position(|first| *first == key).unwrap_or(FIRST.len());
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by_key(|(key, _)| (place(key), *key));
    members
}

/// Formats a value as TOML in one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Object(members) if members.is_empty() => "{}".to_owned(),
        Value::Object(members) => {
            let members = ordered(members).into_iter();
            let members = members.map(|(key, value)| format!("{} = {}", bare(key), inline(value)));
            format!("{{ {} }}", members.collect::<Vec<_>>().join(", "))
        }
        Value::Array(elements) => {
            format!("[{}]", elements.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        Value::String(text) => string(text),
        // TOML has no null; in expressions this text means null.
        Value::Null => "\"$null\"".to_owned(),
        // JSON and TOML write large floats differently.
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(float) => toml::Value::Float(float).to_string(),
            None => number.to_string(),
        },
        Value::Bool(value) => value.to_string(),
    }
}

/// Formats a string as a TOML string in one line. A JSON string is also a valid TOML string, except
/// for the character U+007F, which TOML requires to be escaped.
fn string(text: &str) -> String {
    if text.contains('"') && !text.contains('\'') && !text.contains(char::is_control) {
        return format!("'{text}'");
    }
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Formats a string as a multi-line TOML string, in which line breaks are not escaped.
fn lines(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace("\"\"\"", "\"\"\\\"");
    let escaped: String = escaped
        .chars()
        .map(|c| match c {
            '\n' | '\t' => c.to_string(),
            c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
            c => c.to_string(),
        })
        .collect();
    let end = if escaped.ends_with('"') { "\\\n" } else { "" };
    format!("\"\"\"\n{escaped}{end}\"\"\"")
}

/// Formats a TOML key. Quotes it only if it contains other characters than ASCII letters, digits,
/// `_` and `-`, or if it is empty.
fn bare(key: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_owned() } else { string(key) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn written_values_are_those_that_are_read() {
        let long = "x".repeat(90);
        let value = json!({
            "plain": "a", "odd key": 1, "quote": "say \"x\"", "both": "'\"", "control": "\u{1}\u{7f}\t",
            "lines": format!("one\ntwo \\ \"\"\" {long}\""), "float": 1e300, "big": 9_007_199_254_740_993_i64,
            "list": [[1, 2], { "a": long }], "long": { "a": { "b": long, "c.d": true } }, "empty": {},
        });
        let mut table = Table::new("[all]", &(3..4));
        for (key, value) in value.as_object().unwrap() {
            table.set(key, value.clone());
        }
        let Document { toml: text, origins } = write(&[table]);
        assert_eq!(origins, vec![3..4; text.lines().count()]);
        let read: toml::Table = text.parse().expect(&text);
        assert_eq!(serde_json::to_value(&read["all"]).unwrap(), value, "{text}");
        assert!(text.contains("long.a.\"c.d\" = true\n"), "{text}");
    }
}
