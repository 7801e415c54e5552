//! The output of `[[composite_tools]]`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::composite::{Output, OutputProperty, OutputType};

/// The output of a pipeline or workflow.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["properties"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct OutputTable {
    /// The properties of the output.
    properties: BTreeMap<String, PropertyTable>,
    /// The properties that must be present and not null.
    required: Vec<String>,
}

/// A property of an output.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["type"])))]
#[serde(default, deny_unknown_fields)]
struct PropertyTable {
    /// JSON type of the property.
    #[serde(rename = "type")]
    kind: Option<TypeName>,
    /// Description of the property.
    description: Option<String>,
    /// Value of the property, such as `"$steps.search.output.count"`.
    value: Option<Value>,
    /// Nested properties of an object, instead of `value`.
    properties: Option<BTreeMap<String, Self>>,
    /// Value of the property if `value` cannot be resolved.
    default: Option<Value>,
}

/// A JSON type.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum TypeName {
    /// A string.
    String,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// An object.
    Object,
    /// An array.
    Array,
}

// === impl OutputTable ===

impl From<OutputTable> for Output {
    fn from(OutputTable { properties, required }: OutputTable) -> Self {
        Self { properties: all(properties), required }
    }
}

fn all(properties: BTreeMap<String, PropertyTable>) -> Vec<(String, OutputProperty)> {
    properties.into_iter().map(|(name, table)| (name, table.into())).collect()
}

// === impl PropertyTable ===

impl From<PropertyTable> for OutputProperty {
    fn from(table: PropertyTable) -> Self {
        let PropertyTable { kind, description, value, properties, default } = table;
        Self {
            kind: kind.map(OutputType::from),
            description,
            value,
            properties: properties.map(all),
            default,
        }
    }
}

// === impl TypeName ===

impl From<TypeName> for OutputType {
    fn from(name: TypeName) -> Self {
        match name {
            TypeName::String => Self::String,
            TypeName::Integer => Self::Integer,
            TypeName::Number => Self::Number,
            TypeName::Boolean => Self::Boolean,
            TypeName::Object => Self::Object,
            TypeName::Array => Self::Array,
        }
    }
}
