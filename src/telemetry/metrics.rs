//! Records metrics with the crate [`metrics`], which supports different metrics backends.
//!
//! The metrics of client requests, and of the composite runs that they start, are recorded only if
//! [`TraceLayer::metrics`](crate::trace::TraceLayer::metrics) is enabled. The metrics of rare
//! events, such as new connections to backends, are always recorded. To receive metrics, the
//! application installs a recorder of the crate `metrics`, and then calls [`describe`] to register
//! the descriptions and units. The number of values that each label can have does not depend on the
//! requests that clients send; see the [table](crate::trace#metrics).
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool},
//!     stack::StackLayer,
//!     testing::{self, Server},
//!     trace::TraceLayer,
//! };
//! use metrics_util::debugging::{DebugValue, DebuggingRecorder};
//! use serde_json::json;
//! use tower::Layer;
//!
//! let recorder = DebuggingRecorder::new();
//! let snapshotter = recorder.snapshotter();
//! let _recorder = metrics::set_default_local_recorder(&recorder);
//! mcp_composite::metrics::describe();
//!
//! let look = CompositeTool::fan_out("look", "Looks everywhere", ["near", "far"]);
//! let backends = Server::new().says("near", "found").says("far", "found");
//! let stack = StackLayer::new()
//!     .trace(TraceLayer::new().metrics(true))
//!     .composite(CompositeLayer::new([look])?)
//!     .layer(backends);
//! testing::call(&stack, "look", json!({})).await;
//!
//! let branches = snapshotter.snapshot().into_vec().into_iter().find_map(|(key, .., value)| {
//!     (key.key().name() == "mcp_composite.branches").then_some(value)
//! });
//! assert_eq!(branches, Some(DebugValue::Counter(2)));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```

use std::time::Duration;

use metrics::{Label, Unit, counter, describe_counter, describe_histogram, histogram};
use rmcp::model::CallToolResult;

use crate::{
    message::{ItemKind, content_size},
    observe::{Event, What},
    spans::End,
};

const SERVED: &str = "mcp.server.operation.duration";
const CALLED: &str = "mcp.client.operation.duration";
const RUNS: &str = "mcp_composite.run.duration";
const SUSPENSIONS: &str = "mcp_composite.run.suspensions";
const RESUMPTIONS: &str = "mcp_composite.run.resumptions";
const BRANCHES: &str = "mcp_composite.branches";
const RETRIES: &str = "mcp_composite.retries";
const OVER_BUDGET: &str = "mcp_composite.budget.refusals";
#[cfg(feature = "cache")]
const CACHED: &str = "mcp_composite.cache.calls";
const SHORTENED: &str = "mcp_composite.truncate.results";
const LEFT_OUT: &str = "mcp_composite.truncate.bytes";
const CONNECTIONS: &str = "mcp_composite.backend.connections";

const COMPOSITE: &str = "gen_ai.workflow.name";
const STATUS: &str = "mcp_composite.status";
const VIEW: &str = "mcp_composite.view";

/// Registers the descriptions and units of all metrics of this crate with the recorder that the
/// application has installed. Call `describe` after installing a recorder of the crate `metrics`.
pub fn describe() {
    describe_histogram!(SERVED, Unit::Seconds, "requests of clients, until they are answered");
    describe_histogram!(CALLED, Unit::Seconds, "tool calls by runs, until they are answered");
    describe_histogram!(RUNS, Unit::Seconds, "runs, without the time that they waited for users");
    describe_counter!(SUSPENSIONS, Unit::Count, "suspended runs");
    describe_counter!(RESUMPTIONS, Unit::Count, "resumed runs");
    describe_counter!(BRANCHES, Unit::Count, "branches of runs that have finished or were skipped");
    describe_counter!(RETRIES, Unit::Count, "retried tool calls");
    describe_counter!(
        OVER_BUDGET,
        Unit::Count,
        "calls that were rejected because a budget was used up"
    );
    #[cfg(feature = "cache")]
    describe_counter!(CACHED, Unit::Count, "calls of tools whose results are cached");
    describe_counter!(SHORTENED, Unit::Count, "truncated results");
    describe_counter!(LEFT_OUT, Unit::Bytes, "parts that were removed from truncated results");
    describe_counter!(
        CONNECTIONS,
        Unit::Count,
        "connections made to backends, including the first"
    );
}

/// Records the duration and outcome of a request that a client has sent. `target` is the tool or
/// prompt that the request names, if any.
pub(crate) fn served(
    method: &'static str,
    target: Option<(ItemKind, &str)>,
    end: &End,
    took: Duration,
    view: Option<&str>,
) {
    let mut labels = ended(method, end);
    labels.extend(of_view(view));
    match target {
        Some((ItemKind::Tool, name)) => {
            labels.push(Label::new("gen_ai.tool.name", name.to_owned()))
        }
        Some((_, name)) => labels.push(Label::new("gen_ai.prompt.name", name.to_owned())),
        None => (),
    }
    histogram!(SERVED, labels).record(took);
}

/// Records the duration and outcome of a tool call that a run of a composite has made.
pub(crate) fn called(tool: &str, end: &End, took: Duration, view: Option<&str>) {
    let mut labels = ended("tools/call", end);
    labels.extend(of_view(view));
    labels.push(Label::new("gen_ai.tool.name", tool.to_owned()));
    histogram!(CALLED, labels).record(took);
}

/// Updates the metrics of runs and branches after an event. For example, records the duration of a
/// run when the run has ended.
pub(crate) fn happened(event: &Event<'_>) {
    let run = || {
        let composite = Label::new(COMPOSITE, event.composite.to_owned());
        [composite].into_iter().chain(of_view(event.view)).collect::<Vec<_>>()
    };
    let with = |label, value| [run(), vec![Label::new(label, value)]].concat();
    match event.what {
        What::RunFinished { is_error, took, .. } => {
            let status = if is_error { "failed" } else { "completed" };
            histogram!(RUNS, with(STATUS, status)).record(took);
        }
        What::RunDropped { took } => histogram!(RUNS, with(STATUS, "cancelled")).record(took),
        What::RunSuspended => counter!(SUSPENSIONS, run()).increment(1),
        What::RunResumed => counter!(RESUMPTIONS, run()).increment(1),
        What::BranchFinished { status, .. } => {
            counter!(BRANCHES, with(STATUS, status)).increment(1)
        }
        What::BranchSkipped { .. } => counter!(BRANCHES, with(STATUS, "skipped")).increment(1),
        What::Attempt { after: Some(after), .. } => {
            // The same value as in the metrics of the failed call.
            let after = if after == "tool" { "tool_error" } else { after };
            counter!(RETRIES, with("error.type", after)).increment(1);
        }
        What::RunStarted { .. }
        | What::BranchStarted { .. }
        | What::Attempt { .. }
        | What::BranchWaiting { .. } => (),
    }
}

/// Records that a tool call was rejected because its budget was used up.
pub(crate) fn over_budget(budget: &str, view: Option<&str>) {
    let budget = Label::new("mcp_composite.budget", budget.to_owned());
    let labels: Vec<_> = [budget].into_iter().chain(of_view(view)).collect();
    counter!(OVER_BUDGET, labels).increment(1);
}

/// Counts a call to a tool with cacheable results. `used` describes how the call used the cache,
/// such as `hit` or `miss`.
#[cfg(feature = "cache")]
pub(crate) fn cached(used: &'static str) {
    counter!(CACHED, "mcp_composite.cache" => used).increment(1);
}

/// Records that a tool result was truncated from `whole` to `shortened`, and the number of bytes
/// that were removed.
pub(crate) fn shortened(whole: &CallToolResult, shortened: &CallToolResult, view: Option<&str>) {
    let left_out =
        content_size::of_result(whole).saturating_sub(content_size::of_result(shortened));
    let labels: Vec<_> = of_view(view).into_iter().collect();
    counter!(SHORTENED, labels.clone()).increment(1);
    counter!(LEFT_OUT, labels).increment(u64::try_from(left_out).unwrap_or(u64::MAX));
}

/// Records that a connection to a backend was established or re-established.
#[cfg(feature = "remote")]
pub(crate) fn connected(backend: &str) {
    counter!(CONNECTIONS, "mcp_composite.backend" => backend.to_owned()).increment(1);
}

fn of_view(view: Option<&str>) -> Option<Label> {
    view.map(|view| Label::new(VIEW, view.to_owned()))
}

fn ended(method: &'static str, end: &End) -> Vec<Label> {
    let mut labels = vec![Label::new("mcp.method.name", method)];
    let error =
        end.error.clone().or_else(|| (end.status == "cancelled").then(|| "cancelled".into()));
    labels.extend(error.map(|error| Label::new("error.type", error)));
    labels.extend(end.low_code().map(|code| Label::new("rpc.response.status_code", code)));
    labels
}
