//! Converts the results of tool calls to content for models.

use std::borrow::Cow;

use rmcp::model::{CallToolResult, ContentBlock, ImageContent, ResourceContents};
use serde_json::Value;

use super::outcome::{Dispatched, Outcome};
use crate::message::branch::{branch_of, is_label};

/// A text or an image in the content that a model receives.
pub(super) enum Piece<'r> {
    Text(Cow<'r, str>),
    Image(&'r ImageContent),
}

/// Returns the text that a model receives as the result of a tool call. If the call has failed, the
/// text starts with `error: `.
pub(super) fn text(call: &Dispatched) -> String {
    let text = bare_text(call);
    if call.is_error() { format!("error: {text}") } else { text }
}

/// Returns the text that a model receives as the result of a tool call. The text of an error has no
/// prefix, because the provider's format has a separate error flag.
pub(super) fn bare_text(call: &Dispatched) -> String {
    match &call.outcome {
        Outcome::Completed(result) => texts(pieces(result)),
        Outcome::Failed(failure) => failure.message.clone(),
        Outcome::Malformed(malformed) => malformed.to_string(),
        Outcome::Skipped => "not called, since an earlier call failed".to_owned(),
    }
}

/// Returns the texts and images of a tool result for a model. Structured content that no text block
/// contains is appended as JSON text. In this case, blocks that repeat a part of it are omitted.
pub(super) fn pieces(result: &CallToolResult) -> Vec<Piece<'_>> {
    let structured = result.structured_content.as_ref();
    match structured.filter(|value| !result.content.iter().any(|block| mirrors(block, value))) {
        None => result.content.iter().map(piece).collect(),
        Some(structured) => {
            let besides = blocks_besides(structured, result).map(piece);
            besides.chain([Piece::Text(structured.to_string().into())]).collect()
        }
    }
}

/// Returns the content of a tool result as text. Omits the blocks that repeat `structured`, the
/// structured content of the result.
pub(super) fn besides(structured: &Value, result: &CallToolResult) -> String {
    texts(blocks_besides(structured, result).map(piece))
}

/// Returns the content blocks of a tool result that do not repeat its structured content. Also
/// omits the label of a composite's branch if no other block of the branch is left.
fn blocks_besides<'r>(
    structured: &Value,
    result: &'r CallToolResult,
) -> impl Iterator<Item = &'r ContentBlock> {
    let mut unlabelled = None;
    let besides = result.content.iter().rev().filter(|block| !repeats(block, structured));
    let mut besides: Vec<_> = besides
        .filter(|block| {
            let branch = branch_of(block);
            let is_left = !is_label(block) || (branch.is_some() && branch == unlabelled);
            unlabelled = branch.filter(|_| !is_label(block));
            is_left
        })
        .collect();
    besides.reverse();
    besides.into_iter()
}

/// Returns `true` if a content block repeats the structured content or, in the result of a
/// composite, the output of one branch.
fn repeats(block: &ContentBlock, structured: &Value) -> bool {
    let branches = structured.get("branches").and_then(Value::as_object);
    let mut outputs = branches.into_iter().flatten().filter_map(|(_, branch)| branch.get("output"));
    mirrors(block, structured)
        || outputs.any(|output| match output {
            Value::String(output) => block.as_text().is_some_and(|text| text.text == *output),
            output => mirrors(block, output),
        })
}

/// Returns `true` if a content block is a text block that contains `structured` as JSON.
fn mirrors(block: &ContentBlock, structured: &Value) -> bool {
    let text = block.as_text().map(|text| serde_json::from_str::<Value>(&text.text));
    text.is_some_and(|value| value.is_ok_and(|value| value == *structured))
}

fn texts<'r>(pieces: impl IntoIterator<Item = Piece<'r>>) -> String {
    let texts: Vec<_> = pieces.into_iter().map(Piece::into_text).collect();
    texts.join("\n")
}

fn piece(block: &ContentBlock) -> Piece<'_> {
    let text = match block {
        ContentBlock::Text(text) => Cow::Borrowed(&*text.text),
        ContentBlock::Image(image) => return Piece::Image(image),
        ContentBlock::Audio(audio) => named("a recording", &audio.mime_type).into(),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { text, .. } => Cow::Borrowed(&**text),
            ResourceContents::BlobResourceContents { uri, .. } => named("data", uri).into(),
            _ => Cow::Borrowed("[a resource, omitted]"),
        },
        ContentBlock::ResourceLink(link) => {
            format!("[a link to the resource {}: {}]", link.name, link.uri).into()
        }
        _ => Cow::Borrowed("[omitted content]"),
    };
    Piece::Text(text)
}

/// Returns a placeholder, such as `[data (file:///a), omitted]`, for content that cannot be sent to
/// the model.
pub(super) fn named(what: &str, of: &str) -> String {
    format!("[{what} ({of}), omitted]")
}

// === impl Piece ===

impl Piece<'_> {
    fn into_text(self) -> String {
        match self {
            Self::Text(text) => text.into_owned(),
            Self::Image(image) => named("an image", &image.mime_type),
        }
    }
}
