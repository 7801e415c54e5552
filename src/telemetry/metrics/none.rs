//! Provides the functions of `metrics.rs` without effects. Used if the feature `metrics` is
//! disabled.

use std::time::Duration;

use rmcp::model::CallToolResult;

use crate::{message::ItemKind, observe::Event, spans::End};

pub(crate) const fn served(
    _: &str,
    _: Option<(ItemKind, &str)>,
    _: &End,
    _: Duration,
    _: Option<&str>,
) {
}

pub(crate) const fn called(_: &str, _: &End, _: Duration, _: Option<&str>) {}

pub(crate) const fn happened(_: &Event<'_>) {}

pub(crate) const fn over_budget(_: &str, _: Option<&str>) {}

pub(crate) const fn shortened(_: &CallToolResult, _: &CallToolResult, _: Option<&str>) {}

#[cfg(feature = "remote")]
pub(crate) const fn connected(_: &str) {}

#[cfg(feature = "cache")]
pub(crate) const fn cached(_: &'static str) {}
