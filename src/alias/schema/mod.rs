//! What clients see of a tool's input schema.
//!
//! A schema speaks of the tool's arguments in its root and in all that applies in
//! place: `allOf` and its like, `if`, `dependentSchemas`, and what a `$ref` leads
//! to there. Only there are arguments renamed and taken away; what is nested in an
//! argument stays as it is. What clients see may allow more than the tool does,
//! since that is checked below, but nothing that it takes is forbidden. So whatever
//! stands where a schema is turned around, as in `not`, goes unless it says exactly
//! the same.

mod definitions;
mod fits;
mod rewriter;

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::{Map, Value};

use self::rewriter::Rewriter;
use super::arguments::Arguments;

/// What clients see of a schema.
pub(super) struct Rewritten {
    pub(super) schema: JsonObject,
    /// What the tool calls its arguments, as far as the schema tells.
    pub(super) declared: BTreeSet<String>,
    /// Arguments that clients cannot set, since their name means another.
    pub(super) shadowed: BTreeSet<String>,
    /// Arguments that are required, but never there.
    pub(super) unset: BTreeSet<String>,
    /// Whether it allows nothing that the tool does not take.
    #[cfg_attr(not(test), expect(dead_code, reason = "what tests hold it to"))]
    pub(super) is_exact: bool,
}

/// Rewrites the schema of a tool for the arguments that clients know.
pub(super) fn rewrite(schema: &JsonObject, arguments: &Arguments) -> Rewritten {
    let mut rewriter = Rewriter::new(schema, arguments);
    let (mut shown, mut is_exact) = rewriter.root();
    if rewriter.has_given_up() {
        (shown, is_exact) = (Map::new(), false);
    }
    // The protocol wants it there.
    shown.entry("type").or_insert_with(|| Value::from("object"));
    let Rewriter { declared, shadowed, unset, .. } = rewriter;
    Rewritten { schema: shown, declared, shadowed, unset, is_exact }
}

#[cfg(test)]
mod tests;
