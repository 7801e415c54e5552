//! Stores of suspended runs.
//!
//! A composite that asks the user ends its call with the questions, and continues when the client
//! calls again with the answers. The progress until then, the *state* of the run, is put into a
//! [`StateStore`], which returns a text for it. The client keeps the text and sends it back with
//! the answers.
//!
//! | | [`SignedState`] | [`StoredState`] |
//! |---|---|---|
//! | the text is | the state, signed | a handle |
//! | the state is stored | at the client | in memory |
//! | can be resumed by | any process with the key | this process |
//! | can be read by the client | yes | no |
//! | can be used again, until it expires | yes | no |
//! | size of a state, by default | 64 KiB | 4 MiB, all of one caller 16 MiB, all of them 64 MiB |
//!
//! A state is *bound*: it can only be taken with the binding that it was put with. So a text only
//! resumes the call that it belongs to, for the caller that made it.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::state::{SignedState, StateStore, TakeError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let here = SignedState::new("a secret of at least 32 bytes, shared by replicas")?;
//! let elsewhere = SignedState::new("a secret of at least 32 bytes, shared by replicas")?;
//!
//! let text = here.put(b"half done".to_vec(), b"search of alice").await?;
//! assert_eq!(elsewhere.take(&text, b"search of alice").await?, b"half done");
//!
//! let refused = elsewhere.take(&text, b"search of bob").await;
//! assert!(matches!(refused, Err(TakeError::Invalid(_))));
//! # Ok(())
//! # }
//! ```

#![doc = include_str!("../../guide/replicas.md")]

mod error;
mod signed;
mod stored;

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;

#[cfg(feature = "config")]
pub(crate) use self::signed::{MAX_KEY_ID, MIN_KEY};
pub use self::{
    error::{KeyError, PutError, TakeError},
    signed::SignedState,
    stored::StoredState,
};

/// A store that exchanges the states of suspended runs for texts that clients keep.
///
/// A text that comes back is sent by a client, and can be anything.
/// See the [module docs](self) for an example.
pub trait StateStore: fmt::Debug + Send + Sync {
    /// Stores a state and returns its text, which gives the state back only with the same binding.
    ///
    /// # Errors
    ///
    /// The future returns an error if the state is too large, or if the store is full or
    /// unavailable.
    fn put<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>>;

    /// Like [`put`](Self::put), but counts the state against the share of a caller, for stores that
    /// limit the bytes of one caller.
    ///
    /// A composite layer calls it instead of `put` if it has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function. All requests without a caller
    /// share one key. Defaults to calling `put`.
    ///
    /// # Errors
    ///
    /// The future returns an error if `put` would, or if the caller's share is used up.
    fn put_for<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        let _ = caller;
        self.put(state, binding)
    }

    /// Returns the state of a text.
    ///
    /// # Errors
    ///
    /// The future returns an error if the text is invalid, belongs to a state with another binding,
    /// has expired or was taken, or if the store is unavailable. Do not disclose the reason to clients.
    fn take<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>>;

    /// Returns the size in bytes above which [`put`](Self::put) rejects every state.
    ///
    /// A composite rejects a call of a tool that may change something if its run is certain to
    /// exceed this size at a later question. Defaults to `None`, an unknown limit: such a run fails
    /// at the question.
    fn max_bytes(&self) -> Option<usize> {
        None
    }

    /// Like [`take`](Self::take), for a state that was put with [`put_for`](Self::put_for) for
    /// this caller. Defaults to calling `take`.
    ///
    /// # Errors
    ///
    /// The future returns an error if `take` would.
    fn take_for<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        let _ = caller;
        self.take(text, binding)
    }
}

impl<S: StateStore + ?Sized> StateStore for Arc<S> {
    fn put<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        (**self).put(state, binding)
    }

    fn put_for<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        (**self).put_for(state, binding, caller)
    }

    fn take<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        (**self).take(text, binding)
    }

    fn max_bytes(&self) -> Option<usize> {
        (**self).max_bytes()
    }

    fn take_for<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        (**self).take_for(text, binding, caller)
    }
}

#[cfg(test)]
mod tests;
