//! Reads the `output` table of a composite in `[[composite_tools]]`.

use serde_json::Value;

use super::table::TableReader;
use crate::composite::{JsonType, Output, OutputProperty};

/// The valid keys of the `output` table, which defines the result of a pipeline or workflow.
pub(super) const OUTPUT: [&str; 3] = ["properties", "required", "content"];
/// The valid keys of a property in an `output` table.
pub(super) const PROPERTY: [&str; 5] = ["type", "description", "value", "properties", "default"];

/// Reads the `output` table, which defines the result of a pipeline or workflow.
pub(super) fn read(table: &mut TableReader<'_, '_, '_>) -> Output {
    table.only(&OUTPUT);
    let properties = properties(table).unwrap_or_default();
    let output = Output::new()
        .required(table.get::<Vec<String>>("required").unwrap_or_default())
        .content(table.get::<Vec<String>>("content").unwrap_or_default());
    properties.into_iter().fold(output, |output, (name, property)| output.property(name, property))
}

fn properties(table: &mut TableReader<'_, '_, '_>) -> Option<Vec<(String, OutputProperty)>> {
    table.table("properties", |table| table.members(property))
}

fn property(table: &mut TableReader<'_, '_, '_>) -> OutputProperty {
    table.only(&PROPERTY);
    let kind: Option<JsonType> = table.required("type");
    let has_properties = table.has("properties");
    if table.has("value") == has_properties {
        table.report_here("expected either `value` or `properties`");
    }
    let mismatch = kind.filter(|kind| has_properties && *kind != JsonType::Object);
    if let Some(kind) = mismatch {
        let message = format!("`properties` need `type = \"object\"`, not \"{}\"", kind.name());
        table.report("properties", message);
    }
    let value = table.get::<Value>("value");
    let mut property = match (value, properties(table)) {
        (None, Some(properties)) => OutputProperty::object(properties),
        // If the key `type` is missing, which is already reported, the value is checked as an
        // `object`.
        (value, _) => {
            OutputProperty::new(kind.unwrap_or(JsonType::Object), value.unwrap_or_default())
        }
    };
    table.set("description", &mut property.description);
    // Ignores the default if the type is missing or invalid, because the default would be checked
    // against a wrong type.
    let default = table.literal("default");
    property.default = default.filter(|_| kind.is_some() && mismatch.is_none());
    property
}
