//! Distinguishes clients by their protocol versions. Adds the `resultType` to results, because
//! clients with protocol version 2026-07-28 or later require it.

use rmcp::{
    RoleServer,
    model::{ResultType, ServerResult},
    service::RequestContext,
};

use crate::adapter;

/// Returns `true` if the client's protocol version is 2026-07-28 or later.
pub(super) fn is_modern(context: &RequestContext<RoleServer>) -> bool {
    context.protocol_version().is_some_and(|version| adapter::is_modern(&version))
}

/// Sets the `resultType` of a result to `complete` if it is missing. Does nothing for types of
/// results without this field.
///
/// Protocol version 2026-07-28 and later require the `resultType`. rmcp removes it for older
/// clients, but does not add it for newer ones.
pub(super) fn fill_result_type(result: &mut ServerResult) {
    let result_type = match result {
        ServerResult::CompleteResult(result) => &mut result.result_type,
        ServerResult::ListPromptsResult(result) => &mut result.result_type,
        ServerResult::GetPromptResult(result) => &mut result.result_type,
        ServerResult::ListResourcesResult(result) => &mut result.result_type,
        ServerResult::ListResourceTemplatesResult(result) => &mut result.result_type,
        ServerResult::ReadResourceResult(result) => &mut result.result_type,
        ServerResult::ListToolsResult(result) => &mut result.result_type,
        ServerResult::CallToolResult(result) => &mut result.result_type,
        ServerResult::ListSkillsResult(result) => &mut result.result_type,
        ServerResult::GetSkillResult(result) => &mut result.result_type,
        _ => return,
    };
    result_type.get_or_insert(ResultType::COMPLETE);
}
