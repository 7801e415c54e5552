//! Tests when states are stored.

use super::*;
use crate::composite::ComputedValue;

#[tokio::test(start_paused = true)]
async fn state_is_stored_before_dependants_start() {
    let world = World::default();
    let result = world.result(&[pipeline([step("a", "send"), step("b", "send")])]).await.unwrap();
    assert_eq!(result.structured_content, Some(json!({ "key": "b", "seconds": 1 })));
    let expected = ["saves", "saved", "a starts", "a ends", "saves", "saved", "b starts", "b ends"];
    assert_eq!(world.entries(), strings(expected));
}

#[tokio::test(start_paused = true)]
async fn branches_that_end_together_are_stored_once() {
    let world = World::default();
    let last = step("c", "send").depends_on(["a", "b"]);
    world.result(&[workflow([step("a", "send"), step("b", "send"), last])]).await.unwrap();
    let expected = [
        "saves", "saved", "a starts", "b starts", "a ends", "b ends", "saves", "saved", "c starts",
        "c ends",
    ];
    assert_eq!(world.entries(), strings(expected));
}

#[tokio::test(start_paused = true)]
async fn calls_that_end_at_the_first_poll_are_stored_once() {
    let world = World::default();
    let at_once = |id: &str| Step::new(id, call("send", id, 0)).on_error(OnError::Continue);
    let last = at_once("c").depends_on(["a", "b"]);
    world.result(&[workflow([at_once("a"), at_once("b"), last])]).await.unwrap();
    let saves = world.entries().iter().filter(|entry| *entry == "saves").count();
    assert_eq!(saves, 2, "{:?}", world.entries());
}

#[tokio::test(start_paused = true)]
async fn outcome_is_stored_while_other_branches_run() {
    let world = World::default();
    let long = Step::new("b", call("send", "b", 9));
    world.result(&[workflow([step("a", "send"), long])]).await.unwrap();
    let expected = ["saves", "saved", "a starts", "b starts", "a ends", "saves", "saved", "b ends"];
    assert_eq!(world.entries(), strings(expected));
}

#[tokio::test(start_paused = true)]
async fn steps_that_call_nothing_are_stored_with_the_next_call() {
    let world = World::default();
    let value = |id: &str, of: &str| Step::new(id, ComputedValue::new(json!(format!("${of}"))));
    let last = ToolCall::new("send").arguments(json!({ "key": "$steps.v" }));
    let steps = [
        step("a", "send"),
        value("u", "steps.a.output.key"),
        value("v", "steps.u"),
        Step::new("b", last),
    ];
    world.result(&[pipeline(steps)]).await.unwrap();
    let expected =
        ["saves", "saved", "a starts", "a ends", "saves", "saved", "\"a\" starts", "\"a\" ends"];
    let entries: Vec<_> = world.entries();
    assert_eq!(entries.len(), expected.len(), "{entries:?}");
    assert_eq!(entries[..6], strings(expected)[..6]);
}

#[tokio::test(start_paused = true)]
async fn finally_steps_start_after_the_outcome_is_stored() {
    let world = World::default();
    let steps = [step("a", "fails"), step("b", "send"), step("c", "send").finally(Finally::new())];
    let result = world.result(&[pipeline(steps)]).await.unwrap();
    assert_eq!(result.is_error, Some(true));
    let expected = ["saves", "saved", "a starts", "a ends", "saves", "saved", "c starts", "c ends"];
    assert_eq!(world.entries(), strings(expected));
}

#[tokio::test(start_paused = true)]
async fn steps_time_out_while_a_state_is_stored() {
    let world = World::default();
    *world.0.save_time.lock().unwrap() = Duration::from_secs(5);
    let late = Step::new("b", call("send", "b", 4))
        .timeout(Duration::from_secs(3))
        .on_error(OnError::Continue);
    world.result(&[workflow([step("a", "send"), late])]).await.unwrap();
    // The state with the outcome of `a` is stored from second 6 to second 11. The call of `b`
    // starts at second 5, and would end at second 9.
    let expected = ["saves", "saved", "a starts", "b starts", "a ends", "saves", "saved"];
    assert_eq!(world.entries(), strings(expected));
}

#[tokio::test(start_paused = true)]
async fn run_times_out_while_its_state_is_stored() {
    let world = World::default();
    *world.0.save_time.lock().unwrap() = Duration::from_secs(50);
    let begun = Instant::now();
    let composite = pipeline([step("a", "send")]).timeout(Duration::from_secs(2));
    let text = world.text(&[composite]).await;
    assert_eq!((begun.elapsed().as_secs(), world.entries()), (2, strings(["saves"])));
    assert!(text.contains("time"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn call_without_a_checkpoint_stores_nothing() {
    let world = World::default();
    let composite = pipeline([step("a", "send"), step("b", "send")]);
    let reply = world.process(&[composite]).oneshot(Request::call_tool("run")).await.unwrap();
    assert_eq!(reply.tool_result().unwrap().is_error, Some(false));
    assert_eq!(world.entries(), strings(["a starts", "a ends", "b starts", "b ends"]));
}

#[test]
fn branches_and_nested_requests_have_no_checkpoint() {
    let mut context = Context::default();
    context.extensions_mut().insert("other");
    context.set_checkpoint(Arc::new(World::default()));
    assert!(context.checkpoint().is_some());
    let branch = context.branch("a".into(), None);
    let nested = Request::call_tool("a").within(&context);
    for context in [&branch, nested.context()] {
        assert!(context.checkpoint().is_none());
        assert_eq!(context.extensions().get(), Some(&"other"));
    }
}
