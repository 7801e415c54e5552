//! Journals: the events of a call that a durable engine executes.

use std::{
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use futures::future::BoxFuture;
use rmcp::model::InputRequests;
use serde_json::Value;
use tokio::time::Instant;

use super::Context;

/// The journal of one call in a durable engine.
///
/// The engine stores the events of the call. After the process has stopped, it executes the call
/// again, and delivers the stored events in the same order and with the same times. A call that
/// depends only on the journal therefore makes the same decisions again.
///
/// All methods must be called in the task that polls the call.
#[cfg_attr(
    not(feature = "restate"),
    allow(dead_code, reason = "only durable engines use all of it")
)]
pub(crate) trait Journal: Send + Sync {
    /// Returns the time of the last event.
    fn now(&self) -> Instant;

    /// Returns the time of the last event as Unix time in milliseconds.
    fn unix_ms(&self) -> u64;

    /// Returns the next random number, which is the same in each execution.
    fn random(&self) -> u64;

    /// Starts an effect, such as a tool call, and returns its ID. The output of the effect is
    /// stored, and delivered as an event.
    fn start(&self, effect: Effect) -> u64;

    /// Stops an effect, whose output is never delivered.
    fn abort(&self, effect: u64);

    /// Sends questions to the client. Each answer is delivered as an event.
    fn ask(&self, questions: InputRequests);

    /// Withdraws all questions that the client has not answered.
    fn withdraw(&self);

    /// Returns the next event, at the latest when `due` has passed.
    fn poll_next(&self, due: Instant, cx: &mut TaskContext<'_>) -> Poll<JournalEvent>;
}

/// An action whose output is stored in a [`Journal`].
#[cfg_attr(
    not(feature = "restate"),
    allow(dead_code, reason = "only durable engines use all of it")
)]
pub(crate) struct Effect {
    /// The name of the effect in the engine.
    pub(crate) name: String,
    /// Performs the effect, and returns its output.
    pub(crate) run: BoxFuture<'static, Vec<u8>>,
    /// The output if it is unknown whether the effect was performed before the process has stopped.
    /// `None` if the effect may be performed again.
    pub(crate) lost: Option<Vec<u8>>,
    /// The time at which the effect is aborted even if the execution of the call does not go on in
    /// this process.
    pub(crate) deadline: Instant,
}

/// An event in a [`Journal`].
#[cfg_attr(
    not(feature = "restate"),
    allow(dead_code, reason = "only durable engines use all of it")
)]
#[derive(Clone, Debug)]
pub(crate) enum JournalEvent {
    /// An effect has ended with this output, or its output is lost for this reason.
    Ended { effect: u64, output: Result<Vec<u8>, String> },
    /// The client has answered the question with this key.
    Answered { key: String, answer: Value },
    /// The requested time has passed.
    Due,
    /// The call was cancelled.
    Cancelled,
}

/// The handle of a journal in the extensions of a context.
#[cfg_attr(
    not(feature = "restate"),
    allow(dead_code, reason = "only durable engines use all of it")
)]
#[derive(Clone)]
struct Handle(Arc<dyn Journal>);

// === impl Context ===

impl Context {
    /// Sets the journal of this call.
    #[cfg(feature = "restate")]
    pub(crate) fn set_journal(&mut self, journal: Arc<dyn Journal>) {
        self.extensions.insert(Handle(journal));
    }

    /// Returns the journal of this call. Returns `None` if no durable engine executes the call.
    ///
    /// The contexts of branches and of nested requests have no journal, because each call of the
    /// outermost run is one effect.
    #[cfg(feature = "restate")]
    pub(crate) fn journal(&self) -> Option<&Arc<dyn Journal>> {
        self.extensions.get().map(|Handle(journal)| journal)
    }

    /// Returns `None`, because this build has no durable engine.
    #[cfg(not(feature = "restate"))]
    #[expect(clippy::unused_self, reason = "other builds need it")]
    pub(crate) const fn journal(&self) -> Option<&Arc<dyn Journal>> {
        None
    }

    /// Returns the current time, or the time of the last event if the call has a journal.
    pub(crate) fn now(&self) -> Instant {
        self.journal().map_or_else(Instant::now, |journal| journal.now())
    }
}

/// Removes the journal from the extensions of a branch.
pub(super) fn remove(extensions: &mut rmcp::model::Extensions) {
    extensions.remove::<Handle>();
}
