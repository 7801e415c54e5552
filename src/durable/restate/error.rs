//! The errors of requests to Restate.

use std::{borrow::Cow, error::Error};

use thiserror::Error;

use crate::{error_chain::error_chain, tasks::TaskStoreError};

/// The reason why a request to a Restate server failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestateError {
    /// A URL is invalid. The URL is omitted, because it may contain a password.
    #[error("invalid URL of a Restate server; expected `http://HOST:PORT`")]
    Url,
    /// The identity key is invalid.
    #[error("invalid identity key of a Restate server; expected `publickeyv1_…`")]
    IdentityKey,
    /// The server rejected the request with this HTTP status.
    #[error("the Restate server replied with status {0}")]
    Status(u16),
    /// The server is unavailable. The string contains the reason.
    #[error("the Restate server is unavailable: {0}")]
    Unavailable(Cow<'static, str>),
}

// === impl RestateError ===

impl RestateError {
    pub(super) fn unavailable(error: &reqwest::Error) -> Self {
        // The message of the error itself contains the URL.
        let source = error.source();
        let reason = source.map_or_else(|| "request failed".to_owned(), error_chain);
        Self::Unavailable(reason.into())
    }

    /// Returns `true` if the server would reject the same request again.
    pub(super) const fn is_permanent(&self) -> bool {
        match self {
            Self::Url | Self::IdentityKey => true,
            // Request Timeout, Too Early, and Too Many Requests.
            Self::Status(408 | 425 | 429) | Self::Unavailable(_) => false,
            Self::Status(status) => matches!(status, 400..=499),
        }
    }
}

impl From<RestateError> for TaskStoreError {
    fn from(error: RestateError) -> Self {
        Self::Unavailable(error.to_string().into())
    }
}
