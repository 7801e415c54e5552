//! The record of a run: its branches, attempts and waiting times.

use std::borrow::Cow;

use mcp_composite::config::Config;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::redacted::Redacted;

/// A name with a fixed set of values, or the value that a recording contains.
pub(crate) type Name = Cow<'static, str>;

/// One run of a composite.
///
/// Times are in milliseconds of real time since the start of the run, unless stated otherwise.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct RunRecord {
    pub(crate) id: String,
    /// The branch that called the composite, if the run is nested in another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) parent: Option<ParentRecord>,
    pub(crate) composite: String,
    /// The path of the view that the run was called in. `None` for the file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) view: Option<String>,
    /// The name of the task that the run belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) task: Option<String>,
    /// `running`, `waiting`, `completed`, `failed` or `dropped`.
    pub(crate) status: Name,
    /// The start, in milliseconds since 1970.
    pub(crate) started_at_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_ms: Option<u64>,
    /// The duration without the time for which the run waited for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) took_ms: Option<u64>,
    /// The limit that ended the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limit: Option<Name>,
    /// `true` if the run started in another process, or before the log began.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) is_partial: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
    #[serde(default)]
    pub(crate) branches: Vec<BranchRecord>,
    /// The number of further branches, which exceed the limits of the log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) omitted_branches: u64,
}

/// The run and branch that called a nested run.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct ParentRecord {
    pub(crate) run: String,
    pub(crate) branch: String,
}

/// A branch of a run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct BranchRecord {
    /// The id of the target or step.
    pub(crate) id: String,
    /// The index of the element, if the branch is an element of a loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) element: Option<usize>,
    /// `running`, `waiting`, `completed`, `failed`, `timed_out`, `cancelled` or `skipped`.
    pub(crate) status: Name,
    /// The kind of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Name>,
    /// Why the branch was skipped: `condition`, `ended`, or the name of a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Name>,
    pub(crate) started_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended_ms: Option<u64>,
    /// The duration without the time for which the run was suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) took_ms: Option<u64>,
    /// The result of the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
    /// The number of calls, including retries.
    #[serde(default)]
    pub(crate) calls: u32,
    /// Whether the result was cached.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) cached: bool,
    /// The first calls.
    #[serde(default)]
    pub(crate) attempts: Vec<AttemptRecord>,
    /// The times for which the branch waited for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits: Vec<WaitRecord>,
}

/// A call of a branch's tool.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct AttemptRecord {
    pub(crate) at_ms: u64,
    pub(crate) tool: String,
    /// The kind of error that caused this retry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) after: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<Value>,
}

/// A time for which a branch waited for a person.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct WaitRecord {
    pub(crate) from_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) until_ms: Option<u64>,
}

/// A composite, and its flowchart as Mermaid text.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct CompositeRecord {
    pub(crate) name: String,
    /// The path of the view that has the composite. `None` for the file itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) view: Option<String>,
    pub(crate) mermaid: String,
}

/// The part of a record that a list of runs shows.
#[derive(Debug, Serialize)]
pub(crate) struct RunSummary<'r> {
    id: &'r str,
    parent: Option<&'r ParentRecord>,
    composite: Cow<'r, str>,
    view: Option<&'r str>,
    task: Option<&'r str>,
    /// The branches that wait for a person.
    waiting: Vec<String>,
    status: &'r str,
    started_at_ms: u64,
    ended_ms: Option<u64>,
    took_ms: Option<u64>,
    limit: Option<&'r str>,
    branches: u64,
    failed_branches: usize,
    retries: u32,
}

// === impl RunRecord ===

impl RunRecord {
    /// Returns the record without secrets.
    pub(crate) fn redacted(mut self, redacted: &Redacted) -> Self {
        self.composite = redacted.text(&self.composite);
        self.arguments = self.arguments.map(|arguments| redacted.json(arguments));
        self.result = self.result.map(|result| redacted.json(result));
        if let Some(parent) = &mut self.parent {
            parent.branch = redacted.text(&parent.branch);
        }
        for branch in &mut self.branches {
            branch.id = redacted.text(&branch.id);
            branch.result = branch.result.take().map(|result| redacted.json(result));
            for attempt in &mut branch.attempts {
                attempt.tool = redacted.text(&attempt.tool);
                attempt.arguments =
                    attempt.arguments.take().map(|arguments| redacted.json(arguments));
            }
        }
        self
    }

    /// Returns the record without arguments and results.
    pub(crate) fn without_data(mut self) -> Self {
        (self.arguments, self.result) = (None, None);
        for branch in &mut self.branches {
            branch.result = None;
            branch.attempts.iter_mut().for_each(|attempt| attempt.arguments = None);
        }
        self
    }

    /// Returns the part that a list of runs shows, without secrets.
    pub(crate) fn summary(&self, redacted: &Redacted) -> RunSummary<'_> {
        let waits = |branch: &&BranchRecord| branch.status == "waiting";
        let waiting = self.branches.iter().filter(waits);
        let has_failed = |branch: &&BranchRecord| matches!(&*branch.status, "failed" | "timed_out");
        RunSummary {
            id: &self.id,
            parent: self.parent.as_ref(),
            composite: redacted.text(&self.composite).into(),
            view: self.view.as_deref(),
            task: self.task.as_deref(),
            waiting: waiting.map(|branch| redacted.text(&branch.id)).collect(),
            status: &self.status,
            started_at_ms: self.started_at_ms,
            ended_ms: self.ended_ms,
            took_ms: self.took_ms,
            limit: self.limit.as_deref(),
            branches: self.branches.len() as u64 + self.omitted_branches,
            failed_branches: self.branches.iter().filter(has_failed).count(),
            retries: self.branches.iter().map(BranchRecord::retries).sum(),
        }
    }
}

// === impl BranchRecord ===

impl BranchRecord {
    const fn retries(&self) -> u32 {
        // The calls of a loop are those of its elements.
        if self.attempts.is_empty() { 0 } else { self.calls.saturating_sub(1) }
    }
}

// === impl CompositeRecord ===

impl CompositeRecord {
    /// Returns the composites of a file and its views, without secrets.
    pub(crate) fn of(config: &Config, redacted: &Redacted) -> Vec<Self> {
        let views = config.views().iter().filter_map(|view| config.view(view.path()));
        let of_views = views.flat_map(|view| Self::of_view(&view, redacted));
        Self::of_view(config, redacted).into_iter().chain(of_views).collect()
    }

    /// Returns the composites of one view, or those of the file itself.
    pub(crate) fn of_view(config: &Config, redacted: &Redacted) -> Vec<Self> {
        let layer = config.composite_layer();
        let view = config.view_path().map(str::to_owned);
        let names = config.composite_tools().iter().map(|tool| tool.name());
        let drawn = names.filter_map(|name| {
            let mermaid = redacted.text(&layer.flowchart(name).ok()?.to_string());
            Some(Self { name: redacted.text(name), view: view.clone(), mermaid })
        });
        drawn.collect()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(value: &bool) -> bool {
    !*value
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(value: &u64) -> bool {
    *value == 0
}
