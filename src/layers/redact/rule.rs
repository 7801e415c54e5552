//! Applies redactions to the replies of tool calls.

use std::{borrow::Cow, ops::ControlFlow, sync::Arc};

use rmcp::model::{
    CallToolResult, ContentBlock, ErrorCode, ErrorData, ResourceContents, ServerResult, TextContent,
};
use serde_json::Value;

use super::{Keeping, Redaction, pointer::MARK};
use crate::{
    intercept::Intercept,
    message::{MAX_JSON_DEPTH, Reply, Request, client::missing_capability, is_deeper},
};

/// The implementation of a [`RedactLayer`](super::RedactLayer).
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct RedactRule(pub(super) Arc<[Redaction]>);

/// The redactions that apply to the called tool, as indices into the list of all redactions.
#[doc(hidden)]
#[derive(Clone, Debug)]
pub struct Selected(Box<[usize]>);

/// The redactions that apply to the reply to one tool call.
struct Together<'r> {
    redactions: Vec<&'r Redaction>,
}

/// The form of the text in a content block, which determines how it is redacted.
enum Text {
    /// JSON: an array or an object, whose parts the pointers can select.
    Json(Value),
    /// A text that begins like a JSON array or object, but cannot be parsed. It is redacted,
    /// because other parsers might accept it.
    Unreadable,
    Words,
}

impl Intercept for RedactRule {
    type Memo = Option<Selected>;

    #[inline]
    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Self::Memo> {
        let call = request.tool_call().filter(|_| !self.0.is_empty());
        ControlFlow::Continue(call.and_then(|call| self.select(&call.name)))
    }

    #[inline]
    fn awaits_reply(&self, subject: &Self::Memo) -> bool {
        subject.is_some()
    }

    fn on_reply(&self, subject: Self::Memo, reply: &mut Reply) {
        let Some(Selected(redactions)) = subject else { return };
        let redactions = redactions.into_iter().map(|index| &self.0[index]).collect();
        Together { redactions }.reply(reply);
    }
}

impl RedactRule {
    /// Returns the redactions that apply to a tool. Returns `None` if there are none.
    fn select(&self, tool: &str) -> Option<Selected> {
        let selects = |index: &usize| self.0[*index].tools.selects(tool);
        let redactions: Box<[_]> = (0..self.0.len()).filter(selects).collect();
        (!redactions.is_empty()).then_some(Selected(redactions))
    }
}

// === impl Together ===

impl Together<'_> {
    fn reply(&self, reply: &mut Reply) {
        // Refusals come from this crate, and contain no data of the tool.
        if reply.refusal().is_some() {
            return;
        }
        if let Some(error) = reply.error() {
            let error = self.error(&error);
            *reply = error.into();
            return;
        }
        match reply.result_mut() {
            Some(ServerResult::CallToolResult(result)) => self.result(result),
            Some(ServerResult::InputRequiredResult(question)) if self.keeps_texts() => {
                question.meta = question.meta.take().filter(|_| self.keeps_meta());
            }
            // This is a request for input, a task whose result is fetched separately, or an unknown
            // result. A task continues on the server, because a rule cannot send a request to
            // cancel it.
            _ => *reply = neutral("the result of the tool cannot be shown").into(),
        }
    }

    fn error(&self, error: &ErrorData) -> ErrorData {
        if let Some(error) = missing_capability(error) {
            return error;
        }
        let message: Cow<'static, str> = match Text::of(&error.message) {
            Text::Words if self.keeps_texts() => error.message.clone(),
            _ => "the tool failed".into(),
        };
        ErrorData::new(error.code, message, None)
    }

    fn result(&self, result: &mut CallToolResult) {
        let original = result.structured_content.clone();
        if let Some(structured) = &mut result.structured_content {
            self.value(structured);
        }
        let redacted = result.structured_content.as_ref();
        for block in &mut result.content {
            self.block(block, original.as_ref(), redacted);
        }
        if !self.keeps_meta() {
            result.meta = None;
        }
    }

    fn value(&self, value: &mut Value) {
        // Replace values that are nested deeper than any transport allows, because the pointers are
        // evaluated recursively.
        if is_deeper(value, MAX_JSON_DEPTH) {
            *value = MARK.into();
            return;
        }
        for redaction in &self.redactions {
            match redaction.keeping {
                Keeping::Others => redaction.pointers.redact(value),
                Keeping::These => redaction.pointers.keep_only(value),
            }
        }
    }

    fn block(&self, block: &mut ContentBlock, original: Option<&Value>, redacted: Option<&Value>) {
        let text = match &*block {
            ContentBlock::Text(text) => Text::of(&text.text),
            _ => Text::Words,
        };
        let text = match (text, original, redacted) {
            (Text::Json(json), Some(original), Some(redacted)) if json == *original => {
                redacted.to_string()
            }
            // Do not redact the text with the pointers, because it differs from the structured
            // content.
            (Text::Json(_), Some(_), _) if !self.keeps_texts() => MARK.to_owned(),
            (Text::Json(mut json), _, _) => {
                self.value(&mut json);
                json.to_string()
            }
            (Text::Words, _, _) if self.keeps_texts() => {
                if !self.keeps_meta() {
                    drop_metadata(block);
                }
                return;
            }
            (Text::Words | Text::Unreadable, _, _) => MARK.to_owned(),
        };
        let mut content = TextContent::new(text);
        if let ContentBlock::Text(text) = block {
            // Remove annotations, too. They contain data of the tool, for example in
            // `lastModified`.
            content.annotations = text.annotations.take().filter(|_| self.keeps_meta());
            content.meta = text.meta.take().filter(|_| self.keeps_meta());
        }
        *block = ContentBlock::Text(content);
    }

    fn keeps_texts(&self) -> bool {
        self.redactions.iter().all(|redaction| redaction.keeps_texts)
    }

    /// Returns `true` if `_meta` and annotations are kept. Returns `false` if a redaction keeps
    /// only selected values ([`Redaction::only`]), because no pointer can select `_meta` and
    /// annotations.
    fn keeps_meta(&self) -> bool {
        let keeps = |redaction: &Redaction| redaction.keeping == Keeping::Others;
        self.keeps_texts() && self.redactions.iter().all(|redaction| keeps(redaction))
    }
}

// === impl Text ===

impl Text {
    fn of(text: &str) -> Self {
        // Skip a byte order mark, because some parsers do so.
        let begins = text.trim_start_matches(|it: char| it.is_whitespace() || it == '\u{feff}');
        if !begins.starts_with(['{', '[']) {
            return Self::Words;
        }
        serde_json::from_str(text).map_or(Self::Unreadable, Self::Json)
    }
}

/// Removes the `_meta` and the annotations of a content block. If the block contains a resource,
/// also removes the `_meta` of the resource.
fn drop_metadata(block: &mut ContentBlock) {
    match block {
        ContentBlock::Text(text) => (text.meta, text.annotations) = (None, None),
        ContentBlock::Image(image) => (image.meta, image.annotations) = (None, None),
        ContentBlock::Audio(audio) => (audio.meta, audio.annotations) = (None, None),
        ContentBlock::Resource(resource) => {
            (resource.meta, resource.annotations) = (None, None);
            match &mut resource.resource {
                ResourceContents::TextResourceContents { meta, .. }
                | ResourceContents::BlobResourceContents { meta, .. } => *meta = None,
                // Replace variants of later SDK versions, because their contents are unknown.
                _ => *block = ContentBlock::text(MARK),
            }
        }
        ContentBlock::ResourceLink(link) => (link.meta, link.annotations) = (None, None),
        _ => *block = ContentBlock::text(MARK),
    }
}

fn neutral(message: &'static str) -> ErrorData {
    ErrorData::new(ErrorCode::INTERNAL_ERROR, message, None)
}
