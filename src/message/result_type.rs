use rmcp::model::{ClientRequest, ServerResult};

/// Whether a result is of a type that answers a request of this kind.
///
/// rmcp reads a result as the first type that it looks like, and as a custom
/// one if it looks like none: what a server got wrong arrives as another type.
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
        // The same thing, once with and once without a `resultType`.
        ClientRequest::PingRequest(_)
        | ClientRequest::SetLevelRequest(_)
        | ClientRequest::SubscribeRequest(_)
        | ClientRequest::UnsubscribeRequest(_)
        | ClientRequest::UpdateTaskRequest(_)
        | ClientRequest::CancelTaskRequest(_) => any_of!(EmptyResult | TaskAckResult),
        // Nobody knows what the result of a method looks like that nobody knows.
        _ => |_| true,
    }
}
