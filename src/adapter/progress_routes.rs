//! Forwards each progress notification to the request that has the same progress token.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use rmcp::model::{NumberOrString, ProgressNotificationParam, ProgressToken};

use crate::message::Progress;

/// The receivers of progress notifications, by the progress tokens of the pending requests on one
/// connection.
#[derive(Default)]
pub(super) struct Routes(Mutex<HashMap<ProgressToken, Progress>>);

/// The registration of one request in [`Routes`]. Dropping this value removes the registration.
pub(super) struct Route {
    routes: Arc<Routes>,
    token: ProgressToken,
}

// === impl Routes ===

impl Routes {
    /// Registers `progress` as the receiver of all progress notifications that have this token.
    /// Dropping the returned route ends the registration.
    pub(super) fn open(self: &Arc<Self>, token: ProgressToken, progress: Progress) -> Route {
        self.by_token().insert(token.clone(), progress);
        Route { routes: self.clone(), token }
    }

    /// Forwards a progress notification to the receiver that is registered for its token. Discards
    /// the notification if no receiver is registered.
    pub(super) fn report(&self, told: ProgressNotificationParam) {
        let progress = self.by_token().get(&told.progress_token).cloned();
        if let Some(progress) = progress {
            progress.report(told.progress, told.total, told.message);
        }
    }

    #[cfg(feature = "remote")]
    pub(super) fn len(&self) -> usize {
        self.by_token().len()
    }

    fn by_token(&self) -> MutexGuard<'_, HashMap<ProgressToken, Progress>> {
        // The lock is never held across a panic, and the map would be consistent if it were.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Route ===

impl Route {
    pub(super) const fn token(&self) -> &ProgressToken {
        &self.token
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        self.routes.by_token().remove(&self.token);
    }
}

/// Returns a progress token that is unique in this process.
pub(super) fn new_token() -> ProgressToken {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    ProgressToken(NumberOrString::Number(NEXT.fetch_add(1, Ordering::Relaxed)))
}
