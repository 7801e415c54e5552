//! The OAuth grants with which access tokens are requested.

use tokio::time::Instant;

use crate::adapter::{CallerToken, Secrets};

/// The type of access tokens, as defined in RFC 8693, section 3.
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The OAuth grant with which an access token is requested.
#[derive(Clone)]
pub(in crate::adapter::remote) enum Grant {
    /// The token is issued to this program, without a caller.
    ClientCredentials,
    /// The token is issued in exchange for the contained token of a caller.
    Exchange(CallerToken),
}

// === impl Grant ===

impl Grant {
    /// Returns the parameters that describe the grant in a token request.
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

    /// Returns the secrets that the parameters contain.
    pub(super) fn secrets(&self) -> Secrets {
        match self {
            Self::ClientCredentials => Secrets::default(),
            Self::Exchange(token) => Secrets::new([token.value().to_owned()]),
        }
    }

    /// Returns the time after which a token that was issued with this grant must not be used.
    /// Returns `None` if the grant sets no such time.
    pub(super) const fn ends(&self) -> Option<Instant> {
        match self {
            Self::ClientCredentials => None,
            Self::Exchange(token) => token.expires(),
        }
    }
}
