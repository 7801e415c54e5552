//! Approval by a person over every kind of connection: nothing is deployed without approval, and no
//! step runs twice.

use std::{any::Any, sync::Arc, time::Duration};

use axum::serve::ListenerExt;
use futures::future::join_all;
use mcp_composite::{
    adapter::ServeService,
    config::Config,
    testing::{self, Answer, Server},
};
use rmcp::{
    ClientHandler, ClientServiceExt, ErrorData, RoleClient, ServerHandler,
    model::*,
    service::{NotificationContext, PeerRequestOptions, RequestContext, RunningService},
    transport::{
        IntoTransport, StreamableHttpClientTransport, TokioChildProcess,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    process::Command,
    sync::Barrier,
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::Layer;

use crate::{
    http::send_at_once,
    programs::PROGRAM,
    scripted::search_tool,
    support::{Era, Log, serve_over_pipe, soon, until},
};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];
const WAYS: [Way; 3] = [Way::Memory, Way::Child, Way::Http];

/// The timeout of the question for a person who is too slow.
const SHORT: Duration = Duration::from_millis(300);

/// The connection of a client to the composite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Over a pipe within this process.
    Memory,
    /// Over the standard streams of a gateway, which reaches the tools over HTTP.
    Child,
    /// Over HTTP, with a session if it is an older one.
    Http,
}

/// The response of a person to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    SayYes,
    SayNo,
    Close,
    /// Accepts after the timeout.
    SayYesTooLate,
    /// Never answers.
    Think,
    /// Has a client that cannot ask despite its capability.
    Fail,
    /// The client has no person.
    NotExist,
}

/// The response of a person, by the message of the question.
type Person = fn(&str) -> Does;

/// A client with a person, which records questions and withdrawals.
#[derive(Clone)]
struct Client {
    log: Log,
    does: Person,
    can_ask: bool,
    era: Era,
    /// All who are asked about "both" wait for each other before they answer.
    both: Arc<Barrier>,
}

/// A client of a composite, with everything in between.
struct Connected {
    client: RunningService<RoleClient, Client>,
    log: Log,
    between: Vec<Box<dyn Any + Send>>,
}

// === impl Client ===

impl Client {
    fn new(does: Person) -> Self {
        let can_ask = does("") != Does::NotExist;
        let both = Arc::new(Barrier::new(2));
        Self { log: Log::default(), does, can_ask, era: Era::Legacy, both }
    }

    async fn join<T, E, A>(mut self, transport: T, era: Era) -> Connected
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        self.era = era;
        let log = self.log.clone();
        let client = soon(self.serve_with_lifecycle(transport, era.lifecycle())).await.unwrap();
        Connected { client, log, between: Vec::new() }
    }

    /// Connects to a server over a pipe.
    async fn join_in_memory(self, server: impl ServerHandler, era: Era) -> Connected {
        let (far, work) = serve_over_pipe(server);
        let serving = JoinSet::from_iter([work]);
        self.join(far, era).await.with(serving)
    }
}

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let capabilities = match self.can_ask {
            true => ClientCapabilities::builder().enable_elicitation().build(),
            false => ClientCapabilities::default(),
        };
        ClientConfig::new(capabilities, Implementation::new("person", "0"))
    }

    async fn create_elicitation(
        &self,
        question: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, .. } = question else {
            panic!("no form: {question:?}");
        };
        self.log.note(format!("asked {message}"));
        if message.contains("both") {
            self.both.wait().await;
        }
        let mut yes = ElicitResult::new(ElicitationAction::Accept);
        yes.content = Some(json!({ "environment": "staging" }));
        match (self.does)(&message) {
            Does::SayYes => Ok(yes),
            Does::SayNo => Ok(ElicitResult::new(ElicitationAction::Decline)),
            Does::Close => Ok(ElicitResult::new(ElicitationAction::Cancel)),
            Does::SayYesTooLate => {
                match self.era {
                    Era::Legacy => self.log.wait_for("withdrawn").await,
                    // The composite does not withdraw the question, and reads the clock when the
                    // answer arrives.
                    Era::Modern => sleep(2 * SHORT).await,
                }
                Ok(yes)
            }
            Does::Think => std::future::pending().await,
            Does::Fail => Err(ErrorData::internal_error("my secret is s3cret", None)),
            Does::NotExist => panic!("no user can be asked {message:?}"),
        }
    }

    async fn on_cancelled(
        &self,
        _: CancelledNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.log.note("withdrawn");
    }
}

// === impl Connected ===

impl Connected {
    fn with(mut self, between: impl Any + Send) -> Self {
        self.between.push(Box::new(between));
        self
    }

    async fn call(&self, tool: &str) -> CallToolResult {
        soon(self.client.call_tool(params(tool))).await.unwrap()
    }

    fn questions(&self) -> Vec<String> {
        let mut questions = self.log.lines();
        questions.retain(|line| line.starts_with("asked"));
        questions
    }
}

fn params(tool: &str) -> CallToolRequestParams {
    CallToolRequestParams::new(tool.to_owned()).with_arguments(JsonObject::new())
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

// === Approvals over every connection ===

impl Way {
    /// Connects a client to the composite over tools in this process.
    async fn connect(
        self,
        era: Era,
        client: Client,
        timeout: Duration,
        tools: &Server,
    ) -> Connected {
        let file = approval(timeout);
        match self {
            Self::Memory => client.join_in_memory(served(&file, tools), era).await,
            Self::Http => {
                let (address, serving) = serve_http(served(&file, tools)).await;
                let transport = StreamableHttpClientTransport::from_uri(address);
                client.join(transport, era).await.with(serving)
            }
            Self::Child => {
                let tools = ServeService::new(tools.clone(), base());
                let (address, serving) = serve_http(tools).await;
                let name = format!("person-{}.toml", address.replace(['/', ':'], "-"));
                let path = format!("{}/{name}", env!("CARGO_TARGET_TMPDIR"));
                std::fs::write(&path, file).unwrap();
                let mut command = Command::new(PROGRAM);
                command.arg("serve").arg(path).env("SHOP", address).env("RUST_LOG", "error");
                client.join(TokioChildProcess::new(command).unwrap(), era).await.with(serving)
            }
        }
    }
}

fn approval(timeout: Duration) -> String {
    let timeout = timeout.as_millis();
    format!(
        "[[backends]]
name = 'shop'
url = '${{SHOP}}'

[[composite_tools]]
name = 'deploy_with_approval'
description = 'Deploys a release if a person says so'
strategy = 'workflow'

[[composite_tools.steps]]
id = 'details'
tool = 'shop/get_release'

[[composite_tools.steps]]
id = 'approve'
type = 'elicitation'
message = 'Deploy {{{{ steps.details.output.version }}}}?'
timeout = '{timeout}ms'

[composite_tools.steps.schema]
properties.environment = {{ type = 'string', enum = ['staging', 'production'] }}
required = ['environment']

[[composite_tools.steps]]
id = 'deploy'
tool = 'shop/deploy'
arguments = {{ to = '$steps.approve.output.content.environment' }}
"
    )
}

fn shop() -> Server {
    let release = Answer::structured(json!({ "version": "1.4.0" }));
    Server::new().tool_as(search_tool("get_release"), release).echoes("deploy")
}

fn base() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

/// Returns the server of a file, over tools in this process.
fn served(file: &str, tools: &Server) -> impl ServerHandler + Clone + use<> {
    let config = Config::from_toml_str_with_env(file, |_| Some("http://x/".to_owned())).unwrap();
    ServeService::new(testing::stack(&config, [("shop", tools.clone())]), base())
}

async fn serve_http(server: impl ServerHandler + Clone) -> (String, JoinSet<()>) {
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        LocalSessionManager::default().into(),
        StreamableHttpServerConfig::default(),
    );
    let app = axum::Router::new().fallback_service(service);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener.tap_io(send_at_once), app).await.unwrap() });
    (address, serving)
}

/// The responses of a person, and the expected errors.
const ROWS: [(Person, Option<&str>); 5] = [
    (|_| Does::SayYes, None),
    (|_| Does::SayNo, Some("step `approve` failed: the user declined")),
    (|_| Does::Close, Some("step `approve` failed: the user gave no answer")),
    (
        |_| Does::SayYesTooLate,
        Some("step `approve` timed out: the user did not answer within 300ms"),
    ),
    (
        |_| Does::NotExist,
        Some(
            "step `approve` failed: the user must be asked, and the client cannot: \
             it does not declare the capability `elicitation`",
        ),
    ),
];

#[tokio::test]
async fn failed_question_is_not_an_approval() {
    let tools = shop();
    let client = Client::new(|_| Does::Fail);
    let minute = Duration::from_secs(60);
    let person = Way::Memory.connect(Era::Legacy, client, minute, &tools).await;
    let result = person.call("deploy_with_approval").await;
    assert_eq!(text(&result), "step `approve` failed: the client cannot be asked");
    assert_eq!((person.questions().len(), tools.called()), (1, vec!["get_release".to_owned()]));
}

#[tokio::test]
async fn deployment_requires_approval_of_the_user() {
    let all = WAYS.into_iter().flat_map(|way| BOTH.map(|era| (way, era)));
    join_all(all.map(|(way, era)| async move {
        for (does, failure) in ROWS {
            let why = format!("{way:?} {era:?} {:?}", does(""));
            let tools = shop();
            let is_late = does("") == Does::SayYesTooLate;
            let timeout = if is_late { SHORT } else { Duration::from_secs(600) };
            let person = way.connect(era, Client::new(does), timeout, &tools).await;
            let result = person.call("deploy_with_approval").await;

            let is_asked = does("") != Does::NotExist;
            let expected: &[&str] = if is_asked { &["asked Deploy 1.4.0?"] } else { &[] };
            assert_eq!(person.questions(), expected, "{why}");
            match failure {
                None => {
                    assert_eq!(tools.called(), ["get_release", "deploy"], "{why}");
                    assert_eq!(
                        tools.arguments("deploy"),
                        Some(json!({ "to": "staging" })),
                        "{why}"
                    );
                    assert_eq!(result.is_error, Some(false), "{why}");
                    assert_eq!(
                        result.structured_content,
                        Some(json!({ "to": "staging" })),
                        "{why}"
                    );
                }
                Some(failure) => {
                    assert_eq!(tools.called(), ["get_release"], "{why}");
                    assert_eq!(result.is_error, Some(true), "{why}");
                    assert_eq!(text(&result), failure, "{why}");
                }
            }
        }
    }))
    .await;
}

#[tokio::test]
async fn disconnected_client_prevents_deployment() {
    let all = WAYS.into_iter().flat_map(|way| BOTH.map(|era| (way, era)));
    join_all(all.map(|(way, era)| async move {
        let why = format!("{way:?} {era:?}");
        let tools = shop();
        let client = Client::new(|_| Does::Think);
        // If it were not cancelled, it would continue as soon as the timeout has passed.
        let person = way.connect(era, client, SHORT, &tools).await;
        let call = CallToolRequest::new(params("deploy_with_approval"));
        let options = PeerRequestOptions::no_options();
        let call = person.client.send_cancellable_request(call.into(), options).await.unwrap();
        match era {
            Era::Legacy => until(async || !person.questions().is_empty()).await,
            Era::Modern => {
                let asks = soon(call.await_response()).await.unwrap();
                assert!(matches!(asks, ServerResult::InputRequiredResult(_)), "{why}: {asks:?}");
            }
        }
        soon(person.client.cancel()).await.unwrap();
        sleep(2 * SHORT).await;
        assert_eq!(tools.called(), ["get_release"], "{why}");
    }))
    .await;
}

// === Older clients, asked during the call ===

/// Serves a file to an older client over a pipe.
async fn older(file: &str, tools: &Server, does: Person) -> Connected {
    let layer = Config::from_toml_str(file).unwrap_or_else(|error| panic!("{error}")).stack_layer();
    let server = ServeService::new(layer.layer(tools.clone()), base());
    Client::new(does).join_in_memory(server, Era::Legacy).await
}

#[tokio::test(start_paused = true)]
async fn older_client_is_asked_in_parallel_and_in_several_rounds() {
    let tools = Server::new()
        .tool(
            "twice",
            Answer::asks("sure", "both: twice?")
                .then(Answer::asks("sure", "twice again?"))
                .then(Answer::text("twice")),
        )
        .tool("once", Answer::asks("sure", "both: once?").then(Answer::text("once")))
        .fails("broken", "disk full")
        .says("fine", "fine");
    let file = "[[composite_tools]]
name = 'all'
description = 'All at once'
success = 'any'
tools = ['twice', 'once', 'broken', 'fine']
";
    let does = |message: &str| if message.contains("again") { Does::SayNo } else { Does::SayYes };
    let person = older(file, &tools, does).await;
    let result = person.call("all").await;

    let mut first = person.questions();
    let again = first.split_off(2);
    first.sort();
    assert_eq!(first, ["asked both: once?", "asked both: twice?"]);
    assert_eq!(again, ["asked twice again?"]);
    let answers = |tool: &str| {
        let calls = tools.calls().into_iter().filter(|call| call.tool() == tool);
        calls.map(|call| call.answers()["sure"]["action"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(answers("twice"), [Value::Null, "accept".into(), "decline".into()]);
    assert_eq!(answers("once"), [Value::Null, "accept".into()]);
    assert_eq!([answers("broken").len(), answers("fine").len()], [1, 1]);
    let branches = &result.structured_content.unwrap()["branches"];
    for (branch, status) in
        [("twice", "completed"), ("once", "completed"), ("broken", "failed"), ("fine", "completed")]
    {
        assert_eq!(branches[branch]["status"], status, "{branch}");
    }
}

/// It stays in memory while its person is asked.
#[tokio::test(start_paused = true)]
async fn small_state_store_does_not_limit_runs_of_older_clients() {
    let release = Answer::structured(json!({ "version": "1".repeat(10_000) }));
    let tools = Server::new()
        .tool_as(search_tool("get_release"), release)
        .says("create", "c".repeat(30_000))
        .fails("deploy", "no quota");
    let file = "[state]
max_state_bytes = 100

[[composite_tools]]
name = 'deploy_with_approval'
description = 'Deploys a release if a person says so'
strategy = 'workflow'

[[composite_tools.steps]]
id = 'details'
tool = 'get_release'

[[composite_tools.steps]]
id = 'create'
tool = 'create'
depends_on = ['details']

[[composite_tools.steps]]
id = 'approve'
type = 'elicitation'
message = 'Sure?'
depends_on = ['create']

[[composite_tools.steps]]
id = 'deploy'
tool = 'deploy'
arguments = { version = '$steps.details.output.version' }
depends_on = ['approve']
";
    let person = older(file, &tools, |_: &str| Does::SayYes).await;
    let result = person.call("deploy_with_approval").await;
    assert_eq!(tools.called(), ["get_release", "create", "deploy"]);
    let steps = &result.structured_content.unwrap()["steps"];
    assert_eq!(steps["create"]["output"], "c".repeat(30_000));
}

/// Asks two questions at once, and deploys after both.
const TWO: &str = "[[composite_tools]]
name = 'deploy_with_two'
description = 'Deploys if two say so'
strategy = 'workflow'

[[composite_tools.steps]]
id = 'one'
type = 'elicitation'
message = 'One?'
schema = { properties = { environment = { type = 'string' } } }

[[composite_tools.steps]]
id = 'two'
type = 'elicitation'
message = 'Two?'
timeout = '10s'
schema = { properties = { environment = { type = 'string' } } }

[[composite_tools.steps]]
id = 'deploy'
tool = 'deploy'
depends_on = ['one', 'two']
";

#[tokio::test(start_paused = true)]
async fn questions_are_withdrawn_when_the_call_is_cancelled() {
    let tools = shop();
    let person = older(TWO, &tools, |_| Does::Think).await;
    let call = CallToolRequest::new(params("deploy_with_two"));
    let options = PeerRequestOptions::no_options();
    let call = person.client.send_cancellable_request(call.into(), options).await.unwrap();
    person.log.wait_for("asked One?").await;
    person.log.wait_for("asked Two?").await;
    assert!(!person.log.has("withdrawn"));
    call.cancel(None).await.unwrap();
    person.log.wait_for("withdrawn").await;
    // The connection still works, and both runs are gone.
    person.client.list_all_tools().await.unwrap();
    let withdrawn = person.log.lines().iter().filter(|line| *line == "withdrawn").count();
    assert_eq!(withdrawn, 2);
    assert_eq!(tools.called(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn question_is_withdrawn_when_another_ends_the_run() {
    for (does, failure) in [
        (
            (|message| if message == "One?" { Does::SayNo } else { Does::Think }) as Person,
            "step `one` failed: the user declined",
        ),
        (
            |message| if message == "One?" { Does::Close } else { Does::Think },
            "step `one` failed: the user gave no answer",
        ),
    ] {
        let tools = shop();
        let person = older(TWO, &tools, does).await;
        let start = Instant::now();
        let result = person.call("deploy_with_two").await;
        assert_eq!(text(&result), failure);
        assert!(start.elapsed() < Duration::from_secs(1), "nobody needs the other answer");
        person.log.wait_for("withdrawn").await;
        assert_eq!(tools.called(), [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn question_is_withdrawn_when_it_times_out() {
    let tools = shop();
    let does = |message: &str| if message == "One?" { Does::SayYes } else { Does::Think };
    let person = older(TWO, &tools, does).await;
    let start = Instant::now();
    let result = person.call("deploy_with_two").await;
    assert_eq!(text(&result), "step `two` timed out: the user did not answer within 10s");
    let took = start.elapsed();
    assert!((9..=10).contains(&took.as_secs()), "{took:?}");
    person.log.wait_for("withdrawn").await;
    assert_eq!(tools.called(), [""; 0]);
}
