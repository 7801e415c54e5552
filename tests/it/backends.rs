//! The backends of a file, from the file to a client.

use std::fs;

use futures::FutureExt;
use mcp_composite::{
    adapter::ServeService,
    config::{Backends, Config},
    message::{Reply, Request},
};
use rmcp::model::{CallToolRequestParams, ServerCapabilities, ServerConfig};
use serde_json::{Value, json};
use tempfile::tempdir;
use tower::{Layer, ServiceExt};

use crate::{
    programs::{example, is_running, signal},
    support::{Era, connect, soon, until},
};

/// Returns a backend with this behavior.
pub(crate) fn backend(name: &str, behaviour: &str, more: &str) -> String {
    let command = example("misbehaving");
    format!(
        "[[backends]]\nname = '{name}'\ncommand = '{}'\nargs = ['{behaviour}']\n{more}\n",
        command.display()
    )
}

pub(crate) fn file(parts: &[String]) -> Config {
    Config::from_toml_str(&parts.concat()).unwrap()
}

/// Returns a composite with these targets.
pub(crate) fn composite(targets: &str) -> String {
    format!("[[composite_tools]]\nname = 'all'\ndescription = 'All of them'\ntools = {targets}\n")
}

async fn call(backends: &Backends, tool: &str, arguments: Value) -> Reply {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = arguments.as_object().cloned();
    soon(backends.router().clone().oneshot(Request::call_tool_with(params))).await.unwrap()
}

async fn pid(backends: &Backends, backend: &str) -> u64 {
    let reply = call(backends, &format!("{backend}_pid"), json!({})).await;
    reply.tool_result().unwrap().structured_content.as_ref().unwrap()["pid"].as_u64().unwrap()
}

#[tokio::test]
async fn config_file_is_served_to_older_and_newer_clients() {
    let config = file(&[
        backend("old", "good", ""),
        backend("new", "modern", ""),
        composite("['old/echo', 'new.echo']"),
    ]);
    let backends = config.connect().unwrap();
    let router = backends.router().clone();
    let base = ServerConfig::new(ServerCapabilities::default());
    let layer = config.composite_layer().epoch(backends.changes().tools().clone());
    let server =
        ServeService::new(layer.layer(router.clone()), move || router.describe(base.clone()))
            .changes(backends.changes().clone());

    for (era, result_type) in [(Era::Legacy, Value::Null), (Era::Modern, json!("complete"))] {
        let connection = connect(server.clone(), era).await;
        let tools = soon(connection.client.list_all_tools()).await.unwrap();
        let count = |name: &str| tools.iter().filter(|tool| tool.name == name).count();
        assert_eq!((count("old_echo"), count("new_echo"), count("all")), (1, 1, 1));

        let params = json!({ "name": "all", "arguments": { "text": "hello" } });
        let result = connection.send("tools/call", params).await.unwrap();
        assert_eq!(result["resultType"], result_type);
        let branches = json!({
            "old_echo": { "status": "completed", "output": "hello" },
            "new_echo": { "status": "completed", "output": "hello" },
        });
        assert_eq!(result["structuredContent"]["branches"], branches);
    }
    backends.close().await;
}

#[tokio::test]
async fn closing_backends_ends_all_processes() {
    let config = file(&[backend("one", "good", ""), backend("two", "stubborn", "")]);
    let backends = config.connect().unwrap();
    let processes = [pid(&backends, "one").await, pid(&backends, "two").await];
    soon(backends.close()).await;
    for process in processes {
        until(async || !is_running(process)).await;
    }
}

#[tokio::test]
async fn unreachable_backend_delays_only_the_first_list() {
    let config =
        file(&[backend("here", "good", ""), backend("gone", "silent", "connect_timeout = '1h'")]);
    let backends = config.connect().unwrap();
    let list = || async {
        let reply = soon(backends.router().clone().oneshot(Request::list_tools())).await.unwrap();
        reply.tools().unwrap().tools.len()
    };
    let count = list().await;
    assert!(count > 10);
    assert_eq!(backends.remotes()[1].connected().now_or_never(), None, "it still connects");
    // The router does not wait for it again, which would take five seconds for each list.
    soon(async {
        for _ in 0..20 {
            assert_eq!(list().await, count);
        }
    })
    .await;
}

#[tokio::test]
async fn timeout_error_names_the_backend() {
    let config = file(&[
        backend("slow", "good", "timeout = '200ms'"),
        backend("fine", "good", ""),
        composite("['slow/hang', 'fine/pid']"),
    ]);
    let backends = config.connect().unwrap();
    pid(&backends, "slow").await;
    let layer = config.composite_layer();
    let stack = layer.layer(backends.router().clone());
    let reply = soon(stack.oneshot(Request::call_tool("all"))).await.unwrap();
    let branches = &reply.tool_result().unwrap().structured_content.as_ref().unwrap()["branches"];
    assert_eq!(branches["slow_hang"]["status"], "timed_out");
    let message = "backend `slow` did not answer in time";
    assert_eq!(branches["slow_hang"]["error"]["message"], message);
    assert_eq!(branches["fine_pid"]["status"], "completed");
    let cancelled = call(&backends, "slow_cancelled", json!({})).await;
    let cancelled = cancelled.tool_result().unwrap().structured_content.clone().unwrap();
    assert_eq!(cancelled["count"], 1);
}

#[tokio::test]
async fn killed_backend_fails_one_branch_and_reconnects() {
    let names = ["a", "b", "c", "d"];
    let mut parts: Vec<_> = names.map(|name| backend(name, "good", "")).into();
    parts.push(composite("['a/hold', 'b/hold', 'c/hold', 'd/hold']"));
    let config = file(&parts);
    let backends = config.connect().unwrap();
    let layer = config.composite_layer();
    let stack = layer.layer(backends.router().clone());
    let list = || async {
        let reply = soon(stack.clone().oneshot(Request::list_tools())).await.unwrap();
        serde_json::to_value(reply.tools().unwrap()).unwrap()
    };
    let before = list().await;
    let victim = pid(&backends, "c").await;

    let folder = tempdir().unwrap();
    let go = folder.path().join("go");
    let mut params = CallToolRequestParams::new("all");
    params.arguments = json!({ "file": go }).as_object().cloned();
    let run = stack.clone().oneshot(Request::call_tool_with(params));
    let kill = async {
        // Until the others are running.
        until(async || {
            let calls = call(&backends, "c_calls", json!({})).await;
            let calls = calls.tool_result().unwrap().structured_content.clone().unwrap();
            calls["count"].as_u64() > Some(2)
        })
        .await;
        assert!(signal(victim, "KILL"));
        let during = list().await;
        until(async || !is_running(victim)).await;
        fs::write(&go, "").unwrap();
        during
    };
    let (reply, during) = soon(async { tokio::join!(run, kill) }).await;
    let reply = reply.unwrap();
    let result = reply.tool_result().unwrap();
    let branches = &result.structured_content.as_ref().unwrap()["branches"];
    for name in ["a_hold", "b_hold", "d_hold"] {
        assert_eq!(branches[name], json!({ "status": "completed", "output": "at last" }));
    }
    let message = "the connection to backend `c` was lost before it answered";
    assert_eq!(branches["c_hold"]["error"]["message"], message);
    assert_eq!(during, before);

    until(async || backends.remotes()[2].connected().await.is_ok()).await;
    assert_ne!(pid(&backends, "c").await, victim);
    assert_eq!(list().await, before);
}

#[tokio::test]
async fn connecting_a_file_without_backends_is_an_error() {
    let error = Config::from_toml_str("").unwrap().connect().unwrap_err();
    assert_eq!(error.to_string(), "no backends: expected at least one");
}
