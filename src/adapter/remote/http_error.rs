//! Inspects errors of rmcp's HTTP transport and their causes.

use std::error::Error;

use rmcp::transport::streamable_http_client::StreamableHttpError;

/// Returns the cause of an HTTP transport error of rmcp, which `Error::source` does not return.
/// Returns `None` for all other errors.
pub(super) fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref()? {
        StreamableHttpError::<reqwest::Error>::Client(error) => Some(error),
        _ => None,
    }
}

/// Returns `true` if the error means that the server no longer knows the HTTP session. For example,
/// older servers forget their sessions when they restart.
///
/// rmcp could replace a lost session by a new one itself. This is disabled, because changed tools
/// would not be noticed and subscriptions would be lost.
pub(super) fn is_end_of_session(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(StreamableHttpError::<reqwest::Error>::SessionExpired))
}

/// Returns `true` if the error only wraps an error of [`oauth`](super::oauth) and adds no
/// information to it.
pub(super) fn is_wrapper(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(StreamableHttpError::<reqwest::Error>::Io(_)))
}
