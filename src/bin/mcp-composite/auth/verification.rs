//! The outcome of the verification of a bearer token.

use std::time::SystemTime;

/// The caller who has a valid token.
pub(super) struct Verified {
    /// The name of the caller.
    pub(super) caller: String,
    /// The time at which the token expires. `None` if it does not expire.
    pub(super) expires: Option<SystemTime>,
}

/// The reason why a request is rejected.
#[derive(Debug)]
pub(super) enum Rejection {
    /// The request has no bearer token.
    NoToken,
    /// The request has several `Authorization` headers, or one that contains no token.
    Malformed,
    /// The token is not valid. Contains the reason for the operator, without the token.
    InvalidToken(String),
    /// The token of this caller lacks a scope.
    InsufficientScope(String),
}
