//! Errors of unreadable model output.

/// The error if a model's output cannot be searched for calls.
///
/// Malformed calls are not errors: they are returned among the other calls.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The output does not have the format of the provider.
    #[error("unknown output: expected {expected}")]
    UnknownShape {
        /// The expected format.
        expected: &'static str,
    },
    /// The output could be that of several providers.
    #[error("the output is of more than one form: say of which provider it is")]
    Ambiguous,
    /// The output is part of a stream.
    #[error("a part of a stream: put the parts together first")]
    Stream,
    /// The text is larger than allowed.
    #[error("the text has more than {limit} bytes (`max_bytes`)")]
    TooLarge {
        /// Maximum number of bytes.
        limit: usize,
    },
}
