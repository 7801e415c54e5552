//! Stores of values that clients refer to: the states of suspended runs, and complete results.
//!
//! A composite that asks the user ends its call with the questions, and continues when the client
//! calls again with the answers. The progress until then, the *state* of the run, is put into a
//! [`Store`], which returns a handle for it. The client keeps the handle and sends it back with the
//! answers.
//!
//! A [`TruncateLayer`](crate::truncate::TruncateLayer) truncates results that are too large. If it
//! has a store, it puts the complete result there, as JSON, and the answer links to it, so that the
//! client can read the rest.
//!
//! | | [`SignedStore`] | [`MemoryStore`] | [`RedisStore`] |
//! |---|---|---|---|
//! | stores | states | states or results | states or results |
//! | the handle is | the state, signed | random | random |
//! | the value is stored | at the client | in memory | in Redis |
//! | a state can be resumed by | any process with the key | this process | any process |
//! | a state can be read by the client | yes | no | no |
//! | a state can be used again, until it expires | yes | no | no |
//! | size of a state, by default | 64 KiB | 4 MiB, all of one caller 16 MiB, all of them 64 MiB | 4 MiB, all of one caller 16 MiB |
//! | size of a result, by default | | 16 MiB, all of them 64 MiB | 16 MiB |
//!
//! A value has an *owner*: only with the same owner can it be retrieved. The owner of a state is
//! the call that began the run, with its caller; that of a result is the caller.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::store::{MemoryStore, SignedStore, Store, TakeError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let here = SignedStore::new("a secret of at least 32 bytes, shared by replicas")?;
//! let elsewhere = SignedStore::new("a secret of at least 32 bytes, shared by replicas")?;
//!
//! let handle = here.put(b"half done".to_vec(), b"search of alice", None).await?;
//! assert_eq!(elsewhere.take(&handle, b"search of alice", None).await?, b"half done");
//!
//! let refused = elsewhere.take(&handle, b"search of bob", None).await;
//! assert!(matches!(refused, Err(TakeError::Invalid(_))));
//!
//! let results = MemoryStore::for_results();
//! let handle = results.put(b"{}".to_vec(), b"alice", Some(b"alice")).await?;
//! for _ in 0..2 {
//!     assert_eq!(results.get(&handle, b"alice", Some(b"alice")).await?, b"{}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`RedisStore`]: crate::redis::RedisStore

#![doc = include_str!("../guide/links.md")]
#![doc = include_str!("../guide/replicas.md")]

mod error;
mod memory;
mod signed;

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;

#[cfg(feature = "config")]
pub(crate) use self::signed::{MAX_KEY_ID, MIN_KEY};
pub use self::{
    error::{KeyError, PutError, TakeError},
    memory::MemoryStore,
    signed::SignedStore,
};
#[cfg(feature = "redis")]
pub(crate) use self::{
    memory::{MAX_RESULT_BYTES, MAX_STATE_BYTES, RESULT_TTL, WhenFull},
    signed::STATE_TTL,
};

/// A store that exchanges values for handles that clients keep.
///
/// A handle that comes back is sent by a client, and can be any text.
///
/// The `caller` of each method is the one whose share of the store the value counts against, for
/// stores that limit the bytes of one caller; `None` if callers are not known, so that no limit of
/// a caller applies. All requests without a caller share one key.
///
/// See the [module docs](self) for an example.
pub trait Store: fmt::Debug + Send + Sync {
    /// Stores a value, and returns an unguessable handle that gives it back only to the same owner.
    ///
    /// # Errors
    ///
    /// The future returns an error if the value is too large, if the store is full or unavailable,
    /// or if the caller's share is used up.
    fn put<'a>(
        &'a self,
        value: Vec<u8>,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>>;

    /// Removes and returns the value of a handle. A composite takes the state of a run.
    ///
    /// # Errors
    ///
    /// The future returns an error if the handle is invalid, belongs to another owner, has expired
    /// or was taken, or if the store is unavailable. Do not disclose the reason to clients.
    fn take<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>>;

    /// Returns the value of a handle, any number of times until it expires. A client reads a
    /// result.
    ///
    /// # Errors
    ///
    /// The future returns errors as [`take`](Self::take) does.
    fn get<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>>;

    /// Returns the size in bytes above which [`put`](Self::put) rejects every value.
    ///
    /// A composite rejects a call of a tool that may change something if its run is certain to
    /// exceed this size at a later question. Defaults to `None`, an unknown limit: such a run fails
    /// at the question.
    fn max_bytes(&self) -> Option<usize> {
        None
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    fn put<'a>(
        &'a self,
        value: Vec<u8>,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>> {
        (**self).put(value, owner, caller)
    }

    fn take<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        (**self).take(handle, owner, caller)
    }

    fn get<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        (**self).get(handle, owner, caller)
    }

    fn max_bytes(&self) -> Option<usize> {
        (**self).max_bytes()
    }
}

/// Encodes a caller as an owner of values. An unknown caller differs from one with an empty name.
pub(crate) fn caller_key(caller: Option<&str>) -> Vec<u8> {
    match caller {
        Some(caller) => [b"caller ", caller.as_bytes()].concat(),
        None => b"anybody".to_vec(),
    }
}

#[cfg(test)]
mod tests;
