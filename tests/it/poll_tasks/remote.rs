//! Tasks of an rmcp server that is connected over a pipe in memory.

use mcp_composite::adapter::RemoteService;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, GetTaskParams, InputRequest,
        PaginatedRequestParams, ServerCapabilities, ServerConfig, UpdateTaskParams,
    },
    service::RequestContext,
    task_manager::{TaskContext, TaskExit, TaskManager, TaskOptions},
};

use super::*;
use crate::{
    scripted::can_be_asked,
    support::{Era, Log, connect, pipe_to, serve_over_pipe, soon, until},
};

/// The duration of the tool `work`, which is longer than the timeout of a request.
const WORK: Duration = Duration::from_millis(1_250);

/// A server whose tools run as tasks of rmcp's task manager if the client supports tasks, and
/// otherwise reply directly.
#[derive(Clone, Default)]
struct Managed {
    tasks: TaskManager,
    log: Log,
    /// Whether the server declares the extension for tasks.
    declares: bool,
}

// === impl Managed ===

impl Managed {
    fn new() -> Self {
        Self { declares: true, ..Self::default() }
    }

    /// Returns a service that connects to this server.
    fn remote(&self) -> RemoteService {
        let server = self.clone();
        RemoteService::builder("managed").transport(move || pipe_to(server.clone()))
    }

    fn polled(&self) -> PollTasks<RemoteService> {
        PollTasksLayer::new("managed").layer(self.remote())
    }

    async fn call(&self, tool: &str) -> Reply {
        soon(self.polled().oneshot(call(tool, json!({})))).await.unwrap()
    }
}

async fn run(tool: String, task: Option<TaskContext>) -> Result<CallToolResult, TaskExit> {
    let kind = if task.is_some() { "task" } else { "direct" };
    let result = || CallToolResult::success(vec![ContentBlock::text(kind)]);
    match (&*tool, task) {
        ("work", _) => {
            sleep(WORK).await;
            let mut result = result();
            let info = json!({ "io.modelcontextprotocol/serverInfo": { "name": "managed" } });
            result.meta = Some(serde_json::from_value(info).unwrap());
            Ok(result)
        }
        ("fails", _) => Err(ErrorData::invalid_request("no disk", None).into()),
        ("asks", Some(task)) => {
            let question = json!({
                "method": "elicitation/create",
                "params": {
                    "message": "Sure?",
                    "requestedSchema": { "type": "object", "properties": {} },
                },
            });
            let question: InputRequest = serde_json::from_value(question).unwrap();
            let answer = task.request_input("sure", question).await?;
            Ok(CallToolResult::success(vec![ContentBlock::text(answer["action"].to_string())]))
        }
        ("hangs", Some(task)) => {
            task.cancelled().await;
            Err(TaskExit::Cancelled)
        }
        _ => Err(ErrorData::invalid_params("unknown tool", None).into()),
    }
}

impl ServerHandler for Managed {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools();
        ServerConfig::new(match self.declares {
            true => capabilities.enable_tasks().build(),
            false => capabilities.build(),
        })
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name| Tool::new(name, "A tool", JsonObject::new());
        Ok(ListToolsResult::with_all_items(["work", "fails", "asks", "hangs"].map(tool).into()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = params.name.into_owned();
        let supports = context.client_capabilities().is_some_and(|able| able.supports_tasks());
        self.log.note(format!("call {supports}"));
        if !supports {
            return match run(tool, None).await {
                Ok(result) => Ok(result.into()),
                Err(TaskExit::Error(error)) => Err(error),
                Err(_) => Err(ErrorData::internal_error("cancelled", None)),
            };
        }
        let options = TaskOptions::new().with_poll_interval_ms(100);
        let task = self.tasks.spawn(options, |task| Box::pin(run(tool, Some(task))));
        Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.tasks.get_task(&params.task_id).map(GetTaskResult::new)
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log.note("update");
        self.tasks.update_task(&params.task_id, params.input_responses)
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log.note("cancel");
        self.tasks.cancel_task(&params.task_id)
    }
}

#[tokio::test(start_paused = true)]
async fn task_of_a_remote_server_is_polled() {
    let server = Managed::new();
    let reply = server.call("work").await;
    assert_eq!(text(&reply), "task");
    assert_eq!(reply.tool_result().unwrap().meta, None, "the backend's name is removed");
    let error = server.call("fails").await.error().unwrap().into_owned();
    // Like the same error as the reply to a call.
    assert_eq!(error.message, "backend `managed` refused the request");
    assert_eq!(server.log.lines(), ["call true"; 2]);
}

#[tokio::test(start_paused = true)]
async fn extension_is_declared_only_if_server_and_layer_support_it() {
    let silent = Managed { declares: false, ..Managed::default() };
    assert_eq!(text(&silent.call("work").await), "direct");
    assert_eq!(silent.log.lines(), ["call false"]);

    // A bare connection returns no tasks, even if the client supports them.
    let server = Managed::new();
    let mut request = call("work", json!({}));
    let able = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
    let meta = request.context_mut().meta_mut();
    meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), able);
    let reply = soon(server.remote().oneshot(request.clone())).await.unwrap();
    assert_eq!(text(&reply), "direct");
    // The layer waits for such a client, too.
    assert_eq!(text(&soon(server.polled().oneshot(request)).await.unwrap()), "task");
    assert_eq!(server.log.lines(), ["call false", "call true"]);
}

#[tokio::test(start_paused = true)]
async fn server_of_an_older_version_replies_directly() {
    let server = Managed::new();
    let (near, work) = serve_over_pipe(server.clone());
    let _serving = tokio::task::JoinSet::from_iter([work]);
    let client = ().serve_with_lifecycle(near, ClientLifecycleMode::Initialize);
    let client = client.await.unwrap();
    let remote = RemoteService::from_peer("managed", client.peer().clone());
    let polled = PollTasksLayer::new("managed").layer(remote);
    assert_eq!(text(&soon(polled.oneshot(call("work", json!({})))).await.unwrap()), "direct");
}

#[tokio::test(start_paused = true)]
async fn question_of_a_remote_task_reaches_the_client() {
    let server = Managed::new();
    let service = server.polled();
    let stack = CompositeLayer::new([CompositeTool::workflow(
        "job",
        "Calls a tool",
        [Step::new("call", "asks")],
    )])
    .unwrap()
    .layer(service);
    let mut request = call("job", json!({}));
    *request.context_mut().meta_mut() = can_be_asked();
    let reply = soon(stack.clone().oneshot(request.clone())).await.unwrap();
    let ToolAnswer::InputRequired(question) = reply.into_tool_answer() else {
        panic!("no question")
    };
    let key = question.input_requests.unwrap().into_keys().next().unwrap();
    let params = request.tool_call_mut().unwrap();
    params.request_state = question.request_state;
    let answers = json!({ key: { "action": "accept", "content": {} } });
    params.input_responses = serde_json::from_value(answers).unwrap();
    assert_eq!(text(&soon(stack.oneshot(request)).await.unwrap()), "\"accept\"");
    assert_eq!(server.log.lines(), ["call true", "update"]);
}

#[tokio::test(start_paused = true)]
async fn dropped_call_cancels_the_remote_task() {
    let server = Managed::new();
    let calling = server.polled().oneshot(call("hangs", json!({})));
    assert!(timeout(5 * SECOND, calling).await.is_err());
    soon(until(async || server.tasks.running_task_count() == 0)).await;
    assert_eq!(server.log.lines(), ["call true", "cancel"]);
}

#[tokio::test(start_paused = true)]
async fn served_client_receives_the_result_of_a_task() {
    use mcp_composite::adapter::ServeService;

    for era in [Era::Legacy, Era::Modern] {
        let info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        let connection = connect(ServeService::new(Managed::new().polled(), info), era).await;
        let params = CallToolRequestParams::new("work");
        let result = soon(connection.client.call_tool(params)).await.unwrap();
        assert_eq!(result.content[0].as_text().unwrap().text, "task");
    }
}

#[cfg(all(feature = "config", feature = "http"))]
#[tokio::test]
async fn gateway_waits_longer_than_the_timeout_of_a_request() {
    use mcp_composite::config::{Config, Gateway};

    let backend = Managed::new();
    let server = crate::http::serve(backend.clone(), false).await;
    let text = format!(
        "[[backends]]\nname = 'far'\nurl = 'http://{}/'\ntimeout = '1s'\n\
         [[composite_tools]]\nname = 'job'\ndescription = 'Works'\nstrategy = 'pipeline'\n\
         steps = [{{ id = 'work', tool = 'far_work' }}]\n",
        server.address
    );
    let config = Config::from_toml_str(&text).unwrap_or_else(|error| panic!("{error}"));
    let gateway = Gateway::connect(&config).unwrap();
    soon(gateway.backends().remotes()[0].connected()).await.unwrap();
    for tool in ["far_work", "job"] {
        let reply = soon(gateway.service().oneshot(call(tool, json!({})))).await.unwrap();
        assert_eq!(super::text(&reply), "task");
    }
    let calling = gateway.service().oneshot(call("far_hangs", json!({})));
    let hangs = async {
        until(async || backend.log.lines().len() == 3).await;
        sleep(WORK).await;
    };
    tokio::select! {
        reply = calling => panic!("{reply:?}"),
        () = soon(hangs) => (),
    }
    soon(until(async || backend.tasks.running_task_count() == 0)).await;
    assert_eq!(backend.log.lines(), ["call true", "call true", "call true", "cancel"]);
    gateway.close().await;
}
