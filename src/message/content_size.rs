//! Computes the approximate size of a message, in bytes. This is cheap enough to do for every
//! message.
//!
//! The size is the total length of all keys, texts and binary data. All other JSON values count as
//! a few bytes, like empty texts and content blocks. Escape sequences and punctuation do not count,
//! so that texts need not be scanned. For the exact size of the JSON of a value, use
//! [`json_size`](crate::json_size).

use rmcp::model::{
    Annotations, CallToolResult, ContentBlock, MetaObject, Resource, ResourceContents,
};
use serde_json::Value;

/// The size of a number, a boolean, a null or a pair of brackets, in bytes. Also the minimum size
/// of a content block or text, so that size limits bound the number of empty ones.
pub(super) const SMALL: usize = 4;

pub(crate) fn of_result(result: &CallToolResult) -> usize {
    let content: usize = result.content.iter().map(of_block).sum();
    content + of_meta(result.meta.as_ref()) + result.structured_content.as_ref().map_or(0, of_value)
}

/// Returns the size of a content block with all of its fields, at least [`SMALL`].
fn of_block(block: &ContentBlock) -> usize {
    let (content, meta, annotations) = match block {
        ContentBlock::Text(text) => (text.text.len(), &text.meta, &text.annotations),
        ContentBlock::Image(image) => {
            (image.data.len() + image.mime_type.len(), &image.meta, &image.annotations)
        }
        ContentBlock::Audio(audio) => {
            (audio.data.len() + audio.mime_type.len(), &audio.meta, &audio.annotations)
        }
        ContentBlock::Resource(resource) => {
            (of_contents(&resource.resource), &resource.meta, &resource.annotations)
        }
        ContentBlock::ResourceLink(link) => (of_link(link), &link.meta, &link.annotations),
        _ => return SMALL,
    };
    let annotations = annotations.as_ref().map_or(0, of_annotations);
    SMALL.max(content + of_meta(meta.as_ref()) + annotations)
}

fn of_contents(contents: &ResourceContents) -> usize {
    let (uri, mime_type, content, meta) = match contents {
        ResourceContents::TextResourceContents { uri, mime_type, text, meta } => {
            (uri, mime_type, text, meta)
        }
        ResourceContents::BlobResourceContents { uri, mime_type, blob, meta } => {
            (uri, mime_type, blob, meta)
        }
        _ => return SMALL,
    };
    uri.len() + of_texts([mime_type]) + content.len() + of_meta(meta.as_ref())
}

fn of_link(link: &Resource) -> usize {
    let icons = link.icons.iter().flatten();
    let icons = icons.map(|icon| {
        let sizes = icon.sizes.iter().flatten();
        SMALL
            + icon.src.len()
            + of_texts([&icon.mime_type])
            + sizes.map(|size| of_text(size)).sum::<usize>()
    });
    let texts = [&link.title, &link.description, &link.mime_type];
    link.uri.len() + link.name.len() + of_texts(texts) + icons.sum::<usize>()
}

fn of_annotations(annotations: &Annotations) -> usize {
    let audience = annotations.audience.as_ref().map_or(0, Vec::len);
    audience * SMALL + of_texts([&annotations.last_modified])
}

fn of_texts<'t>(texts: impl IntoIterator<Item = &'t Option<String>>) -> usize {
    texts.into_iter().flatten().map(String::len).sum()
}

/// Returns the size of a text in a list, at least [`SMALL`].
fn of_text(text: &str) -> usize {
    text.len().max(SMALL)
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

pub(crate) fn of_object(members: &serde_json::Map<String, Value>) -> usize {
    SMALL + members.iter().map(|(key, value)| key.len() + of_value(value)).sum::<usize>()
}
