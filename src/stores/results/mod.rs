//! Stores of complete results that clients received truncated.
//!
//! A [`TruncateLayer`](crate::truncate::TruncateLayer) truncates results that are too large. If it has a
//! [`ResultStore`], it stores the complete result there, as JSON, and the answer links to it, so
//! that a client can read the rest. [`StoredResults`] keeps them in the memory of this process.
//!
//! A result is bound to the caller that it was made for, which can read it any number of times
//! until it expires.
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

/// A store of complete results that clients received truncated.
pub trait ResultStore: fmt::Debug + Send + Sync {
    /// Stores a result for a caller, and returns an unguessable handle.
    ///
    /// # Errors
    ///
    /// The future returns an error if the result is too large, or if the store is full or
    /// unavailable.
    fn put<'a>(
        &'a self,
        result: Vec<u8>,
        caller: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>>;

    /// Returns the result of a handle, any number of times until it expires.
    ///
    /// # Errors
    ///
    /// The future returns an error if the handle is invalid, belongs to another caller, or has
    /// expired, or if the store is unavailable. Do not disclose the reason to clients.
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
