//! Backends over HTTP that require access tokens, and the authorization server that issues them.

mod client_credentials;
mod exchange;
mod issuer;
#[cfg(feature = "cli")]
mod program;
mod protected;
