//! The `[[redactions]]` section, which removes data from tool results.

use std::slice;

use serde::Deserialize;

use super::{filter::selection, read::Reader, set_some::SetSome};
use crate::{
    composite::Segment,
    redact::{RedactLayer, Redaction},
};

const SECTION: &str = "redactions";

/// Removes parts of the results of the matching tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["tools"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RedactionTable {
    /// Name patterns of the tools whose results are redacted. They match the tool names before
    /// `[[aliases]]` renames the tools.
    tools: Option<Vec<String>>,
    /// JSON Pointers to the parts to remove from structured results. In a pointer, `*` matches
    /// every member of an object or element of an array.
    remove: Option<Vec<String>>,
    /// JSON Pointers to the parts to keep in structured results. All other parts are removed.
    /// Cannot be combined with `remove`.
    only: Option<Vec<String>>,
    /// Whether to keep text content that is not JSON. By default, it is removed, because it may
    /// repeat data that was removed from the structured result.
    keep_texts: Option<bool>,
}

/// Converts the `[[redactions]]` tables to a [`RedactLayer`], and reports errors in the tables to
/// `reader`.
pub(super) fn build(tables: Vec<RedactionTable>, reader: &mut Reader<'_, '_>) -> RedactLayer {
    let redactions = tables.into_iter().enumerate();
    redactions.fold(RedactLayer::new(), |layer, (index, table)| {
        let redaction = table.build(&[SECTION.into(), index.into()], reader);
        layer.set_some(redaction, RedactLayer::redaction)
    })
}

// === impl RedactionTable ===

impl RedactionTable {
    fn build(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Option<Redaction> {
        let at = |key: &str| [path, &[key.into()]].concat();
        if self.tools.is_none() {
            reader.report(&at("tools"), "missing key `tools`");
        }
        let tools = selection(self.tools, None, ["tools", ""], path, reader);
        let (key, pointers) = match (self.remove, self.only) {
            (Some(pointers), None) => ("remove", pointers),
            (None, Some(pointers)) => ("only", pointers),
            (Some(_), Some(_)) => {
                let message = "`only` and `remove` exclude each other: expected one of them";
                reader.report(&at("only"), message);
                return None;
            }
            (None, None) => {
                reader.report(&at("remove"), "missing key `remove`, or `only`");
                return None;
            }
        };
        if pointers.is_empty() {
            reader.report(&at(key), format!("no pointers: expected at least one in `{key}`"));
        }
        let build = |pointers: &[String]| match key {
            "remove" => Redaction::new(tools.clone(), pointers),
            _ => Redaction::only(tools.clone(), pointers),
        };
        for (place, pointer) in pointers.iter().enumerate() {
            if let Err(error) = build(slice::from_ref(pointer)) {
                reader.report(&[&at(key)[..], &[place.into()]].concat(), error.to_string());
            }
        }
        let redaction = build(&pointers).ok()?;
        Some(if self.keep_texts.unwrap_or_default() { redaction.keep_texts() } else { redaction })
    }
}
