//! Several task layers over one store. Each of them stands for a replica.

use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

use futures::future::BoxFuture;
use rmcp::model::{
    CallToolResult, CancelTaskParams, CancelTaskRequest, ClientRequest, ContentBlock,
    GetTaskParams, GetTaskRequest, InputRequiredResult, RequestMetaObject, ServerResult,
    TaskPayload, TaskStatus, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance, timeout};
use tower::{Layer, service_fn};
use tower_service::Service;

use super::*;
use crate::{
    composite::{CompositeLayer, CompositeTool, TaskMode},
    message::{Request, ToolAnswer},
    tasks::{TaskLayer, TaskRegistry, Tasks},
};

mod failures;
mod runs;

const SECOND: Duration = Duration::from_secs(1);
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// The caller of a request.
#[derive(Clone)]
struct Caller(&'static str);

/// A composite that calls `first`, then asks a question if its arguments contain `ask`, and then
/// calls `second`. It stores its state like a composite does.
#[derive(Clone, Default)]
struct Work {
    replica: &'static str,
    calls: Arc<Mutex<Vec<String>>>,
}

/// A replica.
struct Replica {
    registry: TaskRegistry,
    work: Work,
    service: Tasks<Inner>,
}

type Inner = tower::util::BoxCloneService<Request, Reply, Infallible>;

/// A store that can be unavailable for one replica.
#[derive(Clone, Debug, Default)]
struct Link {
    store: MemoryTaskStore,
    is_down: Arc<AtomicBool>,
    /// The number of writes at the end of a run that still fail.
    failing_ends: Arc<AtomicU32>,
}

fn unavailable<T>() -> Result<T, TaskStoreError> {
    Err(TaskStoreError::Unavailable("the link is down".into()))
}

impl Link {
    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    fn check(&self) -> Result<(), TaskStoreError> {
        if self.is_down.load(Ordering::SeqCst) { unavailable() } else { Ok(()) }
    }
}

impl TaskStore for Link {
    fn write<'a>(
        &'a self,
        key: &'a str,
        write: TaskWrite<'a>,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>> {
        Box::pin(async move {
            self.check()?;
            let is_end = !matches!(write.phase, TaskPhase::Working(_));
            let fails = |left: u32| left.checked_sub(1).filter(|_| is_end);
            let left = self.failing_ends.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails);
            if left.is_ok() { unavailable() } else { self.store.write(key, write).await }
        })
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<StoredTask>, TaskStoreError>> {
        Box::pin(async move {
            self.check()?;
            self.store.get(key).await
        })
    }

    fn checkpoint<'a>(
        &'a self,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, TaskStoreError>> {
        Box::pin(async move {
            self.check()?;
            self.store.checkpoint(key).await
        })
    }

    fn renew<'a>(
        &'a self,
        held: &'a [(String, String)],
        lease: Duration,
    ) -> BoxFuture<'a, Result<Vec<bool>, TaskStoreError>> {
        Box::pin(async move {
            self.check()?;
            self.store.renew(held, lease).await
        })
    }

    fn claim(
        &self,
        max: usize,
        lease: Duration,
    ) -> BoxFuture<'_, Result<Vec<StoredTask>, TaskStoreError>> {
        Box::pin(async move {
            self.check()?;
            self.store.claim(max, lease).await
        })
    }
}

// === impl Work ===

impl Work {
    /// Calls a tool, which takes three seconds.
    async fn step(&self, tool: &str) {
        sleep(3 * SECOND).await;
        self.calls.lock().unwrap().push(format!("{} {tool}", self.replica));
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    async fn answer(self, request: Request) -> Result<Reply, Infallible> {
        let params = request.tool_call().unwrap().clone();
        let Some(checkpoint) = request.context().checkpoint() else {
            self.step("first").await;
            return Ok(Reply::from(CallToolResult::success(vec![ContentBlock::text("plain")])));
        };
        let saved = async |state: &str| checkpoint.save(state.as_bytes().to_vec()).await;
        let mut state = checkpoint.stored().map(|state| String::from_utf8(state.to_vec()).unwrap());
        let run = async {
            if matches!(state.as_deref(), None | Some("begun")) {
                saved("begun").await?;
                self.step("first").await;
                saved("first").await?;
                state = Some("first".to_owned());
            }
            let arguments = params.arguments.unwrap_or_default();
            if arguments.contains_key("ask") && state.as_deref() == Some("first") {
                saved("asked").await?;
                state = Some("asked".to_owned());
            }
            if state.as_deref() == Some("asked") {
                let Some(answers) = params.input_responses.filter(|answers| answers.len() == 2)
                else {
                    return Ok(questions());
                };
                assert!(answers.contains_key("sure") && answers.contains_key("really"));
                saved("answered").await?;
            }
            self.step("second").await;
            saved("second").await?;
            let result = arguments.get("large").and_then(Value::as_u64).map_or_else(
                || format!("done by {}", self.replica),
                |bytes| "a".repeat(usize::try_from(bytes).unwrap()),
            );
            let mut result = CallToolResult::success(vec![ContentBlock::text(result)]);
            if let Some(levels) = arguments.get("levels").and_then(Value::as_u64) {
                let deep = (0..levels).fold(json!(1), |deep, _| json!([deep]));
                result.structured_content = Some(deep);
            }
            Ok(Reply::from(result))
        };
        match run.await {
            Ok(reply) => Ok(reply),
            Err(crate::message::checkpoint::CheckpointError::Lost) => {
                Ok(ErrorData::internal_error("lost", None).into())
            }
            Err(crate::message::checkpoint::CheckpointError::Failed(text)) => {
                Ok(ErrorData::internal_error(text, None).into())
            }
        }
    }
}

/// Returns the reply of a run that asks two questions.
fn questions() -> Reply {
    let question = json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": "Sure?",
            "requestedSchema": { "type": "object", "properties": {} },
        },
    });
    let result = json!({
        "resultType": "input_required",
        "inputRequests": { "sure": question, "really": question },
    });
    let result: InputRequiredResult = serde_json::from_value(result).unwrap();
    ServerResult::InputRequiredResult(result).into()
}

/// Returns a layer with the composite `work`.
fn layer(mode: TaskMode) -> TaskLayer {
    let composite = CompositeTool::fan_out("work", "Works", ["first"]).task(mode);
    TaskLayer::new().composites(&CompositeLayer::new([composite]).unwrap())
}

// === impl Replica ===

impl Replica {
    fn new(replica: &'static str, store: impl TaskStore + 'static) -> Self {
        Self::with(TaskMode::Always, replica, store)
    }

    fn with(mode: TaskMode, replica: &'static str, store: impl TaskStore + 'static) -> Self {
        let registry = TaskRegistry::with_store(store);
        let work = Work { replica, ..Work::default() };
        let answering = work.clone();
        let inner = service_fn(move |request| answering.clone().answer(request));
        let caller = |context: &Context| {
            context.extensions().get::<Caller>().map(|Caller(name)| (*name).to_owned())
        };
        let layer = layer(mode).registry(registry.clone()).caller(caller);
        let service = layer.layer(tower::util::BoxCloneService::new(inner));
        service.watch(None);
        Self { registry, work, service }
    }

    async fn reply_to(&self, caller: Option<&'static str>, message: ClientRequest) -> Reply {
        let mut context = Context::default();
        let mut meta = RequestMetaObject::default();
        let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        meta.insert(CAPABILITIES.to_owned(), tasks);
        *context.meta_mut() = meta;
        if let Some(caller) = caller {
            context.extensions_mut().insert(Caller(caller));
        }
        let mut service = self.service.clone();
        future::poll_fn(|cx| service.poll_ready(cx)).await.unwrap();
        service.call(Request::new(message, context)).await.unwrap()
    }

    async fn call_as(&self, caller: Option<&'static str>, arguments: Value) -> ToolAnswer {
        let mut params = CallToolRequestParams::new("work");
        params.arguments = arguments.as_object().cloned();
        let call = ClientRequest::CallToolRequest(rmcp::model::CallToolRequest::new(params));
        self.reply_to(caller, call).await.into_tool_answer()
    }

    async fn start(&self, arguments: Value) -> String {
        match self.call_as(None, arguments).await {
            ToolAnswer::Task(id) => id,
            other => panic!("not a task: {other:?}"),
        }
    }

    async fn get_as(
        &self,
        caller: Option<&'static str>,
        id: &str,
    ) -> Result<DetailedTask, ErrorData> {
        let get = ClientRequest::GetTaskRequest(GetTaskRequest::new(GetTaskParams::new(id)));
        match self.reply_to(caller, get).await.into_result()? {
            ServerResult::GetTaskResult(task) => Ok(task.task),
            other => panic!("not a task: {other:?}"),
        }
    }

    async fn status(&self, id: &str) -> TaskStatus {
        self.get_as(None, id).await.unwrap().status()
    }

    /// Waits until the task no longer works.
    async fn settled(&self, id: &str) -> TaskPayload {
        loop {
            let task = self.get_as(None, id).await.unwrap();
            if task.status() != TaskStatus::Working {
                return task.payload;
            }
            sleep(SECOND / 10).await;
        }
    }

    /// Waits for the text of the task's result.
    async fn text(&self, id: &str) -> String {
        match self.settled(id).await {
            TaskPayload::Completed { result } => {
                result["content"][0]["text"].as_str().unwrap().to_owned()
            }
            other => panic!("not completed: {other:?}"),
        }
    }

    async fn answer(&self, id: &str, keys: &[&str]) -> Result<ServerResult, ErrorData> {
        self.answer_with(json!({ "action": "accept", "content": {} }), id, keys).await
    }

    async fn answer_with(
        &self,
        yes: Value,
        id: &str,
        keys: &[&str],
    ) -> Result<ServerResult, ErrorData> {
        let answers = keys.iter().map(|key| ((*key).to_owned(), yes.clone()));
        let update = UpdateTaskRequest::new(UpdateTaskParams::new(id, answers.collect()));
        self.reply_to(None, ClientRequest::UpdateTaskRequest(update)).await.into_result()
    }

    async fn cancel(&self, id: &str) -> Result<ServerResult, ErrorData> {
        let cancel = CancelTaskRequest::new(CancelTaskParams::new(id));
        self.reply_to(None, ClientRequest::CancelTaskRequest(cancel)).await.into_result()
    }

    /// Returns the number of tasks that the replica runs.
    fn running(&self) -> usize {
        lock(&self.registry.shared.as_ref().unwrap().running).held.len()
    }
}

/// Returns two replicas with one store.
fn two() -> (Replica, Replica, MemoryTaskStore) {
    let store = MemoryTaskStore::new();
    (Replica::new("one", store.clone()), Replica::new("two", store.clone()), store)
}
