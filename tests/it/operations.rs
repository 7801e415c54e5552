//! The gateway over HTTP as a program: how it ends, and its limits on connections.

use std::{
    fs, future,
    io::ErrorKind,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};
use tokio::{
    io::{self, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
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
pub(crate) struct Client(pub(crate) BufReader<TcpStream>);

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
    pub(crate) async fn has_called(&self, tool: &str) {
        self.has_called_times(tool, 1).await;
    }

    async fn has_called_times(&self, tool: &str, times: usize) {
        let name = format!("\"name\":\"{tool}\"");
        until(async || self.read("received").matches(&name).count() >= times).await;
    }

    /// Returns the arguments of the tool `hold`, whose calls end with [`Self::release`].
    pub(crate) fn hold(&self) -> Value {
        json!({ "file": self.folder.path().join("go") })
    }

    pub(crate) fn release(&self) {
        fs::write(self.folder.path().join("go"), "").unwrap();
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(signal(self.process.id().unwrap().into(), name));
    }

    pub(crate) async fn end(&mut self) -> ExitStatus {
        soon(self.process.wait()).await.unwrap()
    }
}

// === impl Client ===

impl Client {
    pub(crate) async fn connect(address: &str) -> Self {
        Self(BufReader::new(TcpStream::connect(address).await.unwrap()))
    }

    pub(crate) async fn write(&mut self, text: &str) {
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

    pub(crate) async fn head(&mut self) -> String {
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
    caller.call("one_hold", gateway.hold()).await;
    gateway.has_called("hold").await;

    gateway.signal("TERM");
    gateway.logs("waiting up to 1h for calls in flight: 1").await;
    let address = gateway.address("serving http://");
    let refused = TcpStream::connect(&address).await.map_err(|error: io::Error| error.kind());
    assert_eq!(refused.unwrap_err(), ErrorKind::ConnectionRefused);
    let readiness = probe.get("/readyz").await;
    assert_eq!((readiness.status, &*readiness.body), (503, "draining\n"));
    assert!(readiness.head.contains("connection: close"), "{}", readiness.head);

    gateway.release();
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
    assert!(
        gateway.log().contains("the drain limit was reached, cancelling calls: 1"),
        "{}",
        gateway.log()
    );
}

#[tokio::test]
async fn second_signal_ends_the_gateway_at_once() {
    for second in ["TERM", "INT"] {
        let mut gateway = Gateway::start(&["--drain", "1h"]).await;
        let mut caller = gateway.connect().await;
        caller.call("one_hang", json!({})).await;
        gateway.has_called("hang").await;
        gateway.signal("TERM");
        gateway.logs("waiting up to 1h").await;
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

// === Rejected requests ===

#[tokio::test]
async fn request_with_an_unknown_host_is_logged_once_with_a_hint() {
    for (headers, expected) in [
        (
            "Host: evil.example:8443\r\n",
            "rejected a request with the header `Host: evil.example:8443`: if clients or a proxy \
             use this name, add `--allow-host evil.example`\n",
        ),
        (
            "Host: tools.example.com\r\nOrigin: https://evil.example\r\n",
            "rejected a request with the header `Origin: https://evil.example`: if this web page \
             may connect, add its origin with `--allow-origin`\n",
        ),
    ] {
        let gateway = Gateway::start(&["--allow-host", "tools.example.com"]).await;
        let mut client = gateway.connect().await;
        for _ in 0..3 {
            client
                .write(&format!(
                    "POST /mcp HTTP/1.1\r\n{headers}{JSON}Content-Length: 2\r\n\r\n{{}}"
                ))
                .await;
            assert_eq!(client.response().await.status, 403, "{headers}");
        }
        gateway.logs(expected).await;
        let log = gateway.log();
        assert_eq!(log.matches("rejected a request").count(), 1, "{log}");
        assert!(log.contains(" WARN "), "{log}");
    }
}

// === Limits ===

#[tokio::test]
async fn clients_that_send_no_request_in_time_are_disconnected() {
    let gateway = Gateway::start(&["--idle-timeout", "3s"]).await;
    // Longer than the timeout, which does not apply to the time that the gateway takes.
    let mut other = gateway.connect().await;
    other.call("one_hold", gateway.hold()).await;
    let mut idle = gateway.connect().await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    let mut silent = gateway.connect().await;
    let mut half = gateway.connect().await;
    half.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\nX-").await;
    let mut slow = gateway.connect().await;
    slow.write(&format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 100\r\n\r\n{{"
    ))
    .await;

    assert_eq!(silent.closed().await, b"");
    half.closed().await;
    assert_eq!(idle.closed().await, b"");
    let answer = String::from_utf8(slow.closed().await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 ") && !answer.contains("result"), "{answer}");
    gateway.release();
    let answer = other.response().await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn request_head_in_small_parts_is_cut_off() {
    let gateway = Gateway::start(&["--idle-timeout", "3s"]).await;
    let started = Instant::now();
    let (mut slow, mut other) = (gateway.connect().await, gateway.connect().await);
    slow.write("GET /healthz HTTP/1.1\r\nX: ").await;
    let dripped = async {
        while slow.0.write_all(b"x").await.is_ok() {
            // Each request starts the time anew.
            assert_eq!(other.get("/healthz").await.status, 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    // If each part started the time anew, it would not end.
    soon(dripped).await;
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(2_900), "{took:?}");
}

#[tokio::test]
async fn request_body_in_small_parts_is_answered_with_408() {
    let gateway = Gateway::start(&["--body-timeout", "1s"]).await;
    let (mut slow, mut other) = (gateway.connect().await, gateway.connect().await);
    slow.write(&format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 100000\r\n\r\n"
    ))
    .await;
    let (mut reader, mut writer) = io::split(slow.0);
    let dripping = async {
        // Each part comes long before the idle timeout.
        while writer.write_all(b" ").await.is_ok() {
            assert_eq!(other.get("/healthz").await.status, 200);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        future::pending().await
    };
    let mut answer = [0; 13];
    tokio::select! {
        read = soon(reader.read_exact(&mut answer)) => assert_eq!(read.unwrap(), 13),
        () = dripping => (),
    }
    assert_eq!(String::from_utf8_lossy(&answer), "HTTP/1.1 408 ");

    // The time of the call itself does not count.
    other.call("one_slow", json!({ "ms": 1500 })).await;
    assert_eq!(other.response().await.status, 200);
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let gateway = Gateway::start(&["--idle-timeout", "1s"]).await;
    let mut deaf = gateway.connect().await;
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let requests = request.repeat(1000);
    // The gateway reads no further requests once its responses are not read, and then closes the
    // connection.
    let mut sent = 0;
    soon(async {
        while let Ok(written) = deaf.0.write(&requests.as_bytes()[sent % request.len()..]).await {
            sent += written;
        }
    })
    .await;
    assert_eq!(gateway.connect().await.get("/healthz").await.status, 200);
    let mut responses = Vec::new();
    // The rest of a response is lost, and the connection may be reset.
    let _ = soon(deaf.0.read_to_end(&mut responses)).await;
    let answered = String::from_utf8_lossy(&responses).matches("HTTP/1.1 200").count();
    let sent = sent / request.len();
    assert!(answered < sent, "{answered} of {sent}");
}

#[tokio::test]
async fn clients_that_leave_cause_no_errors_in_the_log() {
    let gateway = Gateway::start(&["--max-connections", "2"]).await;
    let received = |text: &str| gateway.read("received").matches(text).count();
    for number in 1..=5 {
        let mut caller = gateway.connect().await;
        caller.call("one_hang", json!({})).await;
        until(async || received("\"name\":\"hang\"") == number).await;
        drop(caller);
        until(async || received("notifications/cancelled") == number).await;
    }
    // More sessions than there may be.
    let mut client = gateway.connect().await;
    for _ in 0..2 {
        client.open_session().await;
    }
    client.call("one_slow", json!({ "ms": 1 })).await;
    assert_eq!(client.response().await.status, 429);
    assert!(!gateway.log().contains("ERROR"), "{}", gateway.log());
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
    gateway.logs("closing new connections: the limit of 2 connections is reached").await;
    assert_eq!(gateway.log().matches("closing new connections").count(), 1);
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

#[tokio::test]
async fn calls_run_concurrently_on_any_number_of_threads() {
    for threads in ["1", "4"] {
        let gateway = Gateway::start(&["--threads", threads]).await;
        let mut clients = Vec::new();
        for _ in 0..8 {
            clients.push(gateway.connect().await);
            clients.last_mut().unwrap().call("one_hold", gateway.hold()).await;
        }
        gateway.has_called_times("hold", 8).await;
        gateway.release();
        for client in &mut clients {
            assert_eq!(client.response().await.status, 200);
        }
    }
}
