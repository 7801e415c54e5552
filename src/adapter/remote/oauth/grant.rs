//! The grants with which tokens are requested.

use crate::adapter::Secrets;

/// The grant with which a token is requested.
#[derive(Clone)]
pub(in crate::adapter::remote) enum Grant {
    /// The token belongs to this program.
    ClientCredentials,
}

// === impl Grant ===

impl Grant {
    /// Returns the parameters of the grant in a request for a token.
    pub(super) fn parameters(&self) -> Vec<(&'static str, &str)> {
        match self {
            Self::ClientCredentials => vec![("grant_type", "client_credentials")],
        }
    }

    /// Returns the secrets in the parameters.
    pub(super) fn secrets(&self) -> Secrets {
        match self {
            Self::ClientCredentials => Secrets::default(),
        }
    }
}
