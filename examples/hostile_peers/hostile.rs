//! Hostile clients, and those that call hostile backends.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncWriteExt, DuplexStream},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    invariants::marker,
    measurements::Score,
    system::{Error, World},
    wire::Wire,
};

/// The time that a hostile caller waits for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a caller whose backend asks its questions over a long time.
const LONG_PATIENCE: Duration = Duration::from_secs(600);
/// The size of arguments that are expensive to check.
const LARGE: usize = 3 << 20;
/// The size of arguments that have almost as many JSON values as a message may have.
const MANY: usize = 380_000;
/// The size of a question above the limit, and of one just below it.
const QUESTION: usize = 4 << 20;
const SMALLER_QUESTION: usize = 1_000_000;
/// The maximum number of questions that one request of a client may be asked, and that a result may
/// ask.
const MAX_QUESTIONS: u64 = 1_000;
const MAX_QUESTIONS_AT_ONCE: usize = 32;
/// The number of refused calls, 3 s of them, after which a refill must have recovered the budget.
const RECOVERY: u32 = 30;

/// The events of hostile clients, by the backend that they call or their own name. Each must
/// have happened at the end.
const EVENTS: [(&str, &str); 15] = [
    ("updates", "clients that read no updates"),
    ("updates", "cancelled subscriptions"),
    ("large", "calls of `large` that ask"),
    ("unanswered", "clients that answer no questions"),
    ("many", "calls of `many` that ask"),
    ("modern", "calls of `modern` that ask at once"),
    ("silenced", "calls of `silenced` that ask at once"),
    ("schemas", "calls with expensive arguments"),
    ("costs", "calls with absurd costs"),
    ("costs", "budgets recovered by a refill"),
    ("costs", "abandoned calls"),
    ("brief", "calls whose streams are cut"),
    ("claims", "links to resources of others"),
    ("names", "calls of invented names"),
    ("states", "suspended runs of one caller refused"),
];

/// All hostile clients, which are cancelled when this value is dropped.
pub(crate) struct Attackers(JoinSet<Result<(), Error>>);

#[derive(Clone)]
struct Attacker {
    world: Arc<World>,
    score: Arc<Score>,
    rng: Rng,
}

// === impl Attackers ===

impl Attackers {
    /// Starts all of them in the current runtime.
    pub(crate) fn start(world: &Arc<World>, score: &Arc<Score>, seed: u64) -> Self {
        let attacker = |number: u64| Attacker {
            world: world.clone(),
            score: score.clone(),
            rng: Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number)),
        };
        for (_, event) in EVENTS.into_iter().filter(|(name, _)| world.has(name)) {
            score.hostile(event, 0);
        }
        let mut attacking = JoinSet::new();
        if world.has("updates") {
            attacking.spawn(attacker(0).read_nothing());
            attacking.spawn(attacker(1).cancel_subscriptions());
        }
        if world.has("large") {
            attacking.spawn(attacker(2).be_asked_large_questions());
        }
        if world.has("unanswered") {
            attacking.spawn(attacker(3).answer_no_question());
        }
        if world.has("many") {
            attacking.spawn(attacker(4).be_asked_many_questions());
        }
        if world.has("modern") {
            attacking.spawn(attacker(5).be_asked_at_once("modern", MAX_QUESTIONS_AT_ONCE, 3_000));
        }
        if world.has("silenced") {
            attacking.spawn(attacker(6).be_asked_at_once("silenced", 0, 1));
        }
        if world.has("schemas") {
            attacking.spawn(attacker(7).send_expensive_arguments());
        }
        if world.has("costs") {
            attacking.spawn(attacker(8).use_up_budgets());
            attacking.spawn(attacker(9).abandon_calls());
        }
        if world.has("brief") {
            attacking.spawn(attacker(10).have_streams_cut());
        }
        if world.has("claims") {
            attacking.spawn(attacker(11).follow_links());
        }
        if world.has("names") {
            attacking.spawn(attacker(12).invent_names());
        }
        if world.has("states") {
            attacking.spawn(attacker(13).fill_the_store());
        }
        Self(attacking)
    }

    /// Ends all hostile clients, and reports those that failed.
    pub(crate) async fn end(mut self, score: &Score) {
        self.0.abort_all();
        while let Some(ended) = self.0.join_next().await {
            match ended {
                Ok(Err(error)) => score.failed(|| format!("a hostile client failed: {error}")),
                Err(error) if error.is_panic() => score.failed(|| error.to_string()),
                _ => {}
            }
        }
    }
}

// === impl Attacker ===

impl Attacker {
    /// Subscribes to 500 resources that are updated continuously, and reads nothing.
    async fn read_nothing(self) -> Result<(), Error> {
        let mut connection = self.world.connect();
        introduce(&mut connection).await?;
        for id in 1..=500 {
            let params = json!({ "uri": format!("small://{id}") });
            write(&mut connection, id, "resources/subscribe", &params).await?;
        }
        self.score.hostile("clients that read no updates", 1);
        std::future::pending().await
    }

    /// Subscribes to resources with long URIs and cancels that, 100 times per second.
    async fn cancel_subscriptions(mut self) -> Result<(), Error> {
        let wire = self.world.wire().await?;
        let mut turns = every(Duration::from_millis(10));
        loop {
            turns.tick().await;
            let uri = format!("small://{}{:x}", "x".repeat(2_000), self.rng.u64(..));
            let subscribing = wire.send("", "resources/subscribe", &json!({ "uri": uri }));
            sleep(Duration::from_millis(self.rng.u64(0..4))).await;
            drop(subscribing);
            self.score.hostile("cancelled subscriptions", 1);
        }
    }

    /// Calls a tool that takes 20 ms, and gives up about then.
    async fn abandon_calls(mut self) -> Result<(), Error> {
        let wire = self.world.wire().await?;
        loop {
            let mut call = wire.call(&self.marker(), "costs_slow", &json!({ "ms": 20 }));
            let patience = Duration::from_millis(self.rng.u64(16..24));
            if timeout(patience, call.answer()).await.is_err() {
                self.score.hostile("abandoned calls", 1);
            }
        }
    }

    /// Calls tools that do not exist, at most 200 times per second.
    async fn invent_names(mut self) -> Result<(), Error> {
        let wire = self.world.wire().await?;
        let mut turns = every(Duration::from_millis(5));
        loop {
            turns.tick().await;
            let tool = format!("one_{}_{:x}", "echo".repeat(20), self.rng.u64(..));
            let answer = wire.call(&self.marker(), &tool, &json!({})).answer().await;
            if answer["error"].is_null() {
                self.score.failed(|| format!("an invented name was answered with {answer}"));
            }
            self.score.hostile("calls of invented names", 1);
        }
    }

    /// Leaves runs of 50 KB suspended, at most 20 per second: more than the store takes.
    async fn fill_the_store(mut self) -> Result<(), Error> {
        let http = self.world.http("filler");
        let mut turns = every(Duration::from_millis(50));
        loop {
            turns.tick().await;
            // The first step of the run returns it, so the state of the run contains it.
            let arguments = json!({ "marker": self.marker() + &"x".repeat(50_000) });
            let answer = http.call("approved", &arguments, None).await?;
            match answer["result"]["resultType"] == "input_required" {
                true => self.score.hostile("suspended runs of one caller", 1),
                false => self.score.hostile("suspended runs of one caller refused", 1),
            }
        }
    }

    /// Calls tools with expensive schemas, at most once per second.
    async fn send_expensive_arguments(mut self) -> Result<(), Error> {
        let wire = self.world.wire().await?;
        let calls = [
            ("schemas_unique", different_arrays(MANY)),
            ("schemas_unique", different_arrays(LARGE)),
            ("schemas_patterns", format!("{{\"value\":\"{}\"}}", "a".repeat(100_000))),
            ("schemas_enums", r#"{"value":"absent"}"#.to_owned()),
            ("schemas_patterns", format!("{{\"value\":\"{}\"}}", "a".repeat(LARGE))),
        ];
        let mut turns = every(Duration::from_secs(1));
        loop {
            for (tool, arguments) in &calls {
                turns.tick().await;
                let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
                let mut call = wire.send(&self.marker(), "tools/call", &params);
                match timeout(PATIENCE, call.answer()).await {
                    Ok(_) => self.score.hostile("calls with expensive arguments", 1),
                    Err(_) => self.score.failed(|| {
                        format!("a check of the arguments of `{tool}` took {PATIENCE:?}")
                    }),
                }
            }
        }
    }

    /// Calls a tool that asks 300 questions of 4 MiB, two per second.
    async fn be_asked_large_questions(self) -> Result<(), Error> {
        self.be_asked("large", 300, QUESTION, 2, 0).await
    }

    /// Calls a tool that asks 1500 small questions, 200 per second.
    async fn be_asked_many_questions(self) -> Result<(), Error> {
        self.be_asked("many", 1_500, 100, 200, MAX_QUESTIONS).await
    }

    async fn be_asked(
        mut self,
        backend: &str,
        count: u64,
        bytes: usize,
        per_second: u64,
        most: u64,
    ) -> Result<(), Error> {
        loop {
            // Questions of one call must not be counted for the next.
            let wire = self.world.wire().await?;
            let tool = format!("{backend}_questions");
            let arguments = json!({ "count": count, "bytes": bytes, "per_second": per_second });
            let mut call = wire.call(&self.marker(), &tool, &arguments);
            let counter = QuestionCounter { wire: &wire, score: &self.score, backend, most };
            drop(timeout(LONG_PATIENCE, call.answer()).await);
            drop(counter);
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Calls a tool that asks 300 questions of almost 1 MB, two per second, and answers
    /// none: it does not read.
    async fn answer_no_question(self) -> Result<(), Error> {
        let mut connection = self.world.connect();
        introduce(&mut connection).await?;
        let arguments = json!({ "count": 300, "bytes": SMALLER_QUESTION, "per_second": 2 });
        let params = json!({ "name": "unanswered_questions", "arguments": arguments });
        write(&mut connection, 1, "tools/call", &params).await?;
        self.score.hostile("clients that answer no questions", 1);
        std::future::pending().await
    }

    /// Calls a tool whose result asks thousands of questions, five times per second.
    async fn be_asked_at_once(
        mut self,
        backend: &'static str,
        most: usize,
        count: u64,
    ) -> Result<(), Error> {
        let tool = format!("{backend}_questions");
        let arguments = json!({ "count": count });
        let http = self.world.http(backend);
        let wire = self.world.wire().await?;
        let mut turns = every(Duration::from_millis(200));
        loop {
            turns.tick().await;
            let answer = http.call(&tool, &arguments, None).await?;
            let questions =
                answer["result"]["inputRequests"].as_object().map_or(0, |requests| requests.len());
            // A client of before 2026-07-28 is asked by the gateway.
            let before = wire.questions();
            drop(timeout(PATIENCE, wire.call(&self.marker(), &tool, &arguments).answer()).await);
            let relayed = usize::try_from(wire.questions() - before).unwrap_or(usize::MAX);
            let questions = questions.max(relayed);
            if questions > most {
                self.score.failed(|| format!("{questions} questions of `{backend}` at once"));
            }
            self.score.hostile(&format!("calls of `{backend}` that ask at once"), 1);
        }
    }

    /// Calls tools that report the largest cost, 10 times per second each.
    async fn use_up_budgets(mut self) -> Result<(), Error> {
        let wire = self.world.wire().await?;
        let mut turns = every(Duration::from_millis(100));
        let mut refused = 0;
        loop {
            turns.tick().await;
            drop(wire.call(&self.marker(), "costs_cost", &json!({})).answer().await);
            self.score.hostile("calls with absurd costs", 1);
            let answer = wire.call(&self.marker(), "costs_spend", &json!({})).answer().await;
            if answer["error"].is_null() && answer["result"]["isError"] != true {
                self.score.hostile("budgets recovered by a refill", u64::from(refused > 0));
                refused = 0;
            } else {
                refused += 1;
                if refused % RECOVERY == 0 {
                    self.score.failed(|| format!("no refill recovers a budget: {answer:.200}"));
                }
            }
        }
    }

    /// Follows links to resources of others, 20 times per second.
    async fn follow_links(mut self) -> Result<(), Error> {
        let wire = self.world.wire().await?;
        let mut turns = every(Duration::from_millis(50));
        loop {
            turns.tick().await;
            let answer = wire.call(&self.marker(), "claims_links", &json!({})).answer().await;
            for link in answer["result"]["content"].as_array().into_iter().flatten() {
                let params = json!({ "uri": link["uri"] });
                let read = wire.send("", "resources/read", &params).answer().await;
                if read.to_string().contains("stolen") {
                    self.score.failed(|| format!("{} was taken over", link["uri"]));
                }
                self.score.hostile("links to resources of others", 1);
            }
        }
    }

    /// Calls a tool over HTTP whose event stream ends before its answer, once per second.
    async fn have_streams_cut(mut self) -> Result<(), Error> {
        let wire = self.world.wire().await?;
        let mut turns = every(Duration::from_secs(1));
        loop {
            turns.tick().await;
            let mut call = wire.call(&self.marker(), "brief_cut", &json!({}));
            drop(timeout(PATIENCE, call.answer()).await);
            self.score.hostile("calls whose streams are cut", 1);
        }
    }

    fn marker(&mut self) -> String {
        marker(self.rng.u64(..))
    }
}

/// Counts the questions of a call, also if the caller is ended before it has its answer.
struct QuestionCounter<'a> {
    wire: &'a Wire,
    score: &'a Score,
    backend: &'a str,
    most: u64,
}

impl Drop for QuestionCounter<'_> {
    fn drop(&mut self) {
        let questions = self.wire.questions();
        if questions > self.most {
            let Self { backend, most, .. } = self;
            self.score.failed(|| format!("{questions} questions of `{backend}`, at most {most}"));
        }
        self.score.hostile(&format!("calls of `{}` that ask", self.backend), 1);
    }
}

/// Turns at a fixed rate; those that are missed are left out.
fn every(period: Duration) -> tokio::time::Interval {
    let mut turns = interval(period);
    turns.set_missed_tick_behavior(MissedTickBehavior::Skip);
    turns
}

/// Arrays that all differ, as the JSON of the arguments of a tool.
fn different_arrays(bytes: usize) -> String {
    let mut text = String::from("{\"value\":[");
    for number in 0_u32.. {
        if number > 0 {
            text.push(',');
        }
        text.push('[');
        // One array for each bit.
        for bit in 0..20 {
            text.push_str(if bit == 0 { "" } else { "," });
            text.push_str(if number >> bit & 1 == 0 { "[]" } else { "[[]]" });
        }
        text.push(']');
        if text.len() > bytes {
            break;
        }
    }
    text + "]}"
}

/// Begins a connection without reading what the server answers.
async fn introduce(connection: &mut DuplexStream) -> Result<(), Error> {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "elicitation": {} },
        "clientInfo": { "name": "hostile", "version": "0" },
    });
    write(connection, 0, "initialize", &params).await?;
    let initialized: Value = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    connection.write_all(format!("{initialized}\n").as_bytes()).await?;
    Ok(())
}

async fn write(
    connection: &mut DuplexStream,
    id: u32,
    method: &str,
    params: &Value,
) -> Result<(), Error> {
    let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    connection.write_all(format!("{line}\n").as_bytes()).await?;
    Ok(())
}
