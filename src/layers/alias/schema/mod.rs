//! What clients see of a tool's input schema.
//!
//! A schema speaks of the tool's arguments in its root and in all that applies in
//! place: `allOf` and its like, `if`, `dependentSchemas`, and what a `$ref` leads
//! to there. Only there are arguments renamed and taken away; what is nested in an
//! argument stays as it is. What clients see may allow more than the tool does,
//! since that is checked below, but nothing that it takes is forbidden. So whatever
//! stands where a schema is turned around, as in `not`, goes unless it says exactly
//! the same.
//!
//! Nor do clients see anything of what is hidden or has another name. Where a schema
//! speaks of the arguments, only keywords that are understood are kept, and patterns
//! that match no such name. Of the definitions only those are kept that something
//! refers to; one that speaks of the arguments, too, as where a tool takes a tree of
//! what it takes, tells within an argument only of those that are called the same.
//!
//! How much is looked at is bounded; of a schema that is too much, only the names of
//! the arguments are left.

mod definitions;
mod fits;
mod references;
mod rewriter;
mod scopes;

use std::collections::BTreeSet;

use rmcp::model::JsonObject;
use serde_json::Value;

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
    let root = Value::Object(schema.clone());
    let mut rewriter = Rewriter::new(&root, arguments, false);
    let (mut shown, mut is_exact) = rewriter.root();
    if rewriter.is_lossy() {
        rewriter = Rewriter::new(&root, arguments, true);
        (shown, is_exact) = rewriter.root();
    }
    if rewriter.has_given_up() {
        (shown, is_exact) = (rewriter.outline(), false);
    }
    // The protocol wants it there.
    shown.entry("type").or_insert_with(|| Value::from("object"));
    let Rewriter { declared, shadowed, unset, .. } = rewriter;
    Rewritten { schema: shown, declared, shadowed, unset, is_exact }
}

#[cfg(test)]
mod tests;
