//! Forwards each progress notification to the request that has the same progress token.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
};

use rmcp::model::{NumberOrString, ProgressNotificationParam, ProgressToken};

use crate::{message::Progress, mutex::lock};

/// The receivers of progress notifications, by the progress tokens of the pending requests on one
/// connection.
#[derive(Default)]
pub(super) struct Routes(Mutex<HashMap<ProgressToken, Progress>>);

/// The registration of one request in [`Routes`]. Dropping this value removes the registration.
pub(super) struct Route {
    routes: Arc<Routes>,
    pub(super) token: ProgressToken,
}

// === impl Routes ===

impl Routes {
    /// Registers `progress` as the receiver of all progress notifications that have this token.
    /// Dropping the returned route ends the registration.
    pub(super) fn open(self: &Arc<Self>, token: ProgressToken, progress: Progress) -> Route {
        lock(&self.0).insert(token.clone(), progress);
        Route { routes: self.clone(), token }
    }

    /// Forwards a progress notification to the receiver that is registered for its token. Discards
    /// the notification if no receiver is registered.
    pub(super) fn report(&self, params: ProgressNotificationParam) {
        let progress = lock(&self.0).get(&params.progress_token).cloned();
        if let Some(progress) = progress {
            progress.report(params.progress, params.total, params.message);
        }
    }

    #[cfg(feature = "remote")]
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

// === impl Route ===

impl Drop for Route {
    fn drop(&mut self) {
        lock(&self.routes.0).remove(&self.token);
    }
}

/// Returns a progress token that is unique in this process.
pub(super) fn new_token() -> ProgressToken {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    ProgressToken(NumberOrString::Number(NEXT.fetch_add(1, Ordering::Relaxed)))
}
