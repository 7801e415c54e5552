//! The error of a model output that cannot be read.

/// The error returned if a model's output cannot be searched for calls.
///
/// A malformed call does not cause this error. It is returned in the list of calls instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The output does not have the expected format.
    #[error("unknown output: expected {expected}")]
    UnknownShape {
        /// The expected format.
        expected: &'static str,
    },
    /// The output matches the formats of several providers.
    #[error("the output matches several formats: name its provider")]
    Ambiguous,
    /// The output is part of a stream, whose parts must be joined first.
    #[error("a chunk of a stream: join the chunks first")]
    Stream,
    /// The text in which to find calls is larger than allowed.
    #[error("the text has more than {limit} bytes (`max_bytes`)")]
    TooLarge {
        /// Maximum number of bytes.
        limit: usize,
    },
}
