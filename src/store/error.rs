//! Errors of stores.

use std::borrow::Cow;

use thiserror::Error;

/// The reason why a value is not stored. The messages speak of states: those of results are only
/// logged.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PutError {
    /// The value is larger than the maximum size.
    #[error("the state of the run has {bytes} bytes: expected at most {max} (`max_state_bytes`)")]
    TooLarge {
        /// The size of the value.
        bytes: usize,
        /// The maximum size.
        max: usize,
    },
    /// The store is full.
    // The message does not contain `bytes`: clients see it, and it depends on other callers.
    #[error(
        "the state store is full: with this state it would hold more than {max} bytes \
         (`max_total_bytes`)"
    )]
    Full {
        /// The size of all values with this one. For logs, not for clients.
        bytes: usize,
        /// The maximum size of all values.
        max: usize,
    },
    /// The values of the caller would exceed the caller's share of the store.
    #[error(
        "the caller's share of the state store is used up: this state takes {bytes} bytes, and \
         all states of one caller at most {max} (`max_caller_bytes`)"
    )]
    CallerFull {
        /// The size of this value in the store.
        bytes: usize,
        /// The maximum size of the values of one caller.
        max: usize,
    },
    /// The store is unavailable. The reason is for logs, not for clients.
    #[error("states of runs cannot be kept at the moment: {0}")]
    Unavailable(Cow<'static, str>),
}

/// The reason why a handle gives no value. The details are for logs, not for clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The handle is invalid. Clients get the same message for all reasons.
    #[error("no state of a run: {0}")]
    Invalid(Cow<'static, str>),
    /// The store is unavailable.
    #[error("states of runs cannot be taken at the moment: {0}")]
    Unavailable(Cow<'static, str>),
}

/// The reason why keys cannot sign states.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No key is given.
    #[error("no key to sign states with: expected at least one")]
    None,
    /// A key is so short that it could be guessed.
    #[error("the key `{id}` has {bytes} bytes: expected at least {min}")]
    TooShort {
        /// The id of the key.
        id: String,
        /// The length of the key in bytes.
        bytes: usize,
        /// The minimum length.
        min: usize,
    },
    /// Two keys have the same id.
    #[error("two keys have the id `{id}`")]
    DuplicateId {
        /// The id.
        id: String,
    },
    /// The id of a key is blank or too long.
    #[error("the id of a key has {bytes} bytes: expected 1 to {max}")]
    IllegalId {
        /// The length of the id in bytes.
        bytes: usize,
        /// The maximum length.
        max: usize,
    },
}

// === impl TakeError ===

impl TakeError {
    pub(crate) const NO_HANDLE: Self = Self::Invalid(Cow::Borrowed("it is not a valid handle"));
    pub(crate) const UNKNOWN: Self =
        Self::Invalid(Cow::Borrowed("it is unknown: it was taken, has expired, or never was"));
    pub(crate) const FOREIGN: Self =
        Self::Invalid(Cow::Borrowed("it is of another call or of another caller"));
}
