//! Runs plans in a durable engine: makes each tool call an effect of the engine's journal, and
//! receives all events from the journal.

use std::{
    panic::AssertUnwindSafe,
    sync::Arc,
    task::{Context as TaskContext, Poll},
    time::Duration,
};

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    engine::{
        branches::BranchId,
        caller::Called,
        detached::{Detached, Usage},
        outcome::{ErrorKind, StepError},
        scheduler::lost,
        scope::Scope,
    },
    message::{
        Account, Charged,
        journal::{Effect, Journal, JournalEvent},
    },
};

/// The part of a run that is in the journal of a durable engine.
pub(super) struct Journaled {
    journal: Arc<dyn Journal>,
    /// The account that enforces the limits of the run among its running calls. The decisions of
    /// the run depend on the account of its scope instead, which is charged by events only.
    account: Arc<Account>,
    /// The effects that have not ended, with their branches and the start of their calls.
    running: Vec<Running>,
}

/// A tool call whose effect has not ended.
pub(super) struct Running {
    effect: u64,
    pub(super) id: BranchId,
    /// The start of the first attempt of the call.
    pub(super) begun: Duration,
    is_nested: bool,
}

/// A tool call that becomes an effect.
pub(super) struct JournaledCall {
    pub(super) id: BranchId,
    pub(super) name: String,
    /// The start of the first attempt of the call.
    pub(super) begun: Duration,
    pub(super) is_nested: bool,
    /// Whether the call may be repeated if it is unknown whether it was made.
    pub(super) is_repeatable: bool,
    pub(super) detached: Detached,
}

/// The output of a tool call in the journal.
#[derive(Serialize, Deserialize)]
struct Output {
    called: Called,
    /// The usage of a nested run, which counts toward the limits of this run.
    #[serde(skip_serializing_if = "Usage::is_empty", default)]
    used: Usage,
    /// All costs of the run until the end of the call.
    charged: Charged,
}

// === impl Journaled ===

impl Journaled {
    pub(super) fn new(journal: Arc<dyn Journal>, scope: &Scope) -> Self {
        let account = scope.account().map(|account| account.copy()).unwrap_or_default();
        Self { journal, account: Arc::new(account), running: Vec::new() }
    }

    pub(super) fn now(&self) -> Instant {
        self.journal.now()
    }

    /// Returns the account to which the running calls are charged.
    pub(super) const fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Makes a tool call. `step` is the name of its step.
    pub(super) fn start<F>(&mut self, call: JournaledCall, called: F, step: &str, deadline: Instant)
    where
        F: Future<Output = Called> + Send + 'static,
    {
        let JournaledCall { id, name, begun, is_nested, is_repeatable, detached } = call;
        let account = self.account.clone();
        let run = async move {
            let called = AssertUnwindSafe(called).catch_unwind().await;
            let called = called.unwrap_or_else(|_| Err(StepError::panicked()));
            let used = if is_nested { detached.usage() } else { Usage::default() };
            Output { called, used, charged: account.amounts() }.to_json()
        };
        let lost = (!is_repeatable).then(|| Output::failed(lost(step)).to_json());
        let effect = self.journal.start(Effect { name, run: run.boxed(), lost, deadline });
        self.running.push(Running { effect, id, begun, is_nested });
    }

    pub(super) fn abort(&mut self, id: BranchId) {
        for running in self.running.extract_if(.., |running| running.id == id) {
            self.journal.abort(running.effect);
        }
    }

    /// Returns the next event.
    pub(super) fn poll_next(&self, due: Instant, cx: &mut TaskContext<'_>) -> Poll<JournalEvent> {
        self.journal.poll_next(due, cx)
    }

    /// Ends a tool call with the output of its effect, or with the reason why there is no output.
    /// Counts the output toward the limits of `scope`, and returns the call and its reply. Returns
    /// `None` if the call was aborted.
    pub(super) fn end(
        &mut self,
        effect: u64,
        output: Result<Vec<u8>, String>,
        scope: &Scope,
    ) -> Option<(Running, Called)> {
        let place = self.running.iter().position(|running| running.effect == effect)?;
        let running = self.running.remove(place);
        let Output { called, used, charged } = match output {
            Ok(output) => Output::parse(&output),
            Err(reason) => Output::failed(StepError::new(ErrorKind::Lost, reason)),
        };
        if let Some(account) = scope.account() {
            account.raise(&charged);
        }
        self.account.raise(&charged);
        if running.is_nested {
            scope.meter().add(&used);
            return Some((running, called));
        }
        Some((running, scope.keep(&called).and(called)))
    }
}

// === impl Output ===

impl Output {
    fn to_json(&self) -> Vec<u8> {
        // Serialization cannot fail: all map keys are strings.
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        // A deeply nested value can be serialized, but would exceed the parser's depth limit.
        if serde_json::from_slice::<Self>(&bytes).is_ok() {
            return bytes;
        }
        let error = StepError::new(ErrorKind::Protocol, "a result is nested too deep");
        let Self { used, charged, .. } = self;
        let (used, charged) = (used.clone(), charged.clone());
        serde_json::to_vec(&Self { called: Err(error), used, charged }).unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Self {
        serde_json::from_slice(bytes).unwrap_or_else(|error| {
            tracing::error!(%error, "an output in the journal is malformed");
            Self::failed(StepError::new(ErrorKind::Lost, "the outcome of the call is malformed"))
        })
    }

    fn failed(error: StepError) -> Self {
        Self { called: Err(error), used: Usage::default(), charged: Charged::default() }
    }
}
