//! The formats in which models write tool calls.

use serde_json::Value;

use super::{
    anthropic,
    call::{MalformedCall, ModelCall},
    candidate, chat,
    error::OutputError,
    gemini,
    limits::ParseLimits,
    responses,
    text::{hermes, lfm},
};

/// The format in which a provider, such as OpenAI, returns the output of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// The Responses API of OpenAI. The output may be a whole response, its `output` list, or a
    /// single item of this list.
    OpenAiResponses,
    /// The Chat Completions API of OpenAI and compatible servers. The output may be a whole
    /// completion, a single message, the `tool_calls` of a message, or a single call.
    OpenAiChat,
    /// The Messages API of Anthropic. The output may be a whole message, its `content`, or a single
    /// content block.
    Anthropic,
    /// The Gemini API. The output may be a whole response, the `content` of a candidate, the
    /// `parts` of a content, or a single part.
    Gemini,
    /// The text of an LFM model, such as `<|tool_call_start|>[f(a=1)]<|tool_call_end|>`.
    Lfm,
    /// The text of a Hermes or Qwen model, such as
    /// `<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>`.
    Hermes,
}

/// Detects the provider of a model's output, and finds the tool calls in the output.
///
/// `normalize` returns one item per call, in the order in which the model wrote the calls. A
/// malformed call is an `Err`, and does not affect the other calls. If the provider is known, use
/// [`Provider::calls`] instead.
///
/// # Errors
///
/// Returns an error if the provider cannot be [detected](Provider::detect), or if the output is a
/// text of more than 1 MiB.
pub fn normalize(output: &Value) -> Result<Vec<Result<ModelCall, MalformedCall>>, OutputError> {
    Provider::detect(output)?.calls(output)
}

// === impl Provider ===

impl Provider {
    /// Finds the tool calls in a model's output in this provider's format. For [`Lfm`](Self::Lfm)
    /// and [`Hermes`](Self::Hermes), the output is a JSON string that contains the model's text.
    ///
    /// `calls` returns one item per call, in order. A malformed call is an `Err`, and does not
    /// affect the other calls. If a call has no ID, an ID is generated, such as `call_0`. If
    /// several calls have the same ID, only the first can be executed. The [module docs](super)
    /// describe all rules.
    ///
    /// # Errors
    ///
    /// Returns an error if the output does not have the format of this provider, or is a text that
    /// is too large. Output without calls is not an error.
    pub fn calls(
        self,
        output: &Value,
    ) -> Result<Vec<Result<ModelCall, MalformedCall>>, OutputError> {
        self.calls_within(output, &ParseLimits::new())
    }

    /// Finds the tool calls in a model's output like [`calls`](Self::calls), but with the given
    /// [limits](ParseLimits) on their size, depth and number.
    ///
    /// # Errors
    ///
    /// Returns an error in the same cases as [`calls`](Self::calls).
    pub fn calls_within(
        self,
        output: &Value,
        limits: &ParseLimits,
    ) -> Result<Vec<Result<ModelCall, MalformedCall>>, OutputError> {
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

    /// Finds the tool calls in the text of a model. Use `calls_in` for [`Lfm`](Self::Lfm) and
    /// [`Hermes`](Self::Hermes): models of these providers write a call as text, such as
    /// `<tool_call>{"name": "search"}</tool_call>`.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is larger than 1 MiB, or if the provider is neither
    /// [`Lfm`](Self::Lfm) nor [`Hermes`](Self::Hermes).
    pub fn calls_in(
        self,
        text: &str,
    ) -> Result<Vec<Result<ModelCall, MalformedCall>>, OutputError> {
        let limits = ParseLimits::new();
        let found = match self {
            Self::Lfm => lfm::find(text, &limits),
            Self::Hermes => hermes::find(text, &limits),
            _ => Err(OutputError::UnknownShape {
                expected: "the JSON of the API, because models of this provider do not write calls as text",
            }),
        }?;
        Ok(candidate::calls(found, &limits))
    }
}
