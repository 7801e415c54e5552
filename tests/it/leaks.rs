//! Thousands of runs that are abandoned at random moments, without leaks.

use std::{
    fmt::Debug,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fastrand::Rng;
use mcp_composite::{
    adapter::{RemoteService, Router, ServeService, router::Backend},
    composite::{
        Composite, CompositeLayer, CompositeTool, Elicitation, ForEach, OnError, OnRefusal, Race,
        Retry, Step, Target, ToolCall,
    },
    message::Request,
    store::{MemoryStore, Store},
    testing::{self, Answer, Server},
};
use rmcp::{
    ClientHandler, ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler,
    model::*,
    service::{Peer, PeerRequestOptions, RequestContext, RunningService},
};
use serde_json::{Value, json};
use tokio::{
    sync::Semaphore,
    task::{JoinSet, yield_now},
    time::{sleep, timeout},
};
use tower::{Layer, ServiceExt as _, limit::ConcurrencyLimit};

use crate::support::{Era, pipe_to, serve_over_pipe, tool, until};

/// The number of concurrent runs, and of their targets.
const CALLERS: u64 = 50;
const PERMITS: usize = 40;
/// The maximum time in milliseconds before a run is abandoned.
const LONGEST: u64 = 40;
/// The time that a suspended run is kept.
const TTL: Duration = Duration::from_millis(200);

const COMPOSITES: [&str; 8] = ["fan", "race", "flow", "loop", "nested", "asks", "relays", "late"];

/// The current number of a resource that must not leak.
#[derive(Clone, Debug, Default)]
struct Count(Arc<AtomicUsize>);

/// A guard that counts one until it is dropped.
struct Counted(Count);

/// A remote server that counts its running calls.
#[derive(Clone, Default)]
struct Far {
    open: Count,
    /// The number of cancelled calls.
    cancelled: Arc<AtomicUsize>,
}

/// A client with a person, who answers soon, late, or never.
#[derive(Clone, Default)]
struct Human {
    open: Count,
    /// The number of withdrawn questions.
    withdrawn: Arc<AtomicUsize>,
}

type Stack = Composite<ConcurrencyLimit<Router>>;

/// Everything in which a run can leave something behind.
struct World {
    far: Far,
    remote: RemoteService,
    near: Server,
    permits: Arc<Semaphore>,
    store: Arc<MemoryStore>,
    stack: Stack,
    human: Human,
    older: RunningService<RoleClient, Human>,
    newer: RunningService<RoleClient, Human>,
    /// The tasks that exist without any run.
    _serving: JoinSet<()>,
    tasks: usize,
}

/// The outcomes of runs.
#[derive(Debug, Default)]
struct Ends {
    answered: AtomicUsize,
    suspended: AtomicUsize,
    given_up: AtomicUsize,
    /// The calls that clients have cancelled.
    cancelled: Mutex<Vec<(Peer<RoleClient>, RequestId)>>,
}

// === impl Ends ===

impl Ends {
    /// Cancels the abandoned calls once more.
    async fn cancel_again(&self) {
        let cancelled = self.cancelled.lock().unwrap().clone();
        for (client, id) in cancelled {
            client.notify_cancelled(CancelledNotificationParam::new(Some(id), None)).await.unwrap();
        }
    }
}

// === impl Count ===

impl Count {
    fn one_more(&self) -> Counted {
        self.0.fetch_add(1, Ordering::SeqCst);
        Counted(self.clone())
    }

    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

// === impl Far ===

impl ServerHandler for Far {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = ["quick", "slow", "hangs", "fails"].map(tool);
        Ok(ListToolsResult::with_all_items(tools.into()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _open = self.open.one_more();
        let work = async {
            if let Some(token) = cx.meta.get_progress_token() {
                let progress = ProgressNotificationParam::new(token, 1.0);
                let _ = cx.peer.notify_progress(progress).await;
            }
            match &*call.name {
                "quick" => (),
                "slow" => sleep(Duration::from_millis(5)).await,
                "fails" => return CallToolResult::error(vec![ContentBlock::text("no")]),
                _ => std::future::pending().await,
            }
            CallToolResult::success(vec![ContentBlock::text("done")])
        };
        tokio::select! {
            result = work => Ok(result.into()),
            () = cx.ct.cancelled() => {
                self.cancelled.fetch_add(1, Ordering::SeqCst);
                Err(ErrorData::internal_error("given up", None))
            }
        }
    }
}

// === impl Human ===

impl ClientHandler for Human {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::builder().enable_elicitation().build(),
            Implementation::new("human", "0"),
        )
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        cx: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let _open = self.open.one_more();
        let (action, waits) = match fastrand::u8(0..6) {
            0 | 1 => (ElicitationAction::Accept, 0),
            2 => (ElicitationAction::Decline, 0),
            3 => (ElicitationAction::Accept, fastrand::u64(0..LONGEST)),
            4 => (ElicitationAction::Decline, fastrand::u64(0..LONGEST)),
            _ => (ElicitationAction::Cancel, u64::MAX),
        };
        tokio::select! {
            () = sleep(Duration::from_millis(waits)) => Ok(ElicitResult::new(action)),
            () = cx.ct.cancelled() => {
                self.withdrawn.fetch_add(1, Ordering::SeqCst);
                Err(ErrorData::internal_error("withdrawn", None))
            }
        }
    }
}

// === Composites ===

fn composites() -> CompositeLayer {
    let milliseconds = Duration::from_millis;
    let form = json!({ "type": "object", "properties": {} });
    let again = |count| OnError::Retry(Retry::times(count).delay(milliseconds(4)));
    let question = || Elicitation::new("go on?", form.clone());
    CompositeLayer::new([
        CompositeTool::fan_out("fan", "All at once", ["far_slow", "near_slow", "far_hangs"])
            .timeout(milliseconds(30)),
        CompositeTool::new(
            "race",
            "The fastest",
            Race::new(["far_hangs", "near_slow", "far_slow"]),
        ),
        CompositeTool::workflow(
            "flow",
            "Tries again",
            [
                Step::new("first", "far_quick"),
                Step::new("again", "far_fails").on_error(again(3)),
                Step::new("slow", "near_slow").depends_on(["first"]),
                Step::new("hangs", "far_hangs").timeout(milliseconds(8)).on_error(again(1)),
            ],
        ),
        CompositeTool::workflow(
            "loop",
            "Many",
            [Step::new(
                "each",
                ForEach::new("$input.items?", ToolCall::new("far_slow").arguments(json!({})))
                    .max_parallel(3),
            )
            .on_error(OnError::Continue)],
        )
        .input_schema(object(&json!({ "type": "object", "properties": { "items": {
            "type": "array", "default": [1, 2, 3, 4, 5, 6]
        } } }))),
        CompositeTool::fan_out(
            "nested",
            "Further down",
            [
                Target::new("flow"),
                Target::new("loop").timeout(milliseconds(12)),
                Target::new("asks").optional(true),
            ],
        ),
        CompositeTool::workflow(
            "asks",
            "Asks",
            [
                Step::new("before", "far_slow"),
                Step::new("sure", question()).depends_on(["before"]),
                Step::new("really", question().on_decline(OnRefusal::SkipRemaining))
                    .timeout(milliseconds(20)),
                Step::new("after", "far_slow").depends_on(["sure"]),
                Step::new("beside", "near_slow"),
            ],
        ),
        CompositeTool::fan_out("relays", "Tools ask", ["near_asks", "far_slow", "near_asks"]),
        CompositeTool::workflow(
            "late",
            "Too slow",
            [
                Step::new("sure", question().on_cancel(OnRefusal::Continue)),
                Step::new("hangs", "far_hangs").depends_on(["sure"]),
            ],
        )
        .timeout(milliseconds(15)),
    ])
    .unwrap()
}

fn object(value: &Value) -> JsonObject {
    value.as_object().unwrap().clone()
}

// === impl World ===

impl World {
    async fn new() -> Self {
        let mut serving = JoinSet::new();
        let far = Far::default();
        let remote = {
            let far = far.clone();
            RemoteService::builder("far").transport(move || pipe_to(far.clone()))
        };
        remote.connected().await.unwrap();
        let slow = Answer::text("done").after(Duration::from_millis(3));
        let asks = Answer::from_fn(|call| async move {
            match call.state() {
                None => Answer::asks("sure", "sure?"),
                Some(_) => Answer::text("so be it"),
            }
        });
        let near = Server::new().tool("slow", slow).tool("asks", asks);
        let router = Router::builder()
            .backend(Backend::new("far", remote.clone()))
            .backend(Backend::new("near", near.clone()))
            .build()
            .unwrap();
        let permits = Arc::new(Semaphore::new(PERMITS));
        let store = Arc::new(MemoryStore::for_runs().ttl(TTL));
        let limited = ConcurrencyLimit::with_semaphore(router, permits.clone());
        let stack = composites().state(store.clone()).layer(limited);
        stack.warm().await.unwrap();

        let human = Human::default();
        let [older, newer] = [Era::Legacy, Era::Modern].map(|era| {
            let config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
            (era, ServeService::new(stack.clone(), config))
        });
        let older = connect(&mut serving, older.1, older.0, &human).await;
        let newer = connect(&mut serving, newer.1, newer.0, &human).await;
        let mut world = Self {
            far,
            remote,
            near,
            permits,
            store,
            stack,
            human,
            older,
            newer,
            _serving: serving,
            tasks: 0,
        };
        // The first calls, after which all connections have their permanent tasks.
        for client in [&world.older, &world.newer] {
            let _ = client.send_request(call("flow").into()).await.unwrap();
        }
        until(async || world.is_idle()).await;
        // On several threads, ending tasks may take a moment.
        loop {
            world.tasks = alive_tasks();
            sleep(Duration::from_millis(200)).await;
            if alive_tasks() == world.tasks {
                return world;
            }
        }
    }

    /// Makes this many runs, and abandons most of them.
    async fn run(self: &Arc<Self>, runs: u64, seed: u64) -> Arc<Ends> {
        let ends = Arc::<Ends>::default();
        let mut callers = JoinSet::new();
        for caller in 0..CALLERS {
            let (world, ends) = (self.clone(), ends.clone());
            let mut rng = Rng::with_seed(seed + caller);
            callers.spawn(async move {
                for _ in 0..runs / CALLERS {
                    let name = COMPOSITES[rng.usize(0..COMPOSITES.len())];
                    match rng.u8(0..3) {
                        0 => world.call_in_code(name, &mut rng, &ends).await,
                        1 => call_over(&world.older, name, &mut rng, &ends).await,
                        _ => call_over(&world.newer, name, &mut rng, &ends).await,
                    }
                }
            });
        }
        while let Some(end) = callers.join_next().await {
            end.unwrap();
        }
        ends
    }

    /// Calls and answers in code for a while, then drops the rest.
    async fn call_in_code(&self, name: &str, rng: &mut Rng, ends: &Ends) {
        let mut request = testing::request(name, json!({}));
        if rng.bool() {
            let key = "io.modelcontextprotocol/clientCapabilities".to_owned();
            request.context_mut().meta_mut().insert(key, json!({ "elicitation": {} }));
        }
        let answers = rng.usize(0..3);
        let actions: Vec<_> = (0..answers).map(|_| rng.choice(["accept", "decline"])).collect();
        let work = async {
            for action in &actions {
                let Some(suspended) = self.ask(request.clone()).await else { return true };
                let call = request.tool_call_mut().unwrap();
                call.request_state = suspended.request_state;
                let answer = json!({ "action": action, "content": {} });
                let keys = suspended.input_requests.into_iter().flatten().map(|(key, _)| key);
                call.input_responses = Some(keys.map(|key| (key, answer.clone())).collect());
            }
            self.ask(request.clone()).await.is_none()
        };
        match give_up(work, rng).await {
            None => note(&ends.given_up),
            Some(true) => note(&ends.answered),
            Some(false) => note(&ends.suspended),
        }
    }

    /// Returns the question of a call, if it asks.
    async fn ask(&self, request: Request) -> Option<InputRequiredResult> {
        let reply = self.stack.clone().oneshot(request).await.unwrap();
        match reply.into_result() {
            Ok(ServerResult::InputRequiredResult(suspended)) => Some(suspended),
            _ => None,
        }
    }

    /// Returns whether nothing is running.
    fn is_idle(&self) -> bool {
        self.far.open.now() == 0
            && self.near.running() == 0
            && self.human.open.now() == 0
            && self.permits.available_permits() == PERMITS
            && says(&self.remote, "awaited_reports: Some(0)")
    }

    /// Asserts that nothing is left behind.
    async fn is_left_as_it_was(&self, ends: &Ends) {
        let mut turns = 0;
        until(async || {
            turns += 1;
            assert!(turns < 5_000, "it is left: {self:?}");
            // rmcp sends from several tasks: on several threads, a cancellation can arrive before
            // its call, and has no effect.
            if turns % 20 == 1 {
                ends.cancel_again().await;
            }
            // Fewer, if an ending task was still counted at the beginning.
            self.is_idle() && alive_tasks() <= self.tasks
        })
        .await;
        // Expired entries are removed when the store is used.
        sleep(TTL).await;
        let text = self.store.put(Vec::new(), b"", None).await.unwrap();
        self.store.take(&text, b"", None).await.unwrap();
        assert!(says(&self.store, "items: 0, bytes: 0"), "{:?}", self.store);
    }
}

impl Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("far", &self.far.open)
            .field("near", &self.near.running())
            .field("human", &self.human.open)
            .field("permits", &self.permits)
            .field("remote", &self.remote)
            .field("tasks", &(self.tasks, alive_tasks()))
            .finish_non_exhaustive()
    }
}

fn says(value: &impl Debug, text: &str) -> bool {
    format!("{value:?}").contains(text)
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

fn note(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::SeqCst);
}

async fn connect(
    serving: &mut JoinSet<()>,
    server: impl ServerHandler,
    era: Era,
    human: &Human,
) -> RunningService<RoleClient, Human> {
    let (far, work) = serve_over_pipe(server);
    serving.spawn(work);
    human.clone().serve_with_lifecycle(far, era.lifecycle()).await.unwrap()
}

fn call(name: &'static str) -> CallToolRequest {
    CallToolRequest::new(CallToolRequestParams::new(name))
}

/// Calls over a connection, and sends a cancellation if the call is abandoned.
async fn call_over(
    client: &RunningService<RoleClient, Human>,
    name: &'static str,
    rng: &mut Rng,
    ends: &Ends,
) {
    let options = PeerRequestOptions::no_options();
    let mut handle = client.send_cancellable_request(call(name).into(), options).await.unwrap();
    match give_up(&mut handle.rx, rng).await {
        None => {
            note(&ends.given_up);
            let id = handle.id.clone();
            handle.cancel(None).await.unwrap();
            ends.cancelled.lock().unwrap().push((client.peer().clone(), id));
        }
        Some(Ok(Ok(ServerResult::InputRequiredResult(_)))) => note(&ends.suspended),
        Some(_) => note(&ends.answered),
    }
}

/// Polls a future for some turns and some time, or until it completes.
async fn give_up<F: Future>(work: F, rng: &mut Rng) -> Option<F::Output> {
    let (turns, time) = (rng.u8(0..30), Duration::from_millis(rng.u64(0..LONGEST)));
    let mut work = std::pin::pin!(work);
    for _ in 0..turns {
        if let std::task::Poll::Ready(output) = futures::poll!(work.as_mut()) {
            return Some(output);
        }
        yield_now().await;
    }
    if turns < 10 { None } else { timeout(time, work).await.ok() }
}

/// Returns whether all kinds of outcomes occurred. If not, the test proves nothing.
fn all_happened(world: &World, ends: &Ends, at_least: usize) -> bool {
    let counts = [
        &ends.answered,
        &ends.suspended,
        &ends.given_up,
        &world.far.cancelled,
        &world.human.withdrawn,
    ]
    .map(|count| count.load(Ordering::SeqCst));
    counts.iter().all(|&count| count >= at_least)
}

#[tokio::test(start_paused = true)]
async fn abandoned_runs_leak_nothing() {
    let world = Arc::new(World::new().await);
    let ends = world.run(5_000, 1).await;
    world.is_left_as_it_was(&ends).await;
    assert!(all_happened(&world, &ends, 100));
}

// Uses several threads, so time cannot be paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn runs_abandoned_on_several_threads_leak_nothing() {
    let world = Arc::new(World::new().await);
    let mut have_all_happened = false;
    // The outcomes depend on the speed of the machine.
    for seed in (100..2_000).step_by(100) {
        let ends = world.run(1_000, seed).await;
        world.is_left_as_it_was(&ends).await;
        have_all_happened = all_happened(&world, &ends, 10);
        if have_all_happened {
            break;
        }
    }
    assert!(have_all_happened);
}
