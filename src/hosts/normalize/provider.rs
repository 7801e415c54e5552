//! Formats of model output.

use serde_json::Value;

use super::{
    anthropic,
    call::{MalformedCall, ToolCall},
    candidate, chat,
    error::OutputError,
    gemini,
    limits::Limits,
    responses,
    text::{hermes, lfm},
};

/// The format of a model's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// The Responses API of OpenAI: a response, its `output`, or one item.
    OpenAiResponses,
    /// The Chat Completions API of OpenAI and compatible servers: a completion, a message, or its
    /// `tool_calls`.
    OpenAiChat,
    /// The Messages API of Anthropic: a message, its `content`, or one block.
    Anthropic,
    /// The Gemini API: a response, a content, its `parts`, or one part.
    Gemini,
    /// The text of an LFM model: `<|tool_call_start|>[f(a=1)]<|tool_call_end|>`.
    Lfm,
    /// The text of a Hermes or Qwen model:
    /// `<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>`.
    Hermes,
}

/// Finds the calls in the output of a model, and detects its provider.
///
/// Returns one result per call, in order: a malformed call does not affect the others. If the
/// provider is known, use [`Provider::calls`] instead.
///
/// # Errors
///
/// Returns an error if the provider cannot be [detected](Provider::detect), or if the output is too
/// large.
pub fn normalize(output: &Value) -> Result<Vec<Result<ToolCall, MalformedCall>>, OutputError> {
    Provider::detect(output)?.calls(output)
}

// === impl Provider ===

impl Provider {
    /// Finds the calls in the output of a model of this provider, including calls in a text.
    ///
    /// Returns one result per call, in order: a malformed call does not affect the others. A call
    /// without an id gets one, and only the first of several calls with the same id can be made.
    /// See the [module docs](super) for the rules.
    ///
    /// # Errors
    ///
    /// Returns an error if the output has another format, or is a text that is too large. Output
    /// without calls is not an error.
    pub fn calls(
        self,
        output: &Value,
    ) -> Result<Vec<Result<ToolCall, MalformedCall>>, OutputError> {
        self.calls_within(output, &Limits::new())
    }

    /// Finds the calls with other than the default [limits](Limits).
    ///
    /// # Errors
    ///
    /// Returns the errors of [`calls`](Self::calls).
    pub fn calls_within(
        self,
        output: &Value,
        limits: &Limits,
    ) -> Result<Vec<Result<ToolCall, MalformedCall>>, OutputError> {
        let found = match (self, output) {
            (Self::OpenAiResponses, _) => responses::find(output),
            (Self::OpenAiChat, _) => chat::find(output),
            (Self::Anthropic, _) => anthropic::find(output),
            (Self::Gemini, _) => gemini::find(output),
            (Self::Lfm, Value::String(text)) => lfm::find(text, limits),
            (Self::Hermes, Value::String(text)) => hermes::find(text, limits),
            (Self::Lfm | Self::Hermes, _) => {
                Err(OutputError::UnknownShape { expected: "the text of a model" })
            }
        }?;
        Ok(candidate::calls(found, limits))
    }

    /// Finds the calls in the text of a model.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is larger than 1 MiB, or if the provider's models do not write
    /// calls as text.
    pub fn calls_in(self, text: &str) -> Result<Vec<Result<ToolCall, MalformedCall>>, OutputError> {
        let limits = Limits::new();
        let found = match self {
            Self::Lfm => lfm::find(text, &limits),
            Self::Hermes => hermes::find(text, &limits),
            _ => Err(OutputError::UnknownShape {
                expected: "JSON, since it is not UTF-8 text model's",
            }),
        }?;
        Ok(candidate::calls(found, &limits))
    }
}
