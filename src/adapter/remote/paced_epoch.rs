//! An epoch (a counter of changes) that a server increases by reporting changes. The rate of the
//! increases is limited.

use std::{sync::Mutex, time::Duration};

use tokio::{
    runtime::Handle,
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    changes::{Epoch, pace::Pace},
    mutex::lock,
};

/// An [`Epoch`] (a counter of changes) that increases at a limited rate. After each increase, a
/// pause begins. All changes during the pause increase the counter only once, at the end of the
/// pause.
pub(super) struct PacedEpoch {
    epoch: Epoch,
    state: Mutex<State>,
}

struct State {
    pace: Pace,
    /// The task that increases the epoch at the end of the current pause.
    delayed: JoinSet<()>,
}

// === impl PacedEpoch ===

impl PacedEpoch {
    pub(super) fn new(epoch: Epoch, pace: Pace) -> Self {
        Self { epoch, state: Mutex::new(State { pace, delayed: JoinSet::new() }) }
    }

    /// Increases the epoch immediately if no pause is in progress, and otherwise at the end of the
    /// pause.
    pub(super) fn bump(&self) {
        let Ok(runtime) = Handle::try_current() else { return self.epoch.bump() };
        let mut state = lock(&self.state);
        let State { pace, delayed } = &mut *state;
        while delayed.try_join_next().is_some() {}
        match pace.next(Instant::now()) {
            None => (),
            Some(Duration::ZERO) => self.epoch.bump(),
            Some(after) => {
                let epoch = self.epoch.clone();
                let bump = async move {
                    sleep(after).await;
                    epoch.bump();
                };
                delayed.spawn_on(bump, &runtime);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn epoch_is_bumped_at_once_and_then_once_per_pause() {
        let epoch = Epoch::default();
        let paced = PacedEpoch::new(epoch.clone(), Pace::new(SECOND, SECOND * 4, SECOND * 60));
        for _ in 0..10_000 {
            paced.bump();
            sleep(SECOND / 1000).await;
        }
        // The bumps occurred at 0, 1, 3 and 7 seconds, because each pause is twice as long as the
        // previous one.
        assert_eq!(epoch.now(), 4);
        sleep(SECOND * 4).await;
        assert_eq!(epoch.now(), 5, "the last change is announced");
    }
}
