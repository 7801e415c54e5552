//! Tasks that another replica continues, from the state that is stored after each step.

use std::collections::HashMap;

use mcp_composite::{
    composite::{CompositeTool, Elicitation, ForEach, Step, TaskMode, ToolCall},
    tasks::{MemoryTaskStore, TaskRegistry},
    testing::{Answer, Server},
};
use rmcp::model::{CallToolResult, Tool, ToolAnnotations};
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{HOUR, SECOND, Setup};

/// The time after which a task of a replica that has ended is continued, with a reserve.
const TAKEOVER: std::time::Duration = std::time::Duration::from_secs(60);
const DAY: std::time::Duration = std::time::Duration::from_secs(24 * 60 * 60);

/// Starts a replica, which looks for tasks of other replicas.
fn replica(store: &MemoryTaskStore, composite: CompositeTool, server: Server) -> Setup {
    let composites = [composite.task(TaskMode::Always)];
    let setup = Setup::with(composites, server, TaskRegistry::with_store(store.clone()));
    setup.service.watch_tasks();
    setup
}

fn read_only(name: &'static str) -> Tool {
    let tool = Tool::new(name, "Reads", std::sync::Arc::default());
    tool.with_annotations(ToolAnnotations::new().read_only(true))
}

/// Returns a server whose tools answer at once. `look` only reads.
fn shop() -> Server {
    Server::new()
        .says("charge", "paid")
        .says("ship", "sent")
        .tool_as(read_only("look"), Answer::text("seen"))
}

/// A composite that charges, looks and then ships.
fn order(ship: impl FnOnce(Step) -> Step) -> CompositeTool {
    let steps = [
        Step::new("charge", "charge"),
        Step::new("look", "look").depends_on(["charge"]),
        ship(Step::new("ship", "ship").depends_on(["look"])),
    ];
    CompositeTool::workflow("order", "Orders", steps)
}

/// Waits for the result of a task that `replica` continues.
async fn result(replica: &Setup, id: &str) -> CallToolResult {
    timeout(TAKEOVER, replica.result(id)).await.unwrap()
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

#[tokio::test(start_paused = true)]
async fn run_continues_after_the_last_stored_step() {
    let store = MemoryTaskStore::new();
    let hanging = Server::new().says("charge", "paid").hangs("ship");
    let hanging = hanging.tool_as(read_only("look"), Answer::never());
    let one = replica(&store, order(|step| step), hanging);
    let id = one.start("order", json!({})).await;
    sleep(SECOND).await;
    assert_eq!(one.server.called(), ["charge", "look"]);
    drop(one);

    let other = replica(&store, order(|step| step), shop());
    let result = result(&other, &id).await;
    assert_ne!(result.is_error, Some(true), "{result:?}");
    assert_eq!(other.server.called(), ["look", "ship"]);
}

#[tokio::test(start_paused = true)]
async fn step_that_may_have_had_an_effect_is_not_called_again() {
    let store = MemoryTaskStore::new();
    let hanging = Server::new().says("charge", "paid").hangs("ship");
    let hanging = hanging.tool_as(read_only("look"), Answer::text("seen"));
    let one = replica(&store, order(|step| step), hanging);
    let id = one.start("order", json!({})).await;
    sleep(SECOND).await;
    assert_eq!(one.server.called(), ["charge", "look", "ship"]);
    drop(one);

    let other = replica(&store, order(|step| step), shop());
    let result = result(&other, &id).await;
    assert_eq!(result.is_error, Some(true));
    assert!(text(&result).contains("the server stopped while `ship` ran"), "{result:?}");
    assert!(other.server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn step_with_retry_lost_is_called_again() {
    let store = MemoryTaskStore::new();
    let flow = || order(|step| step.retry_lost(true));
    let hanging = Server::new().says("charge", "paid").hangs("ship");
    let one = replica(&store, flow(), hanging.tool_as(read_only("look"), Answer::text("seen")));
    let id = one.start("order", json!({})).await;
    sleep(SECOND).await;
    drop(one);

    let other = replica(&store, flow(), shop());
    assert_ne!(result(&other, &id).await.is_error, Some(true));
    assert_eq!(other.server.called(), ["ship"]);
}

/// A composite that charges, asks and then ships. Its run may take a week.
fn approved(description: &str, question: &str) -> CompositeTool {
    let schema = json!({ "type": "object", "properties": {} });
    let steps = [
        Step::new("charge", "charge"),
        Step::new("sure", Elicitation::new(question, schema))
            .timeout(5 * DAY)
            .depends_on(["charge"]),
        Step::new("ship", "ship").depends_on(["sure"]),
    ];
    CompositeTool::workflow("order", description, steps).timeout(7 * DAY)
}

#[tokio::test(start_paused = true)]
async fn run_waits_three_days_across_two_deployments() {
    let store = MemoryTaskStore::new();
    let one = replica(&store, approved("Orders", "Sure?"), shop());
    let id = one.start("order", json!({})).await;
    let questions = one.questions(&id).await;
    assert_eq!(one.server.called(), ["charge"]);
    drop(one);
    sleep(DAY).await;
    let second = replica(&store, approved("Orders", "Sure?"), shop());
    assert_eq!(second.questions(&id).await, questions);
    sleep(DAY).await;
    drop(second);
    sleep(DAY).await;

    let third = replica(&store, approved("Orders", "Sure?"), shop());
    third.accept(&id, &[&questions[0].0]).await;
    assert_ne!(result(&third, &id).await.is_error, Some(true));
    assert_eq!(third.server.called(), ["ship"]);
}

#[tokio::test(start_paused = true)]
async fn run_does_not_continue_with_a_changed_definition() {
    let store = MemoryTaskStore::new();
    let one = replica(&store, approved("Orders", "Sure?"), shop());
    let id = one.start("order", json!({})).await;
    let questions = one.questions(&id).await;
    drop(one);

    let changed = replica(&store, approved("Orders", "Ship to another address?"), shop());
    changed.accept(&id, &[&questions[0].0]).await;
    let result = result(&changed, &id).await;
    assert_eq!(result.is_error, Some(true));
    assert!(text(&result).contains("the definition of `order` has changed"), "{result:?}");
    assert!(changed.server.called().is_empty());
}

/// Returns a server whose tools take 10 ms. Only `look` may be called again.
fn slow() -> Server {
    let after = |text: &str| Answer::text(text).after(SECOND / 100);
    let server = Server::new().tool("charge", after("paid")).tool("ship", after("sent"));
    server.tool("note", after("noted")).tool_as(read_only("look"), after("seen"))
}

/// A composite with all kinds of steps that call tools, some of them at the same time.
fn busy() -> CompositeTool {
    let each = ForEach::new(
        json!([1, 2, 3]),
        ToolCall::new("note").arguments(json!({ "number": "$item" })),
    );
    let again = ForEach::new(json!([1, 2, 3]), "look").max_parallel(2);
    let steps = [
        Step::new("charge", "charge"),
        Step::new("look", "look"),
        Step::new("notes", each.max_parallel(1)).depends_on(["charge"]),
        Step::new("again", again).depends_on(["look"]),
        Step::new("ship", "ship").depends_on(["notes", "again"]),
    ];
    CompositeTool::workflow("order", "Orders", steps)
}

/// A replica is killed at each millisecond of a run, and the next one soon after it has taken over.
#[tokio::test(start_paused = true)]
async fn replicas_that_are_killed_at_any_time_make_no_call_twice() {
    let mut completed = 0;
    let mut lost = 0;
    for killed_after in 0..70 {
        let (store, server) = (MemoryTaskStore::new(), slow());
        let mut replica_now = replica(&store, busy(), server.clone());
        let id = replica_now.start("order", json!({ "run": killed_after })).await;
        for pause in [killed_after, 20_000 + killed_after % 7] {
            sleep(SECOND / 1000 * pause).await;
            drop(replica_now);
            replica_now = replica(&store, busy(), server.clone());
        }
        let result = result(&replica_now, &id).await;
        let mut calls = HashMap::<_, usize>::new();
        for call in server.calls().iter().filter(|call| call.tool() != "look") {
            *calls.entry((call.tool().to_owned(), call.arguments().to_string())).or_default() += 1;
        }
        assert!(calls.values().all(|&count| count == 1), "{killed_after}: {calls:?}");
        if result.is_error == Some(true) {
            assert!(text(&result).contains("the server stopped while"), "{result:?}");
            lost += 1;
        } else {
            assert_eq!(calls.len(), 5, "{killed_after}: {calls:?}");
            completed += 1;
        }
    }
    assert!(completed > 0 && lost > 0, "{completed} completed, {lost} lost");
    assert!(HOUR > TAKEOVER);
}
