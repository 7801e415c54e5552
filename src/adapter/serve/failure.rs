//! Creates the JSON-RPC errors that clients receive when the service fails or panics.

use std::{error::Error, panic::AssertUnwindSafe};

use futures::future::{FutureExt, TryFutureExt};
use rmcp::model::ErrorData;

use crate::message::Cause;

/// Awaits `work`, and returns an internal error for the client if `work` panics. rmcp alone would
/// leave the request unanswered.
///
/// The panic message is not logged, because it may contain call arguments or other private data.
/// The panic hook has already received it.
pub(crate) fn caught<T>(
    method: &str,
    work: impl Future<Output = T>,
) -> impl Future<Output = Result<T, ErrorData>> {
    AssertUnwindSafe(work).catch_unwind().map_err(move |_| {
        tracing::error!(method, "panicked while answering a request");
        internal_error()
    })
}

/// Converts an error of the service into the JSON-RPC error for the client.
pub(crate) fn failure(method: &str, error: &(dyn Error + Send + Sync + 'static)) -> ErrorData {
    match Cause::of(error) {
        Cause::TimedOut => ErrorData::internal_error("the request timed out", None),
        Cause::Overloaded => ErrorData::internal_error("the server is overloaded", None),
        Cause::Backend(backend) => {
            tracing::warn!(method, error, source = backend.source(), "a backend failed to answer");
            ErrorData::internal_error(backend.to_string(), None)
        }
        Cause::Unknown => {
            tracing::error!(method, error, "failed to answer a request");
            internal_error()
        }
    }
}

/// Returns the error for a result of the wrong type, such as a prompt as the result of a tool call.
pub(crate) fn mismatch(method: &str) -> ErrorData {
    tracing::warn!(method, "the type of the result does not match the method of the request");
    ErrorData::internal_error("the server returned an invalid result", None)
}

/// Returns the error "internal error" without any details. It is used if the reason must not be
/// sent to the client.
pub(super) fn internal_error() -> ErrorData {
    ErrorData::internal_error("internal error", None)
}
