//! Tasks of connected clients.

use mcp_composite::adapter::ServeService;
use rmcp::{
    ClientHandler, ClientServiceExt, RoleClient, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
        ServerCapabilities, ServerConfig,
    },
    service::RunningService,
};
use tokio::task::JoinSet;

use super::*;
use crate::support::{Era, serve_over_pipe, soon};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

/// A client that may support tasks, and never answers questions over its connection.
#[derive(Clone, Copy)]
struct Client {
    supports_tasks: bool,
}

type Connected = (RunningService<RoleClient, Client>, JoinSet<()>);

// === impl Client ===

impl Client {
    async fn connect(self, server: impl ServerHandler, era: Era) -> Connected {
        let (far, work) = serve_over_pipe(server);
        let serving = JoinSet::from_iter([work]);
        (soon(self.serve_with_lifecycle(far, era.lifecycle())).await.unwrap(), serving)
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation();
        let capabilities = match self.supports_tasks {
            true => capabilities.enable_tasks().build(),
            false => capabilities.build(),
        };
        ClientConfig::new(capabilities, Implementation::new("client", "0"))
    }
}

/// A handler without tools.
struct Empty;

impl ServerHandler for Empty {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::default())
    }
}

fn layer(composites: impl IntoIterator<Item = CompositeTool>) -> StackLayer {
    StackLayer::new().composite(CompositeLayer::new(composites).unwrap())
}

/// Returns a server of these composites over the scripted tools.
fn serve(composites: impl IntoIterator<Item = CompositeTool>) -> ServeService<Stack<Server>> {
    let layer = layer(composites);
    let mut capabilities = ServerCapabilities::builder().enable_tools().build();
    layer.declare(&mut capabilities);
    ServeService::new(layer.layer(server()), ServerConfig::new(capabilities))
}

fn params(tool: &str) -> CallToolRequestParams {
    CallToolRequestParams::new(tool.to_owned()).with_arguments(Default::default())
}

async fn start(client: &RunningService<RoleClient, Client>, tool: &str) -> String {
    match soon(client.call_tool_once(params(tool))).await.unwrap() {
        CallToolResponse::Task(created) => created.task.task_id,
        other => panic!("not a task: {other:?}"),
    }
}

async fn settled(client: &RunningService<RoleClient, Client>, id: &str) -> TaskPayload {
    loop {
        let task = soon(client.get_task(GetTaskParams::new(id))).await.unwrap().task;
        match task.payload {
            TaskPayload::Working => sleep(SECOND / 10).await,
            payload => return payload,
        }
    }
}

/// Answers all open questions of a task with yes.
async fn accept(client: &RunningService<RoleClient, Client>, id: &str) {
    let TaskPayload::InputRequired { input_requests } = settled(client, id).await else {
        panic!("no question")
    };
    let yes = json!({ "action": "accept", "content": {} });
    let answers = input_requests.into_keys().map(|key| (key, yes.clone())).collect();
    soon(client.update_task(UpdateTaskParams::new(id, answers))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn client_drives_a_task_with_questions() {
    for era in BOTH {
        let client = Client { supports_tasks: true };
        let (client, _serving) = client.connect(serve([approval()]), era).await;
        let id = start(&client, "approval").await;
        accept(&client, &id).await;
        accept(&client, &id).await;
        let TaskPayload::Completed { result } = settled(&client, &id).await else {
            panic!("not completed")
        };
        assert_eq!(result["content"][0]["text"], "done", "{era:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_an_older_client_gets_a_task_for_quick_questions() {
    for era in BOTH {
        let client = Client { supports_tasks: true };
        let server = serve([approval().task(TaskMode::Optional)]);
        let (client, _serving) = client.connect(server, era).await;
        let response = soon(client.call_tool_once(params("approval"))).await.unwrap();
        match (era, response) {
            (Era::Legacy, CallToolResponse::Task(created)) => {
                accept(&client, &created.task.task_id).await;
            }
            (Era::Modern, CallToolResponse::InputRequired(_)) => (),
            (era, other) => panic!("{era:?}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn wrapped_handler_serves_tasks_of_its_layers() {
    let asks = || {
        let composite = CompositeTool::pipeline("sure", "Asks", [asks("sure", "Sure?")]);
        layer([composite.task(TaskMode::Always)])
    };
    for era in BOTH {
        let client = Client { supports_tasks: true };
        let server = ServeService::wrap(Empty, asks());
        let (client, _serving) = client.connect(server, era).await;
        let id = start(&client, "sure").await;
        accept(&client, &id).await;
        let payload = settled(&client, &id).await;
        assert!(matches!(payload, TaskPayload::Completed { .. }), "{era:?}: {payload:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_without_tasks_receives_the_result() {
    for era in BOTH {
        let client = Client { supports_tasks: false };
        let server = serve([calls("always", "slow", TaskMode::Always)]);
        let (client, _serving) = client.connect(server, era).await;
        let result = soon(client.call_tool(params("always"))).await.unwrap();
        assert_eq!(text(&result), "late");
        let error = client.get_task(GetTaskParams::new("0")).await.unwrap_err();
        assert!(error.to_string().contains("-32021"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn extension_is_declared_only_with_tasks() {
    for era in BOTH {
        for (mode, is_declared) in [(TaskMode::Never, false), (TaskMode::Optional, true)] {
            let client = Client { supports_tasks: true };
            let composites = || [calls("tool", "quick", mode)];
            let (new, _serving) = client.connect(serve(composites()), era).await;
            let wrapped = ServeService::wrap(Empty, layer(composites()));
            let (wrapped, _serving) = client.connect(wrapped, era).await;
            for client in [new, wrapped] {
                let info = client.peer_info().unwrap();
                assert_eq!(info.capabilities.supports_tasks(), is_declared, "{era:?} {mode:?}");
                let error = client.get_task(GetTaskParams::new("0")).await.unwrap_err();
                let code = if is_declared { "-32602" } else { "-32601" };
                assert!(error.to_string().contains(code), "{era:?} {mode:?}: {error}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn task_continues_after_its_client_disconnects() {
    for era in BOTH {
        let service = serve([calls("always", "slow", TaskMode::Always)]);
        let client = Client { supports_tasks: true };
        let (first, mut serving) = client.connect(service.clone(), era).await;
        let id = start(&first, "always").await;
        first.cancel().await.unwrap();
        soon(serving.join_next()).await.unwrap().unwrap();
        let (second, _serving) = client.connect(service, era).await;
        let TaskPayload::Completed { result } = settled(&second, &id).await else {
            panic!("not completed")
        };
        assert_eq!(result["content"][0]["text"], "late", "{era:?}");
    }
}
