//! Limits, foreign requests, and stores that fail.

use super::*;
use crate::tasks::limits::{MAX_CALLER_UNFINISHED, MAX_TASKS};

const NOT_AVAILABLE: &str = "the state of the task is not available at the moment; retry later";

fn message(answer: &ToolAnswer) -> &str {
    match answer {
        ToolAnswer::Error(error) => &error.message,
        other => panic!("no error: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn foreign_tasks_are_unknown() {
    let (one, two, store) = two();
    let ToolAnswer::Task(id) = one.call_as(Some("alice"), json!({})).await else {
        panic!("no task")
    };
    assert!(two.get_as(Some("alice"), &id).await.is_ok());
    let unknown = ErrorData::invalid_params("unknown task", None);
    for (caller, id) in
        [(Some("bob"), &*id), (None, &*id), (Some(""), &*id), (Some("alice"), &*"0".repeat(48))]
    {
        assert_eq!(two.get_as(caller, id).await.unwrap_err(), unknown, "{caller:?} {id}");
    }
    assert_eq!(two.cancel(&id).await.unwrap_err(), unknown);
    assert_eq!(two.answer(&id, &["1:sure"]).await.unwrap_err(), unknown);
    assert!(store.get(&id).await.unwrap().is_none(), "the store contains the ID");
    // The record expires.
    sleep(2 * 60 * 60 * SECOND).await;
    assert_eq!(two.get_as(Some("alice"), &id).await.unwrap_err(), unknown);
}

#[tokio::test(start_paused = true)]
async fn record_of_another_version_is_unknown() {
    let (one, two, store) = two();
    let id = one.start(json!({ "ask": true })).await;
    one.settled(&id).await;
    let stored = store.get(&key_of(&id)).await.unwrap().unwrap();
    let call: Value = serde_json::from_slice(&stored.call).unwrap();
    for (field, value) in [("version", json!(2)), ("version", json!("1")), ("owner", json!(1))] {
        let mut call = call.clone();
        call[field] = value;
        let call = serde_json::to_vec(&call).unwrap();
        let id = new_id().unwrap();
        let mut write = TaskWrite::new("token", TaskPhase::Working(Duration::ZERO), SECOND);
        write.call = Some(&call);
        write.state = Some(&stored.state);
        TaskStore::write(&store, &key_of(&id), write).await.unwrap();
        assert_eq!(two.get_as(None, &id).await.unwrap_err().message, "unknown task");
    }
    sleep(60 * SECOND).await;
    assert_eq!((one.running(), two.running()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn call_is_rejected_or_plain_while_the_store_is_unavailable() {
    for (mode, is_task) in [(TaskMode::Always, true), (TaskMode::Optional, false)] {
        let link = Link::default();
        let one = Replica::with(mode, "one", link.clone());
        link.set_down(true);
        let answer = one.call_as(None, json!({})).await;
        if is_task {
            assert_eq!(message(&answer), NOT_AVAILABLE);
            assert_eq!(one.work.calls(), [""; 0]);
        } else {
            let ToolAnswer::Result(result) = answer else { panic!("no result: {answer:?}") };
            assert_eq!(result.content[0].as_text().unwrap().text, "plain");
        }
        assert_eq!(one.running(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn optional_call_continues_if_its_task_cannot_be_stored() {
    for (arguments, expected) in
        [(json!({}), Ok("done by one")), (json!({ "ask": true }), Err(NOT_AVAILABLE))]
    {
        let link = Link::default();
        let one = Replica::with(TaskMode::Optional, "one", link.clone());
        let calling = one.call_as(None, arguments);
        let cutting = async {
            sleep(SECOND / 2).await;
            link.set_down(true);
        };
        let (answer, ()) = tokio::join!(calling, cutting);
        match expected {
            Ok(text) => {
                let ToolAnswer::Result(result) = answer else { panic!("no result: {answer:?}") };
                assert_eq!(result.content[0].as_text().unwrap().text, text);
            }
            Err(text) => assert_eq!(message(&answer), text),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_fail_while_the_store_is_unavailable() {
    let link = Link::default();
    let one = Replica::new("one", link.clone());
    let id = one.start(json!({})).await;
    link.set_down(true);
    let errors = [
        one.get_as(None, &id).await.map(drop),
        one.cancel(&id).await.map(drop),
        one.answer(&id, &["1:sure"]).await.map(drop),
    ];
    for error in errors {
        assert_eq!(error.unwrap_err().message, NOT_AVAILABLE);
    }
}

#[tokio::test(start_paused = true)]
async fn run_survives_a_short_outage_of_the_store() {
    let link = Link::default();
    let one = Replica::new("one", link.clone());
    let id = one.start(json!({})).await;
    sleep(2 * SECOND).await;
    link.set_down(true);
    sleep(3 * SECOND).await;
    link.set_down(false);
    assert_eq!(one.text(&id).await, "done by one");
    assert_eq!(one.work.calls(), ["one first", "one second"]);
}

#[tokio::test(start_paused = true)]
async fn run_ends_if_its_state_cannot_be_stored() {
    let link = Link::default();
    let one = Replica::new("one", link.clone());
    let id = one.start(json!({})).await;
    sleep(2 * SECOND).await;
    link.set_down(true);
    sleep(10 * SECOND).await;
    link.set_down(false);
    let TaskPayload::Failed { error } = one.settled(&id).await else { panic!("not failed") };
    assert_eq!(error["message"], NOT_AVAILABLE);
    assert_eq!(one.work.calls(), ["one first"]);
}

#[tokio::test(start_paused = true)]
async fn outcome_is_stored_after_an_outage() {
    let link = Link::default();
    let one = Replica::new("one", link.clone());
    for arguments in [json!({}), json!({ "ask": true })] {
        link.failing_ends.store(30, Ordering::SeqCst);
        let id = one.start(arguments).await;
        let start = Instant::now();
        let payload = one.settled(&id).await;
        assert!(!matches!(payload, TaskPayload::Failed { .. }), "{payload:?}");
        assert!(start.elapsed() > 30 * SECOND);
    }
    assert_eq!(one.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn task_whose_outcome_cannot_be_stored_is_taken_over() {
    let link = Link::default();
    let one = Replica::new("one", link.clone());
    let two = Replica::new("two", link.store.clone());
    link.failing_ends.store(60, Ordering::SeqCst);
    let id = one.start(json!({})).await;
    // Either replica may claim the task, also the one that could not store its outcome.
    let text = two.text(&id).await;
    let name = text.strip_prefix("done by ").unwrap();
    let calls = [one.work.calls(), two.work.calls()].concat();
    assert_eq!(calls, ["one first", "one second", &format!("{name} second")]);
}

#[tokio::test(start_paused = true)]
async fn result_that_is_too_large_fails_the_task() {
    let (one, two, _) = two();
    let id = one.start(json!({ "large": 9 << 20 })).await;
    let TaskPayload::Failed { error } = two.settled(&id).await else { panic!("not failed") };
    assert_eq!(error["message"], "the task is too large: expected at most 8388608 bytes");
}

#[tokio::test(start_paused = true)]
async fn depth_of_results_and_answers_is_limited() {
    let (one, two, _) = two();
    let id = one.start(json!({ "levels": 120 })).await;
    assert_eq!(two.text(&id).await, "done by one");
    let id = one.start(json!({ "levels": 121 })).await;
    let TaskPayload::Failed { error } = two.settled(&id).await else { panic!("not failed") };
    assert_eq!(error["message"], "the result is nested too deeply for a task");

    let id = one.start(json!({ "ask": true })).await;
    two.settled(&id).await;
    let deep = |levels| (0..levels).fold(json!(1), |deep, _| json!([deep]));
    let refused = two.answer_with(deep(121), &id, &["1:sure"]).await.unwrap_err();
    assert_eq!(refused.message, "an answer is nested too deeply");
    two.answer_with(deep(120), &id, &["1:sure"]).await.unwrap();
    two.answer(&id, &["1:really"]).await.unwrap();
    assert_eq!(one.text(&id).await, "done by two");
}

#[tokio::test(start_paused = true)]
async fn number_of_unfinished_tasks_is_limited() {
    let (one, two, store) = two();
    for _ in 0..MAX_CALLER_UNFINISHED {
        let answer = one.call_as(Some("alice"), json!({})).await;
        assert!(matches!(answer, ToolAnswer::Task(_)), "{answer:?}");
    }
    let refused = two.call_as(Some("alice"), json!({})).await;
    let expected = "too many tasks of this caller: 250 have not ended; retry later";
    assert_eq!(message(&refused), expected);
    for _ in MAX_CALLER_UNFINISHED..MAX_UNFINISHED {
        one.start(json!({})).await;
    }
    let refused = two.call_as(Some("bob"), json!({})).await;
    assert_eq!(message(&refused), "too many tasks: 1000 have not ended; retry later");
    sleep(10 * SECOND).await;
    assert!(matches!(two.call_as(Some("alice"), json!({})).await, ToolAnswer::Task(_)));

    for number in MAX_UNFINISHED + 1..MAX_TASKS {
        let key = number.to_string();
        let write = TaskWrite::new("token", TaskPhase::Ended, 100 * SECOND);
        TaskStore::write(&store, &key, write).await.unwrap();
    }
    let refused = two.call_as(Some("alice"), json!({})).await;
    assert_eq!(message(&refused), "too many tasks: there are 10000; retry later");
}

#[tokio::test(start_paused = true)]
async fn continued_task_keeps_its_caller() {
    let (one, two, _) = two();
    let ToolAnswer::Task(id) = one.call_as(Some("alice"), json!({})).await else {
        panic!("no task")
    };
    drop(one);
    let seen: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let (sees, shared) = (seen.clone(), two.registry.shared.as_ref().unwrap());
    let caller = crate::message::identified_by(|_: &Context| Some("nobody".to_owned()));
    let inner = service_fn(move |request: Request| {
        sees.lock().unwrap().push(caller(request.context()));
        async { Ok::<_, Infallible>(questions()) }
    });
    // Another layer with the same composites replaces the service of the replica.
    let tools = layer(TaskMode::Always).settings.composites;
    shared.serve(&tools, None, &inner);
    sleep(25 * SECOND).await;
    assert_eq!(*seen.lock().unwrap(), [Some("alice".to_owned())]);
    assert!(two.get_as(Some("alice"), &id).await.is_ok());
}
