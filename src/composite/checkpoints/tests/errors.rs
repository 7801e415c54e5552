//! Tests states that cannot be stored or continued.

use super::*;

fn failed(why: &str) -> CheckpointError {
    CheckpointError::Failed(why.to_owned())
}

fn two_steps() -> [CompositeTool; 1] {
    [pipeline([step("a", "put"), step("b", "put"), step("f", "put").finally(Finally::new())])]
}

#[tokio::test(start_paused = true)]
async fn run_that_cannot_be_stored_calls_nothing() {
    let world = World::default();
    world.fail_at(1, failed("the store is full"));
    let text = world.text(&two_steps()).await;
    assert_eq!(text, "the run cannot be stored, and nothing was called: the store is full");
    assert_eq!(world.entries(), strings(["saves"]));
}

#[tokio::test(start_paused = true)]
async fn run_ends_when_its_state_cannot_be_stored() {
    let world = World::default();
    world.fail_at(2, failed("the store is full"));
    let other = Step::new("c", call("put", "c", 9));
    let composite = [workflow([step("a", "put"), step("b", "put").depends_on(["a"]), other])];
    let result = world.result(&composite).await.unwrap();
    let expected = "the run cannot be stored: the store is full";
    assert_eq!((first_text(&result).as_str(), result.is_error), (expected, Some(true)));
    sleep(Duration::from_secs(99)).await;
    let expected = ["saves", "saved", "a starts", "c starts", "a ends", "saves"];
    assert_eq!(world.entries(), strings(expected));
}

#[tokio::test(start_paused = true)]
async fn lost_run_ends_without_its_finally_steps() {
    let world = World::default();
    world.fail_at(2, CheckpointError::Lost);
    let text = world.text(&two_steps()).await;
    assert_eq!(text, "another process has taken over the run");
    assert_eq!(world.entries(), strings(["saves", "saved", "a starts", "a ends", "saves"]));
}

#[tokio::test(start_paused = true)]
async fn question_is_not_asked_if_its_run_cannot_be_stored() {
    let world = World::default();
    world.fail_at(2, failed("the store is full"));
    let ask = Step::new("ask", Elicitation::new("Go on?", json!({ "properties": {} })));
    let reply = world.call(&[pipeline([step("a", "put"), ask])], None).await.unwrap();
    assert_eq!(first_text(&result(&reply)), "the run cannot be stored: the store is full");
}

#[tokio::test(start_paused = true)]
async fn changed_definition_is_refused() {
    let world = World::default();
    world.stop_at(5);
    assert_eq!(world.result(&two_steps()).await, None);
    world.stop_at(0);
    let changed = [pipeline([step("a", "put"), step("b", "get")])];
    let text = world.text(&changed).await;
    let expected = "the run cannot continue: the definition of `run` has changed since it started, \
                    or the call has other arguments or another caller";
    assert_eq!((text.as_str(), world.calls("b")), (expected, 0));
}

#[tokio::test(start_paused = true)]
async fn invalid_state_is_refused() {
    let world = World::default();
    world.stop_at(7);
    assert_eq!(world.result(&two_steps()).await, None);
    world.stop_at(0);
    let state = world.last_state().unwrap();
    let calls = world.calls("b");
    let line = state.iter().position(|&byte| byte == b'\n').unwrap() + 1;
    let of = |json: &str| [&state[..line], json.as_bytes()].concat();
    let mut states: Vec<_> = (0..state.len()).map(|bytes| state[..bytes].to_vec()).collect();
    states.extend([of("null"), of("{}"), vec![0; 99], vec![b'\n'], vec![0xff; 99]]);
    for invalid in states {
        world.set_state(invalid);
        let text = world.text(&two_steps()).await;
        assert!(text.starts_with("the run cannot continue: "), "{text}");
    }
    assert_eq!(world.calls("b"), calls);
}

#[tokio::test(start_paused = true)]
async fn changed_state_does_not_panic() {
    let world = World::default();
    let looped = ToolCall::new("put").arguments(json!({ "key": "$item", "seconds": 1 }));
    let each = ForEach::new(json!(["a", "b", "c"]), looped).max_parallel(2);
    let composite = [pipeline([Step::new("each", each), step("d", "put")])];
    world.stop_at(9);
    assert_eq!(world.result(&composite).await, None);
    world.stop_at(0);
    let state = world.last_state().unwrap();
    let digits = (65..state.len()).filter(|&at| state[at].is_ascii_digit());
    for at in digits {
        for digit in b"0159" {
            let mut changed = state.to_vec();
            changed[at] = *digit;
            world.set_state(changed);
            world.result(&composite).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deep_result_cannot_be_stored() {
    let world = World::default();
    let deep = format!("{}1{}", "[".repeat(126), "]".repeat(126));
    let says = ToolCall::new("says").arguments(json!({ "key": "a", "text": deep })).parse_json();
    let reads = ToolCall::new("put").arguments(json!({ "key": "b", "x": "$steps.a.output[0]" }));
    let composite = [pipeline([Step::new("a", says), Step::new("b", reads)])];
    let text = world.text(&composite).await;
    assert_eq!(text, "the run cannot be stored: a result is nested too deep");
    assert_eq!(world.calls("b"), 0);
}
