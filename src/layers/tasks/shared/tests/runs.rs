//! The runs of tasks, and their takeover.

use super::*;

#[tokio::test(start_paused = true)]
async fn each_replica_answers_requests_about_a_task() {
    let (one, two, _) = two();
    let id = one.start(json!({})).await;
    assert_eq!(two.status(&id).await, TaskStatus::Working);
    assert_eq!((one.running(), two.running()), (1, 0));
    assert_eq!(two.text(&id).await, "done by one");
    assert_eq!(one.work.calls(), ["one first", "one second"]);
    assert_eq!((one.running(), two.running()), (0, 0));
    let task = two.get_as(None, &id).await.unwrap().task;
    assert!(task.ttl_ms >= Some(3_600_000) && task.created_at.ends_with('Z'), "{task:?}");
}

#[tokio::test(start_paused = true)]
async fn suspended_task_has_no_run() {
    let (one, two, store) = two();
    let id = one.start(json!({ "ask": true })).await;
    let TaskPayload::InputRequired { input_requests } = two.settled(&id).await else {
        panic!("no question")
    };
    assert_eq!(input_requests.into_keys().collect::<Vec<_>>(), ["1:really", "1:sure"]);
    tokio::task::yield_now().await;
    assert_eq!((one.running(), two.running()), (0, 0));
    advance(60 * SECOND).await;
    assert_eq!(store.claim(9, SECOND).await.unwrap(), []);
    assert_eq!(two.status(&id).await, TaskStatus::InputRequired);
}

#[tokio::test(start_paused = true)]
async fn answers_at_several_replicas_continue_a_task_once() {
    let (one, two, _) = two();
    let id = one.start(json!({ "ask": true })).await;
    two.settled(&id).await;
    one.answer(&id, &["1:sure", "2:really", "sure"]).await.unwrap();
    assert_eq!(one.status(&id).await, TaskStatus::InputRequired);
    two.answer(&id, &["1:really"]).await.unwrap();
    two.answer(&id, &["1:really"]).await.unwrap();
    assert_eq!(one.text(&id).await, "done by two");
    assert_eq!(one.work.calls(), ["one first"]);
    assert_eq!(two.work.calls(), ["two second"]);
}

#[tokio::test(start_paused = true)]
async fn used_answers_are_deleted() {
    let (one, _two, store) = two();
    let id = one.start(json!({ "ask": true })).await;
    one.settled(&id).await;
    let state = async || {
        let stored = store.get(&key_of(&id)).await.unwrap().unwrap();
        String::from_utf8(stored.state).unwrap()
    };
    one.answer(&id, &["1:sure"]).await.unwrap();
    assert!(state().await.contains("accept"));
    one.answer(&id, &["1:really"]).await.unwrap();
    sleep(SECOND).await;
    let state = state().await;
    assert!(state.contains("working") && !state.contains("accept"), "{state}");
}

#[tokio::test(start_paused = true)]
async fn concurrent_last_answers_continue_a_task_once() {
    let (one, two, _) = two();
    let id = one.start(json!({ "ask": true })).await;
    two.settled(&id).await;
    let keys = ["1:sure", "1:really"];
    let answered = tokio::join!(one.answer(&id, &keys), two.answer(&id, &keys));
    assert!(answered.0.is_ok() && answered.1.is_ok());
    one.text(&id).await;
    assert_eq!(one.work.calls().len() + two.work.calls().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn task_is_cancelled_through_another_replica() {
    let (one, two, _) = two();
    let id = one.start(json!({})).await;
    two.cancel(&id).await.unwrap();
    assert_eq!(one.get_as(None, &id).await.unwrap().payload, TaskPayload::Cancelled);
    // The run ends at its next write, or at the next renewal of its lease.
    sleep(5 * SECOND).await;
    assert_eq!(one.running(), 0);
    sleep(60 * SECOND).await;
    assert!(one.work.calls().len() <= 1 && two.work.calls().is_empty());
    assert_eq!(two.get_as(None, &id).await.unwrap().payload, TaskPayload::Cancelled);
    two.cancel(&id).await.unwrap();
    two.answer(&id, &["1:sure"]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn task_is_cancelled_at_once_by_its_own_replica() {
    let (one, _two, _) = two();
    let id = one.start(json!({})).await;
    one.cancel(&id).await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(one.running(), 0);
    let waiting = one.start(json!({ "ask": true })).await;
    one.settled(&waiting).await;
    one.cancel(&waiting).await.unwrap();
    one.answer(&waiting, &["1:sure", "1:really"]).await.unwrap();
    assert_eq!(one.get_as(None, &waiting).await.unwrap().payload, TaskPayload::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn task_of_a_process_that_is_gone_is_taken_over_when_its_lease_expires() {
    let (one, two, _) = two();
    let id = one.start(json!({})).await;
    sleep(4 * SECOND).await;
    assert_eq!(one.work.calls(), ["one first"]);
    let start = Instant::now();
    let (calls, Replica { .. }) = (one.work.clone(), one);
    assert_eq!(two.text(&id).await, "done by two");
    let took = start.elapsed();
    assert!((14 * SECOND..=24 * SECOND).contains(&took), "{took:?}");
    assert_eq!(
        (calls.calls(), two.work.calls()),
        (vec!["one first".to_owned()], vec!["two second".to_owned()])
    );
}

#[tokio::test(start_paused = true)]
async fn released_task_is_taken_over_at_once() {
    let (one, two, _) = two();
    let id = one.start(json!({})).await;
    sleep(4 * SECOND).await;
    let released = Instant::now();
    assert!(timeout(SECOND, one.registry.finished()).await.is_err());
    let refused = one.call_as(None, json!({})).await;
    assert!(matches!(refused, ToolAnswer::Error(_)), "{refused:?}");
    one.registry.close().await;
    assert_eq!(one.running(), 0);
    assert_eq!(two.text(&id).await, "done by two");
    assert!(released.elapsed() <= 10 * SECOND, "{:?}", released.elapsed());
    assert_eq!(one.work.calls(), ["one first"]);
    assert_eq!(two.work.calls(), ["two second"]);
    // The closed replica still returns the state of tasks.
    assert_eq!(one.status(&id).await, TaskStatus::Completed);
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_runs_and_leaves_suspended_tasks() {
    let (one, two, _) = two();
    let working = one.start(json!({})).await;
    let asking = one.start(json!({ "ask": true })).await;
    timeout(10 * SECOND, one.registry.finished()).await.unwrap();
    assert_eq!(two.text(&working).await, "done by one");
    assert_eq!(two.status(&asking).await, TaskStatus::InputRequired);
    // An answer at the replica that shuts down continues the task at another one.
    one.answer(&asking, &["1:sure", "1:really"]).await.unwrap();
    one.registry.close().await;
    assert_eq!(two.text(&asking).await, "done by two");
}

#[tokio::test(start_paused = true)]
async fn run_that_another_replica_has_taken_over_writes_nothing() {
    let (link, store) = (Link::default(), MemoryTaskStore::new());
    let link = Link { store: store.clone(), ..link };
    let (one, two) = (Replica::new("one", link.clone()), Replica::new("two", store));
    let id = one.start(json!({ "ask": true })).await;
    sleep(SECOND).await;
    link.set_down(true);
    // The replica waits for its store before its next step, while its lease expires.
    while two.running() == 0 {
        sleep(SECOND / 10).await;
    }
    link.set_down(false);
    let TaskPayload::InputRequired { .. } = two.settled(&id).await else { panic!("no question") };
    two.answer(&id, &["1:sure", "1:really"]).await.unwrap();
    assert_eq!(two.text(&id).await, "done by two");
    assert_eq!(one.running(), 0);
    assert_eq!(one.work.calls(), ["one first"]);
    assert_eq!(two.work.calls(), ["two first", "two second"]);
}

#[tokio::test(start_paused = true)]
async fn expired_lease_is_claimed_once() {
    let store = MemoryTaskStore::new();
    let one = Replica::new("one", store.clone());
    for _ in 0..5 {
        one.start(json!({})).await;
    }
    drop(one);
    sleep(15 * SECOND).await;
    let claims = futures::future::join_all((0..4).map(|_| store.claim(2, SECOND))).await;
    let mut keys: Vec<_> = claims.into_iter().flat_map(Result::unwrap).map(|it| it.key).collect();
    assert_eq!(keys.len(), 5);
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn task_that_is_cancelled_during_its_takeover_ends() {
    let (one, two, _) = two();
    let id = one.start(json!({})).await;
    drop(one);
    while two.running() == 0 {
        sleep(SECOND / 10).await;
    }
    two.cancel(&id).await.unwrap();
    sleep(60 * SECOND).await;
    assert_eq!(two.get_as(None, &id).await.unwrap().payload, TaskPayload::Cancelled);
    assert_eq!((two.running(), two.work.calls().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn optional_call_becomes_a_task_when_it_is_slow() {
    let store = MemoryTaskStore::new();
    let one = Replica::with(TaskMode::Optional, "one", store.clone());
    let two = Replica::with(TaskMode::Optional, "two", store.clone());
    let start = Instant::now();
    let id = one.start(json!({ "ask": true })).await;
    assert_eq!(start.elapsed(), SECOND);
    two.settled(&id).await;
    two.answer(&id, &["1:sure", "1:really"]).await.unwrap();
    assert_eq!(one.text(&id).await, "done by two");
    assert_eq!(two.work.calls(), ["two second"]);

    let calling = one.call_as(None, json!({}));
    assert!(timeout(SECOND / 2, calling).await.is_err());
    sleep(60 * SECOND).await;
    assert_eq!(one.work.calls().len(), 1, "the cancelled call continues");
    assert_eq!(format!("{store:?}"), "MemoryTaskStore { tasks: 1 }");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_service_and_the_registry_drops_the_runs() {
    let (one, _two, _) = two();
    one.start(json!({})).await;
    let work = one.work.clone();
    drop(one);
    sleep(14 * SECOND).await;
    assert_eq!(work.calls(), [""; 0]);
}

#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
#[tokio::test(start_paused = true)]
async fn operator_cancels_a_task_by_its_name() {
    let (one, two, _) = two();
    let waiting = one.start(json!({ "ask": true })).await;
    one.settled(&waiting).await;
    let running = one.start(json!({})).await;
    for id in [&waiting, &running] {
        two.registry.cancel_by_name(&key_of(id)).await.unwrap();
        assert_eq!(one.status(id).await, TaskStatus::Cancelled);
        two.registry.cancel_by_name(&key_of(id)).await.unwrap();
    }
    assert_eq!(two.registry.cancel_by_name(&waiting).await.unwrap_err().message, "unknown task");
}
