//! The section `[validate]`, and the same table of a backend.

use serde::Deserialize;

use super::read::Reader;
use crate::{
    composite::Segment,
    limit::LimitLayer,
    validate::{SchemaMode, ValidateLayer},
};

/// Validation of requests.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ValidateTable {
    /// Maximum size of a request in bytes, without names and `_meta` of a common size. For requests
    /// of clients, defaults to 4194304.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_argument_bytes: Option<usize>,
    /// Maximum nesting depth of arrays and objects; at most 128.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_depth: Option<usize>,
    /// Behavior if arguments do not match the input schema of the tool.
    schema: Option<SchemaName>,
}

/// Behavior if arguments do not match the input schema of the tool.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum SchemaName {
    /// Do not check arguments.
    Off,
    /// Log the mismatch.
    Warn,
    /// Reject the call.
    Strict,
}

/// Default maximum size of a client request in bytes: the limit of rmcp over HTTP. Over pipes, rmcp
/// reads four times as many bytes, and each target of a composite may get a copy of them.
const MAX_ARGUMENT_BYTES: usize = 4 << 20;

/// Returns the default limits of client requests.
pub(super) const fn door() -> LimitLayer {
    LimitLayer::new().max_argument_bytes(MAX_ARGUMENT_BYTES)
}

/// Builds the layers of a table at `path`, and reports mistakes in it. `limit` supplies the
/// defaults.
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
