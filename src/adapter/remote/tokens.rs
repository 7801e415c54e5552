//! Keeps track of the receivers of a server's progress notifications and log messages.

use std::sync::Arc;

use rmcp::model::ProgressNotificationParam;
use tokio::sync::Mutex;

use super::logs::LogRoutes;
use crate::adapter::progress_routes::Routes;

/// Maps the progress token of each request to the receiver of its progress, and lists the receivers
/// of the server's log messages.
#[derive(Default)]
pub(super) struct Tokens {
    /// The receivers of progress. Locked from before a request is sent until its token is known,
    /// because its first progress may arrive earlier.
    pub(super) routes: Mutex<Arc<Routes>>,
    /// The clients of the pending requests, which receive the server's log messages.
    pub(super) logs: Arc<LogRoutes>,
}

// === impl Tokens ===

impl Tokens {
    /// If there is a pending progress notification, removes it and forwards it to the request with
    /// its token.
    pub(super) async fn report(&self, told: &mut Option<ProgressNotificationParam>) {
        if told.is_some() {
            let routes = self.routes.lock().await;
            if let Some(told) = told.take() {
                routes.report(told);
            }
        }
    }

    /// Returns the number of pending requests that receive progress. Returns `None` while a request
    /// is being sent.
    pub(super) fn len(&self) -> Option<usize> {
        self.routes.try_lock().ok().map(|routes| routes.len())
    }
}
