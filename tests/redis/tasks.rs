//! Tasks that replicas share.

use std::time::Duration;

use futures::future::join_all;
use mcp_composite::{
    composite::{CompositeLayer, CompositeTool, Elicitation, Step, TaskMode},
    config::{Config, Gateway},
    message::{Context, Request, ToolAnswer, ToolService},
    redis::RedisTasks,
    stack::{Stack, StackLayer},
    tasks::{
        MemoryTaskStore, TaskLayer, TaskPhase, TaskRegistry, TaskStore, TaskStoreError, TaskWrite,
    },
    testing::{Answer, Server as Tools},
};
use rmcp::model::{
    ClientRequest, ErrorData, GetTaskParams, GetTaskRequest, ServerResult, TaskPayload, TaskStatus,
    UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tower::{BoxError, Layer, ServiceExt};

use super::{
    replica,
    server::{Gap, Server},
};
use crate::{scripted::call, support::soon};

const LEASE: Duration = Duration::from_secs(2);
const HOUR: Duration = Duration::from_secs(60 * 60);
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// Makes a test of each case, for each store.
macro_rules! contract {
    ($($case:ident)*) => {
        mod memory {
            $(
                #[tokio::test]
                async fn $case() {
                    super::$case(super::MemoryTaskStore::new()).await;
                }
            )*
        }

        mod redis {
            $(
                #[tokio::test]
                async fn $case() {
                    let server = super::Server::start();
                    super::$case(super::replica(&server).tasks()).await;
                }
            )*
        }
    };
}

contract! {
    record_is_written_with_the_expected_token
    lease_expires_and_is_claimed_once
    lease_is_renewed_by_its_holder
    end_of_a_task_deletes_its_checkpoint
    record_expires
    unfinished_tasks_are_limited
    size_of_a_record_is_limited
}

fn working(lease: Duration) -> TaskPhase {
    TaskPhase::Working(lease)
}

/// Returns a write that creates a record.
fn create(token: &'static str, lease: Duration) -> TaskWrite<'static> {
    let mut write = TaskWrite::new(token, working(lease), HOUR);
    write.call = Some(b"call");
    write.state = Some(b"state");
    write
}

/// Returns a write that changes a record.
fn change(expected: &'static str, token: &'static str, phase: TaskPhase) -> TaskWrite<'static> {
    let mut write = TaskWrite::new(token, phase, HOUR);
    write.expected = Some(expected);
    write
}

async fn record_is_written_with_the_expected_token(store: impl TaskStore) {
    assert_eq!(store.get("a").await, Ok(None));
    assert_eq!(store.checkpoint("a").await, Ok(None));
    let lost = Err(TaskStoreError::Lost);
    assert_eq!(store.write("a", change("one", "one", working(HOUR))).await, lost);

    // A write can be repeated.
    for _ in 0..2 {
        assert_eq!(store.write("a", create("one", HOUR)).await, Ok(()));
    }
    assert_eq!(store.write("a", create("other", HOUR)).await, lost);
    let mut save = change("one", "one", working(HOUR));
    save.checkpoint = Some(&[0, 255]);
    assert_eq!(store.write("a", save).await, Ok(()));
    let stored = store.get("a").await.unwrap().unwrap();
    assert_eq!((&*stored.key, &*stored.token), ("a", "one"));
    assert_eq!((&*stored.call, &*stored.state), (&b"call"[..], &b"state"[..]));
    assert_eq!(store.checkpoint("a").await, Ok(Some(vec![0, 255])));

    let mut wait = change("one", "two", TaskPhase::Waiting);
    wait.state = Some(b"waits");
    for _ in 0..2 {
        assert_eq!(store.write("a", wait).await, Ok(()));
    }
    assert_eq!(store.write("a", save).await, lost);
    let stored = store.get("a").await.unwrap().unwrap();
    assert_eq!((&*stored.token, &*stored.state), ("two", &b"waits"[..]));
    assert_eq!(store.checkpoint("a").await, Ok(Some(vec![0, 255])));
}

async fn lease_expires_and_is_claimed_once(store: impl TaskStore) {
    for key in ["a", "b", "c"] {
        store.write(key, create("one", Duration::ZERO)).await.unwrap();
    }
    store.write("held", create("one", HOUR)).await.unwrap();
    store.write("waits", create("one", Duration::ZERO)).await.unwrap();
    store.write("waits", change("one", "two", TaskPhase::Waiting)).await.unwrap();
    sleep(Duration::from_millis(2)).await;
    let claims = join_all((0..4).map(|_| store.claim(2, HOUR))).await;
    let claims: Vec<_> = claims.into_iter().flat_map(Result::unwrap).collect();
    let mut keys: Vec<_> = claims.iter().map(|task| &*task.key).collect();
    // A replica may find only tasks that another one claims at the same time.
    let rest = store.claim(9, HOUR).await.unwrap();
    keys.extend(rest.iter().map(|task| &*task.key));
    keys.sort_unstable();
    assert_eq!(keys, ["a", "b", "c"]);
    for task in claims.iter().chain(&rest) {
        assert_eq!((&*task.call, &*task.state), (&b"call"[..], &b"state"[..]));
        let late = store.write(&task.key, change("one", "one", working(HOUR))).await;
        assert_eq!(late, Err(TaskStoreError::Lost));
        let mut write = TaskWrite::new(&task.token, TaskPhase::Ended, HOUR);
        write.expected = Some(&task.token);
        assert_eq!(store.write(&task.key, write).await, Ok(()));
    }
}

async fn lease_is_renewed_by_its_holder(store: impl TaskStore) {
    store.write("a", create("one", LEASE)).await.unwrap();
    store.write("b", create("one", LEASE)).await.unwrap();
    store.write("b", change("one", "two", TaskPhase::Ended)).await.unwrap();
    let names = [("a", "one"), ("a", "two"), ("b", "two"), ("c", "one")];
    let names = names.map(|(key, token)| (key.to_owned(), token.to_owned()));
    assert_eq!(store.renew(&names, HOUR).await, Ok(vec![true, false, false, false]));
    sleep(LEASE + LEASE / 2).await;
    assert_eq!(store.claim(9, HOUR).await, Ok(vec![]));
    // A lease of zero is a release.
    assert_eq!(store.renew(&names[..1], Duration::ZERO).await, Ok(vec![true]));
    sleep(Duration::from_millis(2)).await;
    assert_eq!(store.claim(9, HOUR).await.unwrap().len(), 1);
    assert_eq!(store.renew(&names[..1], HOUR).await, Ok(vec![false]));
}

async fn end_of_a_task_deletes_its_checkpoint(store: impl TaskStore) {
    let mut write = create("one", Duration::ZERO);
    write.checkpoint = Some(b"checkpoint");
    store.write("a", write).await.unwrap();
    let mut end = change("one", "two", TaskPhase::Ended);
    end.state = Some(b"ended");
    store.write("a", end).await.unwrap();
    assert_eq!(store.checkpoint("a").await, Ok(None));
    assert_eq!(store.get("a").await.unwrap().unwrap().state, b"ended");
    assert_eq!(store.claim(9, HOUR).await, Ok(vec![]));
}

async fn record_expires(store: impl TaskStore) {
    let mut write = create("one", Duration::ZERO);
    write.ttl = Duration::from_millis(100);
    store.write("a", write).await.unwrap();
    sleep(Duration::from_millis(200)).await;
    assert_eq!(store.get("a").await, Ok(None));
    assert_eq!(store.claim(9, HOUR).await, Ok(vec![]));
    let lost = store.write("a", change("one", "one", working(HOUR))).await;
    assert_eq!(lost, Err(TaskStoreError::Lost));
}

async fn unfinished_tasks_are_limited(store: impl TaskStore) {
    let mut write = create("one", HOUR);
    write.caller = Some(b"alice");
    for number in 0..250 {
        store.write(&number.to_string(), write).await.unwrap();
    }
    let full = Err(TaskStoreError::CallerUnfinished { max: 250 });
    assert_eq!(store.write("more", write).await, full);
    let mut end = change("one", "one", TaskPhase::Ended);
    end.caller = Some(b"alice");
    store.write("0", end).await.unwrap();
    store.write("more", write).await.unwrap();

    for number in 250..1_000 {
        store.write(&number.to_string(), create("one", HOUR)).await.unwrap();
    }
    write.caller = Some(b"bob");
    let full = Err(TaskStoreError::Unfinished { max: 1_000 });
    assert_eq!(store.write("another", write).await, full);
    // A task that exists can still be changed.
    store.write("1", change("one", "one", TaskPhase::Waiting)).await.unwrap();
}

async fn size_of_a_record_is_limited(store: impl TaskStore) {
    let large = vec![b'a'; 5 << 20];
    let mut write = create("one", HOUR);
    write.checkpoint = Some(&large);
    store.write("a", write).await.unwrap();
    let mut end = change("one", "two", TaskPhase::Waiting);
    end.state = Some(&large);
    let refused = store.write("a", end).await;
    assert_eq!(refused, Err(TaskStoreError::TooLarge { max: 8 << 20 }));
    assert_eq!(store.get("a").await.unwrap().unwrap().token, "one");
    // The end of the task deletes the checkpoint.
    end.phase = TaskPhase::Ended;
    store.write("a", end).await.unwrap();
}

// === Stacks ===

/// A replica with its own tools.
struct Replica {
    tools: Tools,
    registry: TaskRegistry,
    service: Stack<Tools>,
}

impl Replica {
    fn new(store: RedisTasks) -> Self {
        let registry = TaskRegistry::with_store(store.lease(LEASE));
        let tools = Tools::new().says("quick", "done").hangs("hangs");
        let tools = tools.tool("slow", Answer::text("late").after(LEASE));
        let asks = Step::new("sure", Elicitation::new("Sure?", json!({})));
        let approval = [asks, Step::new("call", "quick").depends_on(["sure"])];
        let call = Step::new("call", "slow").retry_lost(true);
        let composites = [
            CompositeTool::workflow("approval", "Asks", approval),
            CompositeTool::workflow("slow_work", "Works", [call]),
        ];
        let composites = composites.map(|composite| composite.task(TaskMode::Always));
        let layer = StackLayer::new()
            .composite(CompositeLayer::new(composites).unwrap())
            .tasks(TaskLayer::new().registry(registry.clone()));
        let service = layer.layer(tools.clone());
        service.watch_tasks();
        Self { tools, registry, service }
    }

    async fn start(&self, tool: &str) -> String {
        start(&self.service, tool).await
    }

    async fn text(&self, id: &str) -> String {
        match soon(settled(&self.service, id)).await {
            TaskPayload::Completed { result } => {
                result["content"][0]["text"].as_str().unwrap().to_owned()
            }
            other => panic!("not completed: {other:?}"),
        }
    }
}

/// Starts a task, and returns its ID.
async fn start(service: &impl ToolService, tool: &str) -> String {
    let mut request = call(tool, json!({}));
    let extensions = json!({ "io.modelcontextprotocol/tasks": {} });
    let capabilities = json!({ "elicitation": { "form": {} }, "extensions": extensions });
    request.context_mut().meta_mut().insert(CAPABILITIES.to_owned(), capabilities);
    let reply = service.clone().oneshot(request).await.map_err(Into::<BoxError>::into).unwrap();
    match reply.into_tool_answer() {
        ToolAnswer::Task(id) => id,
        other => panic!("not a task: {other:?}"),
    }
}

async fn ask(
    service: &impl ToolService,
    message: impl Into<ClientRequest>,
) -> Result<ServerResult, ErrorData> {
    let request = Request::new(message, Context::default());
    service.clone().oneshot(request).await.map_err(Into::<BoxError>::into).unwrap().into_result()
}

/// Waits until a task no longer works.
async fn settled(service: &impl ToolService, id: &str) -> TaskPayload {
    loop {
        match ask(service, GetTaskRequest::new(GetTaskParams::new(id))).await.unwrap() {
            ServerResult::GetTaskResult(task) => match task.task.payload {
                TaskPayload::Working => sleep(LEASE / 100).await,
                payload => return payload,
            },
            other => panic!("not a task: {other:?}"),
        }
    }
}

async fn accept(service: &impl ToolService, id: &str) {
    let yes: Value = json!({ "action": "accept", "content": {} });
    let answers = [("1:sure".to_owned(), yes)].into();
    ask(service, UpdateTaskRequest::new(UpdateTaskParams::new(id, answers))).await.unwrap();
}

#[tokio::test]
async fn another_replica_continues_a_task_that_asks() {
    let server = Server::start();
    let [one, two] = [(); 2].map(|()| Replica::new(replica(&server).tasks()));
    let id = one.start("approval").await;
    let suspended = soon(settled(&two.service, &id)).await;
    assert_eq!(suspended.status(), TaskStatus::InputRequired);
    assert!(server.keys().iter().all(|key| !key.contains(&id)), "{:?}", server.keys());
    // Beside its outputs, a suspended task takes at most 2 KiB.
    let record = server.keys().into_iter().find(|key| key.contains(":record:")).unwrap();
    let bytes = server.tell(&format!("MEMORY USAGE {record}"));
    let bytes: usize = bytes.trim().strip_prefix(':').unwrap().parse().unwrap();
    assert!(bytes <= 2_048, "{bytes}");

    drop(one);
    accept(&two.service, &id).await;
    assert_eq!(two.text(&id).await, "done");
    for key in server.keys() {
        let left = server.tell(&format!("TTL {key}"));
        let left: i64 = left.trim().strip_prefix(':').unwrap().parse().unwrap();
        assert!((1..=3_600).contains(&left), "{key}: {left}");
    }
}

#[tokio::test]
async fn task_of_a_process_that_is_gone_is_taken_over() {
    let server = Server::start();
    let [one, two] = [(); 2].map(|()| Replica::new(replica(&server).tasks()));
    let id = one.start("slow_work").await;
    drop(one);
    assert_eq!(two.text(&id).await, "late");
    assert_eq!(two.tools.called(), ["slow"]);

    let three = Replica::new(replica(&server).tasks());
    let id = two.start("slow_work").await;
    let start = Instant::now();
    two.registry.close().await;
    assert_eq!(three.text(&id).await, "late");
    assert!(start.elapsed() >= LEASE, "{:?}", start.elapsed());
    assert_eq!(three.tools.called(), ["slow"]);
}

#[tokio::test]
async fn gateways_share_the_tasks_of_their_views() {
    let server = Server::start();
    // Nothing listens on the port of the backend.
    let text = format!(
        "[redis]\nurl = '{}'\n[state]\nstore = 'redis'\n\
         [[backends]]\nname = 'away'\nurl = 'http://127.0.0.1:1'\n\
         [[composite_tools]]\nname = 'sure'\ndescription = 'Asks'\nstrategy = 'pipeline'\n\
         task = 'always'\n\
         steps = [{{ id = 'sure', type = 'elicitation', message = 'Sure?', schema = {{}} }}]\n\
         [[views]]\npath = '/team'\n",
        server.url()
    );
    // Gateways of one `Config` would share their stores.
    let config = || Config::from_toml_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let [one, two] = [(); 2].map(|()| Gateway::connect(&config()).unwrap());
    let services =
        |gateway: &Gateway| [gateway.service(), gateway.view("/team").unwrap().service()];
    let mut ids = Vec::new();
    for service in services(&one) {
        let id = start(&service, "sure").await;
        assert_eq!(soon(settled(&service, &id)).await.status(), TaskStatus::InputRequired);
        ids.push(id);
    }
    soon(one.tasks_finished()).await;
    one.close().await;

    two.watch_tasks();
    two.reload(&config()).await.unwrap();
    let [main, team] = services(&two);
    for (own, other, id) in [(&main, &team, &ids[0]), (&team, &main, &ids[1])] {
        let foreign = ask(other, GetTaskRequest::new(GetTaskParams::new(&**id))).await;
        assert_eq!(foreign.unwrap_err().message, "unknown task");
        accept(own, id).await;
        assert_eq!(soon(settled(own, id)).await.status(), TaskStatus::Completed);
    }
    two.close().await;
}

#[tokio::test]
async fn poll_does_not_read_the_checkpoint() {
    let server = Server::start();
    let store = replica(&server).tasks();
    store.write("a", create("one", HOUR)).await.unwrap();
    let checkpoint = vec![b'a'; 1 << 20];
    let mut save = change("one", "one", working(HOUR));
    save.checkpoint = Some(&checkpoint);
    store.write("a", save).await.unwrap();
    let before = server.sent_bytes();
    for _ in 0..10 {
        store.get("a").await.unwrap();
    }
    let sent = server.sent_bytes() - before;
    // The statistics themselves are a few kilobytes.
    assert!(sent < 1 << 16, "{sent} bytes");
}

#[tokio::test]
async fn ended_and_unfinished_tasks_are_limited_together() {
    let server = Server::start();
    let store = replica(&server).tasks();
    let add = "EVAL \"for i = 1, 9998 do redis.call('ZADD', KEYS[1], '+inf', i) end\" 1";
    server.tell(&format!("{add} {{mcp-composite:task}}:ended"));
    for key in ["a", "b"] {
        store.write(key, create("one", HOUR)).await.unwrap();
    }
    let full = Err(TaskStoreError::Full { max: 10_000 });
    assert_eq!(store.write("c", create("one", HOUR)).await, full);
    // A task that ends is counted once.
    store.write("a", change("one", "one", TaskPhase::Ended)).await.unwrap();
    assert_eq!(store.write("c", create("one", HOUR)).await, full);
}

#[tokio::test]
async fn write_with_a_lost_reply_is_repeated() {
    let server = Server::start();
    let gap = Gap::before(&server);
    let store = mcp_composite::redis::RedisServer::new(&gap.url()).unwrap();
    let store = store.timeout(Duration::from_secs(60)).tasks();
    // The server knows the script from now on.
    store.write("first", create("one", HOUR)).await.unwrap();
    let writes = [
        create("one", HOUR),
        change("one", "two", TaskPhase::Waiting),
        change("two", "three", working(Duration::ZERO)),
    ];
    for write in writes {
        gap.lose_an_answer();
        assert_eq!(store.write("a", write).await, Ok(()));
        assert!(gap.has_lost());
    }
}

#[tokio::test]
async fn save_and_poll_are_one_request_each() {
    let server = Server::start();
    let store = replica(&server).tasks();
    store.write("a", create("one", HOUR)).await.unwrap();
    let scripts = server.runs();
    let mut save = change("one", "one", working(HOUR));
    save.checkpoint = Some(b"checkpoint");
    for _ in 0..10 {
        store.write("a", save).await.unwrap();
        store.get("a").await.unwrap();
    }
    assert_eq!(server.runs() - scripts, 10);
}

#[tokio::test]
async fn unavailable_server_is_reported() {
    let mut server = Server::start();
    let store = mcp_composite::redis::RedisServer::new(&server.url()).unwrap().tasks();
    store.write("a", create("one", HOUR)).await.unwrap();
    server.kill();
    let is_away = |error| matches!(error, TaskStoreError::Unavailable(_));
    assert!(is_away(store.write("a", create("one", HOUR)).await.unwrap_err()));
    assert!(is_away(store.get("a").await.unwrap_err()));
    assert!(is_away(store.checkpoint("a").await.unwrap_err()));
    let names = [("a".to_owned(), "one".to_owned())];
    assert!(is_away(store.renew(&names, HOUR).await.unwrap_err()));
    assert!(is_away(store.claim(1, HOUR).await.unwrap_err()));
    server.restart();
    assert_eq!(store.get("a").await, Ok(None));
}
