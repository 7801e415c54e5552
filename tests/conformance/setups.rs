//! The setups between the suite and the server.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
};

use mcp_composite::{adapter::ServeService, config::Config};
use rmcp::{
    ServerHandler,
    model::Tool,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::Deserialize;
use tempfile::{TempDir, tempdir};
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    server::{self, Conformance},
    suite::{self, Outcomes, Revision},
    task_server::{self, TaskServer},
};

/// A rule in each layer, none of which matches the requests of the suite.
const RULES: &str = r#"
[filter]
hide_tools = ["never_*"]
hide_resources = ["never://*"]

[[aliases]]
tool = "test_simple_text"
description = "It has another description here"

[validate]
schema = "strict"
max_depth = 64

[budget]
[[budget.limits]]
name = "calls"
count = "calls"
per = "global"
limit = 1000000

[[redactions]]
tools = ["test_simple_text", "test_error_handling", "test_missing_capability"]
remove = ["/never/there"]
keep_texts = true

[truncate]
max_result_bytes = 10485760

[results]
ttl = "1m"

[advertise]
deny = ["hidden_*"]

[[composite_tools]]
name = "both"
description = "A composite"
tools = ["test_simple_text", "test_image_content"]
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SetUp {
    /// The server alone.
    Bare,
    /// Behind a stack without rules.
    EmptyStack,
    /// Behind a stack with a rule in each layer.
    Rules,
    /// Behind the gateway, over HTTP.
    Gateway,
    /// Each tool as the only target of a fan-out.
    FanOuts,
    /// Each tool as the only step of a pipeline.
    Pipelines,
    /// The server with tasks alone.
    BareTasks,
    /// Behind the gateway, over HTTP, whose pipelines with one step become tasks.
    GatewayTasks,
}

/// A server under test, until it is dropped.
pub(crate) struct Server {
    set_up: SetUp,
    url: String,
    _serving: JoinSet<()>,
    _gateway: Option<Gateway>,
}

/// The gateway as a process, with the folder of its file.
struct Gateway {
    process: Child,
    _folder: TempDir,
}

/// Returns a file in which each tool is a composite of that tool alone. The tool itself has another
/// name and is hidden.
fn composites(tools: &[Tool], of: impl Fn(&str, &[String]) -> String) -> String {
    let mut file = String::from("[advertise]\ndeny = ['part_*']\n");
    for tool in tools {
        let name = &*tool.name;
        let properties = tool.input_schema.get("properties").and_then(|all| all.as_object());
        let arguments: Vec<_> =
            properties.into_iter().flat_map(|all| all.keys().cloned()).collect();
        let description = tool.description.as_deref().unwrap_or_default();
        writeln!(file, "[[aliases]]\ntool = '{name}'\nname = 'part_{name}'").unwrap();
        writeln!(file, "[[composite_tools]]\nname = '{name}'").unwrap();
        writeln!(file, "description = '{description}'").unwrap();
        file += &of(name, &arguments);
    }
    file
}

fn fan_outs() -> String {
    composites(&server::tools(), |name, _| format!("tools = ['part_{name}']\n"))
}

/// Returns the strategy and the steps of a pipeline that calls a tool with these arguments.
fn pipeline(name: &str, arguments: &[String]) -> String {
    let references = arguments.iter().map(|name| format!("{name} = '$input.{name}?'"));
    let references: Vec<_> = references.collect();
    let references = references.join(", ");
    format!(
        "strategy = 'pipeline'\nsteps = [{{ id = 'only', tool = 'part_{name}', arguments = {{ {references} }} }}]\n"
    )
}

/// Returns the pipelines whose calls become tasks. `greet` remains a tool of the backend.
fn task_pipelines() -> String {
    let tools: Vec<_> =
        task_server::tools().into_iter().filter(|tool| tool.name != "greet").collect();
    composites(&tools, |name, arguments| {
        // The suite expects the question of this tool as the reply to the call.
        let mode = if name == "test_tool_with_task" { "optional" } else { "always" };
        format!("task = '{mode}'\n{}", pipeline(name, arguments))
    })
}

/// Serves over streamable HTTP.
async fn listen<S: ServerHandler + Clone>(server: S) -> (String, JoinSet<()>) {
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(["http://localhost:*", "http://127.0.0.1:*"]);
    let sessions = Arc::new(LocalSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    let app = axum::Router::new().nest_service("/mcp", service);
    serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
    (url, serving)
}

/// Serves behind a stack.
async fn listen_behind(file: &str) -> (String, JoinSet<()>) {
    let stack = Config::from_toml_str(file).unwrap().stack_layer();
    listen(ServeService::wrap(Conformance::new(), stack)).await
}

// === impl SetUp ===

impl SetUp {
    /// Returns the revisions whose scenarios this setup can run.
    pub(crate) const fn revisions(self) -> &'static [Revision] {
        match self {
            Self::BareTasks | Self::GatewayTasks => &[Revision::Tasks],
            _ => &[Revision::Legacy, Revision::Modern],
        }
    }

    /// Returns the setup with the same server, and nothing between.
    pub(crate) const fn bare(self) -> Self {
        match self {
            Self::BareTasks | Self::GatewayTasks => Self::BareTasks,
            _ => Self::Bare,
        }
    }

    pub(crate) async fn serve(self) -> Server {
        let mut gateway = None;
        let (url, serving) = match self {
            Self::Bare => listen(Conformance::new()).await,
            Self::EmptyStack => listen_behind("").await,
            Self::Rules => listen_behind(RULES).await,
            Self::FanOuts => listen_behind(&fan_outs()).await,
            Self::Pipelines => listen_behind(&composites(&server::tools(), pipeline)).await,
            Self::BareTasks => listen(TaskServer::default()).await,
            Self::Gateway | Self::GatewayTasks => {
                let (backend, serving) = match self {
                    Self::Gateway => listen(Conformance::new()).await,
                    _ => listen(TaskServer::default()).await,
                };
                let file = if self == Self::Gateway { String::new() } else { task_pipelines() };
                let started = tokio::task::spawn_blocking(move || Gateway::start(&backend, &file));
                let (url, process) = started.await.unwrap();
                gateway = Some(process);
                (url, serving)
            }
        };
        Server { set_up: self, url, _serving: serving, _gateway: gateway }
    }
}

impl Server {
    pub(crate) async fn run(&self, revision: Revision) -> Outcomes {
        let (url, label) = (self.url.clone(), format!("{:?}", self.set_up));
        let running = tokio::task::spawn_blocking(move || suite::run(&url, revision, &label));
        running.await.unwrap()
    }
}

// === impl Gateway ===

impl Gateway {
    /// Starts the gateway over one backend, without a prefix, with further `sections` in its file.
    fn start(backend: &str, sections: &str) -> (String, Self) {
        let folder = tempdir().unwrap();
        let file = folder.path().join("gateway.toml");
        let text =
            format!("[[backends]]\nname = 'backend'\nprefix = ''\nurl = '{backend}'\n{sections}");
        fs::write(&file, text).unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_mcp-composite"))
            .arg("serve")
            .arg(file)
            .args(["--http", "127.0.0.1:0"])
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let serving = |line: String| Some(line.split_once("serving ")?.1.to_owned());
        let url = lines.by_ref().map_while(Result::ok).find_map(serving).unwrap();
        // A full pipe would block the gateway.
        thread::spawn(move || lines.for_each(drop));
        (url, Self { process, _folder: folder })
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
