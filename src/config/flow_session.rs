//! The `[flow_session]` section, which can deny calls of tools that publish data.

use std::time;

use serde::Deserialize;

use super::{duration::Duration, flow::original, read::Reader, set_some::SetSome};
use crate::{
    alias::AliasLayer,
    composite::FlowPolicy,
    flow::{FlowLayer, SessionMode},
};

const SECTION: &str = "flow_session";

/// Restricts calls of `egress` tools in a session that has received private and untrusted data. By
/// default, results are labeled, and all calls are allowed.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["mode"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct FlowSessionTable {
    /// How to handle such a call.
    mode: Option<SessionMode>,
    /// Time after which a session that has received no further labeled result no longer has its
    /// labels. Defaults to 1 hour.
    expires_after: Option<Duration>,
}

/// The settings of the `[flow_session]` section.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowSessionConfig {
    mode: SessionMode,
    expires_after: Option<time::Duration>,
}

/// Converts the `[flow_session]` section to a [`FlowSessionConfig`], and reports errors in the
/// section to `reader`. `policy` contains the labels of the `[[flow]]` section.
pub(super) fn build(
    table: Option<FlowSessionTable>,
    policy: &FlowPolicy,
    reader: &mut Reader<'_, '_>,
) -> FlowSessionConfig {
    let Some(table) = table else { return FlowSessionConfig::default() };
    let at = |key: &str| [SECTION.into(), key.into()];
    if table.mode.is_none() && !reader.has_fault_in(&at("mode")) {
        reader.report(&at("mode"), "missing key `mode`");
    }
    if policy.is_empty() && !reader.has_fault_in(&["flow".into()]) {
        reader.report(&[SECTION.into()], "no tool has a label: expected `[[flow]]`");
    }
    let expires_after = table.expires_after.map(|Duration(time)| time);
    if expires_after.is_some_and(|time| time.is_zero()) {
        let message = "`expires_after` is zero: expected more, or `mode = \"off\"`";
        reader.report(&at("expires_after"), message);
    }
    FlowSessionConfig { mode: table.mode.unwrap_or_default(), expires_after }
}

// === impl FlowSessionConfig ===

impl FlowSessionConfig {
    /// Returns the layer that labels tool results and checks calls in a session. `policy` refers to
    /// tools by their names before `[[aliases]]` renames them.
    pub(super) fn layer(&self, policy: &FlowPolicy, alias: &AliasLayer) -> FlowLayer {
        let alias = alias.clone();
        FlowLayer::new(policy.clone())
            .mode(self.mode)
            .set_some(self.expires_after, FlowLayer::expires_after)
            .original(move |tool| original(&alias, tool))
    }
}
