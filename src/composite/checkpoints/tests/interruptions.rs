//! Tests processes that stop at each point of a run, and others that continue the run.

use super::*;
use crate::composite::{Case, Fallback, Race, Retry, Strategy};

const LOST: &str = "so the call may have had an effect; set `retry_lost = true`";

/// Composites of all kinds, whose tool calls use `tool`. The last one of each list is called.
fn all(tool: &str) -> Vec<(&'static str, Vec<CompositeTool>)> {
    let step = |id: &str| Step::new(id, call(tool, id, 1));
    let each = |parallel| {
        let looped =
            ToolCall::new(tool).arguments(json!({ "key": "item{{ item }}", "seconds": "$item" }));
        ForEach::new(json!([3, 1, 2, 4]), looped).max_parallel(parallel)
    };
    let repeated = ToolCall::new(tool)
        .arguments(json!({ "key": "iteration{{ index }}", "seconds": 1, "n": "$index" }));
    let repeat = Repeat::new(repeated, "last.n == 2").delay(Duration::from_secs(1));
    let switch = Switch::new(
        [Case::new("steps.a.output.key == 'b'", call(tool, "one", 1))],
        Otherwise::Call(call(tool, "two", 2)),
    );
    let ask = || Step::new("ask", Elicitation::new("Go on?", json!({ "properties": {} })));
    let targets = |tool: &str| {
        [("a", 1), ("b", 2), ("c", 3)].map(|(id, seconds)| {
            Target::new(tool).id(id).arguments(json!({ "key": id, "seconds": seconds }))
        })
    };
    let inner = CompositeTool::pipeline("inner", "Runs", [step("x"), step("y")]);
    let inner = match tool {
        "put" => inner.annotations(ToolAnnotations::new().idempotent(true)),
        _ => inner,
    };
    let fan_out = |strategy: Strategy| vec![CompositeTool::new("run", "Runs", strategy)];
    let diamond = || [step("a"), step("b").depends_on(["a"]), step("c").depends_on(["a"])];
    let last = step("d").depends_on(["b", "c"]);
    vec![
        ("sequence", vec![pipeline([step("a"), step("b"), step("c")])]),
        ("diamond", vec![workflow(diamond().into_iter().chain([last]))]),
        ("loop", vec![pipeline([step("a"), Step::new("each", each(2)), step("b")])]),
        ("sequential loop", vec![pipeline([Step::new("each", each(1)), step("b")])]),
        ("tolerant loop", vec![pipeline([Step::new("each", each(2)).on_error(OnError::Continue)])]),
        ("repeat", vec![pipeline([step("a"), Step::new("repeat", repeat), step("b")])]),
        (
            "switch",
            vec![pipeline([
                step("a"),
                step("skipped").condition("steps.a.output.key == 'b'"),
                Step::new("switch", switch),
                step("b"),
            ])],
        ),
        ("finally", vec![pipeline([step("a"), step("b"), step("f").finally(Finally::new())])]),
        (
            "finally after a failure",
            vec![pipeline([
                Step::new("a", call("fails", "a", 1)),
                step("f").finally(Finally::new()),
            ])],
        ),
        (
            "question",
            vec![workflow([
                step("a"),
                ask().depends_on(["a"]),
                step("b").depends_on(["ask"]),
                step("c"),
            ])],
        ),
        ("nested", vec![inner, pipeline([step("a"), Step::new("inner", "inner"), step("b")])]),
        ("fan-out", fan_out(FanOut::new(targets(tool)).into())),
        ("sequential fan-out", fan_out(FanOut::new(targets(tool)).sequential().into())),
        ("race", fan_out(Race::new(targets(tool)).into())),
        ("fallback", fan_out(Fallback::new(targets(tool)).into())),
        (
            "few at a time",
            vec![CompositeTool::new(
                "run",
                "Runs",
                Workflow::new([step("a"), step("b"), step("c"), step("d")]).max_parallel(2),
            )],
        ),
        ("continues", vec![pipeline([step("a").on_error(OnError::Continue), step("b")])]),
    ]
}

/// Runs a composite in a process that stops at the log entry `stop`, and continues it in others.
/// Each of them stops after `more` further entries, or does not stop if `more` is `None`.
async fn interrupted(
    composites: &[CompositeTool],
    stop: usize,
    more: Option<usize>,
) -> (World, CallToolResult) {
    let world = World::default();
    world.stop_at(stop);
    let mut result = world.result(composites).await;
    let mut processes = 1;
    while result.is_none() {
        processes += 1;
        let more = more.filter(|_| processes < 50);
        world.stop_at(more.map_or(0, |more| world.entries().len() + more));
        result = world.result(composites).await;
    }
    (world, result.unwrap())
}

/// Returns the number of log entries of a run that no process interrupts, and its result.
async fn uninterrupted(composites: &[CompositeTool]) -> (usize, CallToolResult) {
    let world = World::default();
    let result = world.result(composites).await.unwrap();
    (world.entries().len(), result)
}

#[tokio::test(start_paused = true)]
async fn result_is_the_same_after_any_interruption_if_tools_are_idempotent() {
    let mut runs = 0;
    for (what, composites) in all("put") {
        let (entries, expected) = uninterrupted(&composites).await;
        for stop in 1..=entries {
            for more in [None, Some(5), Some(8)] {
                let (world, result) = interrupted(&composites, stop, more).await;
                assert_eq!(result, expected, "{what}, {stop}, {more:?}: {:?}", world.entries());
                runs += 1;
            }
        }
    }
    assert!(runs > 500, "{runs}");
}

#[tokio::test(start_paused = true)]
async fn no_tool_is_called_twice_after_any_interruption_unless_it_is_idempotent() {
    let mut lost = 0;
    for (what, composites) in all("send") {
        let (entries, expected) = uninterrupted(&composites).await;
        for stop in 1..=entries {
            for more in [None, Some(1), Some(5)] {
                let (world, result) = interrupted(&composites, stop, more).await;
                let log = world.entries();
                let calls = world.0.calls.lock().unwrap().clone();
                // The tool of this step is idempotent.
                let may_repeat = |key: &str| what == "finally after a failure" && key == "a";
                let mut repeated =
                    calls.iter().filter(|(key, count)| **count > 1 && !may_repeat(key));
                assert_eq!(repeated.next(), None, "{what}, {stop}, {more:?}: {log:?}");
                if result != expected {
                    let text = serde_json::to_string(&result).unwrap();
                    let hides_failures = ["race", "fallback", "continues"].contains(&what);
                    assert!(
                        text.contains(LOST) || hides_failures,
                        "{what}, {stop}, {more:?}: {text}"
                    );
                    lost += 1;
                }
            }
        }
    }
    assert!(lost > 100, "{lost}");
}

#[tokio::test(start_paused = true)]
async fn only_the_running_element_of_a_sequential_loop_is_lost() {
    let looped = ToolCall::new("send").arguments(json!({ "key": "$item", "seconds": 1 }));
    let each = ForEach::new(json!(["a", "b", "c"]), looped).max_parallel(1);
    let composite = [pipeline([Step::new("each", each).on_error(OnError::Continue)])];
    let world = World::default();
    world.stop_at(7);
    assert_eq!(world.result(&composite).await, None);
    assert_eq!(world.entries().last().unwrap(), "b starts");
    let output = world.result(&composite).await.unwrap().structured_content.unwrap();
    let statuses: Vec<_> = (0..3).map(|at| output["iterations"][at]["status"].clone()).collect();
    assert_eq!(statuses, ["completed", "failed", "completed"]);
    let error = &output["iterations"][1]["error"];
    assert_eq!(error["kind"], "lost");
    let message = "the server stopped while `each` ran, so the call may have had an effect; set \
                `retry_lost = true` if the tool may be called again";
    assert_eq!(error["message"], message);
}

#[tokio::test(start_paused = true)]
async fn only_the_running_target_of_a_sequential_fan_out_is_lost() {
    let targets = ["a", "b", "c"]
        .map(|id| Target::new("send").id(id).arguments(json!({ "key": id, "seconds": 1 })));
    let composite = [CompositeTool::new("run", "Runs", FanOut::new(targets).sequential())];
    let world = World::default();
    world.stop_at(7);
    assert_eq!(world.result(&composite).await, None);
    assert_eq!(world.entries().last().unwrap(), "b starts");
    let report = world.result(&composite).await.unwrap().structured_content.unwrap();
    let statuses = ["a", "b", "c"].map(|id| report["branches"][id]["status"].clone());
    assert_eq!(statuses, ["completed", "failed", "completed"], "{report}");
}

/// Returns the result of a run whose step `a` is interrupted, and the number of its calls.
async fn with_lost_step(a: Step) -> (CallToolResult, usize) {
    let composite = [pipeline([a, step("b", "send")])];
    let (world, result) = interrupted(&composite, 3, None).await;
    (result, world.calls("a"))
}

#[tokio::test(start_paused = true)]
async fn lost_step_fails_the_run() {
    let (result, calls) = with_lost_step(step("a", "send")).await;
    let expected = "step `a` (tool `send`) failed: the server stopped while `a` ran";
    assert!(first_text(&result).starts_with(expected), "{}", first_text(&result));
    assert_eq!((result.is_error, calls), (Some(true), 1));
}

#[tokio::test(start_paused = true)]
async fn lost_step_is_not_retried() {
    let retry = OnError::Retry(Retry::times(3));
    let (result, calls) = with_lost_step(step("a", "send").on_error(retry)).await;
    assert_eq!((result.is_error, calls), (Some(true), 1));
}

#[tokio::test(start_paused = true)]
async fn run_continues_after_a_lost_step_that_may_fail() {
    let (result, calls) = with_lost_step(step("a", "send").on_error(OnError::Continue)).await;
    assert_eq!((result.is_error, calls), (Some(false), 1));
}

#[tokio::test(start_paused = true)]
async fn lost_step_with_retry_lost_is_called_again() {
    let (result, calls) = with_lost_step(step("a", "send").retry_lost(true)).await;
    assert_eq!((result.is_error, calls), (Some(false), 2));
}

#[tokio::test(start_paused = true)]
async fn read_only_tool_is_called_again() {
    let (result, calls) = with_lost_step(step("a", "get")).await;
    assert_eq!((result.is_error, calls), (Some(false), 2));
}

#[tokio::test(start_paused = true)]
async fn time_before_the_interruption_counts_toward_the_timeout() {
    let slow = |id: &str, seconds| Step::new(id, call("put", id, seconds));
    let composite = [pipeline([slow("a", 6), slow("b", 9)]).timeout(Duration::from_secs(10))];
    let world = World::default();
    world.stop_at(7);
    assert_eq!(world.result(&composite).await, None);
    assert_eq!(world.entries().last().unwrap(), "b starts");
    sleep(Duration::from_secs(100)).await;
    let begun = Instant::now();
    let text = world.text(&composite).await;
    assert_eq!((begun.elapsed(), world.calls("b")), (Duration::from_secs(4), 2), "{text}");
}

#[tokio::test(start_paused = true)]
async fn calls_before_the_interruption_count_toward_the_limit() {
    let steps = ["a", "b", "c"].map(|id| step(id, "put"));
    let composite = [pipeline(steps).max_calls(2)];
    let (entries, expected) = uninterrupted(&composite).await;
    assert_eq!(entries, 10);
    let (world, result) = interrupted(&composite, 5, None).await;
    assert_eq!((result, world.calls("c")), (expected, 0));
}

#[tokio::test(start_paused = true)]
async fn retried_call_is_called_again_with_its_whole_input() {
    let composite = [CompositeTool::new("run", "Runs", FanOut::new(["get", "put"]))];
    let (_, expected) = uninterrupted(&composite).await;
    for stop in 1..6 {
        assert_eq!(interrupted(&composite, stop, None).await.1, expected, "{stop}");
    }
}
