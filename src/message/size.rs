//! How large messages are, measured without building a string.
//!
//! What is counted are the bytes of keys, texts and data and a few for each
//! other value; escapes and punctuation are not.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::Value;

/// What a number, a boolean, a null or a pair of brackets counts.
const SMALL: usize = 4;

pub(crate) fn of_result(result: &CallToolResult) -> usize {
    let content: usize = result.content.iter().map(of_block).sum();
    let meta = result.meta.as_ref().map_or(0, |meta| of_object(meta));
    content + meta + result.structured_content.as_ref().map_or(0, of_value)
}

fn of_block(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text(text) => text.text.len(),
        ContentBlock::Image(image) => image.data.len(),
        ContentBlock::Audio(audio) => audio.data.len(),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => text.len(),
            ResourceContents::BlobResourceContents { blob, .. } => blob.len(),
            _ => SMALL,
        },
        ContentBlock::ResourceLink(link) => {
            link.uri.len() + link.description.as_ref().map_or(0, String::len)
        }
        _ => SMALL,
    }
}

fn of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => SMALL,
        Value::String(text) => text.len(),
        Value::Array(elements) => SMALL + elements.iter().map(of_value).sum::<usize>(),
        Value::Object(members) => of_object(members),
    }
}

fn of_object(members: &serde_json::Map<String, Value>) -> usize {
    SMALL + members.iter().map(|(key, value)| key.len() + of_value(value)).sum::<usize>()
}
