//! Several gateways as separate processes, before the same server, and a client that switches
//! between them.

use std::{collections::BTreeMap, process::Stdio};

use rmcp::{
    ClientLifecycleMode, ClientServiceExt, RoleClient, ServiceError,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, InputResponses, ProtocolVersion,
    },
    service::RunningService,
    transport::StreamableHttpClientTransport,
};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::{Child, Command},
    task::JoinSet,
};

use crate::{
    programs::PROGRAM,
    releases::Releases,
    scripted::object,
    support::{Human, soon},
};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/replicas/gateway.toml");
const KEY: &str = "one key of at least 32 bytes for all";

/// A gateway, and a connected client of 2026-07-28.
struct Replica {
    process: Child,
    /// Reads its log.
    _log: JoinSet<()>,
    client: RunningService<RoleClient, Human>,
}

impl Replica {
    async fn start(releases: &str, key: &str) -> Self {
        let (process, reading, url) = gateway(releases, key, &[]).await;
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        let lifecycle = ClientLifecycleMode::Discover { preferred_versions };
        let transport = StreamableHttpClientTransport::from_uri(url);
        let client = Human::default().serve_with_lifecycle(transport, lifecycle);
        Self { process, _log: reading, client: soon(client).await.unwrap() }
    }

    /// Calls until a question comes, and returns the state.
    async fn ask(&self) -> String {
        let response = soon(self.client.call_tool_once(call())).await.unwrap();
        let CallToolResponse::InputRequired(asks) = response else { panic!("{response:?}") };
        assert_eq!(asks.input_requests.unwrap().into_keys().collect::<Vec<_>>(), ["approval"]);
        asks.request_state.unwrap()
    }

    /// Accepts the question.
    async fn answer(&self, state: &str) -> Result<CallToolResult, ServiceError> {
        let yes = json!({ "action": "accept", "content": { "environment": "staging" } });
        let answers: InputResponses = BTreeMap::from([("approval".to_owned(), yes)]);
        let call = call().with_input_responses(answers).with_request_state(state);
        match soon(self.client.call_tool_once(call)).await? {
            CallToolResponse::Complete(result) => Ok(result),
            response => panic!("{response:?}"),
        }
    }
}

/// Returns a running gateway, the reader of its log, and its URL.
pub(crate) async fn gateway(
    releases: &str,
    key: &str,
    options: &[&str],
) -> (Child, JoinSet<()>, String) {
    gateway_of(FILE, releases, key, options).await
}

/// The same with another config file.
pub(crate) async fn gateway_of(
    file: &str,
    releases: &str,
    key: &str,
    options: &[&str],
) -> (Child, JoinSet<()>, String) {
    let mut command = Command::new(PROGRAM);
    command.args(["serve", file, "--http", "127.0.0.1:0"]).args(options).env_remove("RUST_LOG");
    command.env("RELEASES_URL", releases).env("STATE_KEY", key);
    let mut process = command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut log = BufReader::new(process.stderr.take().unwrap()).lines();
    let url = loop {
        let line = soon(log.next_line()).await.unwrap().unwrap();
        if let Some((_, url)) = line.split_once("serving ") {
            break url.to_owned();
        }
    };
    let mut reading = JoinSet::new();
    reading.spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
    (process, reading, url)
}

/// Returns the status of a gateway's response to a request with this header.
async fn status(url: &str, header: &str) -> u16 {
    status_at(url, "localhost", header).await
}

/// Returns the status of a gateway's response to a request with these headers.
async fn status_at(url: &str, host: &str, header: &str) -> u16 {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "page", "version": "1" },
    } });
    let body = body.to_string();
    let request = format!(
        "POST /mcp HTTP/1.1\r\nHost: {host}\r\n{header}Connection: close\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len(),
    );
    let response = send(url, &request).await;
    response.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Sends a probe, and returns the status and the body.
async fn probe(url: &str, path: &str) -> (u16, String) {
    // A probe of Kubernetes has the address of the pod as its host.
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: 10.1.2.3:8080\r\nConnection: close\r\n\r\n");
    let response = send(url, &request).await;
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Sends a request over a connection of its own, and returns the response.
async fn send(url: &str, request: &str) -> String {
    let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    soon(stream.read_to_string(&mut response)).await.unwrap();
    response
}

fn call() -> CallToolRequestParams {
    let arguments = object(json!({ "service": "shop" }));
    CallToolRequestParams::new("deploy_with_approval").with_arguments(arguments)
}

#[tokio::test]
async fn run_resumes_on_another_replica_after_a_kill() {
    let releases = Releases::default();
    let served = releases.serve().await.unwrap();
    let mut first = Replica::start(&served.url, KEY).await;
    let second = Replica::start(&served.url, KEY).await;

    let state = first.ask().await;
    first.process.kill().await.unwrap();
    let result = second.answer(&state).await.unwrap();

    assert_eq!(result.content[0].as_text().unwrap().text, "shop 1.4.0 is in staging");
    assert_eq!(releases.calls(), ["get_release shop", "deploy_release shop"]);
}

#[tokio::test]
async fn replica_with_another_key_rejects_the_state() {
    let releases = Releases::default();
    let served = releases.serve().await.unwrap();
    let first = Replica::start(&served.url, KEY).await;
    let second = Replica::start(&served.url, "another key of at least 32 bytes").await;

    let state = first.ask().await;
    let refused = second.answer(&state).await;

    let Err(ServiceError::McpError(error)) = refused else { panic!("{refused:?}") };
    assert_eq!((error.code.0, &*error.message), (-32602, "invalid `requestState`"));
    assert_eq!(error.data, None);
    assert_eq!(releases.calls(), ["get_release shop"]);
}

#[tokio::test]
async fn requests_of_foreign_origins_are_rejected() {
    let releases = Releases::default().serve().await.unwrap();
    let allowed = ["--allow-origin", "https://inspector.example.com:443"];
    let (_process, _reading, url) = gateway(&releases.url, KEY, &allowed).await;
    for (header, expected) in [
        ("", 200),
        ("Origin: http://localhost:5173\r\n", 200),
        ("Origin: http://127.0.0.1\r\n", 200),
        ("Origin: http://[::1]:8080\r\n", 200),
        ("Origin: https://inspector.example.com\r\n", 200),
        ("Origin: https://inspector.example.com:8443\r\n", 403),
        ("Origin: http://inspector.example.com\r\n", 403),
        ("Origin: https://evil.example\r\n", 403),
        ("Origin: http://localhost.evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        assert_eq!(status(&url, header).await, expected, "{header:?}");
    }
}

#[tokio::test]
async fn requests_to_unknown_hosts_are_rejected() {
    let releases = Releases::default().serve().await.unwrap();
    let allowed = ["--allow-host", "tools.example.com"];
    let (_process, _reading, url) = gateway(&releases.url, KEY, &allowed).await;
    for (host, expected) in [
        ("localhost", 200),
        ("127.0.0.1:1", 200),
        ("tools.example.com", 200),
        ("tools.example.com:8443", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
    ] {
        assert_eq!(status_at(&url, host, "").await, expected, "{host}");
    }
}

#[tokio::test]
async fn probes_report_the_health_and_the_backends() {
    let releases = Releases::default().serve().await.unwrap();
    let (_process, _reading, url) = gateway(&releases.url, KEY, &[]).await;
    assert_eq!(probe(&url, "/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(probe(&url, "/readyz").await, (200, "ok\n".to_owned()));

    let (_process, _reading, url) = gateway("http://127.0.0.1:1/mcp", KEY, &[]).await;
    assert_eq!(probe(&url, "/healthz").await.0, 200);
    let absent = "0 of 1 backends are connected\n".to_owned();
    assert_eq!(probe(&url, "/readyz").await, (503, absent));
}

#[tokio::test]
async fn invalid_allowed_origin_is_reported() {
    for origin in
        ["https://example.com", "example.com:443", "*", "https://*:443", "https://a:443/x"]
    {
        let mut command = Command::new(PROGRAM);
        command.args(["serve", FILE, "--http", "127.0.0.1:0", "--allow-origin", origin]);
        let output = soon(command.output()).await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(
            !output.status.success() && stderr.contains("expected scheme, host and port"),
            "{origin}: {stderr}"
        );
    }
}

#[tokio::test]
async fn gateway_rejects_sessions_beyond_its_limit() {
    let releases = Releases::default().serve().await.unwrap();
    let (_process, _reading, url) = gateway(&releases.url, KEY, &["--max-connections", "2"]).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(status(&url, "").await);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}
