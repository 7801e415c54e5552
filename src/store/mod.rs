//! Stores for values that clients refer to by handles: the states of suspended runs, and the full
//! versions of truncated results.
//!
//! A composite is a tool that calls other tools. If it needs user input, it replies to the client's
//! call with questions, and its run is suspended. The client then repeats the call with the
//! answers, and the run continues. In the meantime, the progress of the run, called its *state*, is
//! in a [`Store`]. The store returns a *handle*: a string that the client keeps and sends back with
//! the answers.
//!
//! A [`TruncateLayer`](crate::truncate::TruncateLayer) truncates large tool results. If it has a
//! store, it stores the full results there as JSON. Each truncated result contains a link to the
//! full result, so that the client can read the rest.
//!
//! | | [`SealedStore`] | [`SignedStore`] | [`MemoryStore`] | [`RedisStore`] |
//! |---|---|---|---|---|
//! | stores | states | states | states or results | states or results |
//! | the handle is | the state, encrypted | the state, signed | random | random |
//! | the value is stored | at the client | at the client | in memory | in Redis |
//! | a state can be resumed by | any process with the key | any process with the key | this process | any process |
//! | a state can be read by the client | no | yes | no | no |
//! | a state can be used again, until it expires | yes | yes | no | no |
//! | size of a state, by default | 64 KiB | 64 KiB | 4 MiB, all of one caller 16 MiB, all of them 64 MiB | 4 MiB, all of one caller 16 MiB |
//! | size of a result, by default | | | 16 MiB, all of them 64 MiB | 16 MiB |
//!
//! [`SealedStore`] needs the feature `sealed`, which the default feature `config` enables.
//!
//! Each value in a [`Store`] has an *owner*, and only requests of this owner can retrieve it. The
//! owner of a run's state is the call that started the run, together with its caller. The owner of
//! a tool result is the caller of the tool.
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
#[cfg(feature = "sealed")]
mod sealed;
mod signed;
mod stateless;

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;

#[cfg(feature = "sealed")]
pub use self::sealed::SealedStore;
#[cfg(feature = "config")]
pub(crate) use self::stateless::{MAX_KEY_ID, MIN_KEY};
pub use self::{
    error::{KeyError, PutError, TakeError},
    memory::MemoryStore,
    signed::SignedStore,
};
#[cfg(feature = "redis")]
pub(crate) use self::{
    memory::{MAX_RESULT_BYTES, MAX_STATE_BYTES, RESULT_TTL, WhenFull},
    stateless::STATE_TTL,
};

/// The default store of a composite layer, which encrypts the states of runs (feature `sealed`).
#[cfg(feature = "sealed")]
pub(crate) type DefaultStore = SealedStore;
/// The default store of a composite layer, which signs the states of runs. Without the feature
/// `sealed`, it does not encrypt them.
#[cfg(not(feature = "sealed"))]
pub(crate) type DefaultStore = SignedStore;

/// A store of values with handles. A value is the state of a suspended run, or the full version of
/// a truncated tool result.
///
/// Clients receive handles and send them back later. Implementations must not trust a handle,
/// because clients may send any string.
///
/// Some stores limit the total size of each caller's values. For these stores, `caller` identifies
/// the caller of the request. If the server does not identify callers, `caller` is `None`, and
/// there is no limit per caller. If it does, all requests without a caller have the same `caller`.
///
/// See the [module docs](self) for an example.
pub trait Store: fmt::Debug + Send + Sync {
    /// Stores a value and returns its handle, which cannot be guessed. Requests need the handle and
    /// the owner to retrieve the value.
    ///
    /// # Errors
    ///
    /// The future returns an error if the value is too large, if the store is full or unavailable,
    /// or if the caller's values would exceed their limit.
    fn put<'a>(
        &'a self,
        value: Vec<u8>,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>>;

    /// Removes and returns the value with this handle. Composites use this method for the states of
    /// runs, so that each state is used only once.
    ///
    /// # Errors
    ///
    /// The future returns an error if the handle is invalid or has expired, if it belongs to
    /// another owner, if the value was already taken, or if the store is unavailable. Do not
    /// disclose the reason to clients.
    fn take<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>>;

    /// Returns the value with this handle, and leaves it in the store. Used for results, which can
    /// be retrieved any number of times until they expire.
    ///
    /// # Errors
    ///
    /// The future returns the same errors as [`take`](Self::take).
    fn get<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>>;

    /// Returns the maximum size of a value in bytes. [`put`](Self::put) rejects larger values.
    /// Defaults to `None`, which means that the limit is unknown.
    ///
    /// With a known maximum, composites fail early: if the state of a run will certainly be too
    /// large at a later question, a composite rejects the run before it calls a tool that may have
    /// side effects. Otherwise, the run fails when it reaches the question.
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

/// Returns bytes that identify a caller in a store, for example as the owner of a value. `None`
/// stands for all unknown callers, and differs from every name, even the empty one.
pub(crate) fn caller_key(caller: Option<&str>) -> Vec<u8> {
    match caller {
        Some(caller) => [b"caller ", caller.as_bytes()].concat(),
        None => b"anybody".to_vec(),
    }
}

#[cfg(test)]
mod tests;
