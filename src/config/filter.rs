//! Reads the `[filter]` section of a configuration file. The tables in `[[backends]]` have the same
//! keys, which filter the tools, prompts and resources of one backend.

use serde::Deserialize;

use super::read::Reader;
use crate::{
    composite::Segment,
    filter::FilterLayer,
    pattern::{PatternError, Selection},
};

/// The keys whose values are lists of name patterns for tools.
const TOOL_KEYS: [&str; 5] = ["expose_tools", "hide_tools", "allow", "deny", "tools"];

/// Allows or hides tools, prompts and resources by name, URI or annotation.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FilterTable {
    /// Name patterns of the tools that clients may see and call. Defaults to all tools.
    pub(super) expose_tools: Option<Vec<String>>,
    /// Name patterns of the tools that clients may neither see nor call.
    pub(super) hide_tools: Option<Vec<String>>,
    /// Name patterns of the prompts that clients may see and get. Defaults to all prompts.
    pub(super) expose_prompts: Option<Vec<String>>,
    /// Name patterns of the prompts that clients may neither see nor get.
    pub(super) hide_prompts: Option<Vec<String>>,
    /// URI patterns of the resources that clients may see and read. Defaults to all resources.
    pub(super) expose_resources: Option<Vec<String>>,
    /// URI patterns of the resources that clients may neither see nor read.
    pub(super) hide_resources: Option<Vec<String>>,
    /// Patterns of the resource URI templates that clients may see. Defaults to all templates.
    pub(super) expose_resource_templates: Option<Vec<String>>,
    /// Patterns of the resource URI templates that clients may not see.
    pub(super) hide_resource_templates: Option<Vec<String>>,
    /// If `true`, hides all tools without the annotation `readOnlyHint: true`.
    pub(super) read_only_only: Option<bool>,
    /// If `true`, hides all tools without the annotation `destructiveHint: false`.
    pub(super) hide_destructive: Option<bool>,
}

/// Converts the table at `path` to a [`FilterLayer`], and reports errors in the table to `reader`.
pub(super) fn build(
    table: FilterTable,
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> FilterLayer {
    let mut selection = |expose, hide, keys| selection(expose, hide, keys, path, reader);
    FilterLayer::new()
        .tools(selection(table.expose_tools, table.hide_tools, ["expose_tools", "hide_tools"]))
        .prompts(selection(
            table.expose_prompts,
            table.hide_prompts,
            ["expose_prompts", "hide_prompts"],
        ))
        .resources(selection(
            table.expose_resources,
            table.hide_resources,
            ["expose_resources", "hide_resources"],
        ))
        .resource_templates(selection(
            table.expose_resource_templates,
            table.hide_resource_templates,
            ["expose_resource_templates", "hide_resource_templates"],
        ))
        .read_only_only(table.read_only_only.unwrap_or_default())
        .hide_destructive(table.hide_destructive.unwrap_or_default())
}

/// Combines an allow list and a deny list of patterns into a selection of items, such as tools.
/// Reports invalid patterns to `reader`.
pub(super) fn selection(
    allow: Option<Vec<String>>,
    deny: Option<Vec<String>>,
    [allow_key, deny_key]: [&str; 2],
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> Selection {
    let mut selection = Selection::default();
    for (key, patterns) in [(allow_key, &allow), (deny_key, &deny)] {
        if TOOL_KEYS.contains(&key) {
            for (index, pattern) in patterns.iter().flatten().enumerate() {
                let path = [path, &[key.into(), index.into()]].concat();
                reader.note_tool_pattern(path, pattern.clone());
            }
        }
    }
    // An empty allow list allows no items, whereas a missing allow list allows all items.
    if let Some(allow) = allow {
        match selection.clone().allow(allow) {
            Ok(allowed) => selection = allowed,
            Err(error) => report(&error, allow_key, path, reader),
        }
    }
    if let Some(deny) = deny {
        match selection.clone().deny(deny) {
            Ok(denied) => selection = denied,
            Err(error) => report(&error, deny_key, path, reader),
        }
    }
    selection
}

fn report(error: &PatternError, key: &str, path: &[Segment], reader: &mut Reader<'_, '_>) {
    for mistake in error.mistakes() {
        let place = [key.into(), mistake.index().into()];
        reader.report(&[path, &place].concat(), mistake.to_string());
    }
}
