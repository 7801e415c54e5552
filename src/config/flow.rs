//! The `[[flow]]` section, which labels tools, so that the flow of data through composites can be
//! checked.

use serde::Deserialize;

use super::{BackendConfig, failure::one_of, filter::selection, read::Reader, source::sanitized};
use crate::{
    alias::AliasLayer,
    composite::{CompositeLayer, FlowLabel, FlowPolicy, FlowViolation, Segment},
    message::ItemKind,
    suggest::nearest,
};

const SECTION: &str = "flow";

/// Labels the results and the effects of tools. A file is rejected if a composite uses labeled
/// data where it must not.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FlowTable {
    /// Name patterns of the labeled tools. They match the tool names before `[[aliases]]` renames
    /// the tools. Defaults to all tools of `backends`.
    tools: Option<Vec<String>>,
    /// Names of the backends whose tools are labeled. Defaults to all backends.
    backends: Option<Vec<String>>,
    /// The labels of the tools. A tool has the labels of all entries that match it. Required unless
    /// `annotations` is `true`.
    labels: Option<Vec<FlowLabel>>,
    /// Whether the annotations of the tools are labels, too: `destructiveHint`, `readOnlyHint` and
    /// `openWorldHint`. A tool is `destructive`, `untrusted` and `egress` unless its annotations
    /// deny it. Defaults to `false`.
    annotations: Option<bool>,
}

/// Converts the `[[flow]]` tables to a [`FlowPolicy`] for the tool names of the router. Reports
/// errors in the tables to `reader`.
pub(super) fn build(
    tables: Vec<FlowTable>,
    backends: &[BackendConfig],
    reader: &mut Reader<'_, '_>,
) -> FlowPolicy {
    let mut policy = FlowPolicy::new();
    for (index, table) in tables.into_iter().enumerate() {
        let path = [SECTION.into(), index.into()];
        let at = |key: &str| [&path[..], &[key.into()]].concat();
        let trusts_annotations = table.annotations.unwrap_or_default();
        match table.labels.as_deref() {
            None if trusts_annotations => (),
            None => reader.report(&at("labels"), "missing key `labels`"),
            // An unknown label was reported, and is omitted.
            Some([]) if !reader.has_fault_in(&at("labels")) => {
                reader.report(&at("labels"), "no labels: expected at least one");
            }
            Some(_) => (),
        }
        if table.tools.is_none() && table.backends.is_none() {
            reader.report(&path, "missing key `tools` or `backends`");
        }
        // An empty list would label nothing.
        for (key, names) in [("tools", &table.tools), ("backends", &table.backends)] {
            if names.as_ref().is_some_and(Vec::is_empty) && !reader.has_fault_in(&at(key)) {
                reader.report(&at(key), format!("no {key}: expected at least one"));
            }
        }
        let tools = selection(table.tools, None, ["tools", ""], &path, reader);
        let prefixes = table.backends.map(|names| prefixes(&names, backends, &path, reader));
        let labels = table.labels.unwrap_or_default();
        policy.add(tools, prefixes, labels, trusts_annotations);
    }
    policy
}

/// Returns the prefixes of the tool names of some backends. Reports unknown backends.
///
/// A tool name can begin with the prefixes of several backends. If the router does not prefix
/// names, all prefixes are empty. In both cases, the tool gets the labels of all these backends.
fn prefixes(
    names: &[String],
    backends: &[BackendConfig],
    path: &[Segment],
    reader: &mut Reader<'_, '_>,
) -> Vec<String> {
    let known: Vec<_> = backends.iter().map(BackendConfig::name).collect();
    let mut prefixes = Vec::with_capacity(names.len());
    for (place, name) in names.iter().enumerate() {
        match backends.iter().find(|backend| backend.name() == name) {
            Some(backend) => prefixes.push(backend.prefix().to_owned()),
            // An error in `[[backends]]` may be the reason.
            None if reader.has_fault_in(&["backends".into()]) => (),
            None => {
                let hint = match (nearest(name, &known), known.as_slice()) {
                    (Some(near), _) => format!(": did you mean `{near}`?"),
                    (None, []) => ": the file has no backends".to_owned(),
                    (None, known) => format!(": expected {}", one_of(known)),
                };
                let path = [path, &["backends".into(), place.into()]].concat();
                reader.report(&path, format!("unknown backend `{}`{hint}", sanitized(name)));
            }
        }
    }
    prefixes
}

/// Returns the name of a tool before the `[[aliases]]` section renames it.
pub(super) fn original(alias: &AliasLayer, tool: &str) -> String {
    alias.original_of(ItemKind::Tool, tool).unwrap_or(tool).to_owned()
}

/// Adds the policy to the composite layer if the policy depends on tool annotations, which are
/// unknown until the backends list their tools. Otherwise, [`check`] has already found all
/// violations.
pub(super) fn apply(
    policy: &FlowPolicy,
    composites: CompositeLayer,
    alias: &AliasLayer,
) -> CompositeLayer {
    if !policy.trusts_annotations() {
        return composites;
    }
    let alias = alias.clone();
    composites.flow_of(policy.clone(), move |tool| original(&alias, tool))
}

/// Returns each use of labeled data in a composite that the policy forbids.
pub(super) fn violations(
    policy: &FlowPolicy,
    composites: &CompositeLayer,
    alias: &AliasLayer,
) -> Vec<FlowViolation> {
    composites.check_flow_of(policy, |tool| original(alias, tool)).violations
}

/// Reports each use of labeled data in a composite that the policy forbids, for example private
/// data in the arguments of an `egress` tool.
pub(super) fn check(
    policy: &FlowPolicy,
    composites: &CompositeLayer,
    alias: &AliasLayer,
    reader: &mut Reader<'_, '_>,
) {
    let report = composites.check_flow_of(policy, |tool| original(alias, tool));
    for (path, message) in report.places() {
        let path = [&[super::composite_tools::SECTION.into()], path].concat();
        reader.report_flow(&path, message);
    }
    if !policy.trusts_annotations() {
        // The annotations of a tool may make an exception necessary.
        composites.remark(report.remarks);
    }
}
