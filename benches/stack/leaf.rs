//! The service below all layers.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::Arc,
    task::{Context, Poll},
};

use mcp_composite::message::{Reply, Request};
use rmcp::model::{
    CallToolResult, ContentBlock, JsonObject, ListToolsResult, Tool, ToolAnnotations,
};
use serde_json::{Value, json};
use tower::Service;

const VERBS: [&str; 10] =
    ["get", "list", "create", "delete", "search", "update", "merge", "export", "watch", "close"];
const NOUNS: [&str; 10] = [
    "issue",
    "repository",
    "message",
    "table",
    "user",
    "file",
    "branch",
    "page",
    "database",
    "event",
];
const SERVERS: [&str; 10] = [
    "github", "jira", "slack", "postgres", "drive", "calendar", "mail", "storage", "wiki",
    "browser",
];

/// Answers at once, every tool with the same text.
#[derive(Clone)]
pub(crate) struct Leaf {
    tools: Arc<[Tool]>,
}

/// Returns the name of the tool of this number: `get_issue_github`, or with the number from the
/// 1001st on.
pub(crate) fn name(index: usize) -> String {
    let [verb, noun, server] = words(index);
    match index {
        ..1_000 => format!("{verb}_{noun}_{server}"),
        _ => format!("{verb}_{noun}_{server}_{index}"),
    }
}

fn words(index: usize) -> [&'static str; 3] {
    [VERBS[index % 10], NOUNS[index / 10 % 10], SERVERS[index / 100 % 10]]
}

// === impl Leaf ===

impl Leaf {
    pub(crate) fn new(tools: usize) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {
                "q": { "type": "string", "description": "What to search for" },
                "limit": { "type": "integer", "minimum": 1 },
            },
            "required": ["q"],
        });
        let Value::Object(schema) = schema else { unreachable!("it is an object") };
        let schema: Arc<JsonObject> = schema.into();
        let tools = (0..tools).map(|index| {
            let [verb, noun, server] = words(index);
            let description = format!(
                "Lets you {verb} a {noun} in {server}, with all that belongs to it, \
                 and answers what has become of the {noun} and who has changed it last"
            );
            Tool::new(name(index), description, schema.clone())
                .with_annotations(ToolAnnotations::new().read_only(true))
        });
        Self { tools: tools.collect() }
    }

    pub(crate) fn name(&self, index: usize) -> String {
        self.tools[index].name.to_string()
    }
}

impl Service<Request> for Leaf {
    type Response = Reply;
    type Error = Infallible;
    type Future = Ready<Result<Reply, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ready(Ok(if request.tool_call().is_some() {
            CallToolResult::success(vec![ContentBlock::text("the tool says: all ok.")]).into()
        } else if request.lists_tools() {
            ListToolsResult::with_all_items(self.tools.to_vec()).into()
        } else {
            Reply::method_not_found(request.method().to_owned())
        }))
    }
}
