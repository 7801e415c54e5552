//! Calls of egress tools about which the user is asked.

use std::sync::{Arc, Mutex};

use mcp_composite::{
    adapter::ServeService,
    composite::{CompositeLayer, CompositeTool, Elicitation, Step, ToolCall},
    flow::{FlowLayer, SessionMode},
    message::{Reply, Request},
    stack::{Stack, StackLayer},
    testing::{Answer, Person, Server},
};
use rmcp::{
    ClientServiceExt,
    model::{
        CallToolRequestParams, ElicitRequestParams, ElicitResult, ElicitationAction,
        InputRequiredResult, ServerCapabilities, ServerConfig, ServerResult,
    },
    service::ClientLifecycleMode,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::Layer;

use super::{call, denies, is_denied, policy, reply, request, server, session};
use crate::{
    scripted::can_be_asked,
    support::{answering, serve_over_pipe, soon},
};

/// The key of the question.
const QUESTION: &str = "mcp-composite/flow";

fn asking() -> FlowLayer {
    FlowLayer::new(policy()).mode(SessionMode::Ask)
}

/// A call of `send` by a client that can be asked.
fn send(arguments: Value) -> Request {
    let mut request = request("send", arguments);
    *request.context_mut().meta_mut() = can_be_asked();
    request
}

fn question(reply: &Reply) -> Option<&InputRequiredResult> {
    match reply.result()? {
        ServerResult::InputRequiredResult(asks) => Some(asks),
        _ => None,
    }
}

fn tools() -> ServerConfig {
    ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
}

/// Repeats a call with the answer to the question in `suspended`.
fn answered(mut call: Request, suspended: &Reply, action: &str) -> Request {
    let params = call.tool_call_mut().unwrap();
    params.request_state.clone_from(&question(suspended).unwrap().request_state);
    let answers = json!({ QUESTION: { "action": action, "content": {} } });
    params.input_responses = serde_json::from_value(answers).unwrap();
    call
}

fn sends(server: &Server) -> usize {
    server.called().iter().filter(|tool| **tool == "send").count()
}

#[tokio::test(start_paused = true)]
async fn accepted_call_passes_once() {
    let server = server();
    let service = asking().layer(server.clone());
    let mut person = Person::new();
    person.call(&service, "send", json!({})).await;
    assert_eq!(person.asked(), [], "the session has no labels yet");
    call(&service, "inbox").await;
    for number in 1..3 {
        let mut person = Person::new().accepts(QUESTION, json!({}));
        let result = person.call(&service, "send", json!({ "text": "hi \u{202e}\n" })).await;
        assert_eq!(result.content[0].as_text().unwrap().text, "a send");
        let message = "Allow the call of `send`? It makes its arguments visible to others. This \
                       session has received private data, and data that others can write. That \
                       data may contain instructions to publish the private data.\n\nArguments: \
                       {\"text\":\"hi \\u{202e}\\n\"}";
        assert_eq!(person.asked(), [(QUESTION.to_owned(), message.to_owned())]);
        assert_eq!(sends(&server), 1 + number);
    }
    let arguments = server.arguments("send");
    assert_eq!(arguments, Some(json!({ "text": "hi \u{202e}\n" })));
}

#[tokio::test(start_paused = true)]
async fn call_without_approval_is_denied() {
    let server = server();
    let service = asking().layer(server.clone());
    call(&service, "inbox").await;
    for action in ["decline", "cancel", "allow"] {
        let suspended = reply(&service, send(json!({}))).await;
        let denied = reply(&service, answered(send(json!({})), &suspended, action)).await;
        assert!(is_denied(&denied), "{action}");
    }
    // A client without elicitation cannot ask its user.
    assert!(denies(&service, "send").await);
    assert_eq!(sends(&server), 0);
}

#[tokio::test(start_paused = true)]
async fn unanswered_question_is_asked_again() {
    let service = asking().layer(server());
    call(&service, "inbox").await;
    let mut person = Person::new().ignores(QUESTION).accepts(QUESTION, json!({}));
    person.call(&service, "send", json!({})).await;
    assert_eq!(person.rounds(), 2);
}

#[tokio::test(start_paused = true)]
async fn answer_is_valid_only_for_the_call_that_was_shown() {
    let server = server();
    let service = asking().session(session).layer(server.clone());
    let by = |request, name| super::by(request, name);
    for name in ["ada", "bob"] {
        reply(&service, by(request("inbox", json!({})), name)).await;
    }
    let original = || by(send(json!({ "text": "hello" })), "ada");
    let suspended = reply(&service, original()).await;
    let mut forged = answered(original(), &suspended, "accept");
    let state = forged.tool_call_mut().unwrap().request_state.as_mut().unwrap();
    *state = state.replace("flow.", "flow.x");
    let mut stateless = answered(original(), &suspended, "accept");
    stateless.tool_call_mut().unwrap().request_state = None;
    let others = [
        answered(by(send(json!({ "text": "hunter2" })), "ada"), &suspended, "accept"),
        answered(by(send(json!({ "text": "hello" })), "bob"), &suspended, "accept"),
        forged,
        stateless,
    ];
    for other in others {
        assert!(question(&reply(&service, other).await).is_some());
    }
    assert_eq!(sends(&server), 0);
    reply(&service, answered(original(), &suspended, "accept")).await;
    assert_eq!(sends(&server), 1);
}

#[tokio::test(start_paused = true)]
async fn long_arguments_are_truncated_in_the_question() {
    let service = asking().layer(server());
    call(&service, "inbox").await;
    let mut person = Person::new().accepts(QUESTION, json!({}));
    person.call(&service, "send", json!({ "text": "é".repeat(5_000) })).await;
    let (_, message) = &person.asked()[0];
    assert!(message.contains("\n\nArguments (the first 2000 of 5011 characters): {\"text\":\"é"));
    assert!(message.ends_with("é…") && message.chars().count() < 2_400, "{message}");
}

/// A tool and a composite can ask questions of their own, in the same call.
#[tokio::test(start_paused = true)]
async fn call_that_asks_further_questions_is_approved_once() {
    let asks = Answer::asks("sure", "Sure?").then(Answer::text("sent"));
    let composite = CompositeTool::workflow(
        "post",
        "Asks for a name, and posts",
        [
            Step::new("name", Elicitation::new("Your name?", json!({}))),
            Step::new("send", ToolCall::new("send").arguments(json!({ "text": "$input.text" })))
                .depends_on(["name"]),
        ],
    );
    let composites = CompositeLayer::new([composite]).unwrap();
    let server = server();
    server.remove("send");
    server.add(rmcp::model::Tool::new("send", "Sends", rmcp::model::JsonObject::new()), asks);
    let service: Stack<Server> =
        StackLayer::new().composite(composites).flow(asking()).layer(server.clone());
    call(&service, "inbox").await;

    let person = || Person::new().accepts(QUESTION, json!({})).accepts("name", json!({}));
    let mut user = person().accepts("send:sure", json!({}));
    let result = user.call(&service, "post", json!({ "text": "hello" })).await;
    assert_ne!(result.is_error, Some(true), "{result:?}");
    let keys: Vec<_> = user.asked().iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, [QUESTION, "name", "send:sure"]);
    assert_eq!(server.arguments("send"), Some(json!({ "text": "hello" })));

    let mut post = request("post", json!({ "text": "hello" }));
    *post.context_mut().meta_mut() = can_be_asked();
    let first = reply(&service, post.clone()).await;
    assert!(is_denied(&reply(&service, answered(post, &first, "decline")).await));
}

/// An answer may arrive after the labels of the session have expired.
#[tokio::test(start_paused = true)]
async fn call_that_needs_no_approval_any_more_is_forwarded() {
    let server = server();
    let service = asking().expires_after(super::HOUR / 4).layer(server.clone());
    call(&service, "inbox").await;
    let suspended = reply(&service, send(json!({}))).await;
    tokio::time::advance(super::HOUR / 2).await;
    let sent = reply(&service, answered(send(json!({})), &suspended, "accept")).await;
    assert!(sent.tool_result().is_some(), "{sent:?}");
    let calls = server.calls();
    let last = calls.last().unwrap();
    assert_eq!(last.state(), None);
    assert_eq!(sends(&server), 1);
}

#[tokio::test(start_paused = true)]
async fn older_client_is_asked_during_the_call() {
    for (action, calls) in [(ElicitationAction::Accept, 1), (ElicitationAction::Decline, 0)] {
        let server = server();
        let service = ServeService::new(asking().layer(server.clone()), tools());
        let (far, work) = serve_over_pipe(service);
        let _serving = JoinSet::from_iter([work]);
        let questions = Arc::new(Mutex::new(Vec::new()));
        let client = answering({
            let questions = questions.clone();
            move |params: ElicitRequestParams| {
                let ElicitRequestParams::FormElicitationParams { message, .. } = params else {
                    panic!("not a form")
                };
                questions.lock().unwrap().push(message);
                let action = action.clone();
                async move { ElicitResult::new(action) }
            }
        });
        let client =
            client.serve_with_lifecycle(far, ClientLifecycleMode::Initialize).await.unwrap();
        let call = async |tool| client.call_tool(CallToolRequestParams::new(tool)).await;
        soon(call("inbox")).await.unwrap();
        let sent = soon(call("send")).await;
        assert_eq!(sent.is_ok(), calls == 1, "{sent:?}");
        assert_eq!(questions.lock().unwrap().len(), 1);
        assert_eq!(sends(&server), calls);
    }
}
