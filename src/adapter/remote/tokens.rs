//! Tracks the receivers of a server's progress notifications and log messages.

use std::sync::Arc;

use rmcp::model::ProgressNotificationParam;
use tokio::sync::Mutex;

use super::logs::LogRoutes;
use crate::adapter::progress_routes::Routes;

/// The receivers of a server's notifications. A progress notification is forwarded to the pending
/// request with the same progress token, and a log message to the client of the pending requests.
#[derive(Default)]
pub(super) struct Tokens {
    /// The receivers of progress notifications. The lock is held from sending a request until its
    /// progress token is known. The first progress notification may arrive earlier, and waits for
    /// the lock.
    pub(super) routes: Mutex<Arc<Routes>>,
    /// The pending requests on this connection, which determine the client that receives the
    /// server's log messages.
    pub(super) logs: Arc<LogRoutes>,
}

// === impl Tokens ===

impl Tokens {
    /// Forwards a progress notification to the pending request with the same progress token, and
    /// removes it from the argument.
    pub(super) async fn report(&self, notification: &mut Option<ProgressNotificationParam>) {
        if notification.is_some() {
            let routes = self.routes.lock().await;
            if let Some(params) = notification.take() {
                routes.report(params);
            }
        }
    }

    /// Returns the number of pending requests that receive progress. Returns `None` if the number
    /// is not available, because a request is just being sent.
    pub(super) fn len(&self) -> Option<usize> {
        self.routes.try_lock().ok().map(|routes| routes.len())
    }
}
