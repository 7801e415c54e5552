//! The common parts of stores without data on the server: keys, limits and public methods.

use std::{collections::HashSet, sync::OnceLock, time::Duration};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use rmcp::model::RequestStateCodec;
use zeroize::Zeroizing;

use super::{KeyError, PutError, TakeError};
use crate::random;

/// The minimum length of a key, in bytes.
pub(crate) const MIN_KEY: usize = RequestStateCodec::MIN_KEY_LENGTH;
/// The maximum length of a key ID, in bytes.
pub(crate) const MAX_KEY_ID: usize = 255;
/// The default lifetime of the state of a suspended run.
pub(crate) const STATE_TTL: Duration = Duration::from_secs(60 * 60);
/// The default maximum length of a handle, in bytes.
const MAX_HANDLE_BYTES: usize = 64 * 1024;
/// The number of random bytes in the ID of the random key of a process.
const RANDOM_ID: usize = 8;

/// The ID of the key in a store with a single key.
const DEFAULT_ID: &str = "default";
/// The beginning of the ID of the random key of a process.
const EPHEMERAL_ID: &str = "ephemeral";

/// The first part of handles with an encrypted state.
pub(super) const SEALED: &str = "es1";
/// The first part of handles with a signed state, as in rmcp.
#[cfg(feature = "sealed")]
pub(super) const SIGNED: [&str; 2] = ["rs1", "rs2"];

/// The keys of a store, at least one. New states are created with the first key. States that were
/// created with any of the keys are accepted.
pub(super) struct Keys(Vec<Key>);

/// A key with its ID. The key is overwritten in memory when it is dropped.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) id: String,
    pub(super) secret: Zeroizing<Vec<u8>>,
}

/// The lifetime and the maximum length of a store's handles.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) ttl: Duration,
    pub(super) max_item_bytes: usize,
}

// === impl Keys ===

impl Keys {
    /// Checks the keys of a store. Returns an error if a key is too short, if an ID is empty, too
    /// long or not unique, or if there are no keys.
    pub(super) fn new<I, K>(keys: impl IntoIterator<Item = (I, K)>) -> Result<Self, KeyError>
    where
        I: Into<String>,
        K: Into<Vec<u8>>,
    {
        let keys = keys.into_iter();
        let keys = keys.map(|(id, key)| Key { id: id.into(), secret: Zeroizing::new(key.into()) });
        let keys: Vec<_> = keys.collect();
        let mut ids = HashSet::new();
        for Key { id, secret } in &keys {
            if id.is_empty() || id.len() > MAX_KEY_ID {
                return Err(KeyError::IllegalId { bytes: id.len(), max: MAX_KEY_ID });
            }
            if secret.len() < MIN_KEY {
                let bytes = secret.len();
                return Err(KeyError::TooShort { id: id.clone(), bytes, min: MIN_KEY });
            }
            if !ids.insert(id) {
                return Err(KeyError::DuplicateId { id: id.clone() });
            }
        }
        if keys.is_empty() { Err(KeyError::None) } else { Ok(Self(keys)) }
    }

    /// Creates the keys of a store with a single key, whose ID is `default`. Returns an error if it
    /// is too short.
    pub(super) fn single(key: impl Into<Vec<u8>>) -> Result<Self, KeyError> {
        Self::new([(DEFAULT_ID, key)])
    }

    /// Returns the random key of this process, which is created by the first call. Its ID is also
    /// random, so that the states of other processes can be distinguished from modified states.
    ///
    /// # Panics
    ///
    /// Panics if the operating system provides no random numbers.
    pub(super) fn ephemeral() -> Self {
        static KEY: OnceLock<Key> = OnceLock::new();
        let key = KEY.get_or_init(|| {
            let mut secret = Zeroizing::new(vec![0; MIN_KEY]);
            let id = random::text::<RANDOM_ID>();
            let id = id.and_then(|id| getrandom::fill(&mut secret).map(|()| id));
            let id = id.expect("the system has random numbers");
            Key { id: format!("{EPHEMERAL_ID}-{id}"), secret }
        });
        Self(vec![key.clone()])
    }

    /// Returns the ID of the key with which new states are created.
    pub(super) fn first_id(&self) -> &str {
        self.0.first().map_or("", |key| &*key.id)
    }

    pub(super) fn into_iter(self) -> impl Iterator<Item = Key> {
        self.0.into_iter()
    }
}

// === impl Limits ===

impl Limits {
    pub(super) fn put(self, bytes: usize) -> Result<(), PutError> {
        let max = self.max_item_bytes;
        if bytes > max { Err(PutError::TooLarge { bytes, max }) } else { Ok(()) }
    }

    pub(super) fn take(self, handle: &str) -> Result<(), TakeError> {
        if handle.len() > self.max_item_bytes { Err(TakeError::TOO_LONG) } else { Ok(()) }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { ttl: STATE_TTL, max_item_bytes: MAX_HANDLE_BYTES }
    }
}

/// Returns the error for a handle with an unknown key. The ID of the key is the second part of the
/// handle.
pub(super) fn unknown_key(handle: &str) -> TakeError {
    let id = handle.split('.').nth(1).and_then(|id| URL_SAFE_NO_PAD.decode(id).ok());
    let id = id.filter(|id| id.len() <= MAX_KEY_ID).and_then(|id| String::from_utf8(id).ok());
    match id {
        Some(id) if id.starts_with(EPHEMERAL_ID) => TakeError::OF_ANOTHER_PROCESS,
        Some(id) => TakeError::Invalid(format!("its key {id:?} is unknown to this process").into()),
        None => TakeError::MALFORMED,
    }
}

/// Implements the public methods, [`Store`](super::Store) and `Debug` for a store without data on
/// the server.
///
/// The type needs a field `limits`, and these methods: `with_keys` creates it, `seal` converts a
/// state to a handle, `open` does the reverse, and `max_state` returns the maximum size of a state.
macro_rules! stateless_store {
    ($Store:ident) => {
        impl $Store {
            /// Creates a store with a single key, whose ID is `default`.
            ///
            /// # Errors
            ///
            /// Returns an error if the key is shorter than 32 bytes.
            pub fn new(key: impl Into<Vec<u8>>) -> Result<Self, crate::store::KeyError> {
                crate::store::stateless::Keys::single(key).map(Self::with_keys)
            }

            /// Creates a store with several keys, each with an ID. New states are created with the
            /// first key. States that were created with any of the keys are accepted. Each handle
            /// contains the ID of its key.
            ///
            /// # Errors
            ///
            /// Returns an error if there are no keys, if a key is shorter than 32 bytes, or if an
            /// ID is empty, longer than 255 bytes, or used twice.
            pub fn ring<I, K>(
                keys: impl IntoIterator<Item = (I, K)>,
            ) -> Result<Self, crate::store::KeyError>
            where
                I: Into<String>,
                K: Into<Vec<u8>>,
            {
                crate::store::stateless::Keys::new(keys).map(Self::with_keys)
            }

            /// Creates a store with a random key. Within a process, all stores that are created by
            /// this method share the key.
            ///
            /// The states of a store with a random key become invalid when the process ends. Other
            /// processes do not accept them.
            ///
            /// # Panics
            ///
            /// Panics if the operating system provides no random numbers.
            #[must_use]
            pub fn ephemeral() -> Self {
                Self::with_keys(crate::store::stateless::Keys::ephemeral())
            }

            /// Sets the lifetime of a suspended run's state. Defaults to an hour.
            #[must_use]
            pub const fn ttl(mut self, ttl: std::time::Duration) -> Self {
                self.limits.ttl = ttl;
                self
            }

            /// Sets the maximum length of a handle in bytes. Defaults to 64 KiB, which is enough
            /// for a state of about 48 KiB.
            ///
            /// If a client sends a longer handle, its call fails. If the state of a run will
            /// certainly be too large for a handle when the run asks its question, the composite
            /// rejects the run before it calls a tool that may have side effects.
            #[must_use]
            pub const fn max_item_bytes(mut self, bytes: usize) -> Self {
                self.limits.max_item_bytes = bytes;
                self
            }
        }

        impl crate::store::Store for $Store {
            fn put<'a>(
                &'a self,
                value: Vec<u8>,
                owner: &'a [u8],
                _: Option<&'a [u8]>,
            ) -> futures::future::BoxFuture<'a, Result<String, crate::store::PutError>> {
                Box::pin(async move { self.seal(&value, owner) })
            }

            fn take<'a>(
                &'a self,
                handle: &'a str,
                owner: &'a [u8],
                caller: Option<&'a [u8]>,
            ) -> futures::future::BoxFuture<'a, Result<Vec<u8>, crate::store::TakeError>> {
                self.get(handle, owner, caller)
            }

            fn get<'a>(
                &'a self,
                handle: &'a str,
                owner: &'a [u8],
                _: Option<&'a [u8]>,
            ) -> futures::future::BoxFuture<'a, Result<Vec<u8>, crate::store::TakeError>> {
                Box::pin(async move { self.open(handle, owner) })
            }

            fn max_bytes(&self) -> Option<usize> {
                Some(self.max_state())
            }
        }

        /// Omits the keys.
        impl std::fmt::Debug for $Store {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_struct(stringify!($Store))
                    .field("ttl", &self.limits.ttl)
                    .field("max_item_bytes", &self.limits.max_item_bytes)
                    .finish_non_exhaustive()
            }
        }
    };
}
pub(super) use stateless_store;
