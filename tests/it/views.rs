//! Several views over the backends of one gateway.

use mcp_composite::{
    config::{Config, Gateway, View},
    testing,
};
use rmcp::model::{ServerCapabilities, ServerConfig};
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::{
    backends::{backend, file},
    support::soon,
};

fn gateway(parts: &[String]) -> Gateway {
    Gateway::connect(&file(parts)).unwrap()
}

async fn reload(gateway: &Gateway, parts: &[String]) {
    soon(gateway.reload(&file(parts))).await.unwrap();
}

fn shop() -> String {
    backend("shop", "good", "")
}

/// Returns a view with more keys.
fn view(path: &str, more: &str) -> String {
    format!("[[views]]\npath = '{path}'\n{more}\n")
}

async fn listed(view: &View) -> Vec<String> {
    let tools = soon(testing::listed(&view.service())).await;
    tools.into_iter().map(|tool| tool.name.into_owned()).collect()
}

async fn pid(view: &View) -> Value {
    soon(testing::call(&view.service(), "shop_pid", json!({}))).await.structured_content.unwrap()
}

/// Calls a tool, and returns whether the budgets admit the call.
async fn is_admitted(view: &View) -> bool {
    let call = testing::request("shop_pid", json!({}));
    let reply = soon(view.service().oneshot(call)).await.unwrap();
    reply.tool_result().is_some_and(|result| result.is_error != Some(true))
}

/// A budget of calls.
fn budget(limit: usize) -> String {
    format!("budget.limits = [{{ name = 'calls', limit = {limit} }}]\n")
}

#[tokio::test]
async fn views_share_the_connections_of_backends() {
    let gateway = gateway(&[
        "filter.expose_tools = ['shop_pid']\n".to_owned(),
        shop(),
        view("/a", "filter.expose_tools = ['shop_pid', 'shop_echo']"),
        view("/b", "aliases = [{ tool = 'shop_pid', name = 'process' }]"),
    ]);
    let (main, a, b) = (gateway.main(), gateway.view("/a").unwrap(), gateway.view("/b").unwrap());
    assert_eq!(listed(&main).await, ["shop_pid"]);
    assert_eq!(listed(&a).await, ["shop_echo", "shop_pid"]);
    assert_eq!(listed(&b).await, ["process"]);
    assert_eq!(pid(&main).await, pid(&a).await);
    let process = soon(testing::call(&b.service(), "process", json!({}))).await;
    assert_eq!(process.structured_content.unwrap(), pid(&a).await);
    assert!(gateway.view("/").is_none() && gateway.view("/a/").is_none());
    assert_eq!((main.path(), a.path()), (None, Some("/a")));
    gateway.close().await;
}

#[tokio::test]
async fn budget_of_a_view_is_counted_separately() {
    let own_budget = || budget(2).trim_end().to_owned();
    let parts = [
        budget(2),
        shop(),
        view("/inherits", ""),
        view("/own", &own_budget()),
        view("/other", &own_budget()),
    ];
    let gateway = gateway(&parts);
    let main = gateway.main();
    let [inherits, own, other] =
        ["/inherits", "/own", "/other"].map(|path| gateway.view(path).unwrap());
    assert!(is_admitted(&inherits).await && is_admitted(&main).await);
    assert!(!is_admitted(&main).await && !is_admitted(&inherits).await);
    assert!(is_admitted(&own).await && is_admitted(&own).await && !is_admitted(&own).await);

    // A reload keeps the balances.
    reload(&gateway, &parts).await;
    assert!(!is_admitted(&main).await && !is_admitted(&inherits).await);
    assert!(!is_admitted(&own).await);
    assert!(is_admitted(&other).await && is_admitted(&other).await && !is_admitted(&other).await);

    // A view that gets a budget of its own no longer shares that of the file.
    let parts = [budget(2), shop(), view("/inherits", &own_budget())];
    reload(&gateway, &parts).await;
    assert!(is_admitted(&inherits).await && !is_admitted(&main).await);
    gateway.close().await;
}

#[tokio::test]
async fn reload_adds_changes_and_removes_views() {
    let only = |tool: &str| format!("filter.expose_tools = ['shop_{tool}']");
    let gateway =
        gateway(&[shop(), view("/changed", &only("pid")), view("/removed", &only("pid"))]);
    let [changed, removed] = ["/changed", "/removed"].map(|path| gateway.view(path).unwrap());
    let before = pid(&changed).await;
    assert_eq!(listed(&removed).await, ["shop_pid"]);

    let parts = [
        shop(),
        view("/added", &only("pid")),
        view("/changed", "filter.expose_tools = ['shop_echo', 'shop_pid']"),
    ];
    reload(&gateway, &parts).await;
    assert_eq!(listed(&changed).await, ["shop_echo", "shop_pid"]);
    assert_eq!(pid(&changed).await, before);
    assert_eq!(listed(&gateway.view("/added").unwrap()).await, ["shop_pid"]);

    // Its handle no longer reaches anything.
    assert!(gateway.view("/removed").is_none());
    assert_eq!(listed(&removed).await, [""; 0]);
    let refused = soon(testing::refused(&removed.service(), "shop_pid", json!({}))).await;
    assert!(refused.message.contains("unknown tool"), "{refused:?}");
    let base = ServerConfig::new(ServerCapabilities::default());
    assert!(removed.describe(base.clone()).capabilities.tools.is_none());
    assert!(changed.describe(base).capabilities.tools.is_some());

    reload(&gateway, &[shop(), view("/removed", &only("echo"))]).await;
    assert_eq!(listed(&removed).await, ["shop_echo"]);
    assert!(gateway.view("/changed").is_none());
    gateway.close().await;
}

#[tokio::test]
async fn failed_reload_keeps_all_views() {
    let gateway = gateway(&[shop(), view("/a", "")]);
    let without_backends = Config::from_toml_str("[[views]]\npath = '/b'").unwrap();
    assert!(gateway.reload(&without_backends).await.is_err());
    assert!(gateway.view("/a").is_some() && gateway.view("/b").is_none());
    gateway.close().await;
}
