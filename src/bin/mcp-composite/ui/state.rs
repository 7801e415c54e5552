//! The state that the page shows.

use std::sync::Arc;

use axum::extract::State;
use mcp_composite::config::Gateway;
use serde_json::Value;
use tokio::sync::{Notify, Semaphore, watch};

use super::budgets;
use crate::{
    observed::Observed,
    redacted::Redacted,
    runs::{CompositeRecord, Recording, RunLog},
};

/// The maximum number of pages that are open at the same time.
const MAX_PAGES: usize = 32;

/// The state, as handlers of requests receive it.
pub(super) type App = State<Arc<PageState>>;

/// The state that the page shows.
pub(crate) struct PageState {
    /// The file that is served, or the recording.
    pub(super) file: String,
    pub(super) observed: Observed,
    pub(super) runs: Arc<RunLog>,
    pub(super) redacted: Redacted,
    pub(super) source: Source,
    /// Whether readers of the page can cancel runs: only on this machine, because the page does not
    /// authenticate its readers.
    pub(super) can_cancel: bool,
    /// Identifies this process, so that a page reloads when another one answers.
    pub(super) instance: String,
    /// The number of further pages that may be open.
    pub(super) pages: Arc<Semaphore>,
    /// Held while the backends are asked for their tools.
    pub(super) listing: tokio::sync::Mutex<()>,
    /// The budgets that were read last; `Value::Null` before, and for a recording.
    pub(super) budgets: watch::Sender<Value>,
    /// Notified when a page was opened.
    pub(super) opened: Notify,
}

pub(super) enum Source {
    Live(Gateway),
    Recording { composites: Vec<CompositeRecord>, warning: Option<String> },
}

// === impl PageState ===

impl PageState {
    pub(super) fn new(
        file: String,
        observed: Observed,
        runs: Arc<RunLog>,
        redacted: Redacted,
        source: Source,
    ) -> Self {
        Self {
            file,
            observed,
            runs,
            redacted,
            source,
            can_cancel: false,
            instance: format!("{:016x}", fastrand::u64(..)),
            pages: Arc::new(Semaphore::new(MAX_PAGES)),
            listing: tokio::sync::Mutex::default(),
            budgets: watch::Sender::default(),
            opened: Notify::new(),
        }
    }

    /// Returns the budgets, or `Value::Null` for a recording. Returns `None` if a store does not
    /// answer.
    pub(super) async fn read_budgets(&self) -> Option<Value> {
        match &self.source {
            Source::Live(gateway) => Some(self.redacted.json(budgets::budgets(gateway).await?)),
            Source::Recording { .. } => Some(Value::Null),
        }
    }

    /// Returns the state of a page that shows a recording.
    pub(crate) fn recording(file: String, recording: Recording) -> Self {
        let Recording { runs, composites, warning } = recording;
        let (observed, runs) = (Observed::default(), Arc::new(runs));
        let source = Source::Recording { composites, warning };
        Self::new(file, observed, runs, Redacted::default(), source)
    }
}
