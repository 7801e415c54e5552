//! How large messages are, measured without building a string.
//!
//! What is counted are the bytes of keys, texts and data and a few for each
//! other value and the shortest texts; escapes and punctuation are not.

use rmcp::model::{CallToolResult, ContentBlock, MetaObject, ResourceContents};
use serde_json::Value;

/// What a number, a boolean, a null or a pair of brackets counts, and a text in a
/// value at least: there is no room for any number of empty ones.
pub(super) const SMALL: usize = 4;

pub(crate) fn of_result(result: &CallToolResult) -> usize {
    let content: usize = result.content.iter().map(of_block).sum();
    content + of_meta(result.meta.as_ref()) + result.structured_content.as_ref().map_or(0, of_value)
}

fn of_block(block: &ContentBlock) -> usize {
    match block {
        ContentBlock::Text(text) => text.text.len() + of_meta(text.meta.as_ref()),
        ContentBlock::Image(image) => {
            image.data.len() + image.mime_type.len() + of_meta(image.meta.as_ref())
        }
        ContentBlock::Audio(audio) => {
            audio.data.len() + audio.mime_type.len() + of_meta(audio.meta.as_ref())
        }
        ContentBlock::Resource(resource) => {
            let content = match &resource.resource {
                ResourceContents::TextResourceContents { uri, text, meta, .. } => {
                    uri.len() + text.len() + of_meta(meta.as_ref())
                }
                ResourceContents::BlobResourceContents { uri, blob, meta, .. } => {
                    uri.len() + blob.len() + of_meta(meta.as_ref())
                }
                _ => SMALL,
            };
            content + of_meta(resource.meta.as_ref())
        }
        ContentBlock::ResourceLink(link) => {
            let texts = [link.title.as_ref(), link.description.as_ref()];
            let texts: usize = texts.into_iter().flatten().map(String::len).sum();
            link.uri.len() + link.name.len() + texts + of_meta(link.meta.as_ref())
        }
        _ => SMALL,
    }
}

fn of_meta(meta: Option<&MetaObject>) -> usize {
    meta.map_or(0, |meta| of_object(meta))
}

pub(crate) fn of_value(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => SMALL,
        Value::String(text) => text.len().max(SMALL),
        Value::Array(elements) => SMALL + elements.iter().map(of_value).sum::<usize>(),
        Value::Object(members) => of_object(members),
    }
}

fn of_object(members: &serde_json::Map<String, Value>) -> usize {
    SMALL + members.iter().map(|(key, value)| key.len() + of_value(value)).sum::<usize>()
}
