//! Reads the section `[validate]`, and the table `validate` of a backend.

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
    /// Maximum size of a request in bytes. The first 1024 bytes of each name and the first 16 KiB
    /// of `_meta` are not counted. Defaults to 4194304 in `[validate]`, and to no limit for a
    /// backend.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_argument_bytes: Option<usize>,
    /// Maximum nesting depth of arrays and objects in a request. A larger value than 128 is
    /// reduced to 128.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_depth: Option<usize>,
    /// Whether calls whose arguments do not match the tool's input schema are accepted, logged or
    /// rejected.
    schema: Option<SchemaName>,
}

/// Whether calls whose arguments do not match the tool's input schema are accepted, logged or
/// rejected.
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

/// Default maximum size of a client request in bytes. rmcp has the same limit over HTTP. Over
/// pipes, rmcp reads requests of four times this size, and each target of a composite may receive a
/// copy.
const MAX_ARGUMENT_BYTES: usize = 4 << 20;

/// Returns the default limits on client requests, for a file that sets no limits.
pub(super) const fn door() -> LimitLayer {
    LimitLayer::new().max_argument_bytes(MAX_ARGUMENT_BYTES)
}

/// Converts the table at `path` to the layers that limit and validate requests, and records its
/// errors in `reader`. A limit that the table does not set is copied from `limit`.
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
