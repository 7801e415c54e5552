//! The latency of answers over HTTP at a client that delays acknowledgements.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    time::Instant,
};

use crate::{
    programs::example,
    releases::Releases,
    replicas::gateway_of,
    support::{HANG, soon},
};

const KEY: &str = "one key of at least 32 bytes for all";
/// Linux delays an acknowledgement by at least 40 ms; an answer that waits for it takes as long.
const DELAYED: Duration = Duration::from_millis(30);
/// The number of calls on a connection after which the kernel delays acknowledgements.
const FIRST: usize = 20;

/// One open connection to a gateway, without quick acknowledgements.
struct Connection {
    stream: BufReader<TcpStream>,
    session: Option<String>,
    modern: bool,
}

impl Connection {
    async fn open(url: &str, modern: bool) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches("/mcp");
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut connection = Self { stream: BufReader::new(stream), session: None, modern };
        if !modern {
            let client = json!({ "name": "raw", "version": "0" });
            let version = json!("2025-11-25");
            let params = json!({
                "protocolVersion": version, "capabilities": {}, "clientInfo": client,
            });
            connection.send(json!({ "id": 0, "method": "initialize", "params": params })).await;
            connection.send(json!({ "method": "notifications/initialized" })).await;
        }
        connection
    }

    /// Sends a message, and reads the whole answer.
    async fn send(&mut self, mut message: Value) -> String {
        message["jsonrpc"] = json!("2.0");
        let method = message["method"].as_str().unwrap().to_owned();
        let version = if self.modern { "2026-07-28" } else { "2025-11-25" };
        let mut headers = format!("MCP-Protocol-Version: {version}\r\nMcp-Method: {method}\r\n");
        if self.modern {
            let meta = &mut message["params"]["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(version);
            meta["io.modelcontextprotocol/clientInfo"] = json!({ "name": "raw", "version": "0" });
            meta["io.modelcontextprotocol/clientCapabilities"] = json!({});
        }
        if let Some(name) = message["params"]["name"].as_str() {
            write!(headers, "Mcp-Name: {name}\r\n").unwrap();
        }
        if let Some(session) = &self.session {
            write!(headers, "Mcp-Session-Id: {session}\r\n").unwrap();
        }
        let body = message.to_string();
        let request = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len(),
        );
        self.stream.write_all(request.as_bytes()).await.unwrap();
        soon(self.answer()).await
    }

    async fn line(&mut self) -> String {
        // The kernel re-enables them by itself.
        self.stream.get_ref().set_quickack(false).unwrap();
        let mut line = String::new();
        self.stream.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    async fn answer(&mut self) -> String {
        let mut length = None;
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(": ") else {
                if line.is_empty() {
                    break;
                }
                continue;
            };
            match &*name.to_ascii_lowercase() {
                "content-length" => length = value.parse().ok(),
                "mcp-session-id" => self.session = Some(value.to_owned()),
                _ => (),
            }
        }
        let mut body = Vec::new();
        match length {
            Some(length) => self.take(length, &mut body).await,
            None => loop {
                let size = usize::from_str_radix(&self.line().await, 16).unwrap();
                self.take(size, &mut body).await;
                self.line().await;
                if size == 0 {
                    break;
                }
            },
        }
        String::from_utf8(body).unwrap()
    }

    async fn take(&mut self, length: usize, body: &mut Vec<u8>) {
        let begun = body.len();
        body.resize(begun + length, 0);
        self.stream.read_exact(&mut body[begun..]).await.unwrap();
    }
}

/// The duration of the composite that reports progress.
const RUN: Duration = Duration::from_millis(120);
/// Two backends, and a composite that sends a progress notification while it runs.
const CONFIG: &str = r#"
[[backends]]
name = "releases"
url = "${RELEASES_URL}"

[[backends]]
name = "slow"
command = "MISBEHAVING"
args = ["good"]

[[composite_tools]]
name = "slowly"
description = "Takes 120 ms"
targets = [{ id = "slow", tool = "slow/progress", arguments = { steps = 2, ms = 60 } }]
"#;

/// Sends a message until an answer is sent within 30 ms after the work is done. A busy machine
/// takes longer to get there. If answers wait for acknowledgements, it never does.
async fn measure(
    connection: &mut Connection,
    (what, work): (&str, Duration),
    message: &Value,
    expected: &[&str],
) {
    let started = Instant::now();
    let mut fastest = Duration::MAX;
    for id in 1.. {
        let begun = Instant::now();
        let mut message = message.clone();
        message["id"] = json!(id);
        let answer = connection.send(message).await;
        let taken = begun.elapsed();
        for expected in expected {
            assert!(answer.contains(expected), "{what}: {answer}");
        }
        if id <= FIRST {
            continue;
        }
        fastest = fastest.min(taken);
        if fastest < work + DELAYED {
            return;
        }
        let modern = connection.modern;
        assert!(started.elapsed() < HANG, "{what}, modern: {modern}: at best {fastest:?}");
    }
}

#[tokio::test]
async fn replies_do_not_wait_for_delayed_acknowledgements() {
    let releases = Releases::default().serve().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let backend = example("misbehaving");
    std::fs::write(&file, CONFIG.replace("MISBEHAVING", backend.to_str().unwrap())).unwrap();
    let file = file.to_str().unwrap();
    let (_process, _reading, url) = gateway_of(file, &releases.url, KEY, &[]).await;
    let call = |name: &str| {
        let params = json!({ "name": name, "arguments": { "service": "shop" } });
        json!({ "method": "tools/call", "params": params })
    };
    for modern in [false, true] {
        let mut connection = Connection::open(&url, modern).await;
        let list = json!({ "method": "tools/list" });
        measure(&mut connection, ("a list that is kept", Duration::ZERO), &list, &["get_release"])
            .await;
        let through = call("releases_get_release");
        measure(&mut connection, ("a call of a backend", Duration::ZERO), &through, &["1.4.0"])
            .await;
    }
    // The notification comes first, so the answer is a stream.
    let mut connection = Connection::open(&url, true).await;
    let mut reporting = call("slowly");
    reporting["params"]["_meta"] = json!({ "progressToken": "steps" });
    let expected = ["notifications/progress", "\"isError\":false", "data:"];
    measure(&mut connection, ("a call that reports progress", RUN), &reporting, &expected).await;
}
