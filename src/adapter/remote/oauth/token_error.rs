//! The error of an access token request.

/// The reason why no access token was issued, as a message for the operator. It contains no
/// secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::adapter::remote) enum TokenError {
    /// The authorization server cannot be reached or sent an invalid response.
    #[error("{0}")]
    Failure(String),
    /// The authorization server refused to issue a token.
    #[error("{0}")]
    Refusal(String),
}
