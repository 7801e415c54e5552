//! The receivers of the progress and the log messages of a server.

use std::sync::Arc;

use rmcp::model::ProgressNotificationParam;
use tokio::sync::Mutex;

use super::logs::LogRoutes;
use crate::adapter::progress_routes::Routes;

/// The progress tokens that rmcp assigns to requests, and the receivers of their progress.
#[derive(Default)]
pub(super) struct Tokens {
    /// Locked from before a request is sent until its token is known, because the server may be
    /// faster.
    pub(super) routes: Mutex<Arc<Routes>>,
    /// The clients that receive the log messages of the server.
    pub(super) logs: Arc<LogRoutes>,
}

// === impl Tokens ===

impl Tokens {
    /// Takes a pending progress notification, if any, and forwards it to the request with its
    /// token.
    pub(super) async fn report(&self, told: &mut Option<ProgressNotificationParam>) {
        if told.is_some() {
            let routes = self.routes.lock().await;
            if let Some(told) = told.take() {
                routes.report(told);
            }
        }
    }

    /// Returns the number of requests that receive progress, or `None` if one is just being sent.
    pub(super) fn len(&self) -> Option<usize> {
        self.routes.try_lock().ok().map(|routes| routes.len())
    }
}
