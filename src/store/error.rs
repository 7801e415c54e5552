//! The errors that stores return.

use std::borrow::Cow;

use thiserror::Error;

/// The reason why a [`Store`](super::Store) rejects a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PutError {
    /// The value is larger than the store's maximum size for a single value.
    #[error("the state of the run has {bytes} bytes: expected at most {max} (`max_state_bytes`)")]
    TooLarge {
        /// The size of the rejected value in bytes.
        bytes: usize,
        /// The maximum size of a value in bytes.
        max: usize,
    },
    /// The store is full: it has no room for the new value.
    // The message omits `bytes`, because clients see it, and the number would disclose how much
    // other callers store.
    #[error(
        "the state store is full: with this state it would hold more than {max} bytes \
         (`max_total_bytes`)"
    )]
    Full {
        /// The total size in bytes of all values, including the rejected value. Meant for logs, not
        /// for clients.
        bytes: usize,
        /// The maximum total size in bytes of all values in the store.
        max: usize,
    },
    /// The caller's share of the store is full: with the new value, the caller's values would
    /// exceed it.
    #[error(
        "the caller's share of the state store is used up: this state takes {bytes} bytes, and \
         all states of one caller at most {max} (`max_caller_bytes`)"
    )]
    CallerFull {
        /// The size in bytes of the rejected value, including the overhead that the store adds.
        bytes: usize,
        /// The maximum total size in bytes of one caller's values.
        max: usize,
    },
    /// The store is unavailable. The string contains the reason, which is meant for logs, not for
    /// clients.
    #[error("the state store is unavailable: {0}")]
    Unavailable(Cow<'static, str>),
}

/// The reason why a [`Store`](super::Store) does not return the value for a handle. Meant for logs,
/// not for clients.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TakeError {
    /// The store rejects the handle, for example because the handle is malformed or has expired.
    /// The string contains the reason for logs. Clients must receive the same message for every
    /// reason, so that they learn nothing about other handles.
    #[error("not the state of a run: {0}")]
    Invalid(Cow<'static, str>),
    /// The store is temporarily unavailable. The string contains the reason.
    #[error("the state store is unavailable: {0}")]
    Unavailable(Cow<'static, str>),
}

/// The reason why a [`SealedStore`](super::SealedStore) or [`SignedStore`](super::SignedStore)
/// rejects a set of keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The set of keys is empty.
    #[error("no keys: expected at least one")]
    None,
    /// A key is so short that it could be guessed.
    #[error("the key `{id}` has {bytes} bytes: expected at least {min}")]
    TooShort {
        /// The ID of the key that is too short.
        id: String,
        /// The length of the key in bytes.
        bytes: usize,
        /// The minimum length of a key in bytes.
        min: usize,
    },
    /// Two of the keys have the same ID.
    #[error("two keys have the id `{id}`")]
    DuplicateId {
        /// The ID that both keys have.
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
