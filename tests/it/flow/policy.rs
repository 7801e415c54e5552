//! Checking flows without a file.

use mcp_composite::{
    composite::{
        CompositeLayer, CompositeTool, Fallback, FlowLabel, FlowPolicy, Segment, Step, Target,
        ToolCall,
    },
    pattern::Selection,
    testing,
};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::json;
use tower::Layer;

use crate::scripted::{Answer, Server};

fn tools<const N: usize>(patterns: [&str; N]) -> Selection {
    Selection::default().allow(patterns).unwrap()
}

fn policy() -> FlowPolicy {
    FlowPolicy::new()
        .label(tools(["mail_*"]), [FlowLabel::Private])
        .label(tools(["web_*"]), [FlowLabel::Egress])
}

fn publish(post: Step) -> CompositeLayer {
    let publish =
        CompositeTool::pipeline("publish", "Publishes", [Step::new("read", "mail_read"), post]);
    CompositeLayer::new([publish]).unwrap()
}

fn post() -> Step {
    Step::new("post", ToolCall::new("web_post").arguments(json!({ "body": "$prev.text" })))
}

#[test]
fn violation_prints_its_place_and_path() {
    let layer = publish(post());
    let [violation] = &*layer.check_flow(&policy()) else { panic!("it is one") };
    assert_eq!(violation.composite(), "publish");
    let path: [Segment; 5] =
        [0.into(), "steps".into(), 1.into(), "arguments".into(), "body".into()];
    assert_eq!(violation.path(), path);
    assert_eq!(
        violation.to_string(),
        "composite `publish` at `steps[1].arguments.body`: private data reaches an `egress` tool: \
         `mail_read` (step `read`) → argument `body` of `web_post` (step `post`); remove this use, \
         let a person approve the value first, or set `allow_flow` to the reason why it is safe"
    );
}

#[test]
fn policy_without_labels_forbids_nothing() {
    assert!(FlowPolicy::new().is_empty() && !policy().is_empty());
    assert!(publish(post()).check_flow(&FlowPolicy::new()).is_empty());
}

#[test]
fn step_with_a_reason_is_allowed() {
    assert!(publish(post().allow_flow("it is public")).check_flow(&policy()).is_empty());

    let targets = [Target::new("mail_read"), Target::new("web_post")];
    let fallback = |targets: [Target; 2]| {
        let fallback = Fallback::new(targets);
        let tool = CompositeTool::new("first", "Tries", fallback);
        CompositeLayer::new([tool]).unwrap().check_flow(&policy()).len()
    };
    let [read, post] = targets;
    assert_eq!(fallback([read.clone(), post.clone()]), 1);
    assert_eq!(fallback([read, post.allow_flow("it is public")]), 0);
}

#[test]
fn blank_reason_is_a_mistake() {
    let tool = CompositeTool::pipeline("publish", "Publishes", [post().allow_flow(" ")]);
    let errors = CompositeLayer::new([tool]).unwrap_err();
    let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
    assert!(errors.iter().any(|error| error.ends_with("`allow_flow` is blank")), "{errors:?}");
}

#[test]
fn patterns_without_tools_are_listed() {
    let policy = policy().label(tools(["typo_*", "mail_read"]), [FlowLabel::Untrusted]);
    assert_eq!(policy.unmatched(["mail_read", "web_post"]), ["typo_*"]);
    assert_eq!(policy.unmatched(["mail_read", "web_post", "typo_1"]), [""; 0]);
}

/// Nested composites are analyzed once each, however often they are called.
#[test]
fn deeply_nested_composites_are_checked_once_each() {
    let call = |tool: &str, body: &str| ToolCall::new(tool).arguments(json!({ "body": body }));
    let level = |level: usize| {
        let callee = match level {
            0 => "web_post".to_owned(),
            _ => format!("level{}", level - 1),
        };
        let step = |step| Step::new(format!("s{step}"), call(&callee, "{{ input.body }}"));
        CompositeTool::workflow(format!("level{level}"), "Calls", (0..100).map(step))
    };
    let steps =
        [Step::new("read", "mail_read"), Step::new("go", call("level6", "$steps.read.text"))];
    let run = CompositeTool::workflow("run", "Runs", steps);
    let layer = CompositeLayer::new((0..7).map(level).chain([run])).unwrap();

    let violations = layer.check_flow(&policy());
    let [violation] = &*violations else { panic!("{violations:?}") };
    assert_eq!(violation.composite(), "run");
    assert_eq!(violation.trace().len(), 9);
    assert_eq!(violation.trace()[8], "argument `body` of `web_post` (step `s0` of `level0`)");
}

/// Returns a stack whose tools have these annotations, and the warnings of its layer.
async fn listed(
    policy: FlowPolicy,
    get: ToolAnnotations,
    delete: ToolAnnotations,
) -> (Vec<String>, Vec<String>) {
    let tool = |name: &'static str, hints| {
        Tool::new(name, "A tool", JsonObject::new()).with_annotations(hints)
    };
    let server = Server::new()
        .tool_as(tool("get", get), Answer::text("a page"))
        .tool_as(tool("delete", delete), Answer::text("gone"));
    let delete = ToolCall::new("delete").arguments(json!({ "id": "$prev.text" }));
    let steps = [Step::new("get", "get"), Step::new("delete", delete)];
    let clean = CompositeTool::pipeline("clean", "Cleans", steps);
    let outer = CompositeTool::pipeline("outer", "Cleans", [Step::new("clean", "clean")]);
    let layer = CompositeLayer::new([clean, outer]).unwrap().flow(policy);
    let stack = layer.layer(server);
    let tools = testing::listed(&stack).await.into_iter().map(|tool| tool.name.into_owned());
    (tools.collect(), layer.warnings())
}

#[tokio::test(start_paused = true)]
async fn annotations_are_labels_only_if_they_are_trusted() {
    let read_only = || ToolAnnotations::new().read_only(true);
    let closed = || ToolAnnotations::new().read_only(true).open_world(false);
    let writes = || ToolAnnotations::new().open_world(false);
    let all = ["get", "delete", "clean", "outer"];

    let (tools, warnings) = listed(FlowPolicy::new(), read_only(), writes()).await;
    assert_eq!((&tools[..], &warnings[..]), (&all.map(str::to_owned)[..], &[][..]));

    let trusting = || FlowPolicy::new().trust_annotations(Selection::default());
    for (get, delete) in [(closed(), writes()), (read_only(), closed())] {
        let (tools, warnings) = listed(trusting(), get, delete).await;
        assert_eq!((&tools[..], &warnings[..]), (&all.map(str::to_owned)[..], &[][..]));
    }

    // Without annotations, a tool interacts with the open world, and is destructive.
    let (tools, warnings) = listed(trusting(), read_only(), ToolAnnotations::default()).await;
    assert_eq!(tools, ["get", "delete"]);
    assert_eq!(
        warnings,
        [
            "not listed: composite `clean` at `steps[1].arguments.id`: untrusted data reaches a \
             `destructive` tool: `get` (step `get`) → argument `id` of `delete` (step `delete`); \
             remove this use, let a person approve the value first, or set `allow_flow` to the \
             reason why it is safe",
            "composite `outer` is not listed: no `clean`",
        ]
    );

    // Only the selected tools are trusted.
    let policy = FlowPolicy::new().trust_annotations(self::tools(["delete"]));
    let (tools, _) = listed(policy, read_only(), ToolAnnotations::default()).await;
    assert_eq!(tools, all);
}
