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
    /// What a client sends may have 4194304, if not set.
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

/// How many bytes a client may send, if nothing else is set: as many as rmcp reads over
/// HTTP. Over pipes it reads four times as many, and each target of a composite may get
/// a copy of them.
const MAX_ARGUMENT_BYTES: usize = 4 << 20;

/// What every request of a client is measured by, unless something else is set.
pub(super) const fn door() -> LimitLayer {
    LimitLayer::new().max_argument_bytes(MAX_ARGUMENT_BYTES)
}

/// Builds the layers of a table at `path`, of which the one is `limit` where the table
/// says nothing, and reports what is wrong with it.
pub(super) fn build(
    table: &ValidateTable,
    limit: LimitLayer,
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> (LimitLayer, ValidateLayer) {
    let mut limit = limit;
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
