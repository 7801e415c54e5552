//! A Restate server that rejects the results of calls.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use axum::http::StatusCode;
use mcp_composite::testing::{Answer, Server as Tools};
use rmcp::model::TaskPayload;
use serde_json::json;

use super::{ports::free_port, proxy, replica::Replica, server::Server};

const FILE: &str = r#"
[[composite_tools]]
name = "report"
description = "Calls a tool with a large result"
strategy = "workflow"
task = "always"
steps = [{ id = "read", tool = "read", timeout = "TIMEOUT" }]
"#;

/// A proxy that rejects the results of calls.
#[derive(Clone)]
struct Proxy {
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
    fn new(rejection: StatusCode, rejected: usize) -> Self {
        Self { rejection, rejected, results: Arc::default(), rejects_errors: false }
    }

    /// Serves the proxy until the test ends, and returns its URL.
    fn serve(&self, server: &Server) -> String {
        let proxy = self.clone();
        proxy::serve(
            server,
            move |path, body| {
                if proxy.rejects(path) { Err(proxy.rejection) } else { Ok(body) }
            },
        )
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

/// Runs the composite through a proxy, and returns the text of its result.
fn run(server: &Server, proxy: &Proxy, timeout: &str) -> String {
    let file = FILE.replace("TIMEOUT", timeout);
    let tools = Tools::new().tool("read", Answer::text("a result"));
    let replica =
        Replica::start_with_ingress(server, &proxy.serve(server), free_port(), &file, tools);
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
    let proxy = Proxy::new(StatusCode::PAYLOAD_TOO_LARGE, usize::MAX);
    // The step does not wait for its timeout.
    let text = run(&server, &proxy, "1h");
    let reason =
        "the output of the call could not be stored: the Restate server replied with status 413";
    assert!(text.contains(reason), "{text}");
    assert_eq!(proxy.results(), 1, "it is sent once");
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
        let proxy = Proxy::new(status, 2);
        assert_eq!(run(&server, &proxy, "1h"), "a result", "{status}");
        assert_eq!(proxy.results(), 3, "{status}");
    }
}

#[test]
fn step_whose_error_is_rejected_ends_at_its_timeout() {
    let server = Server::start();
    let mut proxy = Proxy::new(StatusCode::FORBIDDEN, usize::MAX);
    proxy.rejects_errors = true;
    let text = run(&server, &proxy, "8s");
    assert!(text.contains("no answer within 8s"), "{text}");
    assert_eq!(proxy.results(), 1, "it is sent once");
}
