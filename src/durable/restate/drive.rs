//! Drives a run inside of its Restate handler: carries out the commands of the run, and delivers
//! the events that Restate stores.

use std::{
    collections::{BTreeMap, HashMap},
    future::{pending, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Either, select},
};
use restate_sdk::{
    context::{DurableFuture, DurableFuturesUnordered},
    prelude::*,
};
use rmcp::model::InputRequests;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};

use super::{
    calls::{Calls, Permit, unix_ns},
    journal::{Command, RunJournal},
    status::{Phase, Status},
};
use crate::{
    message::journal::{Effect, JournalEvent},
    tasks::TaskRun,
};

/// The time for which a call that another process has begun may still end there. Afterwards, it is
/// lost.
const LOST_AFTER: Duration = Duration::from_secs(5);
/// The code of the error with which Restate completes the futures of a cancelled run.
const CANCELLED: u16 = 409;

/// A durable future of an event.
type Pending<'c> = Pin<Box<dyn DurableFuture<Output = Event> + Send + 'c>>;

/// An event that Restate stores.
enum Event {
    Ended(u64, Completed),
    Answered(String, Completed),
    /// A timer that was set to this time since the start of the run has fired.
    Fired(Duration),
}

/// The value with which an awakeable was completed.
type Completed = Result<Vec<u8>, TerminalError>;

/// The value of an awakeable: a JSON text, and the time at which it was sent.
#[derive(Deserialize)]
struct Sent<'j> {
    at: u64,
    #[serde(borrow)]
    output: &'j RawValue,
}

/// A call that this process makes if its result is not stored.
struct Planned {
    id: u64,
    run: BoxFuture<'static, Vec<u8>>,
    deadline: Instant,
    permit: Permit,
}

/// The open questions of a run.
struct Open {
    questions: InputRequests,
    /// The awakeables that receive the answers, by the keys of the questions.
    awakeables: BTreeMap<String, String>,
    /// The time at which the questions expire, since the start of the run.
    expiry: Duration,
}

/// A run and the events that it may receive.
pub(super) struct Driver<'c> {
    context: &'c WorkflowContext<'c>,
    calls: Arc<Calls>,
    journal: Arc<RunJournal>,
    events: DurableFuturesUnordered<Pending<'c>>,
    /// The awakeables of the calls that have not ended.
    awakeables: HashMap<u64, String>,
    /// The calls that this process makes if their results are not stored.
    planned: Vec<Planned>,
    /// The time of the next timer, since the start of the run.
    timer: Option<Duration>,
    /// The number of rounds of questions.
    round: u64,
    /// The open questions. `None` if there are none.
    open: Option<Open>,
    lifetime: Duration,
    is_cancelled: bool,
}

// === impl Driver ===

impl<'c> Driver<'c> {
    pub(super) fn new(
        context: &'c WorkflowContext<'c>,
        calls: Arc<Calls>,
        journal: Arc<RunJournal>,
        lifetime: Duration,
    ) -> Self {
        Self {
            context,
            calls,
            journal,
            events: DurableFuturesUnordered::new(),
            awakeables: HashMap::new(),
            planned: Vec::new(),
            timer: None,
            round: 0,
            open: None,
            lifetime,
            is_cancelled: false,
        }
    }

    /// Runs a task to its end, and returns the final status.
    pub(super) async fn drive(mut self, run: TaskRun) -> Phase {
        let outcome = self.wait(run.outcome).await;
        for awakeable in self.awakeables.into_values() {
            self.calls.abort(&awakeable);
        }
        if self.is_cancelled {
            return Phase::Cancelled;
        }
        let outcome = String::from_utf8(outcome).unwrap_or_default();
        // The outcome contains random numbers, such as the handle of a stored result.
        match self.context.run(|| async { Ok(outcome) }).name("outcome").await {
            Ok(outcome) => Phase::Ended(outcome),
            Err(_) => Phase::Cancelled,
        }
    }

    async fn wait(&mut self, mut run: BoxFuture<'static, Vec<u8>>) -> Vec<u8> {
        loop {
            let journal = &self.journal;
            let polled = poll_fn(|cx| match run.poll_unpin(cx) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending if journal.due().is_some() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            if let Some(outcome) = polled.await {
                return outcome;
            }
            let was_cancelled = self.is_cancelled;
            for command in self.journal.take_commands() {
                self.carry_out(command).await;
            }
            let event = if self.is_cancelled && !was_cancelled {
                JournalEvent::Cancelled
            } else {
                let next = Box::pin(self.next());
                // The run ends without an event if an operator cancels it.
                match select(next, &mut run).await {
                    Either::Left((event, _)) => event,
                    Either::Right((outcome, _)) => return outcome,
                }
            };
            self.is_cancelled |= matches!(event, JournalEvent::Cancelled);
            self.journal.deliver(event);
        }
    }

    async fn carry_out(&mut self, command: Command) {
        match command {
            Command::Start(id, effect) => self.start(id, effect).await,
            Command::Abort(id) => {
                if let Some(awakeable) = self.awakeables.remove(&id) {
                    self.calls.abort(&awakeable);
                }
            }
            Command::Ask(questions) => self.ask(questions),
            Command::Withdraw => {
                self.open = None;
                self.set_status(Phase::Working);
            }
        }
    }

    /// Plans a call. If it may not be repeated, first stores that it is about to be made.
    async fn start(&mut self, id: u64, effect: Effect) {
        let Some(permit) = self.calls.permit() else {
            // The run continues in another process. Calls with permits still start in this one.
            let _ = self.next_stored().await;
            return pending().await;
        };
        let Effect { name, run, lost, deadline } = effect;
        let is_first = AtomicBool::new(lost.is_none());
        if lost.is_some() {
            let first = &is_first;
            let begin = || async move {
                first.store(true, Ordering::Relaxed);
                Ok(())
            };
            if self.context.run(begin).name(format!("call {name}")).await.is_err() {
                self.is_cancelled = true;
                return;
            }
        }
        let (awakeable, completed) = self.context.awakeable::<Vec<u8>>();
        self.events.push(Box::pin(DurableFuture::map(completed, move |it| Event::Ended(id, it))));
        let run = match lost {
            // The process that has begun the call may still store its output.
            Some(lost) if !is_first.load(Ordering::Relaxed) => {
                sleep(LOST_AFTER).map(|()| lost).boxed()
            }
            _ => run,
        };
        self.planned.push(Planned { id, run, deadline, permit });
        self.awakeables.insert(id, awakeable);
    }

    fn ask(&mut self, questions: InputRequests) {
        self.round += 1;
        let mut open = InputRequests::new();
        let mut awakeables = BTreeMap::new();
        for (key, question) in questions {
            let (awakeable, answered) = self.context.awakeable::<Vec<u8>>();
            // The keys of a task must be unique over its life, but each round may use the same
            // keys.
            let public = format!("{}:{key}", self.round);
            self.events
                .push(Box::pin(DurableFuture::map(answered, move |it| Event::Answered(key, it))));
            awakeables.insert(public.clone(), awakeable);
            open.insert(public, question);
        }
        self.open = Some(Open { questions: open, awakeables, expiry: Duration::ZERO });
        self.renew();
    }

    /// Stores the open questions, after they were asked or one of them was answered.
    fn renew(&mut self) {
        let Some(open) = &mut self.open else { return };
        open.expiry = self.journal.elapsed() + self.lifetime;
        let (questions, awakeables) = (open.questions.clone(), open.awakeables.clone());
        self.set_status(Phase::Asks { questions, awakeables });
    }

    fn set_status(&self, phase: Phase) {
        Status::set(self.context, &*self.journal, phase);
    }

    /// Waits for the next event of the run.
    async fn next(&mut self) -> JournalEvent {
        loop {
            let wanted = self.journal.due().unwrap_or(Duration::MAX);
            let expiry = self.open.as_ref().map_or(Duration::MAX, |open| open.expiry);
            let due = wanted.min(expiry);
            let now = self.journal.elapsed();
            if expiry <= now {
                self.open = None;
                return JournalEvent::Cancelled;
            }
            if wanted <= now {
                return JournalEvent::Due;
            }
            if self.timer.is_none_or(|timer| due < timer) {
                self.set_timer(due);
            }
            let event = match self.next_stored().await {
                Ok(Some((_, event))) => event,
                Ok(None) => continue,
                Err(_) => return JournalEvent::Cancelled,
            };
            match event {
                Event::Fired(at) => {
                    if self.timer == Some(at) {
                        self.timer = None;
                    }
                    self.journal.advance(at);
                }
                Event::Ended(effect, completed) => {
                    self.awakeables.remove(&effect);
                    let output = match completed {
                        // The run is being cancelled.
                        Err(error) if error.code() == CANCELLED => None,
                        Err(error) => Some(Err(error.message().to_owned())),
                        completed => self.receive(completed).map(Ok),
                    };
                    if let Some(output) = output {
                        return JournalEvent::Ended { effect, output };
                    }
                }
                Event::Answered(key, completed) => {
                    let answer = self.receive(completed);
                    if let Some(open) = &mut self.open {
                        let public = format!("{}:{key}", self.round);
                        open.questions.remove(&public);
                        open.awakeables.remove(&public);
                        if !open.questions.is_empty() {
                            self.renew();
                        }
                    }
                    if let Some(answer) = answer.and_then(|it| serde_json::from_slice(&it).ok()) {
                        return JournalEvent::Answered { key, answer };
                    }
                }
            }
        }
    }

    /// Waits for the next event that Restate stores. Makes the planned calls only if no event is
    /// stored yet, because the results of most calls are stored when a run is executed again.
    async fn next_stored(&mut self) -> Result<Option<(usize, Event)>, TerminalError> {
        let Self { events, planned, awakeables, calls, .. } = self;
        let mut next = pin!(events.next());
        if let Some(event) = next.as_mut().now_or_never() {
            return event;
        }
        for Planned { id, run, deadline, permit } in planned.drain(..) {
            // A call without an awakeable has ended or was aborted.
            if let Some(awakeable) = awakeables.get(&id).filter(|&it| !calls.contains(it)) {
                calls.start(awakeable.clone(), run, deadline, permit);
            }
        }
        next.await
    }

    /// Advances the clock to the time at which an awakeable was completed, and returns its value.
    fn receive(&self, completed: Completed) -> Option<Vec<u8>> {
        let body = completed.ok()?;
        let Sent { at, output } = serde_json::from_slice(&body).ok()?;
        self.journal.advance(self.journal.since_begun(at));
        Some(output.get().as_bytes().to_vec())
    }

    fn set_timer(&mut self, due: Duration) {
        let now = self.journal.since_begun(unix_ns());
        let fired = self.context.sleep(due.saturating_sub(now));
        self.events.push(Box::pin(DurableFuture::map(fired, move |_| Event::Fired(due))));
        self.timer = Some(due);
    }
}
