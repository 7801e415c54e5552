//! Rewrites a tool's input schema for the arguments that clients know.
//!
//! A schema describes the tool's arguments in its root and in every subschema that applies in
//! place: `allOf` and the like, `if`, `dependentSchemas`, and the target of a `$ref` there.
//! Arguments are renamed and removed only there; schemas within an argument stay unchanged. The
//! rewritten schema may allow more than the tool accepts, since a layer below checks that, but
//! never less. So a subschema that is negated, as in `not`, is removed unless its rewritten form is
//! equivalent.
//!
//! The rewritten schema contains nothing about hidden arguments and original names. Where a schema
//! describes the arguments, only known keywords are kept, and patterns that match no such name. A
//! definition is kept only if something refers to it. A definition that also describes the
//! arguments, as in a tool that takes a tree of its own arguments, keeps only the arguments with
//! unchanged names where it is used within an argument.
//!
//! The amount of work is bounded. If a schema exceeds the bound, only the names of the arguments
//! remain.

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

/// A schema as clients see it.
pub(super) struct Rewritten {
    pub(super) schema: JsonObject,
    /// The tool's names of its arguments, as far as the schema declares them.
    pub(super) declared: BTreeSet<String>,
    /// Arguments that clients cannot set, because their name refers to another.
    pub(super) shadowed: BTreeSet<String>,
    /// Required arguments that no call can set.
    pub(super) unset: BTreeSet<String>,
    /// Whether the schema allows only what the tool accepts.
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
    // The protocol requires `type`.
    shown.entry("type").or_insert_with(|| Value::from("object"));
    let Rewriter { declared, shadowed, unset, .. } = rewriter;
    Rewritten { schema: shown, declared, shadowed, unset, is_exact }
}

#[cfg(test)]
mod tests;
