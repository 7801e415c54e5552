//! Keywords of JSON Schema whose values are not schemas.

/// Keywords whose values are data, in which `$ref` has no special meaning.
pub(crate) const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords whose members are schemas under arbitrary names.
pub(crate) const NAMING: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
