//! Log levels and log messages of remote servers.

#![expect(deprecated, reason = "clients and servers before 2026-07-28 set log levels")]

use std::{
    borrow::Cow,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use mcp_composite::adapter::{RemoteService, Router, Secrets, ServeService, router::Backend};
use rmcp::{
    ClientHandler, ClientServiceExt, ErrorData, Peer, RoleClient, RoleServer, ServerHandler,
    model::*,
    service::{NotificationContext, RequestContext, RunningService},
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Era, Log, serve_over_pipe, soon, tool, until};

const SECRET: &str = "hunter2-hunter2";

/// A server whose tools log at any level.
#[derive(Clone, Default)]
struct Talker {
    log: Log,
    /// Whether it uses 2026-07-28.
    newer: bool,
}

/// A client that records the log messages.
#[derive(Clone, Default)]
struct Reader(Log);

type Client = RunningService<RoleClient, Reader>;

/// A server over a connection that can be cut.
struct Far {
    remote: RemoteService,
    serving: Arc<Mutex<JoinSet<()>>>,
}

// === impl Talker ===

impl ServerHandler for Talker {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_logging();
        ServerConfig::new(capabilities.build())
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        let all = ProtocolVersion::KNOWN_VERSIONS;
        if self.newer {
            Cow::Borrowed(all)
        } else {
            Cow::Borrowed(&[ProtocolVersion::V_2025_11_25])
        }
    }

    async fn set_level(
        &self,
        params: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.log.note(format!("level {:?}", params.level));
        Ok(())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(["logs", "floods", "hangs"].map(tool).into()))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        cx: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.log.note(format!("called {} at {:?}", call.name, cx.meta.log_level()));
        match &*call.name {
            "hangs" => pending().await,
            "floods" => {
                for _ in 0..1000 {
                    log(&cx.peer, LoggingLevel::Error, json!("x")).await;
                }
            }
            _ => {
                let secret = json!({ "password": SECRET });
                log(&cx.peer, LoggingLevel::Debug, json!("one")).await;
                log(&cx.peer, LoggingLevel::Info, secret).await;
                log(&cx.peer, LoggingLevel::Error, json!("two")).await;
            }
        }
        Ok(CallToolResult::success(Vec::new()).into())
    }
}

async fn log(peer: &Peer<RoleServer>, level: LoggingLevel, data: Value) {
    let message = LoggingMessageNotificationParam::new(level, data).with_logger(SECRET);
    peer.notify_logging_message(message).await.unwrap();
}

// === impl Reader ===

impl ClientHandler for Reader {
    fn get_info(&self) -> ClientConfig {
        let info = Implementation::new("reader", "0");
        ClientConfig::new(ClientCapabilities::default(), info)
            .with_protocol_version(ProtocolVersion::V_2025_11_25)
    }

    async fn on_logging_message(
        &self,
        params: LoggingMessageNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        self.0.note(format!("{:?} {}", params.level, params.data));
        assert_ne!(params.logger.as_deref(), Some(SECRET));
    }
}

// === impl Far ===

impl Far {
    async fn of(server: Talker) -> Self {
        let serving = Arc::<Mutex<JoinSet<()>>>::default();
        let served = serving.clone();
        let builder = RemoteService::builder("far").secrets(Secrets::new([SECRET.to_owned()]));
        let remote = builder.transport(move || {
            let (near, work) = serve_over_pipe(server.clone());
            served.lock().unwrap().spawn(work);
            std::future::ready(Ok::<_, std::io::Error>(near))
        });
        soon(remote.connected()).await.unwrap();
        Self { remote, serving }
    }

    /// Returns a client of a gateway before the server.
    async fn client(&self, era: Era) -> Client {
        let remote = self.remote.clone();
        let described = remote.clone();
        let description =
            move || Some(ServerConfig::new(described.server_info()?.capabilities.clone()));
        let backend = Backend::new("far", remote).prefix("").description(description);
        let router = Router::builder().backend(backend).build().unwrap();
        let described = router.clone();
        let base = || ServerConfig::new(ServerCapabilities::default());
        let served = ServeService::new(router, move || described.describe(base()));
        let (far, work) = serve_over_pipe(served);
        self.serving.lock().unwrap().spawn(work);
        soon(Reader::default().serve_with_lifecycle(far, era.lifecycle())).await.unwrap()
    }
}

fn call(tool: &str) -> ClientRequest {
    CallToolRequest::new(CallToolRequestParams::new(tool.to_owned())).into()
}

async fn set_level(client: &Client, level: LoggingLevel) {
    let request = SetLevelRequest::new(SetLevelRequestParams::new(level));
    soon(client.send_request(request.into())).await.unwrap();
}

/// Returns the messages that a client receives during a call.
async fn received(client: &Client, tool: &str) -> Vec<String> {
    let log = &client.service().0;
    let before = log.lines().len();
    soon(client.send_request(call(tool))).await.unwrap();
    // rmcp handles each message in a separate task.
    tokio::time::sleep(Duration::from_secs(1)).await;
    log.lines().split_off(before)
}

const INFO: &str = r#"Info {"password":"***"}"#;
const ERROR: &str = r#"Error "two""#;

#[tokio::test(start_paused = true)]
async fn client_receives_log_messages_at_or_above_its_level() {
    for newer in [false, true] {
        let server = Talker { newer, ..Talker::default() };
        let far = Far::of(server.clone()).await;
        let client = far.client(Era::Legacy).await;
        assert!(client.peer_info().unwrap().capabilities.logging.is_some());
        assert_eq!(received(&client, "logs").await, [INFO, ERROR]);
        set_level(&client, LoggingLevel::Error).await;
        assert_eq!(received(&client, "logs").await, [ERROR]);
        set_level(&client, LoggingLevel::Debug).await;
        assert_eq!(received(&client, "logs").await, [r#"Debug "one""#, INFO, ERROR]);
        // A newer server receives the level with each request, an older one once.
        let expected = if newer { "called logs at Some(Debug)" } else { "level Debug" };
        assert!(server.log.has(expected), "{:?}", server.log.lines());
    }
}

#[tokio::test(start_paused = true)]
async fn server_log_level_is_the_lowest_of_its_clients() {
    let server = Talker::default();
    let far = Far::of(server.clone()).await;
    let (one, other) = (far.client(Era::Legacy).await, far.client(Era::Legacy).await);
    set_level(&one, LoggingLevel::Error).await;
    set_level(&other, LoggingLevel::Debug).await;
    set_level(&one, LoggingLevel::Alert).await;
    assert_eq!(server.log.lines(), ["level Error", "level Debug", "level Debug"]);
    assert_eq!(received(&one, "logs").await, [""; 0]);
    assert_eq!(received(&other, "logs").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn log_messages_during_requests_of_two_clients_reach_neither() {
    let server = Talker::default();
    let far = Far::of(server.clone()).await;
    let (one, other) = (far.client(Era::Legacy).await, far.client(Era::Legacy).await);
    let options = rmcp::service::PeerRequestOptions::no_options();
    let hanging = one.send_request_with_option(call("hangs"), options).await.unwrap();
    until(async || server.log.has("called hangs")).await;
    assert_eq!(received(&other, "logs").await, [""; 0]);
    assert_eq!(one.service().0.lines(), [""; 0]);
    // Other clients do not receive the messages of two requests of one client.
    assert_eq!(received(&one, "logs").await, [INFO, ERROR]);
    hanging.cancel(None).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(received(&other, "logs").await, [INFO, ERROR]);
}

#[tokio::test(start_paused = true)]
async fn log_level_is_set_again_on_a_new_connection() {
    let server = Talker::default();
    let far = Far::of(server.clone()).await;
    let level = SetLevelRequest::new(SetLevelRequestParams::new(LoggingLevel::Notice));
    let request =
        mcp_composite::message::Request::new(level, mcp_composite::message::Context::default());
    let reply = tower::ServiceExt::oneshot(far.remote.clone(), request).await.unwrap();
    assert!(reply.error().is_none());
    far.serving.lock().unwrap().abort_all();
    until(async || server.log.lines() == ["level Notice", "level Notice"]).await;
}

#[tokio::test(start_paused = true)]
async fn flood_of_log_messages_is_dropped_and_counted() {
    let far = Far::of(Talker::default()).await;
    let client = far.client(Era::Legacy).await;
    let received = received(&client, "floods").await;
    assert!(received.len() <= 101, "{}", received.len());
    let dropped = format!(r#"Warning "{} log messages were dropped""#, 1001 - received.len());
    assert_eq!(received.last(), Some(&dropped));
}

#[tokio::test(start_paused = true)]
async fn newer_client_sets_its_log_level_per_request() {
    let server = Talker { newer: true, ..Talker::default() };
    let far = Far::of(server.clone()).await;
    let client = far.client(Era::Modern).await;
    assert_eq!(received(&client, "logs").await, [""; 0]);

    let log = &client.service().0;
    let mut options = rmcp::service::PeerRequestOptions::no_options();
    let mut meta = RequestMetaObject::default();
    meta.set_log_level(LoggingLevel::Error);
    options.meta = Some(meta);
    let called = client.send_request_with_option(call("logs"), options).await.unwrap();
    soon(called.await_response()).await.unwrap();
    until(async || !log.lines().is_empty()).await;
    assert_eq!(log.lines(), [ERROR]);
    let levels = ["called logs at None", "called logs at Some(Error)"];
    assert_eq!(server.log.lines(), levels);

    // The method was removed.
    let request = SetLevelRequest::new(SetLevelRequestParams::new(LoggingLevel::Error));
    let error = soon(client.send_request(request.into())).await.unwrap_err();
    assert!(error.to_string().contains("logging/setLevel"), "{error}");
}
