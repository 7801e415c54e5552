//! Questions of servers during a call, and the clients that receive them.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_composite::{
    adapter::{RemoteService, Router, ServeService, router::Backend},
    composite::{CompositeLayer, CompositeTool, FanOut, Labels, Target},
    pattern::Selection,
    redact::{RedactLayer, Redaction},
};
use rmcp::{
    ClientServiceExt, ErrorData, RoleClient, RoleServer, ServerHandler, Service, ServiceError,
    model::*,
    service::{
        NotificationContext, PeerRequestOptions, RequestContext, RequestHandle, RunningService,
    },
    transport::IntoTransport,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    net::TcpStream,
    sync::Barrier,
    task::JoinSet,
};
use tower::Layer;

use crate::{
    http,
    support::{Era, Log, question, serve_over_pipe, soon, tool, until},
};

const NO_CLIENT: &str = "the client cannot be asked during a call";

/// A server whose tools ask in every way.
#[derive(Clone, Default)]
struct Curious {
    log: Log,
    /// Whether its newest version is 2025-11-25.
    older: bool,
}

/// A server whose tools require a capability of the client.
#[derive(Clone)]
struct Demanding(ClientCapabilities);

impl ServerHandler for Demanding {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(vec![tool("any")]))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Err(ErrorData::missing_required_client_capability(self.0.clone()))
    }
}

/// A client that can be asked.
#[derive(Clone)]
struct Person {
    log: Log,
    says: Says,
    capabilities: Value,
}

#[derive(Clone)]
enum Says {
    Blue,
    /// The same, but answers all questions at once: none before the last.
    AtOnce(Arc<Barrier>),
    Nothing,
    Error,
    Garbage,
}

/// The kind of server, and its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Behind {
    InProcess,
    OlderRemote,
    NewerRemote,
}

/// A person and the client's connection.
struct Connection {
    client: RunningService<RoleClient, Person>,
    _serving: JoinSet<()>,
}

// === impl Curious ===

impl Curious {
    /// Asks in the middle of the call.
    async fn ask(&self, name: &str, cx: &RequestContext<RoleServer>) -> String {
        let _over = Over(self.log.clone(), name.to_owned());
        match cx.peer.create_elicitation(question()).await {
            Ok(answer) => said(&serde_json::to_value(answer).unwrap()),
            Err(ServiceError::McpError(error)) => error.message.into_owned(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

impl Curious {
    /// Asks a question that has more than this many bytes; returns the error.
    async fn ask_at_length(&self, bytes: usize, cx: &RequestContext<RoleServer>) -> String {
        let schema = ElicitationSchema::new(Default::default());
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: "?".repeat(bytes),
            requested_schema: schema,
        };
        match cx.peer.create_elicitation(params).await {
            Err(ServiceError::McpError(error)) => error.message.into_owned(),
            other => format!("{other:?}"),
        }
    }

    /// Asks 20 questions of almost 1 MiB at once.
    async fn flood(&self, cx: &RequestContext<RoleServer>) {
        let asking = (0..20).map(|_| async {
            let refused = self.ask_at_length((1 << 20) - 1000, cx).await;
            self.log.note(refused);
        });
        futures::future::join_all(asking).await;
    }
}

#[expect(deprecated, reason = "servers still sample and list roots")]
impl ServerHandler for Curious {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources();
        ServerConfig::new(capabilities.build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        if self.older {
            Cow::Borrowed(&[ProtocolVersion::V_2025_11_25])
        } else {
            Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
        }
    }

    async fn on_initialized(&self, cx: NotificationContext<RoleServer>) {
        if self.older {
            self.log.note(format!("early {:?}", cx.peer.create_elicitation(question()).await));
        }
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let names = ["asks", "asks_too", "patient", "sample", "roots", "seen", "modes"];
        Ok(ListToolsResult::with_all_items(names.map(tool).into()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let text = match &*call.name {
            "asks" | "asks_too" => self.ask(&call.name, &cx).await,
            "patient" => {
                let patience = Some(Duration::from_secs(1));
                let answer = cx.peer.create_elicitation_with_timeout(question(), patience).await;
                format!("{answer:?}")
            }
            "wants" => match given(call.input_responses, call.request_state.as_deref(), 2) {
                Ok(text) => text,
                Err(question) => return Ok(question.into()),
            },
            "never_content" => {
                self.log.note("again");
                return Ok(InputRequiredResult::from_request_state("more").into());
            }
            "sample" => {
                let params = CreateMessageRequestParams::new(Vec::new(), 1);
                format!("{:?}", cx.peer.create_message(params).await.map(|it| it.model))
            }
            "floods" => {
                self.flood(&cx).await;
                "flooded".to_owned()
            }
            "asks_at_length" => self.ask_at_length(1 << 20, &cx).await,
            "roots" => format!("{:?}", cx.peer.list_roots().await.map(|it| it.roots.len())),
            "seen" => serde_json::to_string(&cx.client_capabilities()).unwrap(),
            "modes" => format!("{:?}", cx.peer.supported_elicitation_modes()),
            "hang" => {
                self.log.note("hangs");
                std::future::pending().await
            }
            unknown => panic!("{unknown}"),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(text)]).into())
    }

    async fn get_prompt(
        &self,
        get: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        Ok(match given(get.input_responses, get.request_state.as_deref(), 1) {
            Ok(text) => {
                GetPromptResult::new(vec![PromptMessage::new_text(Role::User, text)]).into()
            }
            Err(question) => question.into(),
        })
    }

    async fn read_resource(
        &self,
        read: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(match given(read.input_responses, read.request_state.as_deref(), 1) {
            Ok(text) => {
                ReadResourceResult::new(vec![ResourceContents::text(text, read.uri)]).into()
            }
            Err(question) => question.into(),
        })
    }
}

/// Returns the responses and the state that a server received, or its questions.
fn given(
    responses: Option<InputResponses>,
    state: Option<&str>,
    questions: usize,
) -> Result<String, InputRequiredResult> {
    match responses {
        Some(responses) => {
            assert_eq!(state, Some("as it stood"));
            let all: Vec<_> =
                responses.iter().map(|(key, it)| format!("{key} {}", said(it))).collect();
            Ok(all.join(", "))
        }
        None => {
            let requests = (0..questions).map(|number| {
                let request = InputRequest::Elicitation(ElicitRequest::new(question()));
                (format!("q{number}"), request)
            });
            let mut result = InputRequiredResult::from_request_state("as it stood");
            result.input_requests = Some(requests.collect());
            Err(result)
        }
    }
}

fn said(answer: &Value) -> String {
    format!(
        "{} {}",
        answer["action"].as_str().unwrap(),
        answer["content"]["colour"].as_str().unwrap()
    )
}

/// Records the end of a tool's work when dropped.
struct Over(Log, String);

impl Drop for Over {
    fn drop(&mut self) {
        self.0.note(format!("over {}", self.1));
    }
}

// === impl Person ===

impl Person {
    fn who(says: Says) -> Self {
        Self { log: Log::default(), says, capabilities: json!({ "elicitation": {} }) }
    }

    fn with(capabilities: Value) -> Self {
        Self { capabilities, ..Self::who(Says::Blue) }
    }
}

#[expect(deprecated, reason = "servers still sample and list roots")]
impl Service<RoleClient> for Person {
    async fn handle_request(
        &self,
        request: ServerRequest,
        cx: RequestContext<RoleClient>,
    ) -> Result<ClientResult, ErrorData> {
        let method = serde_json::to_value(&request).unwrap()["method"].clone();
        self.log.note(format!("asked {}", method.as_str().unwrap()));
        match &self.says {
            Says::Blue => (),
            Says::AtOnce(barrier) => {
                barrier.wait().await;
            }
            Says::Nothing => {
                cx.ct.cancelled().await;
                self.log.note("withdrawn");
                std::future::pending().await
            }
            Says::Error => return Err(ErrorData::new(ErrorCode(-1), "not at home", None)),
            Says::Garbage => return Ok(ClientResult::empty(())),
        }
        Ok(match request {
            ServerRequest::ElicitRequest(_) => ClientResult::ElicitResult(
                ElicitResult::new(ElicitationAction::Accept)
                    .with_content(json!({ "colour": "blue" })),
            ),
            ServerRequest::CreateMessageRequest(_) => {
                let message = SamplingMessage::assistant_text("hm");
                let result = CreateMessageResult::new(message, "large".to_owned());
                ClientResult::CreateMessageResult(Box::new(result))
            }
            ServerRequest::ListRootsRequest(_) => {
                ClientResult::ListRootsResult(ListRootsResult::new(vec![Root::new("file:///a")]))
            }
            other => panic!("{other:?}"),
        })
    }

    async fn handle_notification(
        &self,
        _: ServerNotification,
        _: NotificationContext<RoleClient>,
    ) -> Result<(), ErrorData> {
        Ok(())
    }

    fn get_info(&self) -> ClientConfig {
        let capabilities = serde_json::from_value(self.capabilities.clone()).unwrap();
        ClientConfig::new(capabilities, Implementation::new("person", "0"))
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }
}

// === impl Behind ===

impl Behind {
    /// Connects a person to a server, whose tools are also targets of composites.
    async fn connect(self, curious: &Curious, person: Person, era: Era) -> Connection {
        let curious = Curious { older: self == Self::OlderRemote, ..curious.clone() };
        match self {
            Self::InProcess => {
                serving(ServeService::wrap(curious, composites()), person, era).await
            }
            Self::OlderRemote | Self::NewerRemote => over(remote(curious), person, era).await,
        }
    }
}

fn composites() -> CompositeLayer {
    let all = |name: &str, tools: &[&str]| {
        let targets: Vec<_> = tools.iter().map(|tool| Target::from(*tool)).collect();
        CompositeTool::new(name, "A composite", FanOut::new(targets).labels(Labels::Meta))
    };
    let short = Target::new("asks").timeout(Duration::from_secs(5));
    CompositeLayer::new([
        all("one", &["asks"]),
        all("two", &["asks", "asks_too"]),
        all("sees", &["seen"]),
        all("sees_modes", &["modes"]),
        all("gives_up", &["patient"]),
        all("samples", &["sample"]),
        all("lists_roots", &["roots"]),
        CompositeTool::fan_out("short", "Has no time", [short]),
    ])
    .unwrap()
}

/// Returns a server at the other end of a pipe.
fn remote(curious: Curious) -> RemoteService {
    RemoteService::builder("far").transport(pipe(curious))
}

fn pipe(
    server: impl ServerHandler + Clone,
) -> impl Fn() -> std::future::Ready<Result<DuplexStream, std::io::Error>> + Send + Sync + 'static {
    let serving = Mutex::new(JoinSet::new());
    move || {
        let (near, work) = serve_over_pipe(server.clone());
        serving.lock().unwrap().spawn(work);
        std::future::ready(Ok(near))
    }
}

async fn over(remote: RemoteService, person: Person, era: Era) -> Connection {
    soon(remote.connected()).await.unwrap();
    let stack = Layer::layer(&composites(), remote);
    let info = ServerConfig::new(
        ServerCapabilities::builder().enable_tools().enable_prompts().enable_resources().build(),
    );
    serving(ServeService::new(stack, info), person, era).await
}

async fn serving(server: impl ServerHandler, person: Person, era: Era) -> Connection {
    let (far, work) = serve_over_pipe(server);
    let serving = JoinSet::from_iter([work]);
    Connection { client: person.meet(far, era).await, _serving: serving }
}

impl Person {
    async fn meet<T, E, A>(self, transport: T, era: Era) -> RunningService<RoleClient, Self>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        soon(self.serve_with_lifecycle(transport, era.lifecycle())).await.unwrap()
    }
}

// === impl Connection ===

impl Connection {
    fn log(&self) -> &Log {
        &self.client.service().log
    }

    async fn begin(&self, method: &str, params: Value) -> RequestHandle<RoleClient> {
        let request = json!({ "method": method, "params": params });
        let request: ClientRequest = serde_json::from_value(request).unwrap();
        let options = PeerRequestOptions::no_options();
        self.client.send_request_with_option(request, options).await.unwrap()
    }

    async fn call(&self, tool: &str) -> RequestHandle<RoleClient> {
        self.begin("tools/call", json!({ "name": tool })).await
    }

    /// Returns the outcome of a call.
    async fn outcome(&self, tool: &str) -> String {
        ended(self.call(tool).await).await
    }
}

/// Returns the texts of a result, or the error.
async fn ended(handle: RequestHandle<RoleClient>) -> String {
    match soon(handle.await_response()).await {
        Ok(result) => {
            let result = serde_json::to_value(result).unwrap();
            match result["content"].as_array() {
                Some(content) => {
                    let texts = content.iter().map(|block| block["text"].as_str().unwrap());
                    texts.collect::<Vec<_>>().join("; ")
                }
                None => result.to_string(),
            }
        }
        Err(ServiceError::McpError(error)) => format!("{}: {}", error.code.0, error.message),
        Err(error) => panic!("{error:?}"),
    }
}

// === Recipients of questions ===

#[tokio::test(start_paused = true)]
async fn older_client_receives_questions_of_every_form() {
    for (behind, tool, answer) in [
        (Behind::InProcess, "asks", "accept blue"),
        (Behind::InProcess, "one", "accept blue"),
        (Behind::InProcess, "wants", "q0 accept blue, q1 accept blue"),
        (Behind::OlderRemote, "asks", "accept blue"),
        (Behind::OlderRemote, "one", "accept blue"),
        (Behind::NewerRemote, "wants", "q0 accept blue, q1 accept blue"),
    ] {
        let person = Person::who(Says::Blue);
        let connection = behind.connect(&Curious::default(), person, Era::Legacy).await;
        assert_eq!(connection.outcome(tool).await, answer, "{behind:?} {tool}");
        assert!(connection.log().has("asked elicitation/create"));
    }
}

#[tokio::test(start_paused = true)]
async fn newer_client_is_asked_only_in_a_result() {
    let refused = "the caller cannot answer questions during a call";
    for (behind, tool, outcome) in [
        // With rmcp's message, since rmcp knows the request of these branches.
        (Behind::InProcess, "two", "return InputRequiredResult instead"),
        (Behind::OlderRemote, "asks", refused),
        (Behind::OlderRemote, "one", refused),
        (Behind::InProcess, "wants", r#""resultType":"input_required""#),
        (Behind::NewerRemote, "wants", r#""resultType":"input_required""#),
    ] {
        let person = Person::who(Says::Blue);
        let connection = behind.connect(&Curious::default(), person, Era::Modern).await;
        let answer = connection.outcome(tool).await;
        assert!(answer.contains(outcome), "{behind:?} {tool}: {answer}");
        assert_eq!(connection.log().lines(), [""; 0], "{behind:?} {tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn client_without_capabilities_is_not_asked() {
    for (behind, tool, outcome) in [
        (Behind::InProcess, "one", NO_CLIENT),
        (Behind::OlderRemote, "asks", "the caller cannot answer questions during a call"),
        (
            Behind::NewerRemote,
            "wants",
            "-32600: InputRequiredResult requires negotiated protocol version 2026-07-28 or newer",
        ),
    ] {
        let person = Person::with(json!({}));
        let connection = behind.connect(&Curious::default(), person, Era::Legacy).await;
        assert_eq!(connection.outcome(tool).await, outcome, "{behind:?}");
        assert_eq!(connection.log().lines(), [""; 0], "{behind:?}");
    }
}

/// A backend receives the relayed capabilities, so the client receives the ones a tool requires.
/// Others are unknown to the backend.
#[tokio::test(start_paused = true)]
async fn missing_client_capability_error_is_forwarded() {
    let sampling = serde_json::from_value(json!({ "sampling": {} })).unwrap();
    let tasks = ClientCapabilities::builder().enable_tasks().build();
    let missing = Some(json!({ "requiredCapabilities": { "sampling": {} } }));
    for (required, expected) in [(sampling, (-32021, missing)), (tasks, (-32603, None))] {
        let remote = RemoteService::builder("far").transport(pipe(Demanding(required)));
        soon(remote.connected()).await.unwrap();
        let redaction = Redaction::new(Selection::default(), ["/secret"]).unwrap();
        let router = Router::builder().backend(Backend::new("far", remote)).build().unwrap();
        let stack = Layer::layer(&RedactLayer::new().redaction(redaction), router);
        let info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        let person = Person::with(json!({}));
        let connection = serving(ServeService::new(stack, info), person, Era::Modern).await;
        let handle = connection.call("far_any").await;
        let error = soon(handle.await_response()).await.unwrap_err();
        let ServiceError::McpError(error) = error else { panic!("{error}") };
        assert_eq!((error.code.0, error.data), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn client_is_asked_only_for_declared_capabilities() {
    let lacks = "the client does not declare `elicitation`";
    for (behind, tool, outcome) in [
        (Behind::InProcess, "one", lacks.to_owned()),
        (Behind::InProcess, "lists_roots", "Ok(1)".to_owned()),
        (Behind::OlderRemote, "asks", lacks.to_owned()),
        (Behind::NewerRemote, "wants", format!("-32600: `tools/call` needs user input: {lacks}")),
    ] {
        let person = Person::with(json!({ "roots": {} }));
        let connection = behind.connect(&Curious::default(), person, Era::Legacy).await;
        assert_eq!(connection.outcome(tool).await, outcome, "{behind:?} {tool}");
        assert!(!connection.log().has("asked elicitation"));
    }
}

#[tokio::test(start_paused = true)]
async fn in_process_target_can_sample_and_list_roots() {
    let capabilities = json!({ "sampling": {}, "roots": {} });
    let curious = Curious::default();
    let person = Person::with(capabilities);
    let connection = Behind::InProcess.connect(&curious, person, Era::Legacy).await;
    assert_eq!(connection.outcome("samples").await, r#"Ok("large")"#);
    assert_eq!(connection.outcome("lists_roots").await, "Ok(1)");
}

// === Capabilities that servers see ===

#[tokio::test(start_paused = true)]
async fn servers_receive_the_elicitation_capability_of_the_client() {
    let able = json!({ "elicitation": { "form": {} } });
    for (behind, era) in [
        (Behind::InProcess, Era::Legacy),
        (Behind::InProcess, Era::Modern),
        (Behind::NewerRemote, Era::Legacy),
        (Behind::NewerRemote, Era::Modern),
    ] {
        for (capabilities, seen) in [(able.clone(), able.clone()), (json!({}), json!({}))] {
            for tool in ["seen", "sees"] {
                let person = Person::with(capabilities.clone());
                let connection = behind.connect(&Curious::default(), person, era).await;
                let reported: Value =
                    serde_json::from_str(&connection.outcome(tool).await).unwrap();
                // Without a client, nothing is known about it.
                let reported = if reported.is_null() { json!({}) } else { reported };
                assert_eq!(reported, seen, "{behind:?} {era:?} {tool}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_process_target_sees_the_elicitation_modes_of_the_client() {
    let person = Person::with(json!({ "elicitation": { "url": {} } }));
    let connection = Behind::InProcess.connect(&Curious::default(), person, Era::Legacy).await;
    assert_eq!(connection.outcome("sees_modes").await, "{Url}");
}

#[tokio::test(start_paused = true)]
async fn older_server_receives_elicitation_unless_disabled() {
    for (elicitation, seen) in [(true, r#"{"elicitation":{"form":{}}}"#), (false, "{}")] {
        let curious = Curious { older: true, ..Curious::default() };
        let builder = RemoteService::builder("far").elicitation(elicitation);
        let remote = builder.transport(pipe(curious));
        let connection = over(remote, Person::who(Says::Blue), Era::Legacy).await;
        assert_eq!(connection.outcome("seen").await, seen);
        let outcome = connection.outcome("asks").await;
        assert_eq!(outcome, if elicitation { "accept blue" } else { "no user can be asked here" });
    }
}

#[tokio::test(start_paused = true)]
async fn newer_server_receives_no_elicitation_if_disabled() {
    for era in [Era::Legacy, Era::Modern] {
        let builder = RemoteService::builder("far").elicitation(false);
        let remote = builder.transport(pipe(Curious::default()));
        let connection = over(remote, Person::who(Says::Blue), era).await;
        for tool in ["seen", "sees"] {
            assert_eq!(connection.outcome(tool).await, "{}", "{era:?} {tool}");
        }
    }
}

// === Several questions ===

#[tokio::test(start_paused = true)]
async fn questions_are_sent_concurrently() {
    for (behind, tool, answers) in [
        (Behind::InProcess, "two", "accept blue; accept blue"),
        (Behind::OlderRemote, "two", "accept blue; accept blue"),
        (Behind::InProcess, "wants", "q0 accept blue, q1 accept blue"),
    ] {
        let person = Person::who(Says::AtOnce(Arc::new(Barrier::new(2))));
        let connection = behind.connect(&Curious::default(), person, Era::Legacy).await;
        assert_eq!(connection.outcome(tool).await, answers, "{behind:?} {tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn question_without_its_call_is_rejected_among_several_calls() {
    let curious = Curious::default();
    let person = Person::who(Says::Blue);
    let connection = Behind::OlderRemote.connect(&curious, person, Era::Legacy).await;
    let hanging = connection.call("hang").await;
    curious.log.wait_for("hangs").await;

    let several = "several calls are in progress, and the question does not name its call";
    assert_eq!(connection.outcome("asks").await, several);

    hanging.cancel(None).await.unwrap();
    // The cancellation is handled before the next request.
    assert_eq!(connection.outcome("asks").await, "accept blue");
}

#[tokio::test(start_paused = true)]
async fn question_outside_of_a_call_gets_an_error() {
    let curious = Curious::default();
    let person = Person::who(Says::Blue);
    let connection = Behind::OlderRemote.connect(&curious, person, Era::Legacy).await;
    curious.log.wait_for("early").await;
    let why = "no call is in progress that the question could belong to";
    assert!(curious.log.lines()[0].contains(why), "{:?}", curious.log.lines());
    assert_eq!(connection.log().lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn questions_of_prompts_and_resources_are_relayed() {
    let person = Person::who(Says::Blue);
    let connection = Behind::NewerRemote.connect(&Curious::default(), person, Era::Legacy).await;
    for (method, params, answer) in [
        ("prompts/get", json!({ "name": "x" }), "/messages/0/content/text"),
        ("resources/read", json!({ "uri": "x://y" }), "/contents/0/text"),
    ] {
        let handle = connection.begin(method, params).await;
        let result = serde_json::to_value(soon(handle.await_response()).await.unwrap()).unwrap();
        assert_eq!(result.pointer(answer), Some(&json!("q0 accept blue")), "{method}: {result}");
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_keeps_asking_is_stopped_after_ten_answers() {
    let curious = Curious::default();
    let person = Person::who(Says::Blue);
    let connection = Behind::InProcess.connect(&curious, person, Era::Legacy).await;
    let error = connection.outcome("never_content").await;
    assert_eq!(error, "-32603: `tools/call` asked for input again after 10 answers");
    assert_eq!(curious.log.lines().len(), 11);
}

#[tokio::test(start_paused = true)]
async fn size_of_a_question_of_an_older_server_is_limited() {
    let person = Person::who(Says::Blue);
    let connection = Behind::OlderRemote.connect(&Curious::default(), person, Era::Legacy).await;
    let refused = "a question has more than 1048576 bytes";
    assert_eq!(connection.outcome("asks_at_length").await, refused);
    assert_eq!(connection.log().lines(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn total_size_of_open_questions_per_request_is_limited() {
    let curious = Curious::default();
    let person = Person::who(Says::Nothing);
    let connection = Behind::OlderRemote.connect(&curious, person, Era::Legacy).await;
    let refused = "the open questions of one request have more than 8388608 bytes";
    let count = |log: &Log, is_meant: fn(&str) -> bool| {
        log.lines().iter().filter(|line| is_meant(line)).count()
    };
    // Again after a cancelled call: its questions are withdrawn and no longer count.
    for calls in 1..=2 {
        let handle = connection.call("floods").await;
        until(async || {
            curious.log.lines().iter().filter(|line| *line == refused).count() == 12 * calls
        })
        .await;
        until(async || count(connection.log(), |line| line.starts_with("asked")) == 8 * calls)
            .await;
        handle.cancel(None).await.unwrap();
        until(async || count(connection.log(), |line| line == "withdrawn") == 8 * calls).await;
    }
}

// === Withdrawn questions ===

#[tokio::test(start_paused = true)]
async fn question_of_a_branch_is_withdrawn_when_the_branch_ends() {
    for behind in [Behind::InProcess, Behind::OlderRemote] {
        let person = Person::who(Says::Nothing);
        let connection = behind.connect(&Curious::default(), person, Era::Legacy).await;
        let outcome = connection.outcome("short").await;
        assert!(outcome.contains("timed out"), "{behind:?}: {outcome}");
        connection.log().wait_for("withdrawn").await;
    }
}

#[tokio::test(start_paused = true)]
async fn question_that_a_target_abandons_is_withdrawn() {
    let person = Person::who(Says::Nothing);
    let connection = Behind::InProcess.connect(&Curious::default(), person, Era::Legacy).await;
    let outcome = connection.outcome("gives_up").await;
    assert!(outcome.contains("Timeout"), "{outcome}");
    connection.log().wait_for("withdrawn").await;
}

#[tokio::test(start_paused = true)]
async fn question_is_withdrawn_when_the_client_cancels_its_call() {
    for (behind, tool) in [
        (Behind::InProcess, "one"),
        (Behind::OlderRemote, "one"),
        (Behind::OlderRemote, "asks"),
        (Behind::InProcess, "wants"),
    ] {
        let person = Person::who(Says::Nothing);
        let connection = behind.connect(&Curious::default(), person, Era::Legacy).await;
        let handle = connection.call(tool).await;
        connection.log().wait_for("asked").await;
        handle.cancel(None).await.unwrap();
        connection.log().wait_for("withdrawn").await;
    }
}

#[tokio::test(start_paused = true)]
async fn target_receives_the_error_of_the_client() {
    for (says, error) in
        [(Says::Error, "not at home"), (Says::Garbage, "the client returned an invalid response")]
    {
        for (behind, tool) in [
            (Behind::InProcess, "one"),
            (Behind::OlderRemote, "one"),
            (Behind::OlderRemote, "asks"),
        ] {
            let person = Person::who(says.clone());
            let connection = behind.connect(&Curious::default(), person, Era::Legacy).await;
            assert_eq!(connection.outcome(tool).await, error, "{behind:?} {tool}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn target_waiting_for_an_answer_ends_on_client_disconnect() {
    for behind in [Behind::InProcess, Behind::OlderRemote] {
        let curious = Curious::default();
        let person = Person::who(Says::Nothing);
        let connection = behind.connect(&curious, person, Era::Legacy).await;
        let _handle = connection.call("one").await;
        connection.log().wait_for("asked").await;
        let Connection { client, _serving } = connection;
        client.cancel().await.unwrap();
        // rmcp notices it after some seconds.
        tokio::time::sleep(Duration::from_secs(30)).await;
        curious.log.wait_for("over asks").await;
    }
}

// === Streamable HTTP ===

/// A client of streamable HTTP that reads only its responses.
struct Raw {
    address: std::net::SocketAddr,
    session: Option<String>,
}

impl Raw {
    async fn post(&self, message: Value) -> TcpStream {
        let body = message.to_string();
        let mut head = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2025-11-25\r\n",
            self.address,
            body.len()
        );
        if let Some(session) = &self.session {
            head.extend(["Mcp-Session-Id: ", session, "\r\n"]);
        }
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).await.unwrap();
        stream
    }
}

/// Reads until this text is in `times` complete lines, or until the end, and returns the data.
async fn read_until(stream: &mut TcpStream, what: &str, times: usize) -> String {
    let mut read = Vec::new();
    let enough = |read: &[u8]| {
        let text = String::from_utf8_lossy(read);
        let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
        complete.matches(what).count() >= times
    };
    soon(async { while !enough(&read) && stream.read_buf(&mut read).await.unwrap() > 0 {} }).await;
    String::from_utf8(read).unwrap()
}

/// On several threads, where a branch never runs in the task of its request.
#[tokio::test(flavor = "multi_thread")]
async fn questions_of_branches_arrive_on_the_stream_of_their_call() {
    let curious = Curious { older: true, ..Curious::default() };
    let far = http::serve(curious.clone(), true).await;
    let far = RemoteService::builder("far").http(&format!("http://{}/", far.address), []);
    // Questions outside a call would be sent on the stream of the first call.
    soon(far.connected()).await.unwrap();
    until(async || curious.log.has("early")).await;
    let capabilities = ServerCapabilities::builder().enable_tools().build();
    let stack = Layer::layer(&composites(), far);
    let near = ServeService::wrap(Curious::default(), composites());
    for server in [
        http::serve(near, true).await,
        http::serve(ServeService::new(stack, ServerConfig::new(capabilities)), true).await,
    ] {
        let mut client = Raw { address: server.address, session: None };
        let initialize = json!({
            "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
                "protocolVersion": "2025-11-25", "capabilities": { "elicitation": {} },
                "clientInfo": { "name": "raw", "version": "0" },
            },
        });
        let response = read_until(&mut client.post(initialize).await, "serverInfo", 1).await;
        let header = response.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        client.session = Some(header.unwrap().to_owned());
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        read_until(&mut client.post(initialized).await, "202", 1).await;

        let call = json!({
            "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": { "name": "two" },
        });
        let mut stream = client.post(call).await;
        let events = read_until(&mut stream, "elicitation/create", 2).await;
        for line in events.lines().filter_map(|line| line.strip_prefix("data: {")) {
            let question: Value = serde_json::from_str(&format!("{{{line}")).unwrap();
            let result = json!({ "action": "accept", "content": { "colour": "blue" } });
            let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
            read_until(&mut client.post(answer).await, "202", 1).await;
        }
        let result = read_until(&mut stream, "accept blue", 2).await;
        assert_eq!(result.matches(r#""text":"accept blue""#).count(), 2, "{result}");
    }
}

#[tokio::test]
async fn server_over_http_may_ask_for_several_calls_at_once() {
    let curious = Curious { older: true, ..Curious::default() };
    let server = http::serve(curious.clone(), true).await;
    let remote = RemoteService::builder("far").http(&format!("http://{}/", server.address), []);
    soon(remote.connected()).await.unwrap();
    until(async || curious.log.has("early")).await;
    let person = Person::who(Says::AtOnce(Arc::new(Barrier::new(2))));
    let connection = over(remote, person, Era::Legacy).await;
    let calls = [connection.call("asks").await, connection.call("asks_too").await];
    for call in calls {
        assert_eq!(ended(call).await, "accept blue");
    }
}
