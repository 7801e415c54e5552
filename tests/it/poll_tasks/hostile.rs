//! Servers that lie about their tasks.

use super::*;

/// Calls a server that returns `state` after the first poll. Returns the error message.
async fn failure(state: Scripted) -> String {
    let jobs = Jobs::new([working(), state]);
    let message = jobs.failure().await;
    assert_eq!(jobs.log(), ["get", "get", "cancel task-1"], "{message}");
    message
}

#[tokio::test(start_paused = true)]
async fn state_of_another_task_fails_the_call() {
    let other = Task::new("task-2", TaskStatus::Working, "", "");
    for payload in [TaskPayload::Working, TaskPayload::Cancelled] {
        let message = failure(state_of(other.clone(), payload)).await;
        assert_eq!(message, "backend `jobs` returned the state of another task");
    }
}

#[tokio::test(start_paused = true)]
async fn reply_of_another_type_fails_the_call() {
    let ack = || Ok(ServerResult::TaskAckResult(TaskAckResult::new()).into());
    let result = Ok(CallToolResult::success(vec![]).into());
    let again = CreateTaskResult::new(task(TaskStatus::Working));
    let again = Ok(ServerResult::CreateTaskResult(again).into());
    for state in [ack(), result, again] {
        assert_eq!(failure(state).await, "backend `jobs` returned an invalid state of a task");
    }
}

#[tokio::test(start_paused = true)]
async fn ended_task_that_works_again_fails_the_call() {
    let ask = InputRequests::new();
    let states = [TaskPayload::Working, TaskPayload::InputRequired { input_requests: ask }];
    for payload in states {
        let jobs = Jobs::seeded(task(TaskStatus::Completed), [state(payload)]);
        let message = "backend `jobs` reported that an ended task has not ended";
        assert_eq!(jobs.failure().await, message);
        assert_eq!(jobs.log(), ["get", "cancel task-1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn invalid_outcome_fails_the_call() {
    let results = [
        json!({}),
        json!({ "content": 7 }),
        json!({ "resultType": "task", "content": [] }),
        json!({ "resultType": "input_required", "requestState": "x", "content": [] }),
    ];
    for result in results {
        let jobs = Jobs::new([state(TaskPayload::Completed { result: object(result.clone()) })]);
        let message = "backend `jobs` returned an invalid result of a task";
        assert_eq!(jobs.failure().await, message, "{result}");
        assert_eq!(jobs.log(), ["get"], "an ended task is not cancelled");
    }
    for error in [json!({}), json!({ "code": "x", "message": "y" })] {
        let jobs = Jobs::new([state(TaskPayload::Failed { error: object(error) })]);
        assert_eq!(jobs.failure().await, "backend `jobs` returned an invalid error of a task");
    }
}

#[tokio::test(start_paused = true)]
async fn long_id_is_not_sent_back() {
    let mut seed = task(TaskStatus::Working);
    seed.task_id = "x".repeat(1 << 20);
    let jobs = Jobs::seeded(seed, [working()]);
    let message = "backend `jobs` started a task whose ID has more than 1024 bytes";
    assert_eq!(jobs.failure().await, message);
    assert_eq!(jobs.log(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn hostile_state_is_forwarded_or_rejected() {
    // A `requestState` of the server itself reaches the server.
    let jobs = Jobs::new([done()]);
    let mut request = call("work", json!({}));
    request.tool_call_mut().unwrap().request_state = Some("task-9".to_owned());
    assert_eq!(text(&jobs.polled().oneshot(request).await.unwrap()), "done");
    assert_eq!(jobs.0.lock().unwrap().calls, 1);

    // One that the layer could have created, but has not, reaches nothing.
    for forged in ["", "task-9", "es1.a.b", "{\"id\":\"task-9\"}"] {
        let jobs = Jobs::new([done()]);
        let mut request = call("work", json!({}));
        let forged = format!("mcp-composite/task.{forged}");
        request.tool_call_mut().unwrap().request_state = Some(forged);
        let reply = jobs.polled().oneshot(request).await.unwrap();
        assert_eq!(reply.error().unwrap().message, "invalid `requestState`");
        assert_eq!(jobs.0.lock().unwrap().calls, 0);
        assert_eq!(jobs.log(), [""; 0]);
    }
}
