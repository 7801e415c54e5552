//! Composites: the labels of their results, and whether they count as egress tools.

use mcp_composite::{
    composite::{
        CompositeLayer, CompositeTool, Elicitation, FanOut, JsonType, OnRefusal, Output,
        OutputProperty, Step, Target, ToolCall, Workflow,
    },
    flow::FlowLayer,
    stack::{Stack, StackLayer},
    testing::{Person, Server},
};
use serde_json::{Value, json};
use tower::Layer;

use super::{call, denies, denying, is_denied, labels, policy, server};

fn send(text: &str) -> Step {
    Step::new("send", ToolCall::new("send").arguments(json!({ "text": text })))
}

fn ask(message: &str) -> Step {
    Step::new("ask", Elicitation::new(message, json!({})))
}

fn pipeline<const N: usize>(name: &str, steps: [Step; N]) -> CompositeTool {
    CompositeTool::pipeline(name, "Runs", steps)
}

fn stack<const N: usize>(
    flow: FlowLayer,
    composites: [CompositeTool; N],
    server: Server,
) -> Stack<Server> {
    let composites = CompositeLayer::new(composites).unwrap();
    StackLayer::new().composite(composites).flow(flow).layer(server)
}

#[tokio::test(start_paused = true)]
async fn result_of_a_composite_has_the_labels_of_its_steps() {
    let read = |tool: &str| Step::new("read", tool);
    let count = OutputProperty::new(JsonType::String, "$steps.again.text");
    let counted = Workflow::new([read("inbox"), Step::new("again", "plain")])
        .output(Output::new().property("count", count));
    let all = FanOut::new([Target::new("mail"), Target::new("page"), Target::new("plain")]);
    let composites = [
        pipeline("reads", [read("mail")]),
        pipeline(
            "passes",
            [
                read("mail"),
                Step::new("pass", ToolCall::new("plain").arguments(json!({ "q": "$prev.text" }))),
            ],
        ),
        pipeline("nested", [Step::new("reads", "reads")]),
        CompositeTool::new("all", "Reads all", all),
        CompositeTool::new("counted", "Counts", counted),
        pipeline("fails", [read("inbox"), Step::new("fail", "fail")]),
    ];
    let server = server().fails("fail", "it fails");
    let service = stack(FlowLayer::new(policy()), composites, server);
    let expected = [
        ("reads", json!(["private"])),
        ("passes", json!(["private"])),
        ("nested", json!(["private"])),
        ("all", json!(["private", "untrusted"])),
        ("counted", Value::Null),
        // A failed run reports the outputs of its steps.
        ("fails", json!(["private", "untrusted"])),
        ("mail", json!(["private"])),
    ];
    for (tool, expected) in expected {
        assert_eq!(labels(&call(&service, tool).await), expected, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn data_within_a_run_does_not_count_for_the_session() {
    let count = OutputProperty::new(JsonType::String, "$steps.again.text");
    let reads = Workflow::new([Step::new("read", "inbox"), Step::new("again", "plain")])
        .output(Output::new().property("count", count));
    let service = stack(denying(), [CompositeTool::new("reads", "Reads", reads)], server());
    assert!(!denies(&service, "reads").await);
    assert!(!denies(&service, "send").await);
    assert!(!denies(&service, "inbox").await);
    assert!(denies(&service, "send").await);
}

#[tokio::test(start_paused = true)]
async fn composite_with_an_open_egress_step_is_denied_before_its_first_step() {
    let composites = [
        pipeline("posts", [Step::new("first", "plain"), send("$input.text")]),
        pipeline("constant", [Step::new("first", "plain"), send("hello")]),
        pipeline("maybe", [Step::new("first", "plain"), send("hi").condition("input.really")]),
        pipeline("nested", [Step::new("first", "plain"), Step::new("posts", "constant")]),
        CompositeTool::fan_out("both", "Runs both", ["plain", "send"]),
        pipeline("harmless", [Step::new("first", "plain")]),
    ];
    let server = server();
    let service = stack(denying(), composites, server.clone());
    call(&service, "inbox").await;
    let calls = server.calls().len();
    for tool in ["posts", "constant", "maybe", "nested", "both"] {
        assert!(denies(&service, tool).await, "{tool}");
    }
    assert_eq!(server.calls().len(), calls);
    assert!(!denies(&service, "harmless").await);
}

#[tokio::test(start_paused = true)]
async fn composite_with_an_allowed_egress_step_is_not_denied() {
    let allowed = || send("$input.text").allow_flow("it is public");
    let posts = || ToolCall::new("posts").arguments(json!({ "text": "$input.text" }));
    let both = FanOut::new([Target::new("plain"), Target::new("send").allow_flow("it is public")]);
    let composites = [
        pipeline("posts", [allowed()]),
        pipeline("nested", [Step::new("posts", posts())]),
        CompositeTool::new("both", "Runs both", both),
        pipeline("open", [send("$input.text")]),
        pipeline(
            "outer",
            [Step::new("open", ToolCall::new("open").arguments(json!({ "text": "hello" })))
                .allow_flow("it is public")],
        ),
    ];
    let server = server();
    let service = stack(denying(), composites, server.clone());
    call(&service, "inbox").await;
    for tool in ["posts", "nested", "both", "outer"] {
        let arguments = json!({ "text": "hello" });
        let reply = super::reply(&service, super::request(tool, arguments)).await;
        let result = reply.tool_result();
        assert!(result.is_some_and(|it| it.is_error != Some(true)), "{tool}: {reply:?}");
    }
    assert_eq!(server.called().iter().filter(|tool| **tool == "send").count(), 4);
    assert!(denies(&service, "open").await);
}

/// A composite is denied unless its question shows all data that it sends.
#[tokio::test(start_paused = true)]
async fn composite_with_an_approved_egress_step_is_not_denied() {
    let asks = |name, message, text| {
        let steps = [ask(message), send(text).depends_on(["ask"])];
        CompositeTool::workflow(name, "Asks", steps)
    };
    let goes_on = Elicitation::new("Send {{ input.text }}?", json!({}));
    let goes_on = Step::new("ask", goes_on.on_decline(OnRefusal::Continue));
    let composites = [
        asks("shows", "Send {{ input.text }}?", "$input.text"),
        asks("constant", "Send it?", "hello"),
        CompositeTool::workflow(
            "nested",
            "Asks",
            [
                ask("Send {{ input.text }}?"),
                Step::new(
                    "post",
                    ToolCall::new("post").arguments(json!({ "text": "$input.text" })),
                )
                .depends_on(["ask"]),
            ],
        ),
        pipeline("post", [send("$input.text")]),
        asks("hides", "Send it?", "$input.text"),
        asks("partly", "Send {{ input.to }}?", "{{ input.to }}: {{ input.text }}"),
        CompositeTool::workflow(
            "unasked",
            "Asks",
            [ask("Send {{ input.text }}?"), send("$input.text")],
        ),
        CompositeTool::workflow(
            "goes_on",
            "Asks",
            [goes_on, send("$input.text").depends_on(["ask"])],
        ),
    ];
    let server = server();
    let service = stack(denying(), composites, server.clone());
    call(&service, "inbox").await;
    for tool in ["shows", "constant", "nested"] {
        let mut person = Person::new().accepts("ask", json!({}));
        let result = person.call(&service, tool, json!({ "text": "hello" })).await;
        assert_ne!(result.is_error, Some(true), "{tool}: {result:?}");
        assert_eq!(server.arguments("send"), Some(json!({ "text": "hello" })), "{tool}");
    }
    for tool in ["post", "hides", "partly", "unasked", "goes_on"] {
        let request = super::request(tool, json!({ "text": "hello", "to": "ada" }));
        assert!(is_denied(&super::reply(&service, request).await), "{tool}");
    }
}
