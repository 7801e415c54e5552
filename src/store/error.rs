//! The errors that stores return.

use std::borrow::Cow;

use thiserror::Error;

/// The reason why a [`Store`](super::Store) rejects a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PutError {
    /// The value exceeds the maximum size of a value.
    #[error("the state of the run has {bytes} bytes: expected at most {max} (`max_state_bytes`)")]
    TooLarge {
        /// The size of the value in bytes.
        bytes: usize,
        /// The maximum size of a value in bytes.
        max: usize,
    },
    /// The store has no room for the new value.
    // The message omits `bytes`, because clients see it, and the number would disclose how much
    // other callers store.
    #[error(
        "the state store is full: with this state it would hold more than {max} bytes \
         (`max_total_bytes`)"
    )]
    Full {
        /// The total size of all values in bytes, including the rejected value. For logs and not
        /// for clients.
        bytes: usize,
        /// The maximum total size of all values in bytes.
        max: usize,
    },
    /// The caller's values and the new value together exceed the limit for one caller.
    #[error(
        "the caller's share of the state store is used up: this state takes {bytes} bytes, and \
         all states of one caller at most {max} (`max_caller_bytes`)"
    )]
    CallerFull {
        /// The size of the value in bytes, including the overhead of the store.
        bytes: usize,
        /// The maximum total size of one caller's values in bytes.
        max: usize,
    },
    /// The store is unavailable. Contains the reason, for logs and not for clients.
    #[error("the state store is unavailable: {0}")]
    Unavailable(Cow<'static, str>),
}

/// The reason why a [`Store`](super::Store) returns no value for a handle. For logs and not for
/// clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The handle is invalid, for example because it has expired. Contains the reason, for logs.
    /// Clients must receive the same message for every reason, so that they learn nothing about
    /// other handles.
    #[error("not the state of a run: {0}")]
    Invalid(Cow<'static, str>),
    /// The store is temporarily unavailable. Contains the reason.
    #[error("the state store is unavailable: {0}")]
    Unavailable(Cow<'static, str>),
}

/// The reason why a [`SealedStore`](super::SealedStore) or [`SignedStore`](super::SignedStore)
/// rejects its keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There are no keys.
    #[error("no keys: expected at least one")]
    None,
    /// A key is too short, so that it could be guessed.
    #[error("the key `{id}` has {bytes} bytes: expected at least {min}")]
    TooShort {
        /// The ID of the key.
        id: String,
        /// The length of the key in bytes.
        bytes: usize,
        /// The minimum length of a key in bytes.
        min: usize,
    },
    /// Two keys have the same ID.
    #[error("two keys have the id `{id}`")]
    DuplicateId {
        /// The ID of both keys.
        id: String,
    },
    /// The ID of a key is empty or too long.
    #[error("the id of a key has {bytes} bytes: expected 1 to {max}")]
    IllegalId {
        /// The length of the ID in bytes.
        bytes: usize,
        /// The maximum length of an ID in bytes.
        max: usize,
    },
}

// === impl TakeError ===

impl TakeError {
    pub(crate) const NO_HANDLE: Self = Self::Invalid(Cow::Borrowed("it is not a valid handle"));
    pub(crate) const UNKNOWN: Self =
        Self::Invalid(Cow::Borrowed("it is unknown: it was used, has expired, or never existed"));
    pub(crate) const FOREIGN: Self =
        Self::Invalid(Cow::Borrowed("it belongs to another call or caller"));
    pub(super) const MALFORMED: Self = Self::Invalid(Cow::Borrowed("it is malformed"));
    pub(super) const TOO_LONG: Self = Self::Invalid(Cow::Borrowed("it is too long"));
    pub(super) const EXPIRED: Self = Self::Invalid(Cow::Borrowed("it has expired"));
    pub(super) const NOT_AUTHENTIC: Self = Self::Invalid(Cow::Borrowed(
        "it is not authentic: it was modified, or belongs to another call, caller, or key with the \
         same id",
    ));
    pub(super) const OF_ANOTHER_PROCESS: Self = Self::Invalid(Cow::Borrowed(
        "it was created by another process, or before a restart, with the random key of that \
         process; to accept such states, set the same `[state] keys` in all processes",
    ));
    pub(super) const SEALED: Self = Self::Invalid(Cow::Borrowed(
        "it is encrypted: it was created with `store = \"sealed\"`, but this process has `store = \
         \"signed\"`",
    ));
    #[cfg(feature = "sealed")]
    pub(super) const SIGNED: Self = Self::Invalid(Cow::Borrowed(
        "it is signed, not encrypted: it was created by an earlier version or with `store = \
         \"signed\"`, but this process has `store = \"sealed\"`",
    ));
}
