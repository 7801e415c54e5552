//! The journal of a run, which its handler fills with the events that Restate stores.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use fastrand::Rng;
use rmcp::model::InputRequests;
use tokio::time::Instant;

use crate::{
    message::journal::{Effect, Journal, JournalEvent},
    mutex::lock,
};

/// The journal of a run.
pub(super) struct RunJournal(Mutex<State>);

struct State {
    /// The start of the run on the clock of this process.
    base: Instant,
    /// The start of the run, as Unix time.
    begun: Duration,
    /// The time of the last event, since the start of the run.
    now: Duration,
    random: Rng,
    effects: u64,
    commands: Vec<Command>,
    events: VecDeque<JournalEvent>,
    /// The time until which the run waits for an event, since its start. `None` if it does not
    /// wait.
    due: Option<Duration>,
}

/// A request of the run, which its handler carries out.
pub(super) enum Command {
    Start(u64, Effect),
    Abort(u64),
    Ask(InputRequests),
    Withdraw,
}

// === impl RunJournal ===

impl RunJournal {
    /// Creates the journal of a run that started at the Unix time `begun_ns`. `seed` is the seed of
    /// its random numbers.
    pub(super) fn new(begun_ns: u64, seed: u64) -> Self {
        Self(Mutex::new(State {
            base: Instant::now(),
            begun: Duration::from_nanos(begun_ns),
            now: Duration::ZERO,
            random: Rng::with_seed(seed),
            effects: 0,
            commands: Vec::new(),
            events: VecDeque::new(),
            due: None,
        }))
    }

    /// Returns the time until which the run waits for an event, since its start. Returns `None` if
    /// it does not wait.
    pub(super) fn due(&self) -> Option<Duration> {
        self.state().due
    }

    /// Returns the time of the last event, since the start of the run.
    pub(super) fn elapsed(&self) -> Duration {
        self.state().now
    }

    pub(super) fn take_commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.state().commands)
    }

    /// Converts a Unix time to a time since the start of the run.
    pub(super) fn since_begun(&self, unix_ns: u64) -> Duration {
        Duration::from_nanos(unix_ns).saturating_sub(self.state().begun)
    }

    /// Advances the clock to this time since the start of the run.
    pub(super) fn advance(&self, to: Duration) {
        let mut state = self.state();
        state.now = state.now.max(to);
    }

    /// Delivers an event.
    pub(super) fn deliver(&self, event: JournalEvent) {
        self.state().events.push_back(event);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }
}

impl Journal for RunJournal {
    fn now(&self) -> Instant {
        let state = self.state();
        state.base + state.now
    }

    fn unix_ms(&self) -> u64 {
        let state = self.state();
        u64::try_from((state.begun + state.now).as_millis()).unwrap_or(u64::MAX)
    }

    fn random(&self) -> u64 {
        self.state().random.u64(..)
    }

    fn start(&self, effect: Effect) -> u64 {
        let mut state = self.state();
        let id = state.effects;
        state.effects += 1;
        state.commands.push(Command::Start(id, effect));
        id
    }

    fn abort(&self, effect: u64) {
        self.state().commands.push(Command::Abort(effect));
    }

    fn ask(&self, questions: InputRequests) {
        self.state().commands.push(Command::Ask(questions));
    }

    fn withdraw(&self) {
        self.state().commands.push(Command::Withdraw);
    }

    fn poll_next(&self, due: Instant, _: &mut Context<'_>) -> Poll<JournalEvent> {
        let mut state = self.state();
        if let Some(event) = state.events.pop_front() {
            state.due = None;
            return Poll::Ready(event);
        }
        // The handler polls the run again after it has delivered an event.
        state.due = Some(due.saturating_duration_since(state.base));
        Poll::Pending
    }
}

#[cfg(all(test, feature = "config", feature = "testing"))]
mod tests;
