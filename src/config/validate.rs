//! Reads the `[validate]` section, and the `validate` table of a backend.

use serde::Deserialize;

use super::read::Reader;
use crate::{
    composite::Segment,
    limit::LimitLayer,
    validate::{SchemaMode, ValidateLayer},
};

/// Limits the size of requests, and checks tool arguments against the input schemas.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ValidateTable {
    /// Maximum size in bytes of a request, not counting the first 1024 bytes of each name and the
    /// first 16 KiB of `_meta`. In `[validate]`, it defaults to 4194304. In the `validate` table of
    /// a backend, it is unlimited by default.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_argument_bytes: Option<usize>,
    /// Maximum nesting depth of arrays and objects in a request. Values above 128 are reduced to
    /// 128.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_depth: Option<usize>,
    /// How to handle a tool call whose arguments do not match the input schema of the tool.
    /// Defaults to `off`.
    schema: Option<SchemaMode>,
}

/// Default maximum size of a client request in bytes. Equal to rmcp's limit for HTTP requests. Over
/// stdio, rmcp accepts four times as much.
const MAX_ARGUMENT_BYTES: usize = 4 << 20;

/// Returns the layer that limits client requests by default.
pub(super) const fn door() -> LimitLayer {
    LimitLayer::new().max_argument_bytes(MAX_ARGUMENT_BYTES)
}

/// Converts the table at `path` to two layers. The first one limits the size of requests. The
/// second one has the same limits, and also checks tool arguments against the schemas. `limit`
/// contains the limits that apply if the table sets none. Reports errors in the table to `reader`.
pub(super) fn build(
    table: &ValidateTable,
    limit: LimitLayer,
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> (LimitLayer, ValidateLayer) {
    let mut limit = limit;
    let mut validate = ValidateLayer::new().schema(table.schema.unwrap_or_default());
    if let Some(bytes) = reader.not_zero(path, "max_argument_bytes", table.max_argument_bytes) {
        limit = limit.max_argument_bytes(bytes);
        validate = validate.max_argument_bytes(bytes);
    }
    if let Some(depth) = reader.not_zero(path, "max_depth", table.max_depth) {
        limit = limit.max_depth(depth);
        validate = validate.max_depth(depth);
    }
    (limit, validate)
}
