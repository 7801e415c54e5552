//! Processes that run tasks, each as a runtime of its own.

use std::{future::pending, time::Duration};

use mcp_composite::{
    config::Config,
    message::{Context, Reply, Request, ToolAnswer},
    restate::RestateServer,
    stack::Stack,
    tasks::{TaskLayer, TaskRegistry},
    testing::{self, Server as Tools},
};
use rmcp::model::{
    CancelTaskParams, CancelTaskRequest, ClientRequest, ErrorData, GetTaskParams, GetTaskRequest,
    ServerResult, TaskPayload, UpdateTaskParams, UpdateTaskRequest,
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    runtime::{Builder, Runtime},
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt};

use super::{balancer::Balancer, ports::free_port, server::Server};

/// A file with the composite `approval`, which asks a question and then calls the tool `after`.
pub(crate) const APPROVAL: &str = r#"
[[composite_tools]]
name = "approval"
description = "Asks"
strategy = "workflow"
task = "always"
steps = [
    { id = "sure", type = "elicitation", message = "Sure?", schema = {} },
    { id = "after", tool = "after", depends_on = ["sure"] },
]
"#;
/// The time after which a test fails because something hangs. It is much longer than anything takes
/// on a busy machine.
pub(crate) const HANG: Duration = Duration::from_secs(60);
/// The key of `_meta` that contains the caller of a request.
const CALLER: &str = "example.com/caller";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A process that runs tasks.
pub(crate) struct Replica {
    runtime: Runtime,
    pub(crate) service: Service,
    pub(crate) registry: TaskRegistry,
    pub(crate) tools: Tools,
}

/// A stack of layers whose calls are tasks.
#[derive(Clone)]
pub(crate) struct Service {
    stack: Stack<Tools>,
    /// The caller of the requests. `None` if it is unknown.
    caller: Option<&'static str>,
}

// === impl Replica ===

impl Replica {
    /// Starts a process with the composites of a file, whose calls always become tasks. It serves
    /// its endpoint at `port`.
    pub(crate) fn start(server: &Server, port: u16, file: &str, tools: Tools) -> Self {
        Self::start_with_ingress(server, &server.ingress(), port, file, tools)
    }

    /// Like [`start`](Self::start), with another URL of the server's ingress.
    pub(crate) fn start_with_ingress(
        server: &Server,
        ingress: &str,
        port: u16,
        file: &str,
        tools: Tools,
    ) -> Self {
        let (replica, restate) = Self::new(server, ingress, file, tools);
        replica.runtime.block_on(serve(&replica.runtime, &restate, server, port));
        replica
    }

    /// Starts a process behind a load balancer, which then forwards all connections to it.
    pub(crate) fn start_behind(
        server: &Server,
        balancer: &Balancer,
        file: &str,
        tools: Tools,
    ) -> Self {
        let (replica, restate) = Self::new(server, &server.ingress(), file, tools);
        let port = free_port();
        replica.runtime.block_on(async {
            listen(&replica.runtime, &restate, port).await;
            balancer.forward_to(port);
            register(&restate, server, balancer.port).await;
        });
        replica
    }

    /// Creates a process that starts tasks, but serves no endpoint.
    pub(crate) fn without_endpoint(server: &Server, file: &str, tools: Tools) -> Self {
        Self::new(server, &server.ingress(), file, tools).0
    }

    fn new(server: &Server, ingress: &str, file: &str, tools: Tools) -> (Self, RestateServer) {
        let mut restate = RestateServer::new(ingress).unwrap();
        if let Some(key) = server.identity_key() {
            restate = restate.identity_key(key);
        }
        let config = Config::from_toml_str(file).unwrap_or_else(|error| panic!("{error}"));
        let registry = restate.tasks();
        let tasks = TaskLayer::new().registry(registry.clone()).caller(|context| {
            context.meta().get(CALLER).and_then(Value::as_str).map(str::to_owned)
        });
        let stack = config.stack_layer().tasks(tasks).layer(tools.clone());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { stack.watch_tasks() });
        let service = Service { stack, caller: None };
        (Self { runtime, service, registry, tools }, restate)
    }

    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(async {
            tokio::time::timeout(HANG, future).await.expect("it takes too long")
        })
    }

    /// Ends the process like a crash: all calls and connections end at once.
    pub(crate) fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// Serves the endpoint at `port`, and registers it.
pub(crate) async fn serve(runtime: &Runtime, restate: &RestateServer, server: &Server, port: u16) {
    listen(runtime, restate, port).await;
    register(restate, server, port).await;
}

async fn listen(runtime: &Runtime, restate: &RestateServer, port: u16) {
    // After a crash, the port is free when the tasks of the runtime are dropped.
    let start = Instant::now();
    let listener = loop {
        match TcpListener::bind(("127.0.0.1", port)).await {
            Ok(listener) => break listener,
            Err(error) => assert!(start.elapsed() < HANG, "cannot listen at {port}: {error}"),
        }
        sleep(Duration::from_millis(20)).await;
    };
    runtime.handle().spawn(restate.serve(listener, pending()).unwrap());
}

async fn register(restate: &RestateServer, server: &Server, port: u16) {
    let url = format!("http://127.0.0.1:{port}");
    // The server may have just started.
    let start = Instant::now();
    while let Err(error) = restate.register(&server.admin(), &url).await {
        assert!(start.elapsed() < HANG, "{error}");
        sleep(Duration::from_millis(100)).await;
    }
}

// === impl Service ===

impl Service {
    /// Returns the same service for requests of this caller.
    pub(crate) fn of(&self, caller: &'static str) -> Self {
        Self { stack: self.stack.clone(), caller: Some(caller) }
    }

    /// Starts a task, and returns its ID.
    pub(crate) async fn start(&self, tool: &str, arguments: Value) -> String {
        let mut request = testing::request(tool, arguments);
        let extensions = json!({ "io.modelcontextprotocol/tasks": {} });
        let capabilities = json!({ "elicitation": { "form": {} }, "extensions": extensions });
        request.context_mut().meta_mut().insert(CAPABILITIES.to_owned(), capabilities);
        match self.send(request).await.into_tool_answer() {
            ToolAnswer::Task(id) => id,
            other => panic!("not a task: {other:?}"),
        }
    }

    async fn ask(&self, message: impl Into<ClientRequest>) -> Result<ServerResult, ErrorData> {
        self.send(Request::new(message, Context::default())).await.into_result()
    }

    async fn send(&self, mut request: Request) -> Reply {
        if let Some(caller) = self.caller {
            request.context_mut().meta_mut().insert(CALLER.to_owned(), caller.into());
        }
        self.stack.clone().oneshot(request).await.unwrap()
    }

    pub(crate) async fn get(&self, id: &str) -> Result<TaskPayload, ErrorData> {
        match self.ask(GetTaskRequest::new(GetTaskParams::new(id))).await? {
            ServerResult::GetTaskResult(task) => Ok(task.task.payload),
            other => panic!("not a task: {other:?}"),
        }
    }

    /// Waits until a task no longer works.
    pub(crate) async fn settled(&self, id: &str) -> TaskPayload {
        loop {
            match self.get(id).await {
                Ok(TaskPayload::Working) => (),
                Ok(payload) => return payload,
                // The server or the process restarts.
                Err(error) => assert!(error.message.contains("at the moment"), "{error:?}"),
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until a task has ended, and returns its first text.
    pub(crate) async fn text(&self, id: &str) -> String {
        match self.settled(id).await {
            TaskPayload::Completed { result } => {
                result["content"][0]["text"].as_str().unwrap_or_default().to_owned()
            }
            other => panic!("not completed: {other:?}"),
        }
    }

    pub(crate) async fn answer(&self, id: &str, key: &str, answer: Value) -> Result<(), ErrorData> {
        let answers = [(key.to_owned(), answer)].into();
        self.ask(UpdateTaskRequest::new(UpdateTaskParams::new(id, answers))).await.map(drop)
    }

    pub(crate) async fn cancel(&self, id: &str) -> Result<(), ErrorData> {
        self.ask(CancelTaskRequest::new(CancelTaskParams::new(id))).await.map(drop)
    }
}
