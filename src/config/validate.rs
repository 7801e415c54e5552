//! The section `[validate]`, and the same table of a backend.

use serde::Deserialize;

use super::read::Reader;
use crate::{
    composite::Segment,
    limit::LimitLayer,
    validate::{SchemaMode, ValidateLayer},
};

/// What clients may send.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ValidateTable {
    /// How many bytes a request may have; names, and `_meta` of a common size, do not count.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_argument_bytes: Option<usize>,
    /// How deep arrays and objects may be nested; at most 128.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_depth: Option<usize>,
    /// What happens to arguments that do not fit the input schema of the tool.
    schema: Option<SchemaName>,
}

/// What happens to arguments that do not fit the input schema of the tool.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum SchemaName {
    /// Nothing: they are not checked.
    Off,
    /// It is logged.
    Warn,
    /// The call is refused.
    Strict,
}

/// Builds the layers of a table at `path`, and reports what is wrong with it.
pub(super) fn build(
    table: &ValidateTable,
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> (LimitLayer, ValidateLayer) {
    let mut limit = LimitLayer::new();
    let mut validate =
        ValidateLayer::new().schema(table.schema.map(SchemaMode::from).unwrap_or_default());
    if let Some(bytes) = reader.at_least_one(path, "max_argument_bytes", table.max_argument_bytes) {
        limit = limit.max_argument_bytes(bytes);
        validate = validate.max_argument_bytes(bytes);
    }
    if let Some(depth) = reader.at_least_one(path, "max_depth", table.max_depth) {
        limit = limit.max_depth(depth);
        validate = validate.max_depth(depth);
    }
    (limit, validate)
}

// === impl SchemaName ===

impl From<SchemaName> for SchemaMode {
    fn from(name: SchemaName) -> Self {
        match name {
            SchemaName::Off => Self::Off,
            SchemaName::Warn => Self::Warn,
            SchemaName::Strict => Self::Strict,
        }
    }
}
