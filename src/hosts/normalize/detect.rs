//! Detects the provider's format of a model's output by its distinctive fields.

use serde_json::Value;

use super::{
    error::OutputError,
    provider::Provider,
    text::{hermes, lfm},
};

const EXPECTED: OutputError = OutputError::UnknownShape {
    expected: "a response, a message or the calls of a known provider, or a text",
};

// === impl Provider ===

impl Provider {
    /// Detects the provider whose format the output of a model has. Text without a start marker of
    /// tool calls, such as `<tool_call>`, is detected as [`Hermes`](Self::Hermes).
    ///
    /// # Errors
    ///
    /// Returns an error if the output matches the format of no known provider, or of several
    /// providers. Also returns an error if the output is an empty list or a list of chunks of a
    /// streamed response.
    pub fn detect(output: &Value) -> Result<Self, OutputError> {
        match output {
            Value::String(text) => Ok(of_text(text)),
            Value::Object(_) => one(&of_whole(output)),
            Value::Array(items) => {
                if items.iter().any(is_of_stream) {
                    return Err(OutputError::Stream);
                }
                let mut of_items: Vec<_> = items.iter().filter_map(of_item).collect();
                of_items.dedup();
                one(&of_items)
            }
            _ => Err(EXPECTED),
        }
    }
}

fn one(providers: &[Provider]) -> Result<Provider, OutputError> {
    match providers {
        [] => Err(EXPECTED),
        [provider] => Ok(*provider),
        _ => Err(OutputError::Ambiguous),
    }
}

/// Detects the provider of a model's text by the first start marker in the text. Returns
/// [`Provider::Hermes`] if the text contains no start marker.
fn of_text(text: &str) -> Provider {
    match (text.find(lfm::START), text.find(hermes::START)) {
        (Some(lfm), Some(hermes)) if lfm < hermes => Provider::Lfm,
        (Some(_), None) => Provider::Lfm,
        _ => Provider::Hermes,
    }
}

/// Returns all providers that could have returned `output` as a response, message or output item.
fn of_whole(output: &Value) -> Vec<Provider> {
    let has = |key: &str| output.get(key).is_some_and(|value| !value.is_null());
    let of_content = match output["content"].as_array() {
        Some(blocks) => {
            let is_output = |block: &Value| block["type"] == "output_text";
            match blocks.iter().any(is_output) {
                true => Some(Provider::OpenAiResponses),
                // A Chat Completions message may also have content blocks next to its calls.
                false => (!has("tool_calls")).then_some(Provider::Anthropic),
            }
        }
        None => None,
    };
    // Gemini's content also has a role, and uses `function_call` with another meaning.
    let is_chat_message = has("role") && !has("parts") && of_content.is_none();
    let is_chat = has("choices") || has("tool_calls") || is_chat_message;
    let is_gemini = has("candidates") || has("parts") || has("promptFeedback");
    let providers: Vec<_> = [
        has("output").then_some(Provider::OpenAiResponses),
        is_chat.then_some(Provider::OpenAiChat),
        of_content,
        is_gemini.then_some(Provider::Gemini),
    ]
    .into_iter()
    .flatten()
    .collect();
    match providers.is_empty() {
        true => of_item(output).into_iter().collect(),
        false => providers,
    }
}

/// Returns the provider that could have returned `item` in an output list, for example as a content
/// block, a part or a call. Returns `None` if there is no such provider.
fn of_item(item: &Value) -> Option<Provider> {
    let has = |key: &str| item.get(key).is_some();
    match item["type"].as_str() {
        Some("tool_use" | "text" | "thinking" | "redacted_thinking") => Some(Provider::Anthropic),
        Some(kind) if kind.ends_with("_tool_use") || kind.ends_with("_tool_result") => {
            Some(Provider::Anthropic)
        }
        Some("message" | "reasoning") => Some(Provider::OpenAiResponses),
        Some(kind) if kind.ends_with("_call") => Some(Provider::OpenAiResponses),
        Some("function" | "custom") => Some(Provider::OpenAiChat),
        Some(_) => None,
        None if has("functionCall") || has("function_call") || has("text") => {
            Some(Provider::Gemini)
        }
        None => has("function").then_some(Provider::OpenAiChat),
    }
}

fn is_of_stream(item: &Value) -> bool {
    ["candidates", "choices", "delta"].iter().any(|key| item.get(key).is_some())
}
