//! The error for model outputs that cannot be searched for tool calls.

/// The error for a model's output that cannot be searched for tool calls. If the output can be
/// searched, but contains a malformed call, the call is returned as a
/// [`MalformedCall`](super::MalformedCall) instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The output of the model does not have the expected format.
    #[error("unknown output: expected {expected}")]
    UnknownShape {
        /// A description of the expected format.
        expected: &'static str,
    },
    /// The output of the model matches the formats of several providers.
    #[error("the output matches several formats: name its provider")]
    Ambiguous,
    /// The output of the model is a chunk of a streamed response. Join the chunks first.
    #[error("a chunk of a stream: join the chunks first")]
    Stream,
    /// The text of the model exceeds the maximum size of a text that is searched for calls.
    #[error("the text has more than {limit} bytes (`max_bytes`)")]
    TooLarge {
        /// The maximum size of the text in bytes.
        limit: usize,
    },
}
