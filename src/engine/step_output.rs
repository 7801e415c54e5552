//! The outputs of steps: reads them from tool results, and drops data that the run no longer needs.

use std::{borrow::Cow, mem};

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Map, Value, json};

use super::{
    outcome::{ErrorKind, Outcome, StepError},
    plan::{EarlyEnd, EndForm, Fields},
    record::{Record, joined},
};
use crate::{
    expr::Field,
    message::{ToolResult, branch::is_label},
};

/// The `_meta` key for the report about the steps of a failed run, in its tool result.
pub(crate) const STEPS: &str = "mcp-composite/steps";

// === impl Outcome ===

impl Outcome {
    /// Returns the value of a field that expressions can read, such as the output. Returns `None`
    /// if the field is not stored.
    pub(super) fn field(&self, field: Field) -> Option<Cow<'_, Value>> {
        let record = self.record.as_deref();
        let content = || record.and_then(|record| record.content.as_ref());
        match field {
            Field::Status => Some(Cow::Owned(self.status.name().into())),
            Field::Error => {
                let kept = record.and_then(|record| record.error.as_ref()).map(Cow::Borrowed);
                let made = || self.error.as_deref().map_or(Value::Null, StepError::to_value);
                Some(kept.unwrap_or_else(|| Cow::Owned(made())))
            }
            Field::Content => content().map(Cow::Borrowed),
            Field::Blocks => {
                let blocks = record.and_then(|record| record.blocks.as_deref());
                blocks.map(Cow::Borrowed)
            }
            Field::Text => {
                let text = record.and_then(|record| record.text.as_ref());
                text.or_else(|| content()?.get("text")).map(Cow::Borrowed)
            }
            Field::Output => {
                let structured = || match &self.result {
                    Some(result) if self.is_success() => result.structured_content.as_ref(),
                    _ => None,
                };
                let output = record.and_then(|record| record.output.as_ref());
                output.or_else(structured).or_else(content).map(Cow::Borrowed)
            }
        }
    }

    /// Removes and returns the stored output of the step.
    pub(crate) fn take_output(&mut self) -> Option<Value> {
        self.record.as_mut()?.output.take()
    }

    pub(super) fn set_output(&mut self, output: Value) {
        self.record.get_or_insert_default().output = Some(output);
    }

    /// Moves the structured content of a failed tool result to the `data` of the step's error. For
    /// a composite without structured content, moves the report about its steps.
    pub(super) fn add_details(&mut self) {
        if let (Some(result), Some(error)) = (&mut self.result, &mut self.error)
            && error.kind == ErrorKind::Tool
            && error.data.is_none()
        {
            error.data = result.structured_content.take().or_else(|| {
                let steps = result.meta.as_mut()?.0.remove(STEPS)?;
                // The report has the same form as in structured content.
                Some(json!({ "steps": steps }))
            });
        }
    }

    /// Removes and returns the output of a completed step, and drops its other data. Returns `None`
    /// if the step has not completed.
    pub(super) fn take_any_output(&mut self) -> Option<Value> {
        let (record, result) = (self.record.take(), self.result.take());
        if !self.is_success() {
            return None;
        }
        let kept = record.and_then(|record| record.into_output());
        kept.or_else(|| result.map(ToolResult::into_inner).and_then(output_of))
    }

    /// Keeps only `fields`, the fields that expressions read, and moves them from the tool result
    /// to the record. If `keeps_result` is `true`, also keeps the tool result, and moves only
    /// fields that cannot be read from it.
    ///
    /// Returns the output of a completed step if it was dropped.
    pub(super) fn keep(&mut self, fields: Fields, keeps_result: bool) -> Option<Value> {
        let is_success = self.is_success();
        let mut dropped = None;
        let mut record = self.record.take();
        if keeps_result {
            if let Some(result) = self.result.as_ref().filter(|_| is_success) {
                if fields.contains(Field::Blocks) {
                    let blocks = Some(Box::new(blocks(&result.content)));
                    record.get_or_insert_default().blocks = blocks;
                }
                let has_output = result.structured_content.is_some()
                    || record.as_ref().is_some_and(|record| record.output.is_some());
                if fields.contains(Field::Content)
                    || (fields.contains(Field::Output) && !has_output)
                {
                    let content = content(result.content.clone());
                    record.get_or_insert_default().content = Some(content);
                } else if fields.contains(Field::Text)
                    && let Some(text) = first_text(result)
                {
                    record.get_or_insert_default().text = Some(text.into());
                }
            }
        } else if let Some(mut result) = self.result.take().filter(|_| is_success) {
            let record = record.get_or_insert_default();
            if fields.contains(Field::Blocks) && record.blocks.is_none() {
                record.blocks = Some(Box::new(blocks(&result.content)));
            }
            if fields.contains(Field::Output) && record.output.is_none() {
                record.output = result.structured_content.take();
            }
            // If the record already has content, it was extracted from the result when that was
            // kept.
            if record.content.is_none() {
                let is_output = fields.contains(Field::Output) && record.output.is_none();
                if fields.contains(Field::Content) || is_output {
                    record.content = Some(content(mem::take(&mut result.content)));
                } else if fields.contains(Field::Text) && record.text.is_none() {
                    record.text = first_text(&result).map(Value::from);
                }
            }
            if record.output.is_none() && record.content.is_none() {
                dropped = output_of(result.into_inner());
            }
        }
        // The output can be dropped, because no step reads it, and it is not the answer of a loop.
        if !fields.contains(Field::Output)
            && (!keeps_result || self.result.is_some())
            && let Some(record) = &mut record
        {
            let output = record.output.take();
            dropped = output.filter(|_| is_success && !keeps_result).or(dropped);
        }
        if fields.contains(Field::Error)
            && let Some(error) = &self.error
        {
            record.get_or_insert_default().error.get_or_insert_with(|| error.to_value());
        }
        self.record = record.filter(|record| **record != Record::default());
        dropped
    }

    /// Returns the output of a loop element. Returns `None` if the element has no output.
    pub(super) fn into_output(self) -> Option<Value> {
        let is_success = self.is_success();
        let mut result = self.result.filter(|_| is_success);
        let (output, content) =
            self.record.map(|record| (record.output, record.content)).unwrap_or_default();
        let structured = || result.as_mut().and_then(|result| result.structured_content.take());
        let output = output.or_else(structured).or(content);
        output.or_else(|| result.map(|result| self::content(result.into_inner().content)))
    }
}

// === impl EarlyEnd ===

impl EarlyEnd {
    /// Converts the evaluated result of a stop step to the tool result of the run.
    pub(super) fn result(&self, value: Value) -> CallToolResult {
        match (self.form, value) {
            (EndForm::Output, output) => result_of(output),
            (form, text) => {
                let text = match text {
                    Value::String(text) => text,
                    other => other.to_string(),
                };
                let mut result = result_of(text.into());
                result.is_error = Some(form == EndForm::Error);
                result
            }
        }
    }
}

/// Returns the output of a tool result: its structured content or, without it, its texts as one
/// string. Other content blocks appear as placeholders, such as `[image image/png]`.
fn output_of(mut result: CallToolResult) -> Option<Value> {
    let structured = result.structured_content.take();
    let blocks = result.content.into_iter().filter(|block| !is_label(block));
    structured.or_else(|| joined(blocks.map(named_block)))
}

/// Returns the text of a content block, or a placeholder such as `[image image/png]`.
fn named_block(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => format!("[image {}]", image.mime_type),
        ContentBlock::Audio(audio) => format!("[audio {}]", audio.mime_type),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, .. }
            | ResourceContents::BlobResourceContents { uri, .. } => format!("[resource {uri}]"),
            _ => "[resource]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => format!("[resource link {}]", link.uri),
        _ => "[content]".to_owned(),
    }
}

/// Converts an output to a tool result. A string becomes the text. Any other value becomes the
/// structured content, with its JSON as text.
pub(crate) fn result_of(output: Value) -> CallToolResult {
    match output {
        Value::String(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
        output => CallToolResult::structured(output),
    }
}

/// Returns the texts of a tool result, joined by newlines. Includes labels, which composites insert
/// before the content of each step.
pub(super) fn texts(result: &CallToolResult) -> String {
    let texts: Vec<_> = result.content.iter().filter_map(text).collect();
    texts.join("\n")
}

/// Returns the texts of a tool result, joined by newlines. Excludes labels, which composites insert
/// before the content of each step. Returns `None` if there are no texts.
pub(crate) fn output_text(result: &CallToolResult) -> Option<String> {
    let mut texts = output_texts(result);
    let mut text = texts.next()?.to_owned();
    for more in texts {
        text.push('\n');
        text.push_str(more);
    }
    Some(text)
}

/// Returns the texts of a tool result, without labels.
pub(super) fn output_texts(result: &CallToolResult) -> impl Iterator<Item = &str> {
    result.content.iter().filter(|block| !is_label(block)).filter_map(text)
}

fn text(block: &ContentBlock) -> Option<&str> {
    block.as_text().map(|text| text.text.as_str())
}

/// Returns the text of an output: the output if it is a string, or its member `text` if that is a
/// string.
pub(crate) fn text_of(output: &Value) -> Option<&Value> {
    let text = output.get("text").unwrap_or(output);
    text.is_string().then_some(text)
}

fn first_text(result: &CallToolResult) -> Option<&str> {
    output_texts(result).next()
}

/// Converts content blocks to a JSON object with a member per block, such as `text` or `image_0`.
/// Omits resource links and labels.
fn content(blocks: Vec<ContentBlock>) -> Value {
    let mut content = Map::with_capacity(blocks.len());
    let [mut texts, mut images, mut audios, mut resources] = [0; 4];
    for block in blocks.into_iter().filter(|block| !is_label(block)) {
        let (key, value) = match block {
            // The keys of the first text and of the first resource have no number.
            ContentBlock::Text(text) => (named("text", &mut texts), text.text),
            ContentBlock::Image(image) => (numbered("image", &mut images), image.data),
            ContentBlock::Audio(audio) => (numbered("audio", &mut audios), audio.data),
            ContentBlock::Resource(embedded) => {
                let value = match embedded.resource {
                    ResourceContents::TextResourceContents { text, .. } => text,
                    ResourceContents::BlobResourceContents { blob, .. } => blob,
                    _ => continue,
                };
                (named("resource", &mut resources), value)
            }
            // A resource link does not contain the linked data. Unknown kinds of blocks are skipped
            // too.
            _ => continue,
        };
        content.insert(key, value.into());
    }
    Value::Object(content)
}

/// Converts content blocks to JSON. Omits labels.
fn blocks(blocks: &[ContentBlock]) -> Value {
    let blocks = blocks.iter().filter(|block| !is_label(block));
    blocks.filter_map(|block| serde_json::to_value(block).ok()).collect()
}

fn numbered(name: &str, count: &mut usize) -> String {
    *count += 1;
    format!("{name}_{}", *count - 1)
}

fn named(name: &str, count: &mut usize) -> String {
    match *count {
        0 => {
            *count = 1;
            name.to_owned()
        }
        _ => numbered(name, count),
    }
}
