//! Visits the resource URIs in replies, for example to rename them.

use rmcp::model::{ContentBlock, ResourceContents, ServerResult, TaskPayload};
use serde_json::Value;

use super::Reply;

// === impl Reply ===

impl Reply {
    /// Calls `visit` with the URI of each resource that a result contains or links to. Includes
    /// results of tasks. Lists of resources are not visited; use
    /// [`retain_items`](Self::retain_items) for them.
    pub(crate) fn visit_uris(&mut self, mut visit: impl FnMut(&mut String)) {
        match self.result_mut() {
            Some(ServerResult::ReadResourceResult(read)) => {
                read.contents.iter_mut().for_each(|contents| of_contents(contents, &mut visit));
            }
            Some(ServerResult::CallToolResult(result)) => {
                result.content.iter_mut().for_each(|block| of_block(block, &mut visit));
            }
            Some(ServerResult::GetPromptResult(prompt)) => {
                let messages = prompt.messages.iter_mut();
                messages.for_each(|message| of_block(&mut message.content, &mut visit));
            }
            Some(ServerResult::GetTaskResult(task)) => {
                if let TaskPayload::Completed { result } = &mut task.task.payload {
                    result.values_mut().for_each(|value| of_task(value, &mut visit));
                }
            }
            _ => (),
        }
    }
}

/// Calls `visit` with each resource URI in `member`, a member of a task's result.
fn of_task(member: &mut Value, visit: &mut impl FnMut(&mut String)) {
    for element in member.as_array_mut().into_iter().flatten() {
        // Messages of a prompt contain their content block in `content`.
        let block = match element.get("content") {
            Some(Value::Object(_)) => &mut element["content"],
            _ => element,
        };
        let holder = match block.get("resource") {
            Some(Value::Object(_)) => &mut block["resource"],
            _ => block,
        };
        if let Some(Value::String(uri)) = holder.get_mut("uri") {
            visit(uri);
        }
    }
}

fn of_block(block: &mut ContentBlock, visit: &mut impl FnMut(&mut String)) {
    match block {
        ContentBlock::Resource(embedded) => of_contents(&mut embedded.resource, visit),
        ContentBlock::ResourceLink(link) => visit(&mut link.uri),
        _ => (),
    }
}

fn of_contents(contents: &mut ResourceContents, visit: &mut impl FnMut(&mut String)) {
    match contents {
        ResourceContents::TextResourceContents { uri, .. }
        | ResourceContents::BlobResourceContents { uri, .. } => visit(uri),
        _ => (),
    }
}
