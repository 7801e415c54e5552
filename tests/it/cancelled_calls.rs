//! Calls that a run has cancelled are gone before anything starts that follows them.
//!
//! A cancelled call whose tool keeps a thread busy ends only when the tool next waits. These tests
//! run random composites of such tools, on a runtime of one thread and on one of two.

use std::{
    collections::BTreeSet,
    env,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use fastrand::Rng;
use mcp_composite::{
    composite::{
        Action, CancelledRuns, CompositeLayer, CompositeTool, Fallback, FanOut, Finally, ForEach,
        OnError, Race, Retry, Step, Success, Target, Then, ToolCall, Workflow,
    },
    observe::{Event, Observer, RunHandle, What},
    testing::{self, Answer, Server},
};
use serde_json::{Value, json};
use tokio::{
    runtime::Builder,
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};
use tower::Layer;

/// The number of random runs on each runtime; `CANCELLED_CALLS` sets another one.
const RUNS: u64 = 300;
/// The number of runs at the same time.
const PARALLEL: usize = 4;
/// The name of the tool that all steps call.
const TOOL: &str = "work";

/// The calls that are running, with the paths of their steps, such as `s1/a`.
#[derive(Default)]
struct World {
    running: Mutex<Vec<String>>,
    /// The mistakes: work that began beside a call that it must wait for.
    wrong: Mutex<Vec<String>>,
}

/// A running call.
struct Running {
    path: String,
    world: Arc<World>,
}

/// Keeps the handle of the first run.
#[derive(Default)]
struct Handle(Mutex<Option<RunHandle>>);

/// The end of a random call that nothing else ends before.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The composite answers.
    Answer,
    /// The client drops the call after this time.
    Drop(Duration),
    /// An operator cancels the run after this time.
    Cancel(Duration),
}

/// A random composite with the composites that it calls.
#[derive(Default)]
struct Composites {
    list: Vec<CompositeTool>,
    nested: usize,
}

// === impl World ===

impl World {
    /// Starts a call. `after` are the paths whose calls must have ended, with all calls below them.
    /// Of the calls below `within`, at most `most` steps may run at the same time.
    fn start(self: &Arc<Self>, arguments: &Value) -> Running {
        let path = arguments["path"].as_str().unwrap().to_owned();
        let mut running = self.running.lock().unwrap();
        let is_below = |other: &str, above: &str| {
            other.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        for after in arguments["after"].as_array().unwrap() {
            let after = after.as_str().unwrap();
            if let Some(other) = running.iter().find(|other| is_below(other, after)) {
                self.note(format!("{path} starts beside {other}"));
            }
        }
        running.push(path.clone());
        for (within, most) in arguments["most"].as_object().unwrap() {
            let parts = running.iter().filter_map(|other| other.strip_prefix(within.as_str()));
            let steps: Vec<_> = if within.ends_with('#') {
                parts.collect()
            } else {
                let steps = parts.map(|rest| rest.split(['/', '#']).next().unwrap());
                steps
                    .filter(|step| !step.starts_with('f'))
                    .collect::<BTreeSet<_>>()
                    .into_iter()
                    .collect()
            };
            if steps.len() as u64 > most.as_u64().unwrap() {
                self.note(format!("{steps:?} run at the same time in {within:?}"));
            }
        }
        Running { path, world: self.clone() }
    }

    fn note(&self, wrong: String) {
        self.wrong.lock().unwrap().push(wrong);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = self.world.running.lock().unwrap();
        let place = running.iter().position(|path| *path == self.path).unwrap();
        running.swap_remove(place);
    }
}

impl Observer for Handle {
    fn on_event(&self, event: &Event<'_>) {
        if matches!(event.what, What::RunStarted { .. }) {
            self.0.lock().unwrap().get_or_insert_with(|| event.handle.clone());
        }
    }
}

/// Returns a service whose tool waits, keeps its thread busy, waits again, and may fail.
fn server(world: &Arc<World>) -> Server {
    let world = world.clone();
    let answer = Answer::from_fn(move |call| {
        let arguments = call.arguments();
        let running = world.start(&arguments);
        let of = |name: &str| Duration::from_micros(arguments[name].as_u64().unwrap());
        let fails = arguments["fails"] == true;
        let (before, busy, after) = (of("before"), of("busy"), of("then"));
        async move {
            let _running = running;
            for (waits, busy) in [(before, busy), (after, Duration::ZERO)] {
                if !waits.is_zero() {
                    sleep(waits).await;
                }
                if !busy.is_zero() {
                    thread::sleep(busy);
                    yield_now().await;
                }
            }
            if fails { Answer::failure("no") } else { Answer::text("yes") }
        }
    });
    Server::new().tool(TOOL, answer)
}

fn micros(random: &mut Rng, most: u64) -> Duration {
    Duration::from_micros(random.u64(0..=most))
}

/// Returns the arguments of a random call at `path`.
fn arguments(random: &mut Rng, path: &str, after: &[String], most: &Value) -> Value {
    let mut some =
        |odds: f64, most: u64| if random.f64() < odds { random.u64(1..=most) } else { 0 };
    let (before, busy, then) = (some(0.7, 4_000), some(0.4, 3_000), some(0.5, 4_000));
    json!({
        "path": path, "after": after, "most": most,
        "before": before, "busy": busy, "then": then, "fails": random.f64() < 0.25,
    })
}

fn retry(random: &mut Rng) -> Retry {
    Retry::times(random.u32(1..3)).delay(micros(random, 500))
}

// === impl Composites ===

impl Composites {
    /// Adds a random composite, whose steps have paths below `path`, and returns its name.
    fn add(&mut self, random: &mut Rng, path: &str, depth: usize) -> String {
        let name = format!("composite{}", self.nested);
        self.nested += 1;
        let tool = match random.u32(0..5) {
            0 => {
                let race = Race::new(self.targets(random, path));
                CompositeTool::new(&name, "Races", race)
            }
            1 => {
                let success = [Success::All, Success::Any, Success::Quorum(1)];
                let all = FanOut::new(self.targets(random, path));
                let all = all.success(*random.choice(&success).unwrap());
                CompositeTool::new(&name, "Asks all", all)
            }
            2 if depth > 0 => {
                CompositeTool::new(&name, "Falls back", Fallback::new(self.targets(random, path)))
            }
            _ => {
                let most = random.usize(1..4);
                let steps = self.steps(random, path, depth, most);
                CompositeTool::new(&name, "Works", Workflow::new(steps).max_parallel(most))
            }
        };
        let tool = match random.u32(0..4) {
            0 => tool.timeout(Duration::from_micros(random.u64(500..8_000))),
            _ => tool,
        };
        self.list.push(tool);
        name
    }

    fn targets(&mut self, random: &mut Rng, path: &str) -> Vec<Target> {
        let count = random.usize(1..5);
        let targets = (0..count).map(|target| {
            let path = format!("{path}t{target}");
            let own = [path.clone()];
            let target = Target::new(TOOL).id(format!("t{target}")).arguments(arguments(
                random,
                &path,
                &own,
                &json!({}),
            ));
            let target = match random.u32(0..3) {
                0 => target.timeout(Duration::from_micros(random.u64(500..5_000))),
                _ => target,
            };
            if random.u32(0..3) == 0 { target.retry(retry(random)) } else { target }
        });
        targets.collect()
    }

    /// Returns the ordinary steps `s0`, `s1` and so on, and the finally steps `f0` and so on.
    fn steps(&mut self, random: &mut Rng, path: &str, depth: usize, most: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        let count = random.usize(1..5);
        let path_of = |id: &str| format!("{path}{id}");
        let limit = json!({ path: most });
        // The steps that each step follows, directly or not.
        let mut follows: Vec<BTreeSet<usize>> = Vec::new();
        for place in 0..count {
            let id = format!("s{place}");
            let needs: Vec<_> = (0..place).filter(|_| random.u32(0..3) == 0).collect();
            let mut all: BTreeSet<_> = needs.iter().copied().collect();
            all.extend(needs.iter().flat_map(|&need| follows[need].clone()));
            let after: Vec<_> = all.iter().map(|step| path_of(&format!("s{step}"))).collect();
            follows.push(all);
            let action = self.action(random, &path_of(&id), &after, limit.clone(), depth);
            let step = Step::new(id, action);
            let step = step.depends_on(needs.iter().map(|need| format!("s{need}")));
            let step = match random.u32(0..4) {
                0 => step,
                1 => {
                    let then = if random.bool() { Then::Continue } else { Then::Abort };
                    step.on_error(OnError::Retry(retry(random).then(then)))
                }
                _ => step.on_error(OnError::Continue),
            };
            steps.push(match random.u32(0..2) {
                0 => step.timeout(Duration::from_micros(random.u64(500..6_000))),
                _ => step,
            });
        }
        let ordinary: Vec<_> = (0..count).map(|step| path_of(&format!("s{step}"))).collect();
        for place in 0..random.usize(0..3) {
            let id = format!("f{place}");
            let call = arguments(random, &path_of(&id), &ordinary, &json!({}));
            let finally = Finally::new().on_cancel(random.bool());
            steps.push(Step::new(id, ToolCall::new(TOOL).arguments(call)).finally(finally));
        }
        steps
    }

    fn action(
        &mut self,
        random: &mut Rng,
        path: &str,
        after: &[String],
        mut most: Value,
        depth: usize,
    ) -> Action {
        match random.u32(0..6) {
            0 if depth > 0 => {
                let nested = self.add(random, &format!("{path}/"), depth - 1);
                ToolCall::new(nested).arguments(json!({})).into()
            }
            1 => {
                let parallel = random.usize(1..4);
                let elements = format!("{path}#");
                most[&elements] = parallel.into();
                let elements: Vec<_> = (0..random.usize(1..5))
                    .map(|element| arguments(random, &format!("{elements}{element}"), after, &most))
                    .collect();
                let names = ["path", "after", "most", "before", "busy", "then", "fails"];
                let of = |name: &str| (name.to_owned(), format!("$item.{name}").into());
                let call = Value::Object(names.map(of).into_iter().collect());
                let call = ToolCall::new(TOOL).arguments(call);
                let each = ForEach::new(Value::Array(elements), call).max_parallel(parallel);
                if random.bool() { each.stop_at_first_success().into() } else { each.into() }
            }
            _ => {
                let own = [after, &[path.to_owned()]].concat();
                ToolCall::new(TOOL).arguments(arguments(random, path, &own, &most)).into()
            }
        }
    }
}

/// Calls a random composite. Returns what was wrong.
async fn run(seed: u64) -> Vec<String> {
    let random = &mut Rng::with_seed(seed);
    let mut composites = Composites::default();
    let name = composites.add(random, "", 2);
    let runs = CancelledRuns::new();
    let end = match random.u32(0..4) {
        0 => End::Drop(micros(random, 6_000)),
        1 => End::Cancel(micros(random, 6_000)),
        _ => End::Answer,
    };
    let world = Arc::new(World::default());
    let handle = Arc::new(Handle::default());
    // The composites that others call are in the same layer or in a layer below it.
    let mut above = composites.list;
    let count = if random.bool() { above.len() - 1 } else { 0 };
    let below = above.drain(..count).collect::<Vec<_>>();
    let layer = |composites| CompositeLayer::new(composites).unwrap().cancelled_runs(runs.clone());
    let mut outer = layer(above);
    if matches!(end, End::Cancel(_)) {
        outer = outer.observer(handle.clone());
    }
    let service = outer.layer(layer(below).layer(server(&world)));
    let call = testing::call(&service, &name, json!({}));
    let is_answered = match end {
        End::Answer => {
            call.await;
            true
        }
        End::Drop(after) => timeout(after, call).await.is_ok(),
        End::Cancel(after) => {
            let operator = async {
                sleep(after).await;
                if let Some(handle) = &*handle.0.lock().unwrap() {
                    handle.cancel();
                }
            };
            tokio::join!(call, operator);
            true
        }
    };
    if is_answered {
        let running = world.running.lock().unwrap();
        if !running.is_empty() {
            world.note(format!("{running:?} run after the answer"));
        }
    }
    runs.finished().await;
    let wrong = std::mem::take(&mut *world.wrong.lock().unwrap());
    wrong.into_iter().map(|wrong| format!("seed {seed}, {end:?}: {wrong}")).collect()
}

/// Makes random runs, and fails if anything was wrong in one of them.
fn check(mut runtime: Builder) {
    let runs = env::var("CANCELLED_CALLS").map_or(RUNS, |runs| runs.parse().unwrap());
    let runtime = runtime.enable_all().build().unwrap();
    let wrong: Vec<_> = runtime.block_on(async {
        let mut seeds = 0..runs;
        let mut running: JoinSet<_> = seeds.by_ref().take(PARALLEL).map(run).collect();
        let mut wrong = Vec::new();
        while let Some(ended) = running.join_next().await {
            wrong.extend(ended.unwrap());
            if let Some(seed) = seeds.next() {
                running.spawn(run(seed));
            }
        }
        wrong
    });
    assert!(wrong.is_empty(), "{} of {runs} runs: {wrong:#?}", wrong.len());
}

#[test]
fn nothing_starts_beside_a_cancelled_call_on_one_thread() {
    check(Builder::new_current_thread());
}

#[test]
fn nothing_starts_beside_a_cancelled_call_on_two_threads() {
    let mut runtime = Builder::new_multi_thread();
    runtime.worker_threads(2);
    check(runtime);
}
