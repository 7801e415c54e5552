//! Shared helpers for scripted servers.

use mcp_composite::message::Request;
pub(crate) use mcp_composite::testing::{Answer, Server, request as call};
use rmcp::model::{ErrorCode, ErrorData, JsonObject, RequestMetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

pub(crate) fn error(code: i32, message: &'static str, data: Value) -> ErrorData {
    ErrorData::new(ErrorCode(code), message, Some(data))
}

pub(crate) fn object(value: Value) -> JsonObject {
    let Value::Object(object) = value else { panic!("no object: {value}") };
    object
}

/// A read-only tool with an optional `q`.
pub(crate) fn search_tool(name: &str) -> Tool {
    let schema = json!({ "type": "object", "properties": { "q": { "type": "string" } } });
    Tool::new(name.to_owned(), "Searches", object(schema))
        .with_annotations(ToolAnnotations::new().read_only(true).open_world(false))
}

/// Returns the `_meta` of a client of 2026-07-28 that supports forms.
pub(crate) fn can_be_asked() -> RequestMetaObject {
    let abilities = json!({ "elicitation": { "form": {} } });
    let mut meta = RequestMetaObject::default();
    meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), abilities);
    meta
}

/// Returns a call that answers the step `sure` with yes.
pub(crate) fn is_sure(tool: &str, state: Option<String>) -> Request {
    let mut request = call(tool, json!({}));
    *request.context_mut().meta_mut() = can_be_asked();
    let params = request.tool_call_mut().unwrap();
    let yes = json!({ "sure": { "action": "accept", "content": {} } });
    params.input_responses = serde_json::from_value(yes).unwrap();
    params.request_state = state;
    request
}
