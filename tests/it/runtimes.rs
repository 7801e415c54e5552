//! The guarantees of fan-outs on a runtime of one thread and on one of two, in real time.
//!
//! Branches are polled where they start, and become tasks when they wait. On several threads those
//! after a slow branch are tasks from the start.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use mcp_composite::{
    budget::{Budget, BudgetLayer, MemoryBudgets, Unit},
    composite::{
        BranchOrder, CompositeLayer, CompositeTool, FanOut, Labels, Strategy, Success, Target,
        Trace,
    },
    observe::{Branch, Event, Observer, What},
    stack::StackLayer,
    testing::{self, Answer, Server},
};
use serde_json::{Value, json};
use tokio::{
    runtime::{Builder, Runtime},
    task::{JoinSet, yield_now},
};
use tower::{Layer, limit::ConcurrencyLimit};

use crate::support::soon;

/// Branches that end at their first poll, after a wait, after waking themselves, and after blocking
/// their thread.
const TOOLS: [&str; 4] = ["now", "waits", "wakes", "blocks"];

/// Runs a test within a task of each runtime.
fn on_each_runtime<F>(test: impl Fn() -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtimes: [Runtime; 2] = [
        Builder::new_current_thread().enable_all().build().unwrap(),
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
    ];
    for runtime in runtimes {
        let mut running = JoinSet::new();
        running.spawn_on(test(), runtime.handle());
        runtime.block_on(async { soon(running.join_next()).await.unwrap().unwrap() });
    }
}

fn server() -> Server {
    Server::new()
        .says("now", "now")
        .tool("waits", Answer::text("waits").after(Duration::from_millis(5)))
        .tool(
            "wakes",
            Answer::from_fn(|_| async {
                yield_now().await;
                Answer::text("wakes")
            }),
        )
        .tool(
            "blocks",
            Answer::from_fn(|_| async {
                thread::sleep(Duration::from_millis(2));
                Answer::text("blocks")
            }),
        )
        .fails("fails", "no route")
        .tool("panics", Answer::panic("secret"))
        .hangs("hangs")
}

/// Waits until no call runs: tasks of aborted branches end a moment later.
async fn ended(server: &Server) {
    while server.running() > 0 {
        yield_now().await;
    }
}

fn all(tools: &[&str]) -> CompositeTool {
    CompositeTool::fan_out("all", "All of them", tools.to_vec())
}

/// Returns a composite named `all` with this strategy.
fn of(strategy: impl Into<Strategy>) -> CompositeTool {
    CompositeTool::new("all", "All of them", strategy)
}

fn layer(composite: CompositeTool) -> CompositeLayer {
    CompositeLayer::new([composite]).unwrap()
}

#[test]
fn failed_or_late_branch_does_not_affect_the_others() {
    on_each_runtime(|| async {
        let server = server();
        let targets = ["now", "fails", "blocks", "panics", "hangs", "waits", "wakes"];
        let target = |tool| match tool {
            "hangs" => Target::new(tool).timeout(Duration::from_millis(300)),
            _ => Target::new(tool),
        };
        let composite = CompositeTool::new(
            "all",
            "All of them",
            FanOut::new(targets.map(target)).success(Success::Any),
        );
        let service = layer(composite).layer(server.clone());
        let result = testing::call(&service, "all", json!({})).await;
        let report = result.structured_content.unwrap();
        let statuses = targets.map(|target| report["branches"][target]["status"].clone());
        let expected =
            ["completed", "failed", "completed", "failed", "timed_out", "completed", "completed"];
        assert_eq!(statuses, expected, "{report}");
        for target in ["now", "blocks", "waits", "wakes"] {
            assert_eq!(report["branches"][target]["output"], target);
        }
        assert!(!report.to_string().contains("secret"));
        ended(&server).await;
        assert_eq!(server.dropped(), ["hangs"]);
    });
}

#[test]
fn content_has_declared_or_completion_order() {
    on_each_runtime(|| async {
        for (order, expected) in
            [(BranchOrder::Declared, ["waits", "now"]), (BranchOrder::Completion, ["now", "waits"])]
        {
            let service =
                layer(of(FanOut::new(["waits", "now"]).labels(Labels::Meta).order(order)))
                    .layer(server());
            let result = testing::call(&service, "all", json!({})).await;
            let texts: Vec<_> = result.content.iter().filter_map(|block| block.as_text()).collect();
            let texts: Vec<_> = texts.iter().map(|text| &*text.text).collect();
            assert_eq!(texts, expected);
        }
    });
}

#[test]
fn call_limit_is_exact_with_branches_in_tasks() {
    on_each_runtime(|| async {
        for limit in 1..=5 {
            let server = server();
            let tools = ["blocks", "now", "waits", "wakes", "fails", "waits"];
            let targets = tools
                .iter()
                .enumerate()
                .map(|(place, tool)| Target::new(*tool).id(format!("branch_{place}")));
            let composite = CompositeTool::new(
                "all",
                "All of them",
                FanOut::new(targets).success(Success::Any),
            )
            .max_calls(limit);
            testing::call(&layer(composite).layer(server.clone()), "all", json!({})).await;
            assert_eq!(server.called().len(), limit);
        }
    });
}

#[test]
fn budget_is_charged_for_each_branch() {
    on_each_runtime(|| async {
        let budgets = Arc::new(MemoryBudgets::new());
        let calls = Budget::new("calls", Unit::Calls, 10);
        let budget = BudgetLayer::new().store(budgets.clone()).budget(calls.clone());
        let stack = StackLayer::new().composite(layer(all(&TOOLS))).budget(budget);
        let stack = stack.layer(server());
        testing::call(&stack, "all", json!({})).await;
        assert_eq!(budgets.remaining(&calls, None), 6);
        testing::call(&stack, "all", json!({})).await;
        assert_eq!(budgets.remaining(&calls, None), 2);
    });
}

#[test]
fn concurrency_limit_of_one_is_respected() {
    on_each_runtime(|| async {
        let server = server();
        let inner = all(&TOOLS);
        let outer = CompositeTool::fan_out("outer", "Nested", ["all", "now", "waits"]);
        let layer = CompositeLayer::new([inner, outer]).unwrap();
        let service = layer.layer(ConcurrencyLimit::new(server.clone(), 1));
        for _ in 0..2 {
            let result = testing::call(&service, "outer", json!({})).await;
            assert_eq!(result.is_error, Some(false));
        }
        assert_eq!(server.most_running(), 1);
        assert_eq!(server.called().len(), 2 * (TOOLS.len() + 2));
    });
}

#[test]
fn dropped_call_drops_each_branch() {
    on_each_runtime(|| async {
        let server = server();
        let slow = Answer::text("slow").after(Duration::from_secs(600));
        let server = server.tool("slow", slow);
        let service = layer(all(&["hangs", "now", "slow", "blocks"])).layer(server.clone());
        let mut call = Box::pin(testing::call(&service, "all", json!({})));
        let others_end = async {
            while server.called().len() < 4 || server.running() > 2 {
                yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut call => panic!("two branches wait"),
            () = others_end => (),
        }
        drop(call);
        ended(&server).await;
        let mut dropped = server.dropped();
        dropped.sort_unstable();
        assert_eq!(dropped, ["hangs", "slow"]);
    });
}

/// Records the events of each branch.
#[derive(Default)]
struct EventLog(Mutex<Vec<(Option<String>, &'static str)>>);

impl Observer for EventLog {
    fn on_event(&self, event: &Event<'_>) {
        let of = |branch: &Branch<'_>| Some(branch.to_string());
        let note = match &event.what {
            What::RunStarted { .. } => (None, "run starts"),
            What::RunFinished { .. } => (None, "run ends"),
            What::BranchStarted { branch, .. } => (of(branch), "starts"),
            What::Attempt { branch, .. } => (of(branch), "is called"),
            What::BranchFinished { branch, .. } => (of(branch), "ends"),
            _ => (None, "other"),
        };
        self.0.lock().unwrap().push(note);
    }
}

#[test]
fn observer_receives_the_events_of_each_branch_in_order() {
    on_each_runtime(|| async {
        let log = Arc::new(EventLog::default());
        let layer = layer(all(&TOOLS)).observer(log.clone());
        testing::call(&layer.layer(server()), "all", json!({})).await;
        let log = log.0.lock().unwrap();
        let events_of = |branch: Option<&str>| -> Vec<_> {
            let of = log.iter().filter(|(of, _)| of.as_deref() == branch);
            of.map(|(_, event)| *event).collect()
        };
        assert_eq!(events_of(None), ["run starts", "run ends"]);
        assert_eq!(log.first().unwrap().1, "run starts");
        assert_eq!(log.last().unwrap().1, "run ends");
        for tool in TOOLS {
            assert_eq!(events_of(Some(tool)), ["starts", "is called", "ends"], "{tool}");
        }
    });
}

#[test]
fn trace_has_the_times_of_each_branch() {
    on_each_runtime(|| async {
        let composite = all(&["waits", "now", "blocks"]).trace(Trace::Always);
        let service = layer(composite).layer(server());
        let result = testing::call(&service, "all", json!({})).await;
        let trace = &result.meta.unwrap().0["mcp-composite/trace"];
        let took = |place: usize| trace[place]["duration_ms"].as_u64().unwrap();
        assert!(took(0) >= 5, "{trace}");
        assert!(took(2) >= 2, "{trace}");
        assert_eq!(trace[1].get("attempts"), None::<&Value>, "{trace}");
    });
}
