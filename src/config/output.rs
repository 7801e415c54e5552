//! The output of `[[composite_tools]]`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::composite::{Output, OutputProperty, OutputType};

/// What a pipeline or workflow gives.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["properties"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct OutputTable {
    /// Its members.
    properties: BTreeMap<String, PropertyTable>,
    /// Which of them must be there and not null.
    required: Vec<String>,
}

/// One member of an output.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["type"])))]
#[serde(default, deny_unknown_fields)]
struct PropertyTable {
    /// Its JSON type.
    #[serde(rename = "type")]
    kind: Option<TypeName>,
    /// What clients are told of it.
    description: Option<String>,
    /// What it is, such as `"$steps.search.output.count"`.
    value: Option<Value>,
    /// Its members, if it is an object, instead of `value`.
    properties: Option<BTreeMap<String, Self>>,
    /// What it is if it cannot be had.
    default: Option<Value>,
}

/// A JSON type.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum TypeName {
    /// A text.
    String,
    /// A number without a fraction.
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
