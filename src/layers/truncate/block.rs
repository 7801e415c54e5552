//! Cuts content blocks to a size. Replaces blocks that cannot be cut with a note.

use std::borrow::Cow;

use rmcp::model::{ContentBlock, EmbeddedResource, MetaObject, ResourceContents, TextContent};
use serde_json::{Map, Value};

use super::{
    cost::{Cost, MARK},
    omissions::{Location, Omissions, Reason, Unit},
};
use crate::{
    json_size::json_bytes,
    message::branch::{BRANCH, LABEL, TOOL, meta_of},
};

/// Maximum size, in bytes, of the other fields of a block whose text is cut, such as its URI and
/// annotations. A block with larger fields is kept whole or replaced with a note.
const MAX_BESIDE: usize = 2 * 1024;
/// Maximum length, in bytes, of the branch name and the tool name in the metadata of a cut block.
/// Longer names are omitted, like all other metadata.
const MAX_LABEL: usize = 256;
/// Maximum number of characters of the MIME type in the note that replaces a block.
const MAX_MIME: usize = 64;
/// Minimum number of bytes for the text of a cut block that keeps its metadata. The text must also
/// get at least as many bytes as the metadata. Otherwise, the block keeps only the [`labels`].
const ENOUGH_TEXT: usize = 64;

/// A content block of a tool result, and its minimum and full size as JSON.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'r> {
    block: &'r ContentBlock,
    kind: Kind,
    /// The size of the whole block as JSON, in bytes. Does not include a text that repeats the
    /// structured content, because the size of the structured content includes it.
    pub(super) whole: usize,
    pub(super) least: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The block is a text block or a text resource, whose text can be cut.
    Text,
    /// The text of the block repeats the structured content, or a branch's output in it, as JSON.
    /// It is not cut, but rendered again from the shortened structured content.
    Repeats,
    /// The block cannot be cut, for example because it is an image. It is kept whole or replaced
    /// with a note.
    Undivided,
}

// === impl Block ===

impl<'r> Block<'r> {
    /// Measures a content block. `repeats` is `true` if the text of the block repeats the
    /// structured content as JSON.
    pub(super) fn new(block: &'r ContentBlock, repeats: bool) -> Self {
        let undivided = |whole| {
            let least = json_bytes(&note_of(block)).min(whole);
            Self { block, kind: Kind::Undivided, whole, least }
        };
        let Some(text) = text_of(block) else { return undivided(json_bytes(block)) };
        let beside = json_bytes(&with_text(block, String::new(), true));
        if repeats {
            // The size of the text is part of the cost of the value that the text repeats, except
            // for the mark.
            let whole = beside + MARK.len();
            return Self { block, kind: Kind::Repeats, whole, least: whole };
        }
        // Compute the size of the text by counting escapes, because serializing it would take
        // longer.
        let whole = beside + Cost::STANDING.text(text) - Cost::STANDING.text("");
        let bare = json_bytes(&with_text(block, String::new(), false));
        if bare > MAX_BESIDE {
            return undivided(whole);
        }
        Self { block, kind: Kind::Text, whole, least: whole.min(bare + MARK.len()) }
    }

    pub(super) fn is_undivided(&self) -> bool {
        self.kind == Kind::Undivided
    }

    /// Returns the block, cut to at most `share` bytes. `share` must be at least `least`. If the
    /// text of the block repeats the structured content, replaces it with the text that `repeated`
    /// returns. Records all omissions in the [`Omissions`].
    pub(super) fn cut(
        &self,
        share: usize,
        repeated: impl FnOnce() -> String,
        location: &Location<'_>,
        omissions: &mut Omissions,
    ) -> ContentBlock {
        match (self.kind, text_of(self.block)) {
            (Kind::Repeats, _) => with_text(self.block, repeated(), true),
            _ if self.whole <= share => self.block.clone(),
            (Kind::Text, Some(text)) => self.cut_text(text, share, location, omissions),
            _ => {
                let bytes = data_of(self.block).map_or(self.whole, str::len);
                omissions.add(location, Reason::Size, 0, bytes, Unit::Bytes);
                note_of(self.block)
            }
        }
    }

    fn cut_text(
        &self,
        text: &str,
        share: usize,
        location: &Location<'_>,
        omissions: &mut Omissions,
    ) -> ContentBlock {
        let beside = |has_meta| json_bytes(&with_text(self.block, String::new(), has_meta));
        let (full, bare) = (beside(true), beside(false));
        // Keep the metadata only if there is enough space for it and for some text.
        let has_meta = full == bare || share >= full + (full - bare).max(ENOUGH_TEXT);
        let left = share.saturating_sub(if has_meta { full } else { bare });
        let quotes = Cost::STANDING.text("");
        // Subtract the known sizes instead of measuring the text again.
        let text = if self.whole - full <= left {
            Cow::Borrowed(text)
        } else {
            let (cut, kept) = Cost::STANDING.cut(text, left + quotes);
            omissions.add(location, Reason::Size, kept, text.len(), Unit::Bytes);
            Cow::Owned(cut)
        };
        if !has_meta {
            omissions.add(&location.member("_meta"), Reason::Size, 0, full - bare, Unit::Bytes);
        }
        with_text(self.block, text.into_owned(), has_meta)
    }
}

/// Returns the text of a text block or text resource. Returns `None` for all other blocks, because
/// they have no text to cut.
pub(super) fn text_of(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Text(text) => Some(&text.text),
        ContentBlock::Resource(EmbeddedResource {
            resource: ResourceContents::TextResourceContents { text, .. },
            ..
        }) => Some(text),
        _ => None,
    }
}

/// Returns the Base64 data of an image, audio or binary resource. Returns `None` for all other
/// blocks.
fn data_of(block: &ContentBlock) -> Option<&str> {
    match block {
        ContentBlock::Image(image) => Some(&image.data),
        ContentBlock::Audio(audio) => Some(&audio.data),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::BlobResourceContents { blob, .. } => Some(blob),
            _ => None,
        },
        _ => None,
    }
}

/// Returns a copy of a block with another text. The copy has all metadata of the block if
/// `has_meta` is `true`, and only the [`labels`] if it is `false`.
fn with_text(block: &ContentBlock, text: String, has_meta: bool) -> ContentBlock {
    let meta_of = |meta: &Option<MetaObject>| {
        if has_meta { meta.clone() } else { labels(meta.as_ref()) }
    };
    match block {
        ContentBlock::Resource(EmbeddedResource {
            resource: ResourceContents::TextResourceContents { uri, mime_type, meta, .. },
            meta: outer,
            annotations,
            ..
        }) => {
            let mut embedded = EmbeddedResource::new(ResourceContents::TextResourceContents {
                uri: uri.clone(),
                mime_type: mime_type.clone(),
                text,
                meta: meta_of(meta),
            });
            embedded.meta = meta_of(outer);
            embedded.annotations.clone_from(annotations);
            ContentBlock::Resource(embedded)
        }
        ContentBlock::Text(TextContent { meta, annotations, .. }) => {
            let mut content = TextContent::new(text);
            content.meta = meta_of(meta);
            content.annotations.clone_from(annotations);
            ContentBlock::Text(content)
        }
        _ => ContentBlock::text(text),
    }
}

/// Returns the note that replaces an omitted block: a text block such as
/// `[left out: image of type image/png, 3000 bytes]`.
fn note_of(block: &ContentBlock) -> ContentBlock {
    let (kind, mime) = match block {
        ContentBlock::Text(_) => ("text", None),
        ContentBlock::Image(image) => ("image", Some(&image.mime_type)),
        ContentBlock::Audio(audio) => ("audio", Some(&audio.mime_type)),
        ContentBlock::Resource(resource) => match &resource.resource {
            ResourceContents::TextResourceContents { mime_type, .. }
            | ResourceContents::BlobResourceContents { mime_type, .. } => {
                ("resource", mime_type.as_ref())
            }
            _ => ("resource", None),
        },
        ContentBlock::ResourceLink(link) => ("link to a resource", link.mime_type.as_ref()),
        _ => ("content", None),
    };
    let mime = mime.map(|mime| mime.chars().take(MAX_MIME).collect::<String>());
    let mime = mime.map(|mime| format!(" of type {mime}")).unwrap_or_default();
    let size = match data_of(block) {
        // Four characters of Base64 are three bytes.
        Some(data) => format!(", {} bytes", data.len() / 4 * 3),
        None => String::new(),
    };
    let mut note = TextContent::new(format!("[left out: {kind}{mime}{size}]"));
    note.meta = labels(meta_of(block));
    ContentBlock::Text(note)
}

/// Returns the entries of a block's metadata that name its branch and its tool. Returns `None` if
/// there are none.
fn labels(meta: Option<&MetaObject>) -> Option<MetaObject> {
    let meta = meta?;
    let is_label = |value: &&Value| match value {
        Value::String(text) => text.len() <= MAX_LABEL,
        value => value.is_boolean(),
    };
    let labels: Map<_, _> = [BRANCH, TOOL, LABEL]
        .into_iter()
        .filter_map(|key| {
            meta.get(key).filter(is_label).map(|label| (key.to_owned(), label.clone()))
        })
        .collect();
    (!labels.is_empty()).then_some(MetaObject(labels))
}
