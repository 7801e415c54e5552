//! The status of a task, which its handler stores in Restate.

use std::collections::BTreeMap;

use restate_sdk::prelude::*;
use rmcp::model::InputRequests;
use serde::{Deserialize, Serialize};

use crate::message::journal::Journal;

/// The key of the record with which the task was started.
pub(super) const CALL: &str = "call";
/// The key of the task's status.
pub(super) const STATUS: &str = "status";
/// The key of the invocation that runs the task.
pub(super) const INVOCATION: &str = "invocation";
/// The promise that contains the time at which a process has refused to continue the task, as Unix
/// time in milliseconds.
pub(super) const REFUSED: &str = "refused";

/// A task as its handler returns it.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredTask {
    pub(super) call: String,
    pub(super) status: Status,
}

/// The status of a task.
#[derive(Serialize, Deserialize)]
pub(super) struct Status {
    pub(super) updated_ms: i64,
    pub(super) phase: Phase,
}

/// The phase of a task.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    Working,
    Asks {
        questions: InputRequests,
        /// The awakeables that receive the answers, by the keys of the questions.
        awakeables: BTreeMap<String, String>,
    },
    /// The run has ended with this outcome, a JSON text.
    Ended(String),
    /// A process has refused to continue the run, because the definition of its composite has
    /// changed.
    Refused,
    Cancelled,
}

// === impl Phase ===

impl Phase {
    pub(super) const fn is_ended(&self) -> bool {
        matches!(self, Self::Ended(_) | Self::Refused | Self::Cancelled)
    }
}

// === impl Status ===

impl Status {
    /// Stores the status of a task, at the time of the journal.
    pub(super) fn set(context: &WorkflowContext<'_>, journal: &dyn Journal, phase: Phase) {
        let updated_ms = i64::try_from(journal.unix_ms()).unwrap_or(i64::MAX);
        context.set(STATUS, Json(Self { updated_ms, phase }));
    }
}
