//! Shared servers, clients and connections of tests.

use std::{
    borrow::Cow,
    fmt::Write as _,
    future, io,
    sync::{Arc, LazyLock, Mutex},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient, RoleServer,
    ServerHandler, ServiceError, ServiceExt,
    model::*,
    service::{NotificationContext, RequestContext, RunningService, SubscriptionContext},
};
use serde_json::{Value, json};
use tokio::{
    io::DuplexStream,
    sync::{mpsc, oneshot},
    task::{JoinSet, yield_now},
};
use tokio_util::sync::CancellationToken;
use tracing::{Dispatch, Subscriber, subscriber::DefaultGuard};
use tracing_subscriber::{
    filter::LevelFilter, fmt::MakeWriter, layer::SubscriberExt, registry::Registry,
};

/// The time after which a test fails because something hangs. It is much longer than anything takes
/// on a busy machine.
pub(crate) const HANG: Duration = Duration::from_secs(60);

/// Lines of a log, with a way to wait for one.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

/// A server that implements every method, and records its requests.
#[derive(Clone, Default)]
pub(crate) struct Full {
    pub(crate) log: Log,
    /// Whether results omit optional fields.
    pub(crate) terse: bool,
}

/// A server with tools that end in unusual ways.
#[derive(Clone)]
pub(crate) struct Unusual {
    hung: mpsc::UnboundedSender<Hung>,
}

/// A call that hangs in [`Unusual`].
pub(crate) struct Hung {
    /// The token that the handler received.
    pub(crate) cancellation: CancellationToken,
    /// Ends with an error when the handler's work is dropped.
    pub(crate) dropped: oneshot::Receiver<()>,
}

/// A client that answers questions, and records notifications.
#[derive(Clone, Default)]
pub(crate) struct Human {
    pub(crate) log: Log,
}

/// A client with a user, whose answers to questions are those of a function.
struct Answering<F>(F);

/// The lifecycle of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// 2025-11-25, with `initialize`.
    Legacy,
    /// 2026-07-28, with `server/discover` and `_meta` in every request.
    Modern,
}

/// A client and the server it is connected to, over a pipe in memory.
pub(crate) struct Connection {
    pub(crate) client: RunningService<RoleClient, Human>,
    pub(crate) server: JoinSet<()>,
}

/// All logs while this value lives.
#[derive(Clone, Default)]
pub(crate) struct Logged(Arc<Mutex<Vec<u8>>>);

/// Returns a client with a user, who answers each question like `answer`.
pub(crate) fn answering<F, R>(answer: F) -> impl ClientHandler
where
    F: Fn(ElicitRequestParams) -> R + Send + Sync + 'static,
    R: Future<Output = ElicitResult> + Send + 'static,
{
    Answering(answer)
}

/// Returns the configuration files in a folder of the package, each with its name and text.
#[cfg(feature = "config")]
pub(crate) fn config_files(folder: &str) -> Vec<(String, String)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name.ends_with(".toml") && name != "Cargo.toml" {
            files.push((name, std::fs::read_to_string(path).unwrap()));
        }
    }
    files
}

pub(crate) async fn connect(server: impl ServerHandler, era: Era) -> Connection {
    let (pipe, work) = serve_over_pipe(server);
    let serving = JoinSet::from_iter([work]);
    let client = Human::default().serve_with_lifecycle(pipe, era.lifecycle()).await.unwrap();
    Connection { client, server: serving }
}

/// Connects to a server over a pipe in memory, as the transport of a remote backend.
#[cfg(feature = "remote")]
pub(crate) fn pipe_to(server: impl ServerHandler) -> future::Ready<io::Result<DuplexStream>> {
    let (pipe, work) = serve_over_pipe(server);
    tokio::runtime::Handle::current().spawn(work);
    future::ready(Ok(pipe))
}

/// Returns the client's end of a pipe in memory, and the work of the server at its other end.
///
/// The server is boxed, so that the code of rmcp is compiled once and not for each server.
pub(crate) fn serve_over_pipe(
    server: impl ServerHandler,
) -> (DuplexStream, BoxFuture<'static, ()>) {
    let (near, far) = tokio::io::duplex(1 << 16);
    let server = server.into_dyn();
    let work = async move {
        // A client that detects an older server ends its first connection.
        if let Ok(server) = server.serve(far).await {
            server.waiting().await.unwrap();
        }
    };
    (near, work.boxed())
}

/// A request context without a connection, for calling a server in code.
///
/// The value beside it keeps the peer alive.
pub(crate) fn detached(era: Era) -> (RequestContext<RoleServer>, impl Sized) {
    struct Nobody;
    impl ServerHandler for Nobody {}

    let (near, far) = tokio::io::duplex(1 << 16);
    let running = rmcp::service::serve_directly::<RoleServer, _, _, _, _>(Nobody, near, None);
    let mut context = RequestContext::new(RequestId::Number(1), running.peer().clone());
    if era == Era::Modern {
        context.meta = RequestMetaObject::with_client_context(
            ProtocolVersion::V_2026_07_28,
            Implementation::new("test", "0"),
            ClientCapabilities::default(),
        );
    }
    (context, (running, far))
}

pub(crate) fn unusual() -> (Unusual, mpsc::UnboundedReceiver<Hung>) {
    let (hung, calls) = mpsc::unbounded_channel();
    (Unusual { hung }, calls)
}

/// Sets the subscriber of this thread until the returned value is dropped.
///
/// For each span and log message, `tracing` caches whether a subscriber needs it. As long as the
/// process has at most one subscriber, `tracing` asks only that of the thread that comes first,
/// which may have none. If this thread stores its answer after a subscriber was added, the message
/// is disabled for that subscriber, too. So two subscribers are kept that need nothing. Their
/// maximum level is off, so that no thread asks before there are two.
pub(crate) fn subscribe(subscriber: impl Subscriber + Send + Sync) -> DefaultGuard {
    static TWO: LazyLock<[Dispatch; 2]> = LazyLock::new(|| {
        [(); 2].map(|()| Dispatch::new(Registry::default().with(LevelFilter::OFF)))
    });

    LazyLock::force(&TWO);
    tracing::subscriber::set_default(subscriber)
}

pub(crate) fn capture_logs() -> (Logged, DefaultGuard) {
    use tracing_subscriber::fmt::format::FmtSpan;

    let logged = Logged::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(logged.clone())
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .finish();
    (logged, subscribe(subscriber))
}

/// Waits for a future that must complete soon.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(HANG, work).await.expect("should have come by now")
}

/// Waits, in real time, for another process.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> bool) {
    soon(async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

// === impl Era ===

impl Era {
    pub(crate) fn lifecycle(self) -> ClientLifecycleMode {
        match self {
            Self::Legacy => ClientLifecycleMode::Initialize,
            Self::Modern => ClientLifecycleMode::Discover {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
            },
        }
    }
}

// === impl Log ===

impl Log {
    pub(crate) fn note(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Returns whether a line begins like this.
    pub(crate) fn has(&self, beginning: &str) -> bool {
        self.lines().iter().any(|line| line.starts_with(beginning))
    }

    /// Waits for a line that begins like this.
    pub(crate) async fn wait_for(&self, beginning: &str) {
        for _ in 0..10_000 {
            if self.has(beginning) {
                return;
            }
            yield_now().await;
        }
        // Futures that wait for time to pass need more than turns.
        let end = tokio::time::Instant::now() + HANG;
        while tokio::time::Instant::now() < end {
            if self.has(beginning) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("`{beginning}` never came, but {:#?}", self.lines());
    }
}

// === impl Full ===

impl Full {
    /// Records a request, with its whole context.
    fn request(
        &self,
        method: &str,
        params: impl serde::Serialize,
        cx: &RequestContext<RoleServer>,
    ) {
        self.log.note(format!(
            "{method} {} id={} meta={} version={:?} client={:?} tasks={:?} cancelled={} peer={}",
            serde_json::to_value(params).unwrap(),
            cx.id,
            serde_json::to_value(&cx.meta).unwrap(),
            cx.protocol_version(),
            cx.client_info().map(|client| client.name),
            cx.client_capabilities().map(|capabilities| capabilities.supports_tasks()),
            cx.ct.is_cancelled(),
            !cx.peer.is_transport_closed(),
        ));
    }

    fn notification(
        &self,
        method: &str,
        params: impl serde::Serialize,
        cx: &NotificationContext<RoleServer>,
    ) {
        self.log.note(format!(
            "{method} {} meta={} peer={}",
            serde_json::to_value(params).unwrap(),
            serde_json::to_value(&cx.meta).unwrap(),
            !cx.peer.is_transport_closed(),
        ));
    }

    fn result_type(&self) -> Option<ResultType> {
        (!self.terse).then_some(ResultType::COMPLETE)
    }

    fn task(&self, id: &str) -> Task {
        Task::new(id, TaskStatus::Working, "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    }

    fn skill(&self) -> Skill {
        Skill::new(
            "skill://full/brew/SKILL.md",
            SkillFrontmatter::new("brew", "Brews."),
            SkillResources::Dynamic,
        )
    }
}

#[expect(deprecated, reason = "older clients use the deprecated methods")]
impl ServerHandler for Full {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(
            ServerCapabilities::builder()
                .enable_tools()
                .enable_tool_list_changed()
                .enable_prompts()
                .enable_resources()
                .enable_resources_subscribe()
                .enable_completions()
                .enable_logging()
                .enable_tasks()
                .enable_skills_with_directory_read()
                .build(),
        )
        .with_server_info(Implementation::new("full", "1.2.3"))
        .with_instructions("use all of it")
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Owned(vec![ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28])
    }

    fn negotiate_initialize(
        &self,
        params: &InitializeRequestParams,
    ) -> Result<InitializeResult, ErrorData> {
        let mut result = self
            .get_info()
            .with_instructions(format!("negotiated for {}", params.client_info.name));
        result.protocol_version = ProtocolVersion::V_2025_11_25;
        Ok(result)
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        (name == "echo").then(|| tool("echo"))
    }

    async fn initialize(
        &self,
        params: InitializeRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        self.request("initialize", &params, &cx);
        cx.peer.set_peer_info(params.clone());
        self.negotiate_initialize(&params)
    }

    async fn discover(&self, cx: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        self.request("server/discover", (), &cx);
        let versions = self.supported_protocol_versions().into_owned();
        let mut result = DiscoverResult::from_server_info(versions, self.get_info());
        result.instructions = Some("discovered".to_owned());
        Ok(result)
    }

    async fn ping(&self, cx: RequestContext<RoleServer>) -> Result<(), ErrorData> {
        self.request("ping", (), &cx);
        Ok(())
    }

    async fn complete(
        &self,
        params: CompleteRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        self.request("completion/complete", params, &cx);
        let mut result = CompleteResult::new(CompletionInfo::new(vec!["done".to_owned()]).unwrap());
        result.result_type = self.result_type();
        Ok(result)
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.request("logging/setLevel", params, &cx);
        Ok(())
    }

    async fn list_prompts(
        &self,
        params: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        self.request("prompts/list", params, &cx);
        let prompts = vec![Prompt::new("haiku", Some("A short one."), None)];
        Ok(ListPromptsResult {
            result_type: self.result_type(),
            ..ListPromptsResult::with_all_items(prompts)
        })
    }

    async fn get_prompt(
        &self,
        params: GetPromptRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let name = params.name.clone();
        self.request("prompts/get", params, &cx);
        if name == "ask" {
            return Ok(InputRequiredResult::from_request_state("prompt").into());
        }
        let mut result = GetPromptResult::new(vec![PromptMessage::new_text(Role::User, "moon")]);
        result.result_type = self.result_type();
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        params: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        self.request("resources/list", params, &cx);
        Ok(ListResourcesResult {
            result_type: self.result_type(),
            ttl_ms: Some(5),
            ..ListResourcesResult::with_all_items(vec![Resource::new("full://a", "a")])
        })
    }

    async fn list_resource_templates(
        &self,
        params: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        self.request("resources/templates/list", params, &cx);
        let templates = vec![ResourceTemplate::new("full://{x}", "x")];
        Ok(ListResourceTemplatesResult {
            result_type: self.result_type(),
            ..ListResourceTemplatesResult::with_all_items(templates)
        })
    }

    async fn read_resource(
        &self,
        params: ReadResourceRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = params.uri.clone();
        self.request("resources/read", params, &cx);
        match &*uri {
            "full://gone" => Err(ErrorData::resource_not_found("it is gone", Some(json!(uri)))),
            "full://ask" => Ok(InputRequiredResult::from_request_state("resource").into()),
            _ => {
                let contents = vec![ResourceContents::text("content", uri)];
                let mut result = ReadResourceResult::new(contents);
                result.result_type = self.result_type();
                Ok(result.into())
            }
        }
    }

    async fn read_resource_directory(
        &self,
        params: ReadResourceDirectoryRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<ReadResourceDirectoryResult, ErrorData> {
        self.request("resources/directory/read", params, &cx);
        Ok(ListResourcesResult {
            result_type: self.result_type(),
            ..ListResourcesResult::with_all_items(vec![Resource::new("full://d/a", "d/a")])
        })
    }

    async fn subscribe(
        &self,
        params: SubscribeRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.request("resources/subscribe", params, &cx);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        params: UnsubscribeRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.request("resources/unsubscribe", params, &cx);
        Err(ErrorData::invalid_params("never subscribed", Some(json!({ "really": true }))))
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        self.log.note(format!("filter {}", serde_json::to_value(requested).unwrap()));
        Some(SubscriptionFilter::builder().tools_list_changed().build())
    }

    async fn listen(&self, cx: SubscriptionContext) -> Result<(), ErrorData> {
        self.request("subscriptions/listen", cx.accepted(), cx.request_context());
        cx.sink().notify_tool_list_changed().await.unwrap();
        Ok(())
    }

    async fn list_tools(
        &self,
        params: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        self.request("tools/list", params, &cx);
        Ok(ListToolsResult {
            result_type: self.result_type(),
            next_cursor: Some("more".to_owned()),
            cache_scope: Some(CacheScope::Public),
            ..ListToolsResult::with_all_items(vec![tool("echo")])
        })
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = params.name.clone();
        self.request("tools/call", &params, &cx);
        let mut result = match &*name {
            "fail" => CallToolResult::error(vec![ContentBlock::text("it failed")]),
            "refuse" => return Err(ErrorData::new(ErrorCode(7), "not you", Some(json!([1])))),
            "ask" => return Ok(InputRequiredResult::from_request_state("tool").into()),
            "task" => return Ok(CreateTaskResult::new(self.task("t1")).into()),
            // Calls the client in all the ways a server can.
            "talk" => {
                if let Some(token) = cx.meta.get_progress_token() {
                    let progress = ProgressNotificationParam::new(token, 0.5);
                    cx.peer.notify_progress(progress).await.unwrap();
                }
                cx.peer
                    .notify_logging_message(LoggingMessageNotificationParam::new(
                        LoggingLevel::Info,
                        json!("hello"),
                    ))
                    .await
                    .unwrap();
                cx.peer.notify_tool_list_changed().await.unwrap();
                let answer = cx.peer.create_elicitation(question()).await;
                CallToolResult::success(vec![ContentBlock::text(format!("{answer:?}"))])
            }
            _ => CallToolResult::structured(json!(params.arguments)),
        };
        result.result_type = self.result_type();
        Ok(result.into())
    }

    async fn get_task(
        &self,
        params: GetTaskParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        let id = params.task_id.clone();
        self.request("tasks/get", params, &cx);
        Ok(GetTaskResult::new(DetailedTask::new(self.task(&id), TaskPayload::Working)))
    }

    async fn update_task(
        &self,
        params: UpdateTaskParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.request("tasks/update", params, &cx);
        Ok(())
    }

    async fn cancel_task(
        &self,
        params: CancelTaskParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.request("tasks/cancel", params, &cx);
        Ok(())
    }

    async fn list_skills(
        &self,
        params: Option<PaginatedRequestParams>,
        cx: RequestContext<RoleServer>,
    ) -> Result<ListSkillsResult, ErrorData> {
        self.request("skills/list", params, &cx);
        Ok(ListSkillsResult {
            result_type: self.result_type(),
            ..ListSkillsResult::with_all_items(vec![self.skill()])
        })
    }

    async fn get_skill(
        &self,
        params: GetSkillRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<GetSkillResult, ErrorData> {
        self.request("skills/get", params, &cx);
        let mut result = GetSkillResult::new(self.skill());
        result.result_type = self.result_type();
        Ok(result)
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        cx: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        self.request(&request.method, &request.params, &cx);
        match &*request.method {
            "test/mirror" => Ok(CustomResult::new(json!({ "mirrored": request.params }))),
            unknown => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, unknown.to_owned(), None)),
        }
    }

    async fn on_cancelled(
        &self,
        params: CancelledNotificationParam,
        cx: NotificationContext<RoleServer>,
    ) {
        self.notification("notifications/cancelled", params, &cx);
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        cx: NotificationContext<RoleServer>,
    ) {
        self.notification("notifications/progress", params, &cx);
    }

    async fn on_initialized(&self, cx: NotificationContext<RoleServer>) {
        self.notification("notifications/initialized", (), &cx);
    }

    async fn on_roots_list_changed(&self, cx: NotificationContext<RoleServer>) {
        self.notification("notifications/roots/list_changed", (), &cx);
    }

    async fn on_custom_notification(
        &self,
        notification: CustomNotification,
        cx: NotificationContext<RoleServer>,
    ) {
        self.notification(&notification.method, &notification.params, &cx);
    }
}

pub(crate) fn tool(name: &'static str) -> Tool {
    Tool::new(name, "a tool", Arc::new(JsonObject::new()))
}

pub(crate) fn question() -> ElicitRequestParams {
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: "sure?".to_owned(),
        requested_schema: ElicitationSchema::new(Default::default()),
    }
}

// === impl Unusual ===

impl ServerHandler for Unusual {
    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(["hang", "panic", "fine"].map(tool).into()))
    }

    async fn call_tool(
        &self,
        params: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        match &*params.name {
            "hang" => {
                let (_held, dropped) = oneshot::channel();
                let hung = Hung { cancellation: cx.ct.clone(), dropped };
                self.hung.send(hung).map_err(|_| "the test is over").unwrap();
                future::pending().await
            }
            "panic" => panic!("the password is hunter2"),
            _ => Ok(CallToolResult::success(vec![ContentBlock::text("fine")]).into()),
        }
    }
}

// === impl Hung ===

impl Hung {
    /// Waits until the token was cancelled and the handler's work was dropped.
    pub(crate) async fn ended(self) {
        soon(self.cancellation.cancelled()).await;
        assert!(soon(self.dropped).await.is_err(), "nothing is ever sent");
    }
}

// === impl Answering ===

impl<F, R> ClientHandler for Answering<F>
where
    F: Fn(ElicitRequestParams) -> R + Send + Sync + 'static,
    R: Future<Output = ElicitResult> + Send + 'static,
{
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::builder().enable_elicitation().build(),
            Implementation::new("answering", "0"),
        )
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok((self.0)(params).await)
    }
}

// === impl Human ===

impl ClientHandler for Human {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::builder().enable_elicitation().enable_tasks().build(),
            Implementation::new("human", "0"),
        )
    }

    async fn create_elicitation(
        &self,
        _: ElicitRequestParams,
        _: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        Ok(ElicitResult::new(ElicitationAction::Decline))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.log.note(format!("progress {}", params.progress));
    }

    #[expect(deprecated, reason = "older servers log to the client")]
    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.log.note(format!("log {}", params.data));
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.log.note("tools changed");
    }

    async fn on_prompt_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.log.note("prompts changed");
    }

    async fn on_resource_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.log.note("resources changed");
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.log.note(format!("updated {}", params.uri));
    }
}

// === impl Connection ===

impl Connection {
    /// Sends a request unchanged, and waits for its result.
    pub(crate) async fn send(&self, method: &str, params: Value) -> Result<Value, ServiceError> {
        let request = json!({ "method": method, "params": params });
        let request: ClientRequest = serde_json::from_value(request).unwrap();
        let result = soon(self.client.send_request(request)).await?;
        Ok(serde_json::to_value(result).unwrap())
    }

    pub(crate) async fn call_tool(&self, name: &str) -> Result<Value, ServiceError> {
        self.send("tools/call", json!({ "name": name })).await
    }
}

// === impl Logged ===

impl Logged {
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let bytes = self.0.lock().unwrap();
        write!(text, "{}", String::from_utf8_lossy(&bytes)).unwrap();
        text
    }
}

impl<'a> MakeWriter<'a> for Logged {
    type Writer = Self;

    fn make_writer(&'a self) -> Self::Writer {
        self.clone()
    }
}

impl io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
