//! The size of the content of messages, for limits on every message in transit.
//!
//! The size includes the bytes of keys, texts and data. Any other value, and an empty text or
//! content block, counts as a few bytes; escapes and punctuation are not counted. So a long text
//! costs no more to measure than a short one, unlike its size as JSON, which
//! [`json_size`](crate::json_size) measures for text that is written or kept.

use rmcp::model::{
    Annotations, CallToolResult, ContentBlock, MetaObject, Resource, ResourceContents,
};
use serde_json::Value;

/// The size of a number, a boolean, a null or a pair of brackets, and the minimum size of a text in
/// a value and of a content block: an unlimited number of empty ones does not fit.
pub(super) const SMALL: usize = 4;

pub(crate) fn of_result(result: &CallToolResult) -> usize {
    let content: usize = result.content.iter().map(of_block).sum();
    content + of_meta(result.meta.as_ref()) + result.structured_content.as_ref().map_or(0, of_value)
}

/// Measures all fields of a content block that a server can set, and at least [`SMALL`].
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

/// Measures an element of a list of texts, whose number is not limited.
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

fn of_object(members: &serde_json::Map<String, Value>) -> usize {
    SMALL + members.iter().map(|(key, value)| key.len() + of_value(value)).sum::<usize>()
}
