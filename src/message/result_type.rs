//! Checks that the type of a result matches the method of the request.

use rmcp::model::{ClientRequest, ServerResult};

/// Returns a function that checks whether a result has a valid type for `request`.
///
/// rmcp parses a result as the first type that matches. It therefore parses an invalid result as
/// another type instead of rejecting it. This check detects such results.
pub(crate) fn expected(request: &ClientRequest) -> fn(&ServerResult) -> bool {
    macro_rules! any_of {
        ($($Result:ident)|+) => { |result| matches!(result, $(ServerResult::$Result(_))|+) };
    }
    match request {
        ClientRequest::CallToolRequest(_) => {
            any_of!(CallToolResult | InputRequiredResult | CreateTaskResult)
        }
        ClientRequest::ListToolsRequest(_) => any_of!(ListToolsResult),
        ClientRequest::ListPromptsRequest(_) => any_of!(ListPromptsResult),
        ClientRequest::GetPromptRequest(_) => any_of!(GetPromptResult | InputRequiredResult),
        ClientRequest::ListResourcesRequest(_) => any_of!(ListResourcesResult),
        ClientRequest::ListResourceTemplatesRequest(_) => any_of!(ListResourceTemplatesResult),
        ClientRequest::ReadResourceRequest(_) => any_of!(ReadResourceResult | InputRequiredResult),
        ClientRequest::ReadResourceDirectoryRequest(_) => any_of!(ListResourcesResult),
        ClientRequest::CompleteRequest(_) => any_of!(CompleteResult),
        ClientRequest::ListSkillsRequest(_) => any_of!(ListSkillsResult),
        ClientRequest::GetSkillRequest(_) => any_of!(GetSkillResult),
        ClientRequest::GetTaskRequest(_) => any_of!(GetTaskResult),
        // These two types are the empty result, without and with a `resultType`.
        ClientRequest::PingRequest(_)
        | ClientRequest::SetLevelRequest(_)
        | ClientRequest::SubscribeRequest(_)
        | ClientRequest::UnsubscribeRequest(_)
        | ClientRequest::UpdateTaskRequest(_)
        | ClientRequest::CancelTaskRequest(_) => any_of!(EmptyResult | TaskAckResult),
        // The result of an unknown method can have any type.
        _ => |_| true,
    }
}
