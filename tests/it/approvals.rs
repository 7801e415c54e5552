//! Remarks on dangerous tools that run without the answer to a question.

use mcp_composite::{
    advertise::{AdvertiseLayer, Calls},
    composite::{CompositeLayer, CompositeTool, Elicitation, Finally, Step},
    pattern::Selection,
    stack::StackLayer,
    testing::listed,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use tower::Layer;

use crate::scripted::{Answer, Server};

/// A server with a tool for each kind of annotations.
fn server() -> Server {
    let tool = |name: &'static str, annotations: ToolAnnotations| {
        Tool::new(name, name, JsonObject::new()).with_annotations(annotations)
    };
    Server::new()
        .tool_as(tool("wipe", ToolAnnotations::new().destructive(true)), Answer::text("done"))
        .tool_as(tool("add", ToolAnnotations::new().destructive(false)), Answer::text("done"))
        .tool_as(tool("find", ToolAnnotations::new().read_only(true)), Answer::text("done"))
        .says("delete", "done")
        .says("send", "done")
}

fn workflow(name: &str, steps: impl IntoIterator<Item = Step>) -> CompositeTool {
    CompositeTool::workflow(name, "Clears a folder", steps)
}

fn approve() -> Step {
    ask(json!({}))
}

fn ask(form: Value) -> Step {
    Step::new("approve", Elicitation::new("Sure?", form))
}

/// A call that waits for the question.
fn approved(tool: &str) -> Step {
    Step::new("approved", tool).depends_on(["approve"])
}

/// Returns the remarks on composites after the tools have been listed.
async fn remarks(
    composites: impl IntoIterator<Item = CompositeTool>,
    advertise: AdvertiseLayer,
) -> Vec<String> {
    let composites = CompositeLayer::new(composites).unwrap_or_else(|error| panic!("{error}"));
    let stack = StackLayer::new().composite(composites).advertise(advertise);
    listed(&stack.layer(server())).await;
    stack.remarks()
}

/// An advertise layer that shows only composites.
fn composites_only() -> AdvertiseLayer {
    AdvertiseLayer::new().tools(Selection::default().deny(["*"]).unwrap())
}

#[tokio::test]
async fn steps_that_skip_an_approval_are_remarked() {
    let free = |tool: &str| Step::new("free", tool);
    let destructive = "step `free` may call the destructive tool `wipe` without waiting for the \
                       answer to step `approve`";
    let alike = "step `free` may call `delete` without waiting for the answer to step `approve`, \
                 unlike step `approved`";
    let text = || ask(json!({ "properties": { "name": { "type": "string" } } }));
    let yes = || ask(json!({ "properties": { "yes": { "type": "boolean" } } }));
    let rows = [
        ("destructive", vec![approve(), approved("wipe"), free("wipe")], Some(destructive)),
        ("another tool", vec![approve(), approved("delete"), free("wipe")], Some(destructive)),
        ("a text", vec![text(), approved("wipe"), free("wipe")], Some(destructive)),
        ("without annotations", vec![approve(), approved("delete"), free("delete")], Some(alike)),
        ("a boolean", vec![yes(), approved("delete"), free("delete")], Some(alike)),
        ("not approved elsewhere", vec![approve(), approved("delete"), free("send")], None),
        ("question for a text", vec![text(), approved("send"), free("send")], None),
        ("harmless", vec![approve(), approved("add"), free("add")], None),
        ("read-only", vec![approve(), approved("wipe"), free("find")], None),
        ("question about harmless tools", vec![approve(), approved("add"), free("wipe")], None),
    ];
    for (what, steps, expected) in rows {
        let remarks = remarks([workflow("clear", steps)], composites_only()).await;
        let expected = expected.map(|remark| format!("composite `clear`: {remark}"));
        assert_eq!(remarks, expected.into_iter().collect::<Vec<_>>(), "{what}");
    }
}

#[tokio::test]
async fn steps_before_the_question_and_indirect_waits_are_not_remarked() {
    let before = Step::new("first", "wipe");
    let asks = approve().depends_on(["first"]);
    let then = Step::new("then", "wipe").depends_on(["approved"]);
    let clear = workflow("clear", [before, asks, approved("wipe"), then]);
    assert_eq!(remarks([clear], composites_only()).await, [""; 0]);
}

#[tokio::test]
async fn composites_are_as_destructive_as_their_tools() {
    let inner = |tool: &str| CompositeTool::fan_out("inner", "Calls a tool", [tool]);
    let asking = workflow("inner", [approve(), approved("wipe")]);
    let outer = || workflow("outer", [approve(), approved("wipe"), Step::new("free", "inner")]);
    let remark = "composite `outer`: step `free` may call the destructive tool `inner` without \
                  waiting for the answer to step `approve`";
    for (inner, is_remarked) in
        [(inner("wipe"), true), (inner("find"), false), (inner("send"), false), (asking, false)]
    {
        let remarks = remarks([inner, outer()], composites_only()).await;
        assert_eq!(remarks.contains(&remark.to_owned()), is_remarked, "{remarks:?}");
        assert_eq!(remarks.len(), usize::from(is_remarked), "{remarks:?}");
    }
}

#[tokio::test]
async fn tools_that_clients_can_call_without_approval_are_remarked() {
    let clear = |tool: &str| workflow("clear", [approve(), approved(tool)]);
    let denied =
        |pattern: &str| AdvertiseLayer::new().tools(Selection::default().deny([pattern]).unwrap());
    let callable = || denied("*").calls(Calls::Allow);
    let rows = [
        ("wipe", AdvertiseLayer::new(), true),
        ("delete", AdvertiseLayer::new(), true),
        ("add", AdvertiseLayer::new(), false),
        ("find", AdvertiseLayer::new(), false),
        ("wipe", denied("wipe"), false),
        ("wipe", denied("add"), true),
        ("wipe", composites_only(), false),
        ("wipe", callable(), true),
    ];
    for (tool, advertise, is_remarked) in rows {
        let remarks = remarks([clear(tool)], advertise).await;
        let remark = format!(
            "composite `clear`: clients can call `{tool}` without the question of `approve`: add \
             it to `[advertise] deny`"
        );
        let expected: Vec<_> = is_remarked.then_some(remark).into_iter().collect();
        assert_eq!(remarks, expected, "{tool}");
    }
}

#[tokio::test]
async fn finally_step_is_approved_only_by_a_finally_step() {
    let last = |step: Step| step.finally(Finally::new());
    let approved_main = [approve(), approved("add"), last(Step::new("undo", "wipe"))];
    let advertise = AdvertiseLayer::new;
    assert_eq!(remarks([workflow("clear", approved_main)], advertise()).await, [""; 0]);

    let approved_finally = [Step::new("first", "add"), last(approve()), last(approved("wipe"))];
    let remark = "composite `clear`: clients can call `wipe` without the question of `approve`: \
                  add it to `[advertise] deny`";
    assert_eq!(remarks([workflow("clear", approved_finally)], advertise()).await, [remark]);
}
