//! Tasks that ask the user.

use mcp_composite::store::{SignedStore, Store};
use rmcp::model::InputRequiredResult;

use super::*;
use crate::scripted::can_be_asked;

const KEY: &str = "a key for the tests of at least 32 bytes";

/// The caller of a request.
#[derive(Clone)]
struct Caller(&'static str);

fn asking(keys: &[&str]) -> Scripted {
    let question = json!({
        "method": "elicitation/create",
        "params": {
            "message": "Sure?",
            "requestedSchema": { "type": "object", "properties": {} },
        },
    });
    let requests = keys.iter().map(|key| ((*key).to_owned(), question.clone())).collect();
    let input_requests = serde_json::from_value(Value::Object(requests)).unwrap();
    state(TaskPayload::InputRequired { input_requests })
}

fn yes() -> Value {
    json!({ "action": "accept", "content": {} })
}

/// Returns a call by a client that can be asked.
fn interactive_call(tool: &str, state: Option<String>, answers: &[&str]) -> Request {
    let mut request = call(tool, json!({}));
    *request.context_mut().meta_mut() = can_be_asked();
    let params = request.tool_call_mut().unwrap();
    params.request_state = state;
    let answers: serde_json::Map<_, _> =
        answers.iter().map(|key| ((*key).to_owned(), yes())).collect();
    if !answers.is_empty() {
        params.input_responses = serde_json::from_value(Value::Object(answers)).unwrap();
    }
    request
}

/// Returns the keys of the questions, and the state.
fn questions(reply: Reply) -> (Vec<String>, Option<String>) {
    let ToolAnswer::InputRequired(InputRequiredResult { input_requests, request_state, .. }) =
        reply.into_tool_answer()
    else {
        panic!("no question");
    };
    (input_requests.unwrap_or_default().into_keys().collect(), request_state)
}

fn signed() -> Arc<dyn Store> {
    Arc::new(SignedStore::new(KEY).unwrap())
}

#[tokio::test(start_paused = true)]
async fn questions_are_asked_and_answered_twice() {
    // The server lists an answered question until it has processed the answer.
    let states = [asking(&["a"]), asking(&["a"]), asking(&["a", "b", "c"]), working(), done()];
    let jobs = Jobs::new(states);
    let service = jobs.polled();
    let (keys, state) =
        questions(service.clone().oneshot(interactive_call("work", None, &[])).await.unwrap());
    assert_eq!(keys, ["a"]);
    let reply = service.clone().oneshot(interactive_call("work", state, &["a"])).await.unwrap();
    let (keys, state) = questions(reply);
    assert_eq!(keys, ["b", "c"]);
    let reply = service.oneshot(interactive_call("work", state, &["a", "b", "c"])).await.unwrap();
    assert_eq!(text(&reply), "done");
    let [first, both] = [
        format!("update task-1 {}", json!({ "a": yes() })),
        format!("update task-1 {}", json!({ "b": yes(), "c": yes() })),
    ];
    assert_eq!(jobs.log(), ["get", &first, "get", "get", &both, "get", "get"]);
    assert_eq!(jobs.0.lock().unwrap().calls, 1);
}

#[tokio::test(start_paused = true)]
async fn unanswered_questions_are_asked_again() {
    let jobs = Jobs::new([asking(&["a", "b"]), asking(&["b"]), asking(&["b"]), done()]);
    let service = jobs.polled();
    let (_, state) =
        questions(service.clone().oneshot(interactive_call("work", None, &[])).await.unwrap());
    let reply = service.clone().oneshot(interactive_call("work", state, &["a"])).await.unwrap();
    let (keys, state) = questions(reply);
    assert_eq!(keys, ["b"]);
    // Without answers.
    let (keys, state) =
        questions(service.clone().oneshot(interactive_call("work", state, &[])).await.unwrap());
    assert_eq!(keys, ["b"]);
    assert_eq!(
        text(&service.oneshot(interactive_call("work", state, &["b"])).await.unwrap()),
        "done"
    );
    let updates = jobs.log().iter().filter(|request| request.starts_with("update")).count();
    assert_eq!(updates, 2);
}

#[tokio::test(start_paused = true)]
async fn run_continues_on_another_stack() {
    let jobs = Jobs::new([asking(&["a"]), working(), done()]);
    let stack = || {
        let polled = PollTasksLayer::new("jobs").state(signed()).layer(jobs.clone());
        CompositeLayer::new([composite()]).unwrap().state(signed()).layer(polled)
    };
    let (keys, state) =
        questions(stack().oneshot(interactive_call("job", None, &[])).await.unwrap());
    assert_eq!(keys.len(), 1);
    let reply = stack().oneshot(interactive_call("job", state, &[&keys[0]])).await.unwrap();
    assert_eq!(text(&reply), "done");
    let update = format!("update task-1 {}", json!({ "a": yes() }));
    assert_eq!(jobs.log(), ["get", &update, "get", "get"]);
    assert_eq!(jobs.0.lock().unwrap().calls, 1);
}

#[tokio::test(start_paused = true)]
async fn waiting_task_is_not_cancelled() {
    let jobs = Jobs::new([asking(&["a"])]);
    questions(jobs.polled().oneshot(interactive_call("work", None, &[])).await.unwrap());
    sleep(60 * SECOND).await;
    assert_eq!(jobs.log(), ["get"]);
}

#[tokio::test(start_paused = true)]
async fn continued_call_cancels_the_task_when_dropped() {
    let jobs = Jobs::new([asking(&["a"]), working()]);
    let service = jobs.polled();
    let (_, state) =
        questions(service.clone().oneshot(interactive_call("work", None, &[])).await.unwrap());
    let waiting = service.oneshot(interactive_call("work", state, &["a"]));
    assert!(timeout(SECOND * 5 / 2, waiting).await.is_err());
    let update = format!("update task-1 {}", json!({ "a": yes() }));
    sleep(SECOND).await;
    assert_eq!(jobs.log(), ["get", &update, "get", "get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn question_that_the_client_cannot_answer_cancels_the_task() {
    let jobs = Jobs::new([asking(&["a"])]);
    let stack = CompositeLayer::new([composite()]).unwrap().layer(jobs.polled());
    let reply = stack.oneshot(call("job", json!({}))).await.unwrap();
    let message = text(&reply).to_owned();
    assert!(message.contains("the tool asks for input, which the client cannot give"), "{message}");
    sleep(SECOND).await;
    assert_eq!(jobs.log(), ["get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn too_many_questions_cancel_the_task() {
    let keys: Vec<String> = (0..33).map(|key| key.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let jobs = Jobs::new([asking(&keys)]);
    let (_, state) =
        questions(jobs.polled().oneshot(interactive_call("work", None, &[])).await.unwrap());
    assert_eq!(state, None);
    sleep(SECOND).await;
    assert_eq!(jobs.log(), ["get", "cancel task-1"]);
}

#[tokio::test(start_paused = true)]
async fn state_belongs_to_its_server_tool_and_caller() {
    let caller = |context: &message::Context| {
        context.extensions().get::<Caller>().map(|Caller(name)| (*name).to_owned())
    };
    let by = |caller, mut request: Request| {
        request.context_mut().extensions_mut().insert(Caller(caller));
        request
    };
    let jobs = Jobs::new([asking(&["a"]), done()]);
    let layer = |name| PollTasksLayer::new(name).state(signed()).caller(caller);
    let service = layer("jobs").layer(jobs.clone());
    let request = by("alice", interactive_call("work", None, &[]));
    let (_, state) = questions(service.clone().oneshot(request).await.unwrap());
    let other_server = layer("other").layer(jobs.clone());
    for (service, caller, tool) in
        [(&service, "bob", "work"), (&service, "alice", "play"), (&other_server, "alice", "work")]
    {
        let request = by(caller, interactive_call(tool, state.clone(), &["a"]));
        let reply = service.clone().oneshot(request).await.unwrap();
        assert_eq!(reply.error().unwrap().message, "invalid `requestState`", "{caller} {tool}");
    }
    assert_eq!(jobs.log(), ["get"]);
    let reply =
        service.oneshot(by("alice", interactive_call("work", state, &["a"]))).await.unwrap();
    assert_eq!(text(&reply), "done");
}
