//! Encodes the outcomes of tool calls in the formats of the providers.

use rmcp::model::ImageContent;
use serde_json::{Value, json};

use super::{
    call::{CallId, Form, MalformedKind},
    content::{self, Piece},
    outcome::{Dispatched, Outcome},
    provider::Provider,
};

/// The MIME types of the images that Anthropic accepts.
const ANTHROPIC_IMAGES: [&str; 4] = ["image/gif", "image/jpeg", "image/png", "image/webp"];

impl Provider {
    /// Encodes the outcomes of tool calls for the model, with one answer per call. Append the
    /// returned messages or items to the conversation, after the model's message.
    ///
    /// | provider | format |
    /// |---|---|
    /// | `OpenAiResponses` | an item `function_call_output` for each call |
    /// | `OpenAiChat` | a message of the role `tool` for each call |
    /// | `Anthropic` | one user message, with a `tool_result` for each call |
    /// | `Gemini` | one user content, with a `functionResponse` for each call |
    /// | `Lfm` | a text `<\|tool_response_start\|>…<\|tool_response_end\|>` for each call |
    /// | `Hermes` | a text `<tool_response>…</tool_response>` for each call |
    ///
    /// If a call was not executed, its answer states the reason. `encode` returns no answer to a
    /// call in a choice of the response other than the first, or to a call without the ID or name
    /// that the provider requires.
    ///
    /// `encode` converts the content of a tool result as follows:
    ///
    /// - Texts are unchanged. Images are included if the provider accepts images from tools. Any
    ///   other content is replaced by a text that describes it.
    /// - `structuredContent` is added as another text, unless a text already contains the same
    ///   JSON.
    /// - For Gemini, `structuredContent` is sent as JSON and not as text. If the result has other
    ///   content, the JSON object has the members `structuredContent` and `content`.
    /// - For `Lfm` and `Hermes`, each result is JSON text. It is escaped so that it cannot contain
    ///   a marker.
    #[must_use]
    pub fn encode(self, calls: &[Dispatched]) -> Vec<Value> {
        let in_conversation = calls.iter().filter(|call| match &call.outcome {
            Outcome::Malformed(malformed) => malformed.kind() != MalformedKind::OtherChoice,
            _ => true,
        });
        let answers: Vec<_> = in_conversation.filter_map(|call| self.answer(call)).collect();
        match self {
            _ if answers.is_empty() => answers,
            Self::Anthropic => vec![json!({ "role": "user", "content": answers })],
            Self::Gemini => vec![json!({ "role": "user", "parts": answers })],
            _ => answers,
        }
    }

    fn answer(self, call: &Dispatched) -> Option<Value> {
        match self {
            Self::OpenAiResponses => responses(call),
            Self::OpenAiChat => chat(call),
            Self::Anthropic => anthropic(call),
            Self::Gemini => gemini(call),
            Self::Lfm => Some(tagged(call, "<|tool_response_start|>", "<|tool_response_end|>")),
            Self::Hermes => Some(tagged(call, "<tool_response>\n", "\n</tool_response>")),
        }
    }
}

fn responses(call: &Dispatched) -> Option<Value> {
    let kind = match call.form {
        Form::Custom => "custom_tool_call_output",
        Form::Function | Form::Legacy => "function_call_output",
    };
    let pieces = call.result().filter(|_| !call.is_error()).map(content::pieces);
    let images =
        pieces.filter(|pieces| pieces.iter().any(|piece| matches!(piece, Piece::Image(_))));
    let output = match images {
        None => json!(content::text(call)),
        Some(pieces) => pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => json!({ "type": "input_text", "text": text }),
                Piece::Image(image) => {
                    let url = format!("data:{};base64,{}", image.mime_type, image.data);
                    json!({ "type": "input_image", "image_url": url })
                }
            })
            .collect(),
    };
    Some(json!({ "type": kind, "call_id": call.id.as_ref()?.as_str(), "output": output }))
}

fn chat(call: &Dispatched) -> Option<Value> {
    let content = content::text(call);
    match call.form {
        Form::Legacy => {
            Some(json!({ "role": "function", "name": call.name.as_ref()?, "content": content }))
        }
        Form::Function | Form::Custom => {
            let id = call.id.as_ref()?.as_str();
            Some(json!({ "role": "tool", "tool_call_id": id, "content": content }))
        }
    }
}

fn anthropic(call: &Dispatched) -> Option<Value> {
    let pieces = match call.result() {
        Some(result) => content::pieces(result),
        None => vec![Piece::Text(content::bare_text(call).into())],
    };
    let text = |text: &str| json!({ "type": "text", "text": text });
    let is_image = |image: &ImageContent| ANTHROPIC_IMAGES.contains(&&*image.mime_type);
    let blocks: Vec<_> = pieces
        .iter()
        .filter_map(|piece| match piece {
            // Omitted, because Anthropic rejects blank texts.
            Piece::Text(blank) if blank.trim().is_empty() => None,
            Piece::Text(piece) => Some(text(piece)),
            // Anthropic also rejects images in error results.
            Piece::Image(image) if !call.is_error() && is_image(image) => Some(json!({
                "type": "image",
                "source": { "type": "base64", "media_type": image.mime_type, "data": image.data },
            })),
            Piece::Image(image) => Some(text(&content::named("an image", &image.mime_type))),
        })
        .collect();
    let mut answer = json!({
        "type": "tool_result",
        "tool_use_id": call.id.as_ref()?.as_str(),
        "content": blocks,
    });
    if call.is_error() {
        answer["is_error"] = json!(true);
    }
    Some(answer)
}

fn gemini(call: &Dispatched) -> Option<Value> {
    let structured = call.result().and_then(|result| {
        let structured = result.structured_content.as_ref()?;
        Some((structured, content::besides(structured, result)))
    });
    // The content is nested within `output`, because Gemini may ignore fields next to `output`.
    let response = match structured {
        _ if call.is_error() => json!({ "error": content::bare_text(call) }),
        Some((structured, besides)) if besides.is_empty() => json!({ "output": structured }),
        Some((structured, besides)) => {
            json!({ "output": { "structuredContent": structured, "content": besides } })
        }
        None => json!({ "output": content::bare_text(call) }),
    };
    let mut answer = json!({ "name": call.name.as_ref()?, "response": response });
    // Generated IDs are omitted, because the provider does not know them.
    if let Some(id) = call.id.as_ref().filter(|id| !CallId::is_made(id)) {
        answer["id"] = json!(id.as_str());
    }
    Some(json!({ "functionResponse": answer }))
}

/// Encodes the outcome of a tool call as JSON between the markers `start` and `end`, for models
/// that read tool results as text.
fn tagged(call: &Dispatched, start: &str, end: &str) -> Value {
    let key = if call.is_error() { "error" } else { "content" };
    let mut answer = json!({ "name": call.name });
    answer[key] = json!(content::bare_text(call));
    // In JSON, `\u003c` is the same character as `<`, so a tool cannot write a marker that ends its
    // answer early.
    let answer = answer.to_string().replace('<', "\\u003c");
    json!(format!("{start}{answer}{end}"))
}
