//! Replacing the file of a gateway while clients are served.

use std::{fs, pin::pin, time::Duration};

use futures::{FutureExt, poll};
use mcp_composite::{
    config::{Config, Gateway, Reloaded},
    message::{Reply, Request},
};
use rmcp::{
    model::{CallToolRequestParams, ServerConfig, SubscriptionFilter},
    service::Subscription,
};
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::task::JoinSet;
use tower::ServiceExt;

use crate::{
    backends::{backend, composite, file},
    programs::{example, is_running, signal},
    support::{Connection, Era, connect, soon, until},
};

const BOTH: [Era; 2] = [Era::Legacy, Era::Modern];

fn gateway(parts: &[String]) -> Gateway {
    Gateway::connect(&file(parts)).unwrap()
}

/// A backend with another connection for each version.
fn version(name: &str, version: u32) -> String {
    backend(name, "good", &format!("env = {{ VERSION = '{version}' }}"))
}

/// A backend that a shell starts.
fn shell(name: &str, script: &str, more: &str) -> String {
    format!(
        "[[backends]]\nname = '{name}'\ncommand = 'sh'\nargs = ['-c', '''{script}''']\n{more}\n"
    )
}

async fn reload(gateway: &Gateway, parts: &[String]) -> Reloaded {
    soon(gateway.reload(&file(parts))).await.unwrap()
}

async fn call(gateway: &Gateway, tool: &str, arguments: Value) -> Result<Reply, String> {
    let mut params = CallToolRequestParams::new(tool.to_owned());
    params.arguments = arguments.as_object().cloned();
    let reply = soon(gateway.service().oneshot(Request::call_tool_with(params))).await;
    reply.map_err(|error| error.to_string())
}

/// Returns the answer of a tool, or its text if it is only a text.
async fn answer(gateway: &Gateway, tool: &str, arguments: Value) -> Value {
    let reply = call(gateway, tool, arguments).await.unwrap();
    let result = reply.tool_result().unwrap_or_else(|| panic!("{tool}: {reply:?}"));
    let text = || result.content[0].as_text().unwrap().text.as_str().into();
    result.structured_content.clone().unwrap_or_else(text)
}

async fn pid(gateway: &Gateway, backend: &str) -> u64 {
    let answer = answer(gateway, &format!("{backend}_pid"), json!({})).await;
    answer["pid"].as_u64().unwrap()
}

async fn tools(gateway: &Gateway) -> Vec<String> {
    let reply = soon(gateway.service().oneshot(Request::list_tools())).await.unwrap();
    reply.tools().unwrap().tools.iter().map(|tool| tool.name.to_string()).collect()
}

async fn ends(process: u64) {
    until(async || !is_running(process)).await;
}

// === Requests ===

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_uses_a_single_config_version_during_reloads() {
    let parts = |number| {
        [version("one", number), version("two", number), composite("['one/env', 'two/env']")]
    };
    let gateway = gateway(&parts(0));
    let mut callers = JoinSet::new();
    for _ in 0..3 {
        let gateway = gateway.clone();
        callers.spawn(async move {
            let mut seen = Vec::new();
            while seen.last() != Some(&5) {
                let report = answer(&gateway, "all", json!({ "name": "VERSION" })).await;
                let [one, two] = ["one_env", "two_env"].map(|id| &report["branches"][id]["output"]);
                assert_eq!(one, two, "{report}");
                seen.push(one.as_str().unwrap().parse::<u32>().unwrap());
            }
            seen
        });
    }
    for number in 1..=5 {
        let reloaded = reload(&gateway, &parts(number)).await;
        assert_eq!(reloaded.connected, ["one", "two"]);
    }
    while let Some(seen) = soon(callers.join_next()).await {
        let seen = seen.unwrap();
        assert!(seen.is_sorted(), "{seen:?}");
    }
    gateway.close().await;
}

#[tokio::test]
async fn running_call_ends_on_the_old_backend_before_it_stops() {
    let folder = tempdir().unwrap();
    let go = folder.path().join("go");
    let gateway = gateway(&[version("one", 1)]);
    let old = pid(&gateway, "one").await;
    let mut calls = JoinSet::new();
    let (called, hold) = (gateway.clone(), json!({ "file": go }));
    calls.spawn(async move { answer(&called, "one_hold", hold).await });
    until(async || answer(&gateway, "one_calls", json!({})).await["count"].as_u64() > Some(2))
        .await;

    reload(&gateway, &[version("one", 2)]).await;
    assert_ne!(pid(&gateway, "one").await, old);
    assert!(is_running(old), "somebody is waiting for it");
    fs::write(&go, "").unwrap();
    assert_eq!(soon(calls.join_next()).await.unwrap().unwrap(), "at last");
    ends(old).await;
    gateway.close().await;
}

// === Backends ===

#[tokio::test]
async fn reload_reconnects_only_changed_backends() {
    let gateway =
        gateway(&[backend("same", "good", ""), version("other", 1), backend("gone", "good", "")]);
    let [same, other, removed] =
        [pid(&gateway, "same").await, pid(&gateway, "other").await, pid(&gateway, "gone").await];
    let reloaded = reload(
        &gateway,
        &[backend("new", "modern", ""), backend("same", "good", ""), version("other", 2)],
    )
    .await;
    let expected = "kept `same`; connected `new`, `other`; removed `gone`";
    assert_eq!(reloaded.to_string(), expected);
    assert_eq!(pid(&gateway, "same").await, same);
    assert_ne!(pid(&gateway, "other").await, other);
    ends(other).await;
    ends(removed).await;
    let reply = call(&gateway, "gone_pid", json!({})).await.unwrap();
    assert_eq!(reply.error().unwrap().message, "unknown tool `gone_pid`");
    gateway.close().await;
}

#[tokio::test]
async fn reload_applies_new_options_to_a_kept_backend() {
    let gateway = gateway(&[backend("one", "good", "")]);
    let process = pid(&gateway, "one").await;
    let more = "timeout = '100ms'\nprefix = 'x_'\nhide_tools = ['echo']\n\
                [[backends.aliases]]\ntool = 'pid'\nname = 'number'";
    let reloaded = reload(&gateway, &[backend("one", "good", more)]).await;
    assert_eq!(reloaded.to_string(), "kept `one`");

    let tools = tools(&gateway).await;
    let has = |name: &str| tools.iter().any(|tool| tool == name);
    assert_eq!([has("x_number"), has("x_slow")], [true; 2]);
    assert_eq!([has("x_echo"), has("x_pid"), has("one_slow")], [false; 3]);
    assert_eq!(answer(&gateway, "x_number", json!({})).await["pid"], process);
    for hidden in ["x_echo", "x_pid", "one_pid"] {
        let reply = call(&gateway, hidden, json!({ "text": "x" })).await.unwrap();
        assert_eq!(reply.error().unwrap().message, format!("unknown tool `{hidden}`"));
    }
    let late = call(&gateway, "x_hang", json!({})).await.unwrap_err();
    assert_eq!(late, "backend `one` did not answer in time");
    gateway.close().await;
}

#[tokio::test]
async fn unavailable_backend_keeps_its_tools_after_a_reload() {
    let folder = tempdir().unwrap();
    let away = folder.path().join("away");
    let command = example("misbehaving");
    let script = format!("test -e {} && exit 1; exec {} good", away.display(), command.display());
    let parts = |more: &str| {
        [
            shell("one", &script, more),
            backend("two", "good", ""),
            composite("['one/echo', 'two/echo']"),
        ]
    };
    // As the same backend, and as one that must be reconnected.
    for more in ["timeout = '10s'", "env = { VERSION = '2' }"] {
        let _ = fs::remove_file(&away);
        let gateway = gateway(&parts(""));
        let process = pid(&gateway, "one").await;
        let before = tools(&gateway).await;
        assert!(before.iter().any(|tool| tool == "all"));

        fs::write(&away, "").unwrap();
        assert!(signal(process, "KILL"));
        until(async || call(&gateway, "one_pid", json!({})).await.is_err()).await;
        reload(&gateway, &parts(more)).await;
        assert_eq!(tools(&gateway).await, before, "{more}");
        let params = json!({ "text": "x" });
        let report = answer(&gateway, "all", params).await;
        assert_eq!(report["branches"]["two_echo"]["output"], "x");
        assert_eq!(report["branches"]["one_echo"]["status"], "failed");
        gateway.close().await;
    }
}

#[tokio::test]
async fn reload_waits_briefly_for_an_unreachable_backend() {
    let gateway = gateway(&[backend("one", "good", "")]);
    let parts = [backend("one", "good", ""), backend("never", "silent", "connect_timeout = '1h'")];
    let reloaded = reload(&gateway, &parts).await;
    assert_eq!(reloaded.connected, ["never"]);
    let backends = gateway.backends();
    assert_eq!(backends.remotes()[1].connected().now_or_never(), None, "it still connects");
    // Each list that waits for the backend takes five seconds.
    soon(async {
        for _ in 0..20 {
            assert!(tools(&gateway).await.contains(&"one_echo".to_owned()));
            pid(&gateway, "one").await;
        }
    })
    .await;
    gateway.close().await;
}

// === Reloads that fail or overlap ===

#[tokio::test]
async fn reload_of_an_unusable_file_changes_nothing() {
    let gateway = gateway(&[backend("one", "good", "")]);
    let before = (pid(&gateway, "one").await, tools(&gateway).await);
    let error = gateway.reload(&Config::from_toml_str("").unwrap()).await.unwrap_err();
    assert_eq!(error.to_string(), "no backends: expected at least one");
    assert_eq!((pid(&gateway, "one").await, tools(&gateway).await), before);
    gateway.close().await;
}

#[tokio::test]
async fn dropped_reload_changes_nothing() {
    let folder = tempdir().unwrap();
    let started = folder.path().join("pid");
    let command = example("misbehaving");
    let script = format!("echo $$ > {}; exec {} silent", started.display(), command.display());
    let gateway = gateway(&[backend("one", "good", "")]);
    let process = pid(&gateway, "one").await;
    let config = file(&[backend("one", "good", "prefix = 'x_'"), shell("never", &script, "")]);
    let written = || fs::read_to_string(&started).ok()?.trim().parse::<u64>().ok();
    tokio::select! {
        reloaded = gateway.reload(&config) => panic!("{reloaded:?}"),
        () = until(async || written().is_some()) => (),
    }
    ends(written().unwrap()).await;
    assert_eq!(pid(&gateway, "one").await, process);
    assert_eq!(gateway.backends().remotes().len(), 1);
    gateway.close().await;
}

#[tokio::test]
async fn concurrent_reloads_run_one_after_another() {
    let gateway = gateway(&[version("one", 0)]);
    let first = [version("one", 1), backend("slow", "late", "")].concat();
    let first = first.replace("['late']", "['late', '400']");
    let second = [version("one", 2)];
    let (first, second) = (file(&[first]), file(&second));
    let (first, second) =
        soon(async { tokio::join!(gateway.reload(&first), gateway.reload(&second)) }).await;
    assert_eq!(first.unwrap().to_string(), "connected `one`, `slow`");
    assert_eq!(second.unwrap().to_string(), "connected `one`; removed `slow`");
    assert_eq!(answer(&gateway, "one_env", json!({ "name": "VERSION" })).await, "2");
    gateway.close().await;
}

#[tokio::test]
async fn closed_gateway_stops_every_backend_that_it_started() {
    let gateway = gateway(&[version("one", 1)]);
    let old = pid(&gateway, "one").await;
    let mut calls = JoinSet::new();
    let called = gateway.clone();
    calls.spawn(async move { call(&called, "one_hang", json!({})).await });
    until(async || answer(&gateway, "one_calls", json!({})).await["count"].as_u64() > Some(2))
        .await;
    reload(&gateway, &[version("one", 2)]).await;
    let new = pid(&gateway, "one").await;

    let never = file(&[backend("never", "silent", "connect_timeout = '1h'")]);
    let mut reloading = pin!(gateway.reload(&never));
    assert!(poll!(&mut reloading).is_pending());
    // A reload that is not interrupted succeeds, after it has waited for the backend.
    let (reloaded, ()) = soon(async { tokio::join!(reloading, gateway.close()) }).await;
    assert_eq!(reloaded.unwrap_err().to_string(), "the gateway was closed");
    assert_eq!([is_running(old), is_running(new)], [false; 2]);
    let hung = soon(calls.join_next()).await.unwrap().unwrap();
    assert_eq!(hung.unwrap_err(), "the connection to backend `one` was lost before it answered");
    let error = gateway.reload(&never).await.unwrap_err();
    assert_eq!(error.to_string(), "the gateway was closed");
}

// === Clients ===

fn serve(gateway: &Gateway) -> impl rmcp::ServerHandler + use<> {
    gateway.serve(ServerConfig::default())
}

async fn next(stream: &mut Subscription) -> Value {
    serde_json::to_value(soon(stream.next()).await.unwrap().unwrap()).unwrap()
}

#[tokio::test]
async fn clients_are_notified_and_list_new_tools() {
    for era in BOTH {
        let gateway = gateway(&[backend("one", "good", "")]);
        pid(&gateway, "one").await;
        let connection = connect(serve(&gateway), era).await;
        let parts = [
            backend("one", "good", ""),
            backend("two", "modern", ""),
            composite("['one/echo', 'two/echo']"),
        ];
        let mut expected =
            ["tools", "prompts", "resources"].map(|kind| format!("{kind} changed")).to_vec();
        match era {
            Era::Legacy => {
                connection.client.list_all_tools().await.unwrap();
                reload(&gateway, &parts).await;
                let log = &connection.client.service().log;
                until(async || expected.iter().all(|line| log.has(line))).await;
            }
            Era::Modern => {
                let lists = SubscriptionFilter::builder()
                    .tools_list_changed()
                    .prompts_list_changed()
                    .resources_list_changed();
                let mut stream = soon(connection.client.listen(lists.build())).await.unwrap();
                reload(&gateway, &parts).await;
                while !expected.is_empty() {
                    let method = next(&mut stream).await["method"].as_str().unwrap().to_owned();
                    expected.retain(|line| !method.contains(line.split(' ').next().unwrap()));
                }
            }
        }
        let tools = soon(connection.client.list_all_tools()).await.unwrap();
        let has = |name: &str| tools.iter().any(|tool| tool.name == name);
        assert_eq!([has("all"), has("two_echo"), has("one_echo")], [true; 3], "{era:?}");
        gateway.close().await;
    }
}

/// Waits until the client is notified that this resource has changed, by changing it.
async fn until_notified(gateway: &Gateway, connection: &Connection, uri: &str) {
    let log = &connection.client.service().log;
    let before = log.lines().len();
    until(async || {
        answer(gateway, "one_touch", json!({})).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        log.lines()[before..].iter().any(|line| line.contains(uri))
    })
    .await;
}

#[tokio::test]
async fn clients_stay_subscribed_to_resources() {
    for behaviour in ["good", "modern"] {
        let gateway = gateway(&[backend("one", behaviour, "")]);
        pid(&gateway, "one").await;
        let connection = connect(serve(&gateway), Era::Legacy).await;
        let params = json!({ "uri": "test://one" });
        connection.send("resources/subscribe", params.clone()).await.unwrap();
        until_notified(&gateway, &connection, "test://one").await;
        // First the backend is kept, then it is reconnected.
        for (more, what) in [
            ("timeout = '10s'", "kept `one`"),
            ("env = { VERSION = '2' }", "connected `one`"),
            ("env = { VERSION = '3' }", "connected `one`"),
        ] {
            let reloaded = reload(&gateway, &[backend("one", behaviour, more)]).await;
            assert_eq!(reloaded.to_string(), what);
            until_notified(&gateway, &connection, "test://one").await;
        }
        connection.send("resources/unsubscribe", params).await.unwrap();
        gateway.close().await;
    }
}

#[tokio::test]
async fn resources_hidden_by_a_reload_send_no_updates() {
    let hides = "hide_resources = ['test://one']";
    for parts in [
        vec![backend("one", "good", hides)],
        vec![backend("one", "good", ""), format!("[filter]\n{hides}")],
    ] {
        let gateway = gateway(&[backend("one", "good", "")]);
        pid(&gateway, "one").await;
        let before = connect(serve(&gateway), Era::Legacy).await;
        let subscribe = async |connection: &Connection, uri: &str| {
            connection.send("resources/subscribe", json!({ "uri": uri })).await
        };
        subscribe(&before, "test://one").await.unwrap();
        until_notified(&gateway, &before, "test://one").await;

        assert_eq!(reload(&gateway, &parts).await.to_string(), "kept `one`");
        let after = connect(serve(&gateway), Era::Legacy).await;
        for connection in [&after, &before] {
            let error = subscribe(connection, "test://one").await.unwrap_err().to_string();
            assert!(error.contains("resource not found"), "{error}");
        }
        // A client that remains subscribed without a new request is no longer notified either.
        reload(&gateway, &[backend("one", "good", "")]).await;
        subscribe(&before, "test://one").await.unwrap();
        until_notified(&gateway, &before, "test://one").await;
        reload(&gateway, &parts).await;
        let log = &before.client.service().log;
        let count = log.lines().len();
        let mut updates = gateway.changes().watch_resources();
        answer(&gateway, "one_touch", json!({})).await;
        answer(&gateway, "one_touch", json!({})).await;
        assert!(updates.recv().now_or_never().is_none());
        let lines: Vec<_> = log.lines().split_off(count);
        assert!(lines.iter().all(|line| !line.contains("test://one")), "{lines:?}");
        gateway.close().await;
    }
}

#[tokio::test]
async fn resource_updates_use_the_names_of_the_current_file() {
    let gateway = gateway(&[backend("one", "good", "")]);
    pid(&gateway, "one").await;
    let connection = connect(serve(&gateway), Era::Legacy).await;
    let below = "[[backends.aliases]]\nresource = 'test://one'\nuri = 'below://one'";
    let above = "[[aliases]]\nresource = 'below://one'\nuri = 'above://one'";
    for (parts, uri) in [
        (vec![backend("one", "good", below)], "below://one"),
        (vec![backend("one", "good", below), above.to_owned()], "above://one"),
        (vec![backend("one", "good", "")], "test://one"),
    ] {
        assert_eq!(reload(&gateway, &parts).await.to_string(), "kept `one`");
        connection.send("resources/subscribe", json!({ "uri": uri })).await.unwrap();
        until_notified(&gateway, &connection, uri).await;
    }
    gateway.close().await;
}
