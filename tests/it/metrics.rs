//! The metrics, checked against the table in the guide.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use mcp_composite::{
    budget::{Budget, BudgetLayer, Unit},
    composite::{CompositeLayer, CompositeTool, Elicitation, OnError, Retry, Step},
    message::ToolAnswer,
    pattern::Selection,
    stack::StackLayer,
    testing::{self, Answer, Server},
    trace::TraceLayer,
    truncate::TruncateLayer,
};
use metrics_util::{
    MetricKind,
    debugging::{DebugValue, DebuggingRecorder, Snapshotter},
};
use serde_json::json;
use tower::{Layer, ServiceExt};

use crate::scripted::is_sure;

/// The values of a recorder, by the name of the metric and its labels.
type Measured = BTreeMap<(String, BTreeMap<String, String>), DebugValue>;

/// The kind, unit and labels of each metric.
type Table = BTreeMap<String, (String, String, BTreeSet<String>)>;

/// Returns the metrics in the guide.
fn documented() -> Table {
    let guide = include_str!("../../src/guide/observability.md");
    let cells = |row: &str| -> Vec<String> {
        row.split('|').map(|cell| cell.trim().replace('`', "")).collect()
    };
    let rows = guide.lines().filter(|line| line.starts_with("| `mcp"));
    let rows = rows.map(cells).filter(|cells| matches!(&*cells[2], "histogram" | "counter"));
    rows.map(|cells| {
        let labels = cells[4].split(", ").filter(|label| !label.is_empty()).map(str::to_owned);
        (cells[1].clone(), (cells[2].clone(), cells[3].clone(), labels.collect()))
    })
    .collect()
}

fn kind(kind: MetricKind) -> String {
    format!("{kind:?}").to_lowercase()
}

fn measured(snapshotter: &Snapshotter) -> Measured {
    let all = snapshotter.snapshot().into_vec().into_iter();
    all.map(|(key, _, _, value)| {
        let labels = key.key().labels();
        let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
        ((key.key().name().to_owned(), labels.collect()), value)
    })
    .collect()
}

/// Returns the number of values of a metric with these labels.
fn count(measured: &Measured, name: &str, labels: &[(&str, &str)]) -> u64 {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    match measured.get(&(name.to_owned(), labels.collect())) {
        None => 0,
        Some(DebugValue::Counter(count)) => *count,
        Some(DebugValue::Histogram(values)) => values.len() as u64,
        Some(other) => panic!("{name} is {other:?}"),
    }
}

/// Records every metric; the last one needs a server that is lost and reconnected.
async fn everything() {
    let server = Server::new()
        .says("near", "yes")
        .fails("fails", "no")
        .tool("large", Answer::text("x".repeat(5000)))
        .tool("broken", rmcp::ErrorData::internal_error("broken", None))
        .hangs("hangs");
    let again = OnError::Retry(Retry::times(1).delay(Duration::ZERO));
    let look = CompositeTool::pipeline(
        "look",
        "Looks",
        [
            Step::new("near", "near"),
            Step::new("off", "near").condition("false"),
            Step::new("fails", "fails").on_error(again),
        ],
    );
    let sure = Step::new("sure", Elicitation::new("Sure?", json!({})));
    let asks = CompositeTool::pipeline("asks", "Asks", [sure]);
    let waits = CompositeTool::fan_out("waits", "Waits", ["hangs"]);
    let broken = Selection::default().allow(["broken"]).unwrap();
    let budget = Budget::new("broken calls", Unit::Calls, 1).tools(broken);
    let stack = StackLayer::new()
        .trace(TraceLayer::new().metrics(true))
        .truncate(TruncateLayer::new().max_result_bytes(1000))
        .budget(BudgetLayer::new().budget(budget))
        .composite(CompositeLayer::new([look, asks, waits]).unwrap());
    #[cfg(feature = "cache")]
    let stack = {
        use mcp_composite::cache::{CacheLayer, CacheRule};

        let cached = rmcp::model::Tool::new("cached", "Looks", rmcp::model::JsonObject::new());
        let annotations = rmcp::model::ToolAnnotations::new().read_only(true);
        server.add(cached.with_annotations(annotations), Answer::text("seen"));
        let rule = CacheRule::new(Selection::default(), Duration::from_secs(60));
        stack.cache(CacheLayer::new().rule(rule))
    };
    let stack = stack.layer(server);
    let call = async |tool: &str| {
        drop(stack.clone().oneshot(testing::request(tool, json!({}))).await.unwrap());
    };
    for tool in ["look", "near", "large", "broken", "broken", "guess"] {
        call(tool).await;
    }
    #[cfg(feature = "cache")]
    for _ in 0..3 {
        call("cached").await;
    }
    let late = tokio::time::timeout(Duration::from_secs(1), call("waits")).await;
    assert!(late.is_err());
    let ask = async |state: Option<String>| {
        stack.clone().oneshot(is_sure("asks", state)).await.unwrap().into_tool_answer()
    };
    let ToolAnswer::InputRequired(question) = ask(None).await else { panic!("no question") };
    ask(question.request_state).await;
    #[cfg(feature = "remote")]
    connect().await;
}

/// Connects a backend over a pipe.
#[cfg(feature = "remote")]
async fn connect() {
    use mcp_composite::adapter::RemoteService;

    struct Nobody;
    impl rmcp::ServerHandler for Nobody {}

    let remote = RemoteService::builder("far").transport(|| crate::support::pipe_to(Nobody));
    remote.connected().await.unwrap();
    remote.close().await;
}

#[tokio::test(start_paused = true)]
async fn recorded_metrics_match_the_guide() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    mcp_composite::metrics::describe();
    everything().await;

    let mut emitted = Table::new();
    for (key, unit, description, _) in snapshotter.snapshot().into_vec() {
        let name = key.key().name().to_owned();
        assert!(description.is_some_and(|text| !text.is_empty()), "{name}");
        let labels = key.key().labels().map(|label| label.key().to_owned());
        let unit = unit.unwrap().as_str().to_owned();
        let row = emitted.entry(name).or_insert((kind(key.kind()), unit, BTreeSet::new()));
        row.2.extend(labels);
    }
    let mut documented = documented();
    if !cfg!(feature = "remote") {
        documented.remove("mcp_composite.backend.connections");
    }
    if !cfg!(feature = "cache") {
        documented.remove("mcp_composite.cache.calls");
    }
    assert_eq!(emitted.keys().collect::<Vec<_>>(), documented.keys().collect::<Vec<_>>());
    for (name, (kind, unit, labels)) in emitted {
        let (expected_kind, expected_unit, expected_labels) = &documented[&name];
        assert_eq!((&kind, &unit), (expected_kind, expected_unit), "{name}");
        assert!(labels.is_subset(expected_labels), "{name}: {labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn runs_branches_and_calls_are_counted_by_outcome() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    everything().await;
    let measured = measured(&snapshotter);

    let run = |composite, status| {
        let labels = [("gen_ai.workflow.name", composite), ("mcp_composite.status", status)];
        count(&measured, "mcp_composite.run.duration", &labels)
    };
    assert_eq!(
        [run("look", "failed"), run("waits", "cancelled"), run("asks", "completed")],
        [1; 3]
    );
    let asks = [("gen_ai.workflow.name", "asks")];
    assert_eq!(count(&measured, "mcp_composite.run.suspensions", &asks), 1);
    assert_eq!(count(&measured, "mcp_composite.run.resumptions", &asks), 1);
    let branches = |status| {
        let labels = [("gen_ai.workflow.name", "look"), ("mcp_composite.status", status)];
        count(&measured, "mcp_composite.branches", &labels)
    };
    assert_eq!(["completed", "skipped", "failed"].map(branches), [1; 3]);
    let retried = [("gen_ai.workflow.name", "look"), ("error.type", "tool_error")];
    assert_eq!(count(&measured, "mcp_composite.retries", &retried), 1);
    let budget = [("mcp_composite.budget", "broken calls")];
    assert_eq!(count(&measured, "mcp_composite.budget.refusals", &budget), 1);
    assert_eq!(count(&measured, "mcp_composite.truncate.results", &[]), 1);
    let cached =
        |used| count(&measured, "mcp_composite.cache.calls", &[("mcp_composite.cache", used)]);
    let expected = if cfg!(feature = "cache") { [1, 2] } else { [0, 0] };
    assert_eq!([cached("miss"), cached("hit")], expected);
    assert!(count(&measured, "mcp_composite.truncate.bytes", &[]) > 3000);

    let call = ("mcp.method.name", "tools/call");
    let server = |labels: &[_]| count(&measured, "mcp.server.operation.duration", labels);
    assert_eq!(server(&[call, ("gen_ai.tool.name", "near")]), 1);
    let look = [call, ("error.type", "tool_error"), ("gen_ai.tool.name", "look")];
    assert_eq!(server(&look), 1);
    let waits = [call, ("error.type", "cancelled"), ("gen_ai.tool.name", "waits")];
    assert_eq!(server(&waits), 1);
    let broken = [call, ("error.type", "-32603"), ("rpc.response.status_code", "-32603")];
    assert_eq!(server(&broken), 1, "it is not known whether there is such a tool");
    let client = |labels: &[_]| count(&measured, "mcp.client.operation.duration", labels);
    let fails = [call, ("error.type", "tool_error"), ("gen_ai.tool.name", "fails")];
    assert_eq!(client(&fails), 2);
    let hangs = [call, ("error.type", "cancelled"), ("gen_ai.tool.name", "hangs")];
    assert_eq!(client(&hangs), 1);
}

#[tokio::test(start_paused = true)]
async fn durations_are_recorded_in_seconds() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let server = Server::new().tool("slow", Answer::text("yes").after(Duration::from_millis(1500)));
    let trace = TraceLayer::new().metrics(true);
    testing::call(&StackLayer::new().trace(trace).layer(server), "slow", json!({})).await;
    let [value] = &*measured(&snapshotter).into_values().collect::<Vec<_>>() else { panic!() };
    let DebugValue::Histogram(values) = value else { panic!("{value:?}") };
    assert_eq!(values.iter().map(|value| value.into_inner()).collect::<Vec<_>>(), [1.5]);
}

#[tokio::test(start_paused = true)]
async fn client_input_does_not_create_metric_labels() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let server =
        Server::new().tool("odd", rmcp::ErrorData::new(rmcp::model::ErrorCode(7), "", None));
    let stack = StackLayer::new().trace(TraceLayer::new().metrics(true)).layer(server);
    for guess in 0..50 {
        let request = testing::request(&format!("guess-{guess}"), json!({}));
        stack.clone().oneshot(request).await.unwrap();
    }
    stack.oneshot(testing::request("odd", json!({}))).await.unwrap();
    let measured = measured(&snapshotter);
    assert_eq!(measured.len(), 2, "{measured:?}");
    let odd = [("mcp.method.name", "tools/call"), ("rpc.response.status_code", "_OTHER")];
    assert_eq!(count(&measured, "mcp.server.operation.duration", &odd), 1);
}

#[tokio::test(start_paused = true)]
async fn metrics_of_requests_and_their_runs_have_the_view() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let look = CompositeTool::fan_out("look", "Looks", ["near"]);
    let everything = Selection::default();
    let stack = StackLayer::new()
        .trace(TraceLayer::new().metrics(true).view("/team-a"))
        .truncate(TruncateLayer::new().max_result_bytes(1000))
        .budget(BudgetLayer::new().budget(Budget::new("calls", Unit::Calls, 1).tools(everything)))
        .composite(CompositeLayer::new([look]).unwrap())
        .layer(Server::new().tool("near", Answer::text("x".repeat(5000))));
    for _ in 0..2 {
        stack.clone().oneshot(testing::request("look", json!({}))).await.unwrap();
    }
    let measured = measured(&snapshotter);
    let names: BTreeSet<_> = measured.keys().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    for (name, labels) in measured.keys() {
        let view = labels.get("mcp_composite.view").map(String::as_str);
        assert_eq!(view, Some("/team-a"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn disabled_metrics_record_nothing() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _recorder = metrics::set_default_local_recorder(&recorder);
    let look = CompositeTool::fan_out("look", "Looks", ["near"]);
    let composites = CompositeLayer::new([look]).unwrap();
    let stack = StackLayer::new().composite(composites).layer(Server::new().says("near", "yes"));
    testing::call(&stack, "look", json!({})).await;
    assert_eq!(measured(&snapshotter), Measured::new());
}
