//! The OAuth grants with which access tokens are requested.

use tokio::time::Instant;

use crate::adapter::{CallerToken, Secrets};

/// The type of access tokens, as defined in RFC 8693, section 3.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The OAuth grant that a token request uses.
#[derive(Clone)]
pub(in crate::adapter::remote) enum Grant {
    /// Requests a token for this program itself, independent of any caller.
    ClientCredentials,
    /// Exchanges the contained token of a caller for a token that the server accepts.
    Exchange(CallerToken),
}

// === impl Grant ===

impl Grant {
    /// Returns the form parameters that describe this grant in a token request.
    pub(super) fn parameters(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::ClientCredentials => vec![("grant_type", "client_credentials")],
            Self::Exchange(token) => vec![
                ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
                ("subject_token", token.value()),
                ("subject_token_type", ACCESS_TOKEN),
                ("requested_token_type", ACCESS_TOKEN),
            ],
        }
    }

    /// Returns the secrets in the parameters of the grant, which must be redacted in errors.
    pub(super) fn secrets(&self) -> Secrets {
        match self {
            Self::ClientCredentials => Secrets::default(),
            Self::Exchange(token) => Secrets::new([token.value().to_owned()]),
        }
    }

    /// Returns the latest time at which a token that was issued with this grant may be used: the
    /// expiry of the exchanged token. Returns `None` if there is no such limit.
    pub(super) const fn ends(&self) -> Option<Instant> {
        match self {
            Self::ClientCredentials => None,
            Self::Exchange(token) => token.expires(),
        }
    }
}
