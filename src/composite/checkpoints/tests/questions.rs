//! Tests questions of runs that store their states.

use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::composite::CancelledRuns;

fn ask(id: &str) -> Step {
    Step::new(id, Elicitation::new("Go on?", json!({ "properties": {} })))
}

#[tokio::test(start_paused = true)]
async fn stored_questions_are_returned_again_until_they_are_answered() {
    let world = World::default();
    let composite = [pipeline([step("a", "send"), ask("sure"), step("b", "send")])];
    for _ in 0..3 {
        let reply = world.call(&composite, None).await.unwrap();
        assert_eq!(question_keys(&reply).unwrap(), ["sure"]);
    }
    let stored = ["saves", "saved", "a starts", "a ends", "saves", "saved"];
    assert_eq!(world.entries(), strings(stored));
    let reply = world.call(&composite, Some(accept(&strings(["sure"])))).await.unwrap();
    assert_eq!(result(&reply).structured_content.unwrap()["key"], "b");
    // The answer is stored before the run goes on.
    let after = ["saves", "saved", "saves", "saved", "b starts", "b ends"];
    assert_eq!(world.entries()[stored.len()..], strings(after));
}

#[tokio::test(start_paused = true)]
async fn answer_survives_the_process_that_received_it() {
    let world = World::default();
    let composite = [pipeline([ask("sure"), step("b", "send")])];
    world.call(&composite, None).await.unwrap();
    world.stop_at(world.entries().len() + 2);
    assert!(world.call(&composite, Some(accept(&strings(["sure"])))).await.is_none());
    world.stop_at(0);
    // The call has no answer, and the question is not asked again.
    let reply = world.call(&composite, None).await.unwrap();
    assert_eq!(result(&reply).is_error, Some(false));
}

#[tokio::test(start_paused = true)]
async fn repeated_answer_does_not_answer_a_later_question() {
    let world = World::default();
    let composite = [pipeline([ask("one"), step("a", "put"), ask("two"), step("b", "put")])];
    world.call(&composite, None).await.unwrap();
    let both = accept(&strings(["one", "two"]));
    world.stop_at(world.entries().len() + 5);
    assert!(world.call(&composite, Some(both.clone())).await.is_none());
    assert_eq!(world.entries().last().unwrap(), "a starts");
    world.stop_at(0);
    let reply = world.call(&composite, Some(both)).await.unwrap();
    assert_eq!(question_keys(&reply).unwrap(), ["two"]);
}

#[tokio::test(start_paused = true)]
async fn tool_that_has_received_an_answer_is_lost() {
    let of = |retry_lost| {
        let asks = ToolCall::new("asks").arguments(json!({ "key": "a" }));
        let wrapped = CompositeTool::pipeline("wrapped", "Asks", [Step::new("a", asks)]);
        [wrapped, pipeline([Step::new("w", "wrapped").retry_lost(retry_lost)])]
    };
    for (retry_lost, calls) in [(false, 2), (true, 3)] {
        let (world, composites) = (World::default(), of(retry_lost));
        let reply = world.call(&composites, None).await.unwrap();
        let answers = Some(accept(&question_keys(&reply).unwrap()));
        world.stop_at(world.entries().len() + 3);
        assert!(world.call(&composites, answers).await.is_none());
        assert_eq!(world.entries().last().unwrap(), "a starts", "{:?}", world.entries());
        world.stop_at(0);
        let reply = world.call(&composites, None).await.unwrap();
        let is_lost = first_text(&result(&reply)).contains("the server stopped while `w` ran");
        assert_eq!((is_lost, world.calls("a")), (!retry_lost, calls));
    }
}

#[tokio::test(start_paused = true)]
async fn running_branch_is_continued_before_the_question_is_asked_again() {
    let world = World::default();
    let composite = [workflow([ask("sure"), Step::new("b", call("put", "b", 5))])];
    world.stop_at(3);
    assert!(world.call(&composite, None).await.is_none());
    world.stop_at(0);
    let reply = world.call(&composite, None).await.unwrap();
    assert_eq!(question_keys(&reply).unwrap(), ["sure"]);
    assert_eq!(world.calls("b"), 2);
    let reply = world.call(&composite, Some(accept(&strings(["sure"])))).await.unwrap();
    assert_eq!((result(&reply).is_error, world.calls("b")), (Some(false), 2));
}

/// Drops a call whose finally step also runs after a cancellation. Returns the number of calls of
/// this step. If `cancels` is `true`, the call is cancelled first.
async fn calls_of_finally_step(cancels: bool) -> usize {
    let world = World::default();
    let finally = step("f", "send").finally(Finally::new().on_cancel(true));
    let composite = pipeline([Step::new("a", call("send", "a", 9)), finally]);
    let runs = CancelledRuns::new();
    let of_tools = world.clone();
    let tools = service_fn(move |request| of_tools.clone().serve(request).boxed());
    let layer = CompositeLayer::new([composite]).unwrap().cancelled_runs(runs.clone());
    let mut request = world.request(CallToolRequestParams::new("run"));
    let token = CancellationToken::new();
    request.context_mut().set_cancellation(token.clone());
    let mut reply = Box::pin(layer.layer(tools).oneshot(request));
    assert!(timeout(Duration::from_secs(2), &mut reply).await.is_err());
    if cancels {
        token.cancel();
    }
    drop(reply);
    runs.finished().await;
    world.calls("f")
}

#[tokio::test(start_paused = true)]
async fn finally_step_runs_only_if_the_call_was_cancelled() {
    assert_eq!(calls_of_finally_step(true).await, 1);
    // Another process continues the run.
    assert_eq!(calls_of_finally_step(false).await, 0);
}
