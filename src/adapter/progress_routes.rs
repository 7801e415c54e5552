//! To whom progress goes that is told under tokens of ours.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use rmcp::model::{NumberOrString, ProgressNotificationParam, ProgressToken};

use crate::message::Progress;

/// The requests over one connection that somebody wants to know the progress of.
#[derive(Default)]
pub(super) struct Routes(Mutex<HashMap<ProgressToken, Progress>>);

/// The way of one request, which is gone when this value is dropped.
pub(super) struct Route {
    routes: Arc<Routes>,
    token: ProgressToken,
}

// === impl Routes ===

impl Routes {
    /// Lets go to `progress` what is told under this token from now on.
    pub(super) fn open(self: &Arc<Self>, token: ProgressToken, progress: Progress) -> Route {
        self.by_token().insert(token.clone(), progress);
        Route { routes: self.clone(), token }
    }

    /// Passes on what was told; what was told under another token is discarded.
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
        // Nothing panics while it is held, and if it did, the map would be whole.
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

/// A token that nobody else in this process gets from here.
pub(super) fn new_token() -> ProgressToken {
    static NEXT: AtomicI64 = AtomicI64::new(1);
    ProgressToken(NumberOrString::Number(NEXT.fetch_add(1, Ordering::Relaxed)))
}
