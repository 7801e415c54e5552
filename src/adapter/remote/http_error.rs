//! Errors of rmcp's HTTP transport.

use std::error::Error;

use rmcp::transport::streamable_http_client::StreamableHttpError;

/// Returns the source of an rmcp transport error, which does not report it itself.
pub(super) fn cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    match error.downcast_ref()? {
        StreamableHttpError::<reqwest::Error>::Client(error) => Some(error),
        _ => None,
    }
}

/// Returns `true` if an error says that the server no longer knows the session, as an older server
/// does after a restart.
///
/// rmcp could create a new session by itself, but then changed tools would not be noticed and
/// subscriptions would not be repeated.
pub(super) fn is_end_of_session(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(StreamableHttpError::<reqwest::Error>::SessionExpired))
}
