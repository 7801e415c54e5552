//! Where whole results are kept of which clients got a part.
//!
//! A [`BoundLayer`](crate::bound::BoundLayer) shortens results that are too large. If
//! it has a [`ResultStore`], it puts the whole result there, as JSON, and the answer
//! links to it, so that a client can read what it did not get. [`StoredResults`] keeps
//! them in the memory of this process.
//!
//! A result is bound to the caller that it was made for, and can be read by it as
//! often as it likes, until it expires.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::results::{ResultStore, StoredResults};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let results = StoredResults::new();
//!
//! let handle = results.put(b"{}".to_vec(), b"alice").await?;
//! assert_eq!(results.get(&handle, b"alice").await?, b"{}");
//! assert_eq!(results.get(&handle, b"alice").await?, b"{}");
//! assert!(results.get(&handle, b"bob").await.is_err());
//! # Ok(())
//! # }
//! ```

mod stored;

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;

pub use self::stored::StoredResults;
pub use crate::state::{PutError, TakeError};

/// Keeps whole results of which clients got a part.
pub trait ResultStore: fmt::Debug + Send + Sync {
    /// Keeps a result for a caller, and makes a handle of it that nobody can guess.
    ///
    /// # Errors
    ///
    /// The future returns an error if the result is too large, or the store is full
    /// or away.
    fn put<'a>(
        &'a self,
        result: Vec<u8>,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>>;

    /// The result of a handle, as often as it is asked for until it expires.
    ///
    /// # Errors
    ///
    /// The future returns an error if the handle is none, or one of another caller, or
    /// has expired; and if the store is away. Clients must not be told which.
    fn get<'a>(
        &'a self,
        handle: &'a str,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>>;
}

impl<S: ResultStore + ?Sized> ResultStore for Arc<S> {
    fn put<'a>(
        &'a self,
        result: Vec<u8>,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        (**self).put(result, caller)
    }

    fn get<'a>(
        &'a self,
        handle: &'a str,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        (**self).get(handle, caller)
    }
}

#[cfg(test)]
mod tests;
