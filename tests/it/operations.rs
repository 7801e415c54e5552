//! The gateway over HTTP as a program: how it ends, and its limits on connections.

use std::{
    fs,
    io::{self, ErrorKind},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::Instant,
};

use crate::{
    backends::{backend, composite},
    programs::{PROGRAM, signal},
    support::{soon, until},
};

const JSON: &str = "Content-Type: application/json\r\n\
                    Accept: application/json, text/event-stream\r\n";

/// A gateway over HTTP with one backend, whose files are in a folder of their own.
pub(crate) struct Gateway {
    folder: TempDir,
    process: Child,
}

/// A connection over which requests are written as text.
pub(crate) struct Client(BufReader<TcpStream>);

pub(crate) struct Response {
    pub(crate) status: u16,
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

// === impl Gateway ===

impl Gateway {
    pub(crate) async fn start(options: &[&str]) -> Self {
        Self::of(options, "", &[]).await
    }

    /// Starts a gateway with variables of the backend, as in a file, and variables of its own.
    pub(crate) async fn of(options: &[&str], backends: &str, own: &[(&str, &str)]) -> Self {
        let folder = tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let received = path("received");
        let received = format!("MISBEHAVING_LOG = '{}'", received.display());
        let variables = format!("[backends.env]\n{received}\n{backends}\n");
        let composite = composite("['one/echo']");
        fs::write(path("gateway.toml"), backend("one", "good", &variables) + &composite).unwrap();
        let process = Command::new(PROGRAM)
            .arg("serve")
            .arg(path("gateway.toml"))
            .args(["--http", "127.0.0.1:0"])
            .args(options)
            .env_remove("RUST_LOG")
            .envs(own.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(path("log")).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let gateway = Self { folder, process };
        gateway.logs("/mcp").await;
        gateway
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.folder.path().join(name)).unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        self.read("log")
    }

    pub(crate) async fn logs(&self, text: &str) {
        until(async || self.log().contains(text)).await;
    }

    /// Returns the address after this text in the log.
    pub(crate) fn address(&self, after: &str) -> String {
        let log = self.log();
        let (_, rest) = log.split_once(after).unwrap();
        rest.split(['/', '"', '\n']).next().unwrap().to_owned()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::connect(&self.address("serving http://")).await
    }

    /// Waits until the backend has received a call of this tool.
    async fn has_called(&self, tool: &str) {
        until(async || self.read("received").contains(&format!("\"name\":\"{tool}\""))).await;
    }

    fn signal(&self, name: &str) {
        assert!(signal(self.process.id().unwrap().into(), name));
    }

    async fn end(&mut self) -> ExitStatus {
        soon(self.process.wait()).await.unwrap()
    }
}

// === impl Client ===

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    async fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) -> Response {
        self.write(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        self.response().await
    }

    async fn post(&mut self, headers: &str, body: &Value) {
        let (body, headers) = (body.to_string(), format!("{JSON}{headers}"));
        let length = body.len();
        self.write(&format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        ))
        .await;
    }

    /// Sends a call of 2026-07-28 to the backend.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) {
        let headers = format!(
            "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        );
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "client", "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({ "name": tool, "arguments": arguments, "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        self.post(&headers, &call).await;
    }

    /// Opens a session of 2025-11-25, and returns its header.
    async fn open_session(&mut self) -> String {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": { "name": "client", "version": "1" },
        });
        let initialize =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        self.post("", &initialize).await;
        let response = self.response().await;
        let lines = response.head.lines();
        let mut session = lines.filter(|line| line.starts_with("mcp-session-id:"));
        session.next().unwrap().to_owned() + "\r\n"
    }

    async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(soon(self.0.read_line(&mut head)).await.unwrap(), 0, "closed: {head}");
        }
        head.to_lowercase()
    }

    /// Reads a chunk of a body, and returns whether it is not the last one.
    async fn chunk(&mut self, body: &mut Vec<u8>) -> bool {
        let mut line = String::new();
        soon(self.0.read_line(&mut line)).await.unwrap();
        let length = usize::from_str_radix(line.trim_end(), 16).unwrap();
        let start = body.len();
        body.resize(start + length + 2, 0);
        soon(self.0.read_exact(&mut body[start..])).await.unwrap();
        body.truncate(start + length);
        length > 0
    }

    pub(crate) async fn response(&mut self) -> Response {
        let head = self.head().await;
        let mut body = Vec::new();
        if head.contains("transfer-encoding: chunked") {
            while self.chunk(&mut body).await {}
        } else {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            body.resize(length.map_or(0, |length| length.parse().unwrap()), 0);
            soon(self.0.read_exact(&mut body)).await.unwrap();
        }
        Response {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    /// Waits until the gateway closes the connection, and returns the bytes before that.
    async fn closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match soon(self.0.read_to_end(&mut rest)).await {
            Ok(_) => rest,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
                rest
            }
        }
    }
}

// === The end ===

#[tokio::test]
async fn terminated_gateway_answers_the_calls_in_flight() {
    let mut gateway = Gateway::start(&["--drain", "1h"]).await;
    let (mut caller, mut probe) = (gateway.connect().await, gateway.connect().await);
    assert_eq!(probe.get("/readyz").await.status, 200);
    caller.call("one_slow", json!({ "ms": 1000 })).await;
    gateway.has_called("slow").await;

    gateway.signal("TERM");
    gateway.logs("waits up to 1h for 1 calls in flight").await;
    let address = gateway.address("serving http://");
    let refused = TcpStream::connect(&address).await.map_err(|error: io::Error| error.kind());
    assert_eq!(refused.unwrap_err(), ErrorKind::ConnectionRefused);
    let readiness = probe.get("/readyz").await;
    assert_eq!((readiness.status, &*readiness.body), (503, "draining\n"));
    assert!(readiness.head.contains("connection: close"), "{}", readiness.head);

    let answer = caller.response().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.head.contains("content-length: "), "{}", answer.head);
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    assert!(answer["result"]["content"].is_array(), "{answer}");
    assert!(gateway.end().await.success());
}

#[tokio::test]
async fn terminated_gateway_ends_at_the_limit() {
    let mut gateway = Gateway::start(&["--drain", "500ms"]).await;
    let mut caller = gateway.connect().await;
    caller.call("one_hang", json!({})).await;
    gateway.has_called("hang").await;
    let signalled = Instant::now();
    gateway.signal("TERM");
    assert!(gateway.end().await.success());
    let took = signalled.elapsed();
    assert!(took >= Duration::from_millis(500), "{took:?}");
    assert!(gateway.log().contains("ends with 1 calls in flight"), "{}", gateway.log());
}

#[tokio::test]
async fn second_signal_ends_the_gateway_at_once() {
    for second in ["TERM", "INT"] {
        let mut gateway = Gateway::start(&["--drain", "1h"]).await;
        let mut caller = gateway.connect().await;
        caller.call("one_hang", json!({})).await;
        gateway.has_called("hang").await;
        gateway.signal("TERM");
        gateway.logs("waits up to 1h").await;
        gateway.signal(second);
        assert_eq!(gateway.end().await.code(), Some(1));
    }
}

#[tokio::test]
async fn streams_of_notifications_and_idle_connections_delay_no_end() {
    let mut gateway = Gateway::start(&["--drain", "1h"]).await;
    let mut idle = gateway.connect().await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    let mut client = gateway.connect().await;
    let session = client.open_session().await;
    let get = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\n{JSON}{session}\r\n");
    client.write(&get).await;
    assert!(client.head().await.contains("text/event-stream"));
    gateway.signal("TERM");
    assert!(gateway.end().await.success());
    idle.closed().await;
}

// === Limits ===

#[tokio::test]
async fn clients_that_send_no_request_in_time_are_disconnected() {
    let gateway = Gateway::start(&["--idle-timeout", "1s"]).await;
    let [mut silent, mut half, mut idle, mut slow] = [
        gateway.connect().await,
        gateway.connect().await,
        gateway.connect().await,
        gateway.connect().await,
    ];
    half.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-").await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    slow.write(&format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 100\r\n\r\n{{"
    ))
    .await;
    // Longer than the timeout, which does not apply to the time that the gateway takes.
    let mut other = gateway.connect().await;
    other.call("one_slow", json!({ "ms": 2000 })).await;

    assert_eq!(silent.closed().await, b"");
    half.closed().await;
    assert_eq!(idle.closed().await, b"");
    let answer = String::from_utf8(slow.closed().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 500 ") && !answer.contains("result"), "{answer}");
    let answer = other.response().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn request_head_in_small_parts_is_cut_off() {
    let gateway = Gateway::start(&["--idle-timeout", "1s"]).await;
    let (mut slow, mut other) = (gateway.connect().await, gateway.connect().await);
    slow.write("GET /healthz HTTP/1.1\r\nX: ").await;
    let started = Instant::now();
    let dripped = async {
        while slow.0.write_all(b"x").await.is_ok() {
            // Each request starts the time anew.
            assert_eq!(other.get("/healthz").await.status, 200);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    soon(dripped).await;
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(10), "{took:?}");
}

#[tokio::test]
async fn large_heads_and_bodies_are_rejected() {
    let gateway = Gateway::start(&[]).await;
    let mut other = gateway.connect().await;
    let long = "x".repeat(5 << 20);

    let mut client = gateway.connect().await;
    let head = format!("GET /healthz HTTP/1.1\r\nX: {}\r\n\r\n", &long[..100_000]);
    client.write(&head).await;
    assert_eq!(client.response().await.status, 431);

    let mut client = gateway.connect().await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "x": long } });
    let head = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\n{JSON}");
    let size = body.to_string().len();
    let write = format!("{head}Content-Length: {size}\r\n\r\n{body}");
    // The gateway does not read the rest of the body.
    let _ = client.0.write_all(write.as_bytes()).await;
    let response = client.response().await;
    assert_eq!((response.status, other.get("/healthz").await.status), (413, 200));

    // The same without a length.
    let mut client = gateway.connect().await;
    let write = format!("{head}Transfer-Encoding: chunked\r\n\r\n{size:x}\r\n{body}\r\n0\r\n\r\n");
    let _ = client.0.write_all(write.as_bytes()).await;
    assert_eq!((client.response().await.status, other.get("/healthz").await.status), (413, 200));
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed() {
    let gateway = Gateway::start(&["--max-tcp-connections", "2"]).await;
    let (mut first, mut second) = (gateway.connect().await, gateway.connect().await);
    assert_eq!(first.get("/healthz").await.status, 200);
    assert_eq!(second.get("/healthz").await.status, 200);
    for _ in 0..20 {
        assert_eq!(gateway.connect().await.closed().await, b"");
    }
    gateway.logs("new connections are closed: there are 2 already").await;
    assert_eq!(gateway.log().matches("new connections are closed").count(), 1);
    assert_eq!(first.get("/healthz").await.status, 200);

    drop(second);
    until(async || {
        let mut next = gateway.connect().await;
        next.write("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        let mut line = String::new();
        let read = soon(next.0.read_line(&mut line)).await;
        read.is_ok() && line == "HTTP/1.1 200 OK\r\n"
    })
    .await;
}

// === Metrics and logs ===

#[tokio::test]
async fn metrics_are_served_on_a_listener_of_their_own() {
    let gateway = Gateway::start(&["--metrics", "127.0.0.1:0"]).await;
    gateway.logs("serving http://").await;
    let mut client = gateway.connect().await;
    for tool in ["all", "one_echo", "unknown"] {
        client.call(tool, json!({ "text": "secret argument" })).await;
        client.response().await;
    }
    assert_eq!(client.get("/metrics").await.status, 404);

    let mut scraper = Client::connect(&gateway.address("serving metrics at http://")).await;
    let metrics = scraper.get("/metrics").await;
    let text = metrics.body;
    assert!(metrics.head.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.head);
    for line in [
        "# TYPE mcp_server_operation_duration_seconds histogram",
        "# TYPE mcp_composite_backend_connections_total counter",
        r#"mcp_composite_backend_connections_total{mcp_composite_backend="one"} 1"#,
        r#"mcp_composite_run_duration_seconds_count{gen_ai_workflow_name="all",mcp_composite_status="completed"} 1"#,
    ] {
        assert!(text.lines().any(|other| other == line), "{line}\n{text}");
    }
    // Labels have names of existing tools only.
    assert!(text.contains(r#"gen_ai_tool_name="one_echo",le="0.01"}"#), "{text}");
    assert!(!text.contains("unknown") && !text.contains("secret"), "{text}");
    assert_eq!(scraper.get("/readyz").await.status, 200);
    assert_eq!(scraper.get("/mcp").await.status, 404);

    // The next version of the file is measured, too.
    gateway.signal("HUP");
    gateway.logs("reloaded: ").await;
    client.call("all", json!({ "text": "again" })).await;
    client.response().await;
    let run = "mcp_composite_run_duration_seconds_count{gen_ai_workflow_name=\"all\",\
               mcp_composite_status=\"completed\"} 2";
    let text = scraper.get("/metrics").await.body;
    assert!(text.lines().any(|line| line == run), "{text}");
}

#[tokio::test]
async fn listener_of_metrics_answers_probes_while_the_gateway_drains() {
    let mut gateway = Gateway::start(&["--metrics", "127.0.0.1:0", "--drain", "1h"]).await;
    let mut caller = gateway.connect().await;
    caller.call("one_slow", json!({ "ms": 1000 })).await;
    gateway.has_called("slow").await;
    gateway.signal("TERM");
    gateway.logs("waits up to").await;
    let mut probe = Client::connect(&gateway.address("serving metrics at http://")).await;
    assert_eq!(probe.get("/healthz").await.status, 200);
    assert_eq!(probe.get("/readyz").await.status, 503);
    assert_eq!(caller.response().await.status, 200);
    assert!(gateway.end().await.success());
}

#[tokio::test]
async fn log_in_json_has_one_object_per_line_without_secrets() {
    let secret = "a \"quoted\" secret";
    let gateway = Gateway::of(
        &["--log-format", "json"],
        &format!("MISBEHAVING_SECRET = '{secret}'"),
        &[("RUST_LOG", "trace")],
    )
    .await;
    let mut client = gateway.connect().await;
    client.call("one_env", json!({ "name": "MISBEHAVING_SECRET" })).await;
    client.response().await;
    let log = gateway.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let serving = lines.iter().find(|line| {
        line["message"].as_str().is_some_and(|message| message.starts_with("serving http://"))
    });
    assert_eq!(serving.unwrap()["level"], "INFO");
    assert!(log.contains("***") && !log.contains("quoted"), "{log}");
}

#[tokio::test]
async fn log_in_a_file_has_no_colors() {
    let gateway = Gateway::start(&["--metrics", "127.0.0.1:0"]).await;
    let log = gateway.log();
    assert!(log.contains(" INFO ") && !log.contains('\u{1b}'), "{log:?}");
}

// === Spans ===

/// Returns the path, headers and body of a request of an exporter.
async fn exported(collector: &TcpListener) -> (TcpStream, String, Vec<u8>) {
    let (stream, _) = soon(collector.accept()).await.unwrap();
    let mut client = Client(BufReader::new(stream));
    let head = client.head().await;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    soon(client.0.read_exact(&mut body)).await.unwrap();
    (client.0.into_inner(), head, body)
}

#[tokio::test]
async fn spans_are_exported_before_the_gateway_ends() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", collector.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hunter2"),
        // Long enough that only the end exports spans.
        ("OTEL_BSP_SCHEDULE_DELAY", "3600000"),
        // Affects the log only.
        ("RUST_LOG", "info,mcp_composite::trace=off,mcp_composite::run=off"),
    ];
    let mut gateway = Gateway::of(&[], "", &variables).await;
    let mut client = gateway.connect().await;
    client.call("all", json!({ "text": "secret argument" })).await;
    assert_eq!(client.response().await.status, 200);
    gateway.signal("TERM");
    let (mut stream, head, body) = exported(&collector).await;
    let response = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n\
                     Content-Length: 0\r\n\r\n";
    stream.write_all(response).await.unwrap();
    assert!(gateway.end().await.success());

    assert!(head.starts_with("post /v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("\r\nx-key: hunter2\r\n"), "{head}");
    let has = |text: &str| body.windows(text.len()).any(|part| part == text.as_bytes());
    for text in ["mcp-composite", "tools/call all", "invoke_workflow all", "tools/call one_echo"] {
        assert!(has(text), "{text}");
    }
    assert!(!has("secret argument"));
    assert!(!gateway.log().contains("hunter2"), "{}", gateway.log());
}

#[tokio::test]
async fn collector_that_does_not_answer_delays_no_call() {
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", collector.local_addr().unwrap());
    let variables = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*endpoint),
        ("OTEL_SERVICE_NAME", "tools of tests"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
    ];
    let mut gateway = Gateway::of(&[], "", &variables).await;
    let mut client = gateway.connect().await;
    client.call("one_echo", json!({ "text": "one" })).await;
    assert_eq!(client.response().await.status, 200);
    let (_stream, _, body) = exported(&collector).await;
    assert!(body.windows(14).any(|part| part == b"tools of tests"));
    // The exporter waits for the answer.
    for _ in 0..100 {
        client.call("one_echo", json!({ "text": "two" })).await;
        assert_eq!(client.response().await.status, 200);
    }
    let signalled = Instant::now();
    gateway.signal("TERM");
    assert!(gateway.end().await.success());
    let took = signalled.elapsed();
    // The default timeout of an export is ten seconds.
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[tokio::test]
async fn invalid_settings_of_the_exporter_are_reported() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    fs::write(&file, backend("one", "good", "")).unwrap();
    for (name, value, error) in [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "no url", "cannot export spans: "),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "supports `http/protobuf` only"),
    ] {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(&file).args(["--http", "127.0.0.1:0"]).kill_on_drop(true);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1").env(name, value);
        let output = soon(command.stdin(Stdio::null()).output()).await.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{errors}");
        assert!(errors.contains(error), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
