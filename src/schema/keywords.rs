//! What keywords of JSON Schema hold besides schemas.

/// Keywords whose values are data, in which `$ref` is a word like any other.
pub(crate) const DATA: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords whose members are schemas under names that are no keywords.
pub(crate) const NAMING: [&str; 5] =
    ["$defs", "definitions", "dependentSchemas", "patternProperties", "properties"];
