use rmcp::model::{ContentBlock, ResourceContents, ServerResult};

use super::Reply;

// === impl Reply ===

impl Reply {
    /// Visits the URIs of resources that a result has or links to, to rewrite them;
    /// those of lists are [items](Self::retain_items).
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
            _ => (),
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
