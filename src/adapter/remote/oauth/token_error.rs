//! The error of an access token request.

use std::{error::Error, fmt};

/// The reason why no access token was issued, as a message for the operator. It contains no
/// secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::adapter::remote) struct TokenError {
    text: String,
    is_refusal: bool,
}

// === impl TokenError ===

impl TokenError {
    /// Creates an error for an authorization server that cannot be reached or sent an invalid
    /// response.
    pub(super) const fn failure(text: String) -> Self {
        Self { text, is_refusal: false }
    }

    /// Creates an error for an authorization server that refused to issue a token.
    pub(super) const fn refusal(text: String) -> Self {
        Self { text, is_refusal: true }
    }

    /// Returns `true` if the authorization server refused to issue a token.
    pub(in crate::adapter::remote) const fn is_refusal(&self) -> bool {
        self.is_refusal
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for TokenError {}
