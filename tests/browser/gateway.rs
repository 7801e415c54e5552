//! The program with its page, and clients that call it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use rmcp::{
    ClientHandler, ErrorData, RoleClient, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ClientConfig,
        ElicitRequestParams, ElicitResult, ElicitationAction, GetTaskParams, Implementation,
        TaskStatus,
    },
    service::{RequestContext, RunningService},
    transport::StreamableHttpClientTransport,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::programs::{PROGRAM, example, signal};

/// The maximum time until a program serves.
const LIMIT: Duration = Duration::from_secs(60);

/// A program that serves a page. Ends when this value is dropped.
pub(crate) struct Program {
    process: Child,
    pub(crate) page: String,
    /// The address for clients; empty if the program shows a recording.
    mcp: String,
    lines: mpsc::Receiver<String>,
    /// The lines so far.
    seen: Vec<String>,
}

/// A folder with a file of the gateway.
pub(crate) struct Folder(TempDir);

/// A client whose user answers when the test allows it.
pub(crate) struct Person {
    answers: Arc<Semaphore>,
    supports_tasks: bool,
}

/// A connected client.
pub(crate) struct Client {
    client: RunningService<RoleClient, Person>,
    answers: Arc<Semaphore>,
}

// === impl Folder ===

impl Folder {
    /// Writes the file of a gateway over a server that misbehaves on request, and over another one.
    pub(crate) fn new() -> Self {
        let folder = Self(tempfile::tempdir().unwrap());
        let text = include_str!("gateway.toml");
        let [lab, shop] =
            ["misbehaving", "shop"].map(|name| example(name).to_str().unwrap().to_owned());
        let text = text.replace("${LAB}", &lab).replace("${SHOP}", &shop);
        fs::write(folder.path("gateway.toml"), text).unwrap();
        folder
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Serves the file.
    pub(crate) fn serve(&self, options: &[&str]) -> Program {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.0.path()).args(["serve", "gateway.toml"]);
        command.args(["--http", "127.0.0.1:0", "--ui", "127.0.0.1:0"]).args(options);
        let mut program = Program::start(&mut command);
        program.page = program.after("serving a page at ");
        program.mcp = program.after("mcp_composite::serve: serving ");
        program
    }

    /// Shows a recording.
    pub(crate) fn view(&self, name: &str) -> Program {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.0.path()).args(["view", name, "--ui", "127.0.0.1:0"]);
        let mut program = Program::start(&mut command);
        program.page = program.after(" at ");
        program
    }
}

// === impl Program ===

impl Program {
    fn start(command: &mut Command) -> Self {
        command.env_remove("RUST_LOG").stdin(Stdio::null());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = mpsc::channel();
        let output = process.stdout.take().unwrap();
        let errors = process.stderr.take().unwrap();
        for source in [Box::new(output) as Box<dyn Read + Send>, Box::new(errors)] {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(source).lines().map_while(Result::ok) {
                    // The test may have ended.
                    let _ = sender.send(line);
                }
            });
        }
        Self { process, page: String::new(), mcp: String::new(), lines, seen: Vec::new() }
    }

    /// Waits for a line with this text, and returns the rest of the line.
    #[track_caller]
    pub(crate) fn after(&mut self, text: &str) -> String {
        let mut at = 0;
        loop {
            let Some(line) = self.seen.get(at) else {
                let line = self.lines.recv_timeout(LIMIT);
                self.seen.push(line.unwrap_or_else(|_| panic!("no {text} in {:?}", self.seen)));
                continue;
            };
            if let Some((_, rest)) = line.split_once(text) {
                return rest.to_owned();
            }
            at += 1;
        }
    }

    /// Returns all lines so far.
    pub(crate) fn lines(&mut self) -> &[String] {
        self.seen.extend(self.lines.try_iter());
        &self.seen
    }

    /// Asks the program to end, and waits until it has.
    pub(crate) fn stop(mut self) {
        assert!(signal(self.process.id().into(), "TERM"));
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }

    pub(crate) async fn connect(&self) -> Client {
        self.connect_to("/mcp").await
    }

    /// Connects a client that supports tasks.
    pub(crate) async fn connect_with_tasks(&self) -> Client {
        self.connect_as("/mcp", true).await
    }

    /// Connects to the view at a path.
    pub(crate) async fn connect_to(&self, path: &str) -> Client {
        self.connect_as(path, false).await
    }

    async fn connect_as(&self, path: &str, supports_tasks: bool) -> Client {
        let answers = Arc::new(Semaphore::new(0));
        let url = self.mcp.replace("/mcp", path);
        let transport = StreamableHttpClientTransport::from_uri(url);
        let person = Person { answers: answers.clone(), supports_tasks };
        let client = person.serve(transport).await.unwrap();
        Client { client, answers }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have already ended. It ends its child processes.
        signal(self.process.id().into(), "TERM");
        let _ = self.process.wait();
    }
}

// === impl Client ===

impl Client {
    pub(crate) async fn call(&self, tool: &'static str, arguments: Value) -> CallToolResult {
        let arguments = arguments.as_object().unwrap().clone();
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        self.client.call_tool(call).await.unwrap()
    }

    /// Starts a task, and returns its ID.
    pub(crate) async fn start(&self, tool: &'static str) -> String {
        match self.client.call_tool_once(CallToolRequestParams::new(tool)).await.unwrap() {
            CallToolResponse::Task(created) => created.task.task_id,
            other => panic!("not a task: {other:?}"),
        }
    }

    pub(crate) async fn task_status(&self, id: &str) -> TaskStatus {
        self.client.get_task(GetTaskParams::new(id)).await.unwrap().task.status()
    }

    /// Lets the user answer one question.
    pub(crate) fn answer(&self) {
        self.answers.add_permits(1);
    }
}

impl ClientHandler for Person {
    fn get_info(&self) -> ClientConfig {
        let capabilities = ClientCapabilities::builder().enable_elicitation();
        let capabilities = match self.supports_tasks {
            true => capabilities.enable_tasks().build(),
            false => capabilities.build(),
        };
        ClientConfig::new(capabilities, Implementation::new("person", "0"))
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.answers.acquire().await.unwrap().forget();
        Ok(ElicitResult::new(ElicitationAction::Accept)
            .with_content(Value::Object(Default::default())))
    }
}
