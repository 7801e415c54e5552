//! A stack with each kind of layer and composite.

use std::sync::OnceLock;

use mcp_composite::{
    config::Config,
    message::{Reply, Request},
    stack::Stack,
    truncate::SHORTENED,
};
use rmcp::model::{CallToolResult, ErrorData, ServerResult};
use serde_json::Value;
use tower::{BoxError, Layer, Service};

/// Text that clients must not see: redacted values, and the servers' own errors.
pub(super) const SECRET: &str = "s3cr3t-of-the-server";

/// Text that no error may contain: the value of an argument.
pub(super) const ARGUMENT: &str = "4rgument-of-the-client";

/// The value of an argument that is set without the client's knowledge.
pub(super) const DEFAULT: &str = "d3fault-of-the-file";

/// The tools of the servers, including some hidden by a filter, one with an alias, and one behind a
/// question.
pub(super) const TOOLS: [&str; 7] =
    ["a", "b", "plain", "hidden_1", "hidden_2", "guarded", "unheard_of"];

/// All names that a client could try.
pub(super) const NAMES: [&str; 16] = [
    "a",
    "b",
    "plain",
    "renamed",
    "hidden_1",
    "hidden_2",
    "guarded",
    "all",
    "either",
    "raced",
    "chain",
    "flow",
    "nested",
    "approval",
    "",
    "no such tool",
];

/// The size limit of a result.
const MAX_RESULT: usize = 2_000;

/// The size of the notices of a truncated result: a text and an entry of `_meta`, as the docs of
/// `truncate` promise, and the JSON around them.
const MAX_NOTES: usize = 512 + 8 * 1_024 + 512;

const FILE: &str = include_str!("stack.toml");

/// Returns the stack of the file around a service.
pub(super) fn stack<S>(service: S) -> Stack<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    static CONFIG: OnceLock<Config> = OnceLock::new();
    let config = CONFIG
        .get_or_init(|| Config::from_toml_str(FILE).unwrap_or_else(|error| panic!("{error}")));
    config.stack_layer().layer(service)
}

/// Returns whether a tool is hidden by the filter, so that no client reaches it.
pub(super) fn is_hidden(tool: &str) -> bool {
    tool.starts_with("hidden")
}

/// Checks the answer to a client: it can be serialized, it is not too large, and it contains no
/// forbidden text.
pub(super) fn check_answer(answer: &Result<ServerResult, ErrorData>, never: &[&str]) {
    let json = match answer {
        Ok(result) => serde_json::to_value(result).expect("JSON"),
        Err(error) => serde_json::to_value(error).expect("JSON"),
    };
    let text = json.to_string();
    for secret in never {
        assert!(!text.contains(secret), "`{secret}` is revealed: {text}");
    }
    match answer {
        Ok(ServerResult::CallToolResult(result)) => check_result(result, &json, &text),
        Ok(ServerResult::ListToolsResult(list)) => {
            for tool in &list.tools {
                let is_shown = !is_hidden(&tool.name) && tool.name != "plain";
                assert!(is_shown && tool.name != "guarded", "`{}` is shown", tool.name);
            }
        }
        _ => (),
    }
}

fn check_result(result: &CallToolResult, json: &Value, text: &str) {
    assert!(text.len() <= MAX_RESULT + MAX_NOTES, "{} bytes: {text}", text.len());
    if text.len() > MAX_RESULT {
        let meta = result.meta.as_ref();
        assert!(meta.is_some_and(|meta| meta.0.contains_key(SHORTENED)), "not annotated: {text}");
    }
    let read: CallToolResult = serde_json::from_value(json.clone()).expect("a result");
    assert_eq!(read, *result);
}
