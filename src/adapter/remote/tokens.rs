//! Tracks the receivers of a server's progress notifications and log messages.

use std::sync::Arc;

use rmcp::model::ProgressNotificationParam;
use tokio::sync::Mutex;

use super::logs::LogRoutes;
use crate::adapter::progress_routes::Routes;

/// The receivers of a server's progress notifications, by the progress token of each request, and
/// the receivers of its log messages.
#[derive(Default)]
pub(super) struct Tokens {
    /// The receivers of progress. Locked while a request is sent, until its progress token is
    /// known, because its first progress notification may arrive before that.
    pub(super) routes: Mutex<Arc<Routes>>,
    /// The pending requests, whose clients receive the server's log messages.
    pub(super) logs: Arc<LogRoutes>,
}

// === impl Tokens ===

impl Tokens {
    /// Takes the notification out of the argument, if there is one, and forwards it to the request
    /// with the same progress token.
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
