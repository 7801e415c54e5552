//! A Restate server that rejects the results of calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
};
use mcp_composite::testing::{Answer, Server as Tools};
use rmcp::model::TaskPayload;
use serde_json::json;
use tokio::{net::TcpListener, time::Instant};

use super::{
    replica::Replica,
    server::{Server, free_port},
};

const FILE: &str = r#"
[[composite_tools]]
name = "report"
description = "Calls a tool with a large result"
strategy = "workflow"
task = "always"
steps = [{ id = "read", tool = "read", timeout = "8s" }]
"#;

/// A proxy in front of a server's ingress, which rejects the results of calls.
#[derive(Clone)]
struct Proxy {
    ingress: String,
    http: reqwest::Client,
    /// The status with which it rejects results.
    rejection: StatusCode,
    /// The number of results that it rejects.
    rejected: usize,
    /// The number of requests with results.
    results: Arc<AtomicUsize>,
    /// Whether it rejects the errors of calls as well.
    rejects_errors: bool,
}

// === impl Proxy ===

impl Proxy {
    fn new(server: &Server, rejection: StatusCode, rejected: usize) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let results = Arc::default();
        Self {
            ingress: server.ingress(),
            http,
            rejection,
            rejected,
            results,
            rejects_errors: false,
        }
    }

    /// Serves the proxy until the test ends, and returns its URL.
    fn serve(&self) -> String {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(forward).with_state(self.clone());
        std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                axum::serve(listener, app).await.unwrap();
            });
        });
        url
    }

    fn rejects(&self, path: &str) -> bool {
        if path.ends_with("/resolve") {
            return self.results.fetch_add(1, Ordering::Relaxed) < self.rejected;
        }
        self.rejects_errors && path.ends_with("/reject")
    }

    fn results(&self) -> usize {
        self.results.load(Ordering::Relaxed)
    }
}

async fn forward(
    State(proxy): State<Proxy>,
    method: Method,
    uri: Uri,
    mut headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, Bytes) {
    if proxy.rejects(uri.path()) {
        return (proxy.rejection, Bytes::new());
    }
    headers.remove("host");
    let request = proxy.http.request(method, format!("{}{uri}", proxy.ingress));
    let response = request.headers(headers).body(body).send().await.unwrap();
    let status = response.status();
    (status, response.bytes().await.unwrap())
}

/// Runs the composite through a proxy, and returns the text of its result.
fn run(server: &Server, proxy: &Proxy) -> String {
    let tools = Tools::new().tool("read", Answer::text("a result"));
    let replica = Replica::start_with_ingress(server, &proxy.serve(), free_port(), FILE, tools);
    replica.block_on(async {
        let id = replica.service.start("report", json!({})).await;
        let TaskPayload::Completed { result } = replica.service.settled(&id).await else {
            panic!("not completed")
        };
        assert_eq!(replica.tools.called(), ["read"]);
        result["content"][0]["text"].as_str().unwrap().to_owned()
    })
}

#[test]
fn rejected_result_fails_its_step() {
    let server = Server::start();
    let proxy = Proxy::new(&server, StatusCode::PAYLOAD_TOO_LARGE, usize::MAX);
    let begun = Instant::now();
    let text = run(&server, &proxy);
    let reason =
        "the output of the call could not be stored: the Restate server replied with status 413";
    assert!(text.contains(reason), "{text}");
    assert_eq!(proxy.results(), 1, "it is sent once");
    assert!(begun.elapsed() < Duration::from_secs(8), "the step does not wait for its timeout");
}

#[test]
fn result_is_sent_again_after_temporary_rejections() {
    let server = Server::start();
    for status in [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        let proxy = Proxy::new(&server, status, 2);
        assert_eq!(run(&server, &proxy), "a result", "{status}");
        assert_eq!(proxy.results(), 3, "{status}");
    }
}

#[test]
fn step_whose_error_is_rejected_ends_at_its_timeout() {
    let server = Server::start();
    let mut proxy = Proxy::new(&server, StatusCode::FORBIDDEN, usize::MAX);
    proxy.rejects_errors = true;
    let text = run(&server, &proxy);
    assert!(text.contains("no answer within 8s"), "{text}");
    assert_eq!(proxy.results(), 1, "it is sent once");
}
