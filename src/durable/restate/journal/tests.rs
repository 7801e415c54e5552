//! Executes runs with a journal in memory, and executes them again from each prefix of the journal.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt};

use super::*;
use crate::{
    config::Config,
    testing::{self, Answer, Server},
};

/// The Unix time at which the runs start, in nanoseconds.
const BEGUN: u64 = 1_700_000_000_000_000_000;
const SEED: u64 = 7;
/// The time after which the user answers.
const ANSWER_TIME: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A composite `run`, and the events that do not come from its tools.
struct Case {
    file: &'static str,
    /// The time at which the run is cancelled.
    cancelled_at: Option<Duration>,
    /// The time for which no process executes the run after a crash.
    away: Duration,
}

/// The stored part of a run.
#[derive(Clone, Default)]
struct Stored {
    /// The events, with their times since the start of the run.
    events: Vec<(Duration, JournalEvent)>,
    /// The commands and events, in their order.
    log: Vec<String>,
    /// The number of started effects.
    started: u64,
    outcome: Option<String>,
}

/// A process that executes a run.
struct Process<'c> {
    case: &'c Case,
    journal: Arc<RunJournal>,
    /// The start of the run on the clock of all processes.
    begun: Instant,
    /// The effects that have not ended.
    running: BTreeMap<u64, BoxFuture<'static, Vec<u8>>>,
    /// The keys of the open questions.
    open: BTreeSet<String>,
    stored: Stored,
    is_cancelled: bool,
}

// === impl Case ===

impl Case {
    const fn new(file: &'static str) -> Self {
        Self { file, cancelled_at: None, away: Duration::from_secs(1) }
    }

    /// Executes the run. First delivers the events of `before`, and then those that occur, but at
    /// most `max_events` events. The process then stops.
    async fn execute(
        &self,
        server: &Server,
        begun: Instant,
        before: &Stored,
        max_events: usize,
    ) -> Stored {
        let journal = Arc::new(RunJournal::new(BEGUN, SEED));
        let config = Config::from_toml_str(self.file).unwrap_or_else(|error| panic!("{error}"));
        let mut request = testing::request("run", Value::Null);
        let capabilities = json!({ "elicitation": { "form": {} } });
        let context = request.context_mut();
        let key = "io.modelcontextprotocol/clientCapabilities";
        context.meta_mut().insert(key.to_owned(), capabilities);
        context.set_journal(journal.clone());
        let mut run = pin!(config.stack_layer().layer(server.clone()).oneshot(request));
        let mut process = Process {
            case: self,
            journal,
            begun,
            running: BTreeMap::new(),
            open: BTreeSet::new(),
            stored: Stored::default(),
            is_cancelled: false,
        };
        loop {
            let journal = &process.journal;
            let polled = poll_fn(|cx| match run.poll_unpin(cx) {
                Poll::Ready(reply) => Poll::Ready(Some(reply)),
                Poll::Pending if journal.due().is_some() => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            });
            let ended = polled.await.map(|reply| {
                let reply = reply.expect("the service is infallible");
                format!("{:?}", reply.into_result())
            });
            let at = process.stored.events.len();
            process.carry_out(before.started);
            if ended.is_some() {
                process.stored.outcome = ended;
                return process.stored;
            }
            if at == max_events {
                // The calls are made before the process stops.
                let _ = process.ended().now_or_never();
                return process.stored;
            }
            let event = match before.events.get(at) {
                Some((at, event)) => (*at, event.clone()),
                None => process.next().await,
            };
            process.deliver(event);
        }
    }
}

// === impl Process ===

impl Process<'_> {
    /// Carries out the commands of the run. An earlier process has started the first `started`
    /// effects.
    fn carry_out(&mut self, started: u64) {
        for command in self.journal.take_commands() {
            let entry = match command {
                Command::Start(id, Effect { name, run, lost, .. }) => {
                    let entry = format!("start {id} {name}, {}", lost.is_none());
                    let lost = lost.filter(|_| id < started);
                    let run = lost.map_or(run, |lost| async { lost }.boxed());
                    self.running.insert(id, run);
                    self.stored.started += 1;
                    entry
                }
                Command::Abort(id) => {
                    self.running.remove(&id);
                    format!("abort {id}")
                }
                Command::Ask(questions) => {
                    self.open = questions.keys().cloned().collect();
                    format!("ask {}", json!(questions))
                }
                Command::Withdraw => {
                    self.open.clear();
                    "withdraw".to_owned()
                }
            };
            self.stored.log.push(entry);
        }
    }

    /// Waits for the next event that is not stored.
    async fn next(&mut self) -> (Duration, JournalEvent) {
        let now = self.begun.elapsed();
        let mut due = self.journal.due().expect("the run waits");
        let mut event = JournalEvent::Due;
        let mut sooner = |at: Duration, other: JournalEvent| {
            if at < due {
                (due, event) = (at, other);
            }
        };
        if let Some(key) = self.open.first() {
            let answer = json!({ "action": "accept", "content": {} });
            let key = key.clone();
            sooner(now + ANSWER_TIME, JournalEvent::Answered { key, answer });
        }
        if let Some(at) = self.case.cancelled_at.filter(|_| !self.is_cancelled) {
            sooner(at, JournalEvent::Cancelled);
        }
        match timeout(due.saturating_sub(now), self.ended()).await {
            Ok((effect, output)) => {
                (self.begun.elapsed(), JournalEvent::Ended { effect, output: Ok(output) })
            }
            Err(_) => (due.max(now), event),
        }
    }

    /// Waits until an effect ends.
    async fn ended(&mut self) -> (u64, Vec<u8>) {
        let running = &mut self.running;
        poll_fn(|cx| {
            for (id, effect) in &mut *running {
                if let Poll::Ready(output) = effect.poll_unpin(cx) {
                    return Poll::Ready((*id, output));
                }
            }
            Poll::Pending
        })
        .await
    }

    fn deliver(&mut self, (at, event): (Duration, JournalEvent)) {
        match &event {
            JournalEvent::Ended { effect, .. } => drop(self.running.remove(effect)),
            JournalEvent::Answered { key, .. } => drop(self.open.remove(key)),
            JournalEvent::Cancelled => self.is_cancelled = true,
            JournalEvent::Due => (),
        }
        self.stored.log.push(format!("{at:?} {event:?}"));
        self.stored.events.push((at, event.clone()));
        self.journal.advance(at);
        self.journal.deliver(event);
    }
}

/// Returns a server whose tool `read` can be repeated, in contrast to the others.
fn server() -> Server {
    let read = Tool::new("read", "Reads", Arc::default())
        .with_annotations(ToolAnnotations::new().read_only(true));
    let ms = Duration::from_millis;
    Server::new()
        .tool_as(read, Answer::text("read").after(ms(200)))
        .tool("write", Answer::text("written").after(ms(100)))
        .tool("flaky", Answer::failure("busy").times(2).then(Answer::text("ready")))
        .tool("count", Answer::text("1").then(Answer::text("2")).then(Answer::text("3")))
        .hangs("hangs")
}

/// Executes the run of a case once, and with a crash after each number of events. Returns the
/// result without a crash.
async fn check(case: &Case) -> String {
    let complete = case.execute(&server(), Instant::now(), &Stored::default(), usize::MAX).await;
    check_replay(case, &complete).await;
    for crash in 0..=complete.events.len() {
        let (server, begun) = (server(), Instant::now());
        let first = case.execute(&server, begun, &Stored::default(), crash).await;
        if first.outcome.is_some() {
            continue;
        }
        sleep(case.away).await;
        let second = case.execute(&server, begun, &first, usize::MAX).await;
        assert!(second.log.starts_with(&first.log), "{:#?}\n{:#?}", first.log, second.log);
        for tool in ["write", "flaky", "count", "hangs"] {
            let starts = second.log.iter().filter(|entry| entry.contains(&format!(" {tool},")));
            let calls = server.called().iter().filter(|name| *name == tool).count();
            assert!(calls <= starts.count(), "{tool}: {calls} calls: {:#?}", second.log);
        }
        check_replay(case, &second).await;
    }
    complete.outcome.expect("the run has ended")
}

/// Checks that the stored events of a run that has ended have the same commands and the same
/// outcome again, and that no tool is called.
async fn check_replay(case: &Case, stored: &Stored) {
    let server = server();
    let again = case.execute(&server, Instant::now(), stored, usize::MAX).await;
    assert_eq!(again.log, stored.log);
    assert_eq!(again.outcome, stored.outcome);
    assert!(server.called().is_empty(), "{:?}", server.called());
}

#[tokio::test(start_paused = true)]
async fn parallel_steps_and_retries_are_replayed() {
    let case = Case::new(
        r#"
        [[composite_tools]]
        name = "run"
        description = "Calls tools in parallel, and one of them again"
        strategy = "workflow"
        steps = [
            { id = "one", tool = "read" },
            { id = "two", tool = "write" },
            { id = "three", tool = "flaky", on_error = { action = "retry", retry_count = 3, delay = "150ms", then = "continue" } },
            { id = "last", tool = "write", depends_on = ["one", "two", "three"] },
        ]
        "#,
    );
    let outcome = check(&case).await;
    assert!(outcome.contains("written"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn timeouts_are_replayed() {
    let case = Case::new(
        r#"
        [[composite_tools]]
        name = "run"
        description = "Waits for a tool that does not answer"
        strategy = "workflow"
        steps = [
            { id = "late", tool = "hangs", timeout = "300ms", on_error = "continue", default_results = "late" },
            { id = "other", tool = "read" },
            { id = "last", tool = "write", depends_on = ["late", "other"] },
        ]
        "#,
    );
    let outcome = check(&case).await;
    assert!(outcome.contains("written"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn race_is_replayed() {
    let case = Case::new(
        r#"
        [[composite_tools]]
        name = "run"
        description = "Takes the first result"
        strategy = "race"
        tools = ["hangs", "read", "write"]
        "#,
    );
    let outcome = check(&case).await;
    assert!(outcome.contains("written"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn loops_are_replayed() {
    let case = Case::new(
        r#"
        [[composite_tools]]
        name = "run"
        description = "Calls tools for elements, and another one until it has counted to three"
        strategy = "workflow"
        steps = [
            { id = "each", type = "for_each", collection = [1, 2, 3, 4], tool = "read", max_parallel = 2 },
            { id = "until", type = "repeat", tool = "count", until = "last.text == '3'", delay = "250ms", depends_on = ["each"] },
            { id = "last", tool = "write", depends_on = ["until"] },
        ]
        "#,
    );
    let outcome = check(&case).await;
    assert!(outcome.contains("written"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn questions_are_replayed_after_three_days() {
    let case = Case {
        away: 3 * DAY,
        ..Case::new(
            r#"
            [[composite_tools]]
            name = "run"
            description = "Asks two questions, and then one"
            strategy = "workflow"
            steps = [
                { id = "one", type = "elicitation", message = "One?", schema = {} },
                { id = "two", type = "elicitation", message = "Two?", schema = {} },
                { id = "three", type = "elicitation", message = "Three?", schema = {}, depends_on = ["one", "two"] },
                { id = "last", tool = "write", depends_on = ["three"] },
            ]
            "#,
        )
    };
    let outcome = check(&case).await;
    assert!(outcome.contains("written"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn expired_question_is_replayed() {
    let case = Case::new(
        r#"
        [[composite_tools]]
        name = "run"
        description = "Asks a question that is not answered in time"
        strategy = "workflow"
        steps = [
            { id = "sure", type = "elicitation", message = "Sure?", schema = {}, timeout = "30s" },
            { id = "last", tool = "write", depends_on = ["sure"] },
        ]
        "#,
    );
    let outcome = check(&case).await;
    assert!(outcome.contains("30s"), "{outcome}");
}

#[tokio::test(start_paused = true)]
async fn cancellation_is_replayed() {
    let case = Case {
        cancelled_at: Some(Duration::from_secs(1)),
        ..Case::new(
            r#"
            [[composite_tools]]
            name = "run"
            description = "Cleans up"
            strategy = "workflow"
            steps = [
                { id = "first", tool = "read" },
                { id = "never", tool = "hangs", depends_on = ["first"] },
                { id = "clean", tool = "write", finally = { on_cancel = true } },
            ]
            "#,
        )
    };
    check(&case).await;
}
