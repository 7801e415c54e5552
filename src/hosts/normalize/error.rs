/// Why no calls can be looked for in something.
///
/// A call that is malformed is none: it stands among the others.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// It is not what the provider's models write.
    #[error("unknown output: expected {expected}")]
    UnknownShape {
        /// What was expected.
        expected: &'static str,
    },
    /// It could be the output of several providers.
    #[error("the output is of more than one form: say of which provider it is")]
    Ambiguous,
    /// It is a part of a stream.
    #[error("a part of a stream: put the parts together first")]
    Stream,
    /// The text is larger than allowed.
    #[error("the text has more than {limit} bytes (`max_bytes`)")]
    TooLarge {
        /// How many bytes it may have.
        limit: usize,
    },
}
