//! Good callers: each calls at a fixed rate and checks the answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    http::Http,
    invariants::marker,
    measurements::{Kind, Score},
    system::{Error, World},
    wire::Wire,
};

/// The number of good callers, and the interval of their calls: 100 calls per second in all.
const CALLERS: u32 = 20;
const PERIOD: Duration = Duration::from_millis(200);
/// The number of connections they share.
const CONNECTIONS: usize = 4;
/// The maximum time of a good call.
const PATIENCE: Duration = Duration::from_secs(10);
/// The relative frequency of each kind of call.
const SHARES: [(Kind, u32); Kind::ALL.len()] = [
    (Kind::Direct, 35),
    (Kind::FanOut, 20),
    (Kind::Workflow, 15),
    (Kind::Read, 10),
    (Kind::Subscribe, 5),
    (Kind::Http, 10),
    (Kind::Approval, 5),
];

/// All good callers.
pub(crate) struct Callers {
    pub(crate) wires: Vec<Arc<Wire>>,
    calling: JoinSet<()>,
    is_over: Arc<AtomicBool>,
}

struct Caller {
    wire: Arc<Wire>,
    http: Http,
    score: Arc<Score>,
    world: Arc<World>,
    rng: Rng,
}

// === impl Callers ===

impl Callers {
    /// Starts all callers in the current runtime.
    pub(crate) async fn start(
        world: &Arc<World>,
        score: &Arc<Score>,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut wires = Vec::new();
        for _ in 0..CONNECTIONS {
            wires.push(world.wire().await?);
        }
        let mut calling = JoinSet::new();
        let is_over = Arc::<AtomicBool>::default();
        let start = Instant::now();
        for number in 0..CALLERS {
            let caller = Caller {
                wire: wires[number as usize % CONNECTIONS].clone(),
                http: world.http(&format!("good-{number}")),
                score: score.clone(),
                world: world.clone(),
                rng: Rng::with_seed(seed.wrapping_mul(31).wrapping_add(number.into())),
            };
            calling.spawn(caller.run(start + PERIOD * number / CALLERS, is_over.clone()));
        }
        Ok(Self { wires, calling, is_over })
    }

    pub(crate) async fn end(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while self.calling.join_next().await.is_some() {}
        for wire in &self.wires {
            wire.close().await;
        }
    }
}

// === impl Caller ===

impl Caller {
    async fn run(mut self, start: Instant, is_over: Arc<AtomicBool>) {
        let mut due = start;
        while !is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            // A call delayed by the previous one is measured from when it was due, so that one slow
            // answer counts for all calls that wait for it.
            let is_late = now > due;
            sleep_until(due).await;
            let begun = if is_late { due } else { Instant::now() };
            due += PERIOD;
            self.call(begun).await;
        }
    }

    async fn call(&mut self, begun: Instant) {
        let phase = self.score.phase();
        let kind = self.choose();
        let marker = marker(self.rng.u64(..));
        let outcome = timeout(PATIENCE, self.outcome(kind, &marker)).await;
        self.score.called(phase, kind, begun.elapsed());
        let failure = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => failure,
            Err(_) => format!("no answer in {PATIENCE:?}"),
        };
        self.score.failed(|| format!("{kind:?} while {phase:?}: {failure:.400}"));
    }

    fn choose(&mut self) -> Kind {
        let mut part = self.rng.u32(0..SHARES.iter().map(|(_, share)| share).sum());
        for (kind, share) in SHARES {
            match part.checked_sub(share) {
                None => return kind,
                Some(rest) => part = rest,
            }
        }
        unreachable!("it is less than all shares")
    }

    async fn outcome(&mut self, kind: Kind, marker: &str) -> Result<(), String> {
        let backend = ["one", "two", "web"][self.rng.usize(0..3)];
        match kind {
            Kind::Direct => {
                let tool = format!("{backend}_echo");
                let answer = self.wired(marker, &tool, &json!({ "text": marker })).await;
                expect(&answer["result"]["content"][0]["text"], &marker.into(), &answer)
            }
            Kind::FanOut => {
                let answer = self.wired(marker, "all", &json!({ "marker": marker })).await;
                let branches = &answer["result"]["structuredContent"]["branches"];
                for branch in ["one", "two", "web"] {
                    expect(&branches[branch]["output"], &marker.into(), &answer)?;
                }
                Ok(())
            }
            Kind::Workflow => {
                let arguments = json!({ "marker": marker, "items": [marker, marker, marker] });
                let answer = self.wired(marker, "flow", &arguments).await;
                let output = json!({ "marker": marker, "each": 3 });
                expect(&answer["result"]["structuredContent"], &output, &answer)
            }
            Kind::Read => {
                let resources = [("test://one", "the first"), ("test://item/1", "item 1")];
                let (uri, text) = resources[self.rng.usize(0..2)];
                let answer = self.send(marker, "resources/read", &json!({ "uri": uri })).await;
                expect(&answer["result"]["contents"][0]["text"], &text.into(), &answer)
            }
            Kind::Subscribe => {
                let params = json!({ "uri": "test://two" });
                for method in ["resources/subscribe", "resources/unsubscribe"] {
                    let answer = self.send(marker, method, &params).await;
                    expect(&answer["error"], &Value::Null, &answer)?;
                }
                Ok(())
            }
            Kind::Http => {
                let answer = self.posted("all", &json!({ "marker": marker }), None).await?;
                let branches = &answer["result"]["structuredContent"]["branches"];
                expect(&branches[backend]["output"], &marker.into(), &answer)
            }
            Kind::Approval => {
                let arguments = json!({ "marker": marker });
                let asks = self.posted("approved", &arguments, None).await?;
                expect(&asks["result"]["resultType"], &"input_required".into(), &asks)?;
                let state = &asks["result"]["requestState"];
                let answer = self.posted("approved", &arguments, Some(state)).await?;
                let output = json!({ "marker": marker });
                expect(&answer["result"]["structuredContent"], &output, &answer)
            }
        }
    }

    async fn wired(&self, marker: &str, tool: &str, arguments: &Value) -> Value {
        let answer = self.wire.call(marker, tool, arguments).answer().await;
        self.world.invariants.check_answer(marker, &answer);
        answer
    }

    async fn send(&self, marker: &str, method: &str, params: &Value) -> Value {
        self.wire.send(marker, method, params).answer().await
    }

    async fn posted(
        &self,
        tool: &str,
        arguments: &Value,
        state: Option<&Value>,
    ) -> Result<Value, String> {
        self.http.call(tool, arguments, state).await.map_err(|error| error.to_string())
    }
}

fn expect(actual: &Value, expected: &Value, answer: &Value) -> Result<(), String> {
    match actual == expected {
        true => Ok(()),
        false => Err(format!("expected {expected} in {answer}")),
    }
}
