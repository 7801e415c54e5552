use serde_json::Value;

use super::{
    anthropic,
    call::{MalformedCall, ToolCall},
    candidate, chat, detect,
    error::OutputError,
    gemini,
    limits::Limits,
    responses,
    text::{hermes, lfm},
};

/// Who has given the output of a model its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// The Responses API of OpenAI: a response, its `output`, or one item.
    OpenAiResponses,
    /// The Chat Completions API of OpenAI, which many servers speak: a completion, a
    /// message, or its `tool_calls`.
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

/// Finds the calls in the output of a model of whichever provider.
///
/// There is one result per call, in order: what is wrong with one does not spoil the
/// others. Where the provider is known, say so instead: [`Provider::calls`].
///
/// # Errors
///
/// Returns an error if it is [not known](Provider::detect) whose output it is, or if it
/// is too large.
pub fn normalize(output: &Value) -> Result<Vec<Result<ToolCall, MalformedCall>>, OutputError> {
    Provider::detect(output)?.calls(output)
}

// === impl Provider ===

impl Provider {
    /// Looks whose output it is.
    ///
    /// A text without the marker of a call is taken for one of [`Hermes`](Self::Hermes).
    ///
    /// # Errors
    ///
    /// Returns an error if it has the form of no provider or that of several, or is a
    /// part of a stream. An empty list says nothing of whose it is.
    pub fn detect(output: &Value) -> Result<Self, OutputError> {
        detect::provider(output)
    }

    /// Finds the calls in the output of a model of this provider; a text is searched
    /// for those in it.
    ///
    /// There is one result per call, in order: what is wrong with one does not spoil
    /// the others. A call without an id gets one, and only the first of several with
    /// the same id can be made. See the [module docs](super) for what is no call.
    ///
    /// # Errors
    ///
    /// Returns an error if the output has another form, or is too large a text. Output
    /// without calls is no error.
    pub fn calls(
        self,
        output: &Value,
    ) -> Result<Vec<Result<ToolCall, MalformedCall>>, OutputError> {
        self.calls_within(output, &Limits::new())
    }

    /// Finds the calls within other [limits](Limits) than the default.
    ///
    /// # Errors
    ///
    /// Returns an error as [`calls`](Self::calls) does.
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
    /// Returns an error if the text is larger than 1 MiB, or models of the provider do
    /// not write their calls into texts.
    pub fn calls_in(self, text: &str) -> Result<Vec<Result<ToolCall, MalformedCall>>, OutputError> {
        let limits = Limits::new();
        let found = match self {
            Self::Lfm => lfm::find(text, &limits),
            Self::Hermes => hermes::find(text, &limits),
            _ => Err(OutputError::UnknownShape { expected: "JSON, since it is no text model's" }),
        }?;
        Ok(candidate::calls(found, &limits))
    }
}
