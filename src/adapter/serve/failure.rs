//! Errors that a client receives when a request fails.

use std::{error::Error, panic::AssertUnwindSafe};

use futures::future::{FutureExt, TryFutureExt};
use rmcp::model::ErrorData;

use crate::message::Cause;

/// Turns a panic into an error, since rmcp would leave the request unanswered.
///
/// The panic message is not logged: it may contain anything, including arguments, and the panic
/// hook has already received it.
pub(super) fn caught<T>(
    method: &str,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, ErrorData>> {
    AssertUnwindSafe(work).catch_unwind().map_err(move |_| {
        tracing::error!(method, "panicked while answering a request");
        internal_error()
    })
}

/// Returns the client's error for a failure of the service.
pub(super) fn failure(method: &str, error: &(dyn Error + Send + Sync + 'static)) -> ErrorData {
    match Cause::of(error) {
        Cause::TimedOut => ErrorData::internal_error("the request timed out", None),
        Cause::Overloaded => ErrorData::internal_error("the server is overloaded", None),
        Cause::Backend(backend) => {
            tracing::warn!(method, error, source = backend.source(), "a backend could not answer");
            ErrorData::internal_error(backend.to_string(), None)
        }
        Cause::Unknown => {
            tracing::error!(method, error, "failed to answer a request");
            internal_error()
        }
    }
}

/// Returns the client's error for a result of the wrong type.
pub(super) fn mismatch(method: &str) -> ErrorData {
    tracing::warn!(method, "the result is not of the type that the method has");
    ErrorData::internal_error("the server gave an invalid result", None)
}

/// Returns an error whose reason is only logged.
pub(super) fn internal_error() -> ErrorData {
    ErrorData::internal_error("internal error", None)
}
