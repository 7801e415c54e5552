//! The section `[[redactions]]`.

use serde::Deserialize;

use super::{filter::selection, read::Reader, set_some::SetSome};
use crate::{
    composite::Segment,
    redact::{RedactLayer, Redaction},
};

/// The key of the section `[[redactions]]` in a configuration file.
const SECTION: &str = "redactions";

/// Removes parts of the results of some tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["tools"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RedactionTable {
    /// Patterns of the tools. They match the names before `[[aliases]]` renames the tools.
    tools: Option<Vec<String>>,
    /// JSON Pointers to the parts to remove from the structured result. `*` matches every member or
    /// element.
    remove: Option<Vec<String>>,
    /// JSON Pointers to the parts to keep in the structured result. All other parts are removed.
    /// Cannot be combined with `remove`.
    only: Option<Vec<String>>,
    /// Whether to keep texts that are not JSON. Such texts may repeat the removed parts.
    keep_texts: Option<bool>,
}

/// Converts the `[[redactions]]` tables to a [`RedactLayer`], and records their errors in `reader`.
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
            reader.report(&at("tools"), "missing key `tools`".to_owned());
        }
        let tools = selection(self.tools, None, ["tools", ""], path, reader);
        let (key, pointers, built) = match (self.remove, self.only) {
            (Some(pointers), None) => {
                let built = pointers.iter().map(|pointer| Redaction::new(tools.clone(), [pointer]));
                ("remove", built.collect::<Vec<_>>(), Redaction::new(tools.clone(), &pointers))
            }
            (None, Some(pointers)) => {
                let built =
                    pointers.iter().map(|pointer| Redaction::only(tools.clone(), [pointer]));
                ("only", built.collect::<Vec<_>>(), Redaction::only(tools.clone(), &pointers))
            }
            (Some(_), Some(_)) => {
                let message = "`only` and `remove` exclude each other: expected one of them";
                reader.report(&at("only"), message.to_owned());
                return None;
            }
            (None, None) => {
                reader.report(&at("remove"), "missing key `remove`, or `only`".to_owned());
                return None;
            }
        };
        if pointers.is_empty() {
            reader.report(&at(key), format!("no pointers: expected at least one in `{key}`"));
        }
        for (place, pointer) in pointers.into_iter().enumerate() {
            if let Err(error) = pointer {
                reader.report(&[&at(key)[..], &[place.into()]].concat(), error.to_string());
            }
        }
        let redaction = built.ok()?;
        Some(if self.keep_texts.unwrap_or_default() { redaction.keep_texts() } else { redaction })
    }
}
