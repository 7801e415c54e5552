//! How often one source may announce changes, so that a source that announces
//! continuously does not keep everyone else busy.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::{runtime::Handle, task::JoinSet, time::Instant};

use super::Epoch;

/// A pause between announcements that doubles with each of them.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The pause after the first announcement.
    first: Duration,
    longest: Duration,
    /// How long there must have been no announcement to begin with the first pause again.
    quiet: Duration,
    /// The time of the last announcement, which may be in the future.
    last: Option<Instant>,
    pause: Duration,
}

/// An [`Epoch`] that one source bumps at a pace; bumps in a pause count as one, at its end.
pub(crate) struct PacedEpoch {
    epoch: Epoch,
    state: Mutex<State>,
}

struct State {
    pace: Pace,
    /// The bump at the end of the pause.
    delayed: JoinSet<()>,
}

// === impl Pace ===

impl Pace {
    pub(crate) const fn new(first: Duration, longest: Duration, quiet: Duration) -> Self {
        Self { first, longest, quiet, last: None, pause: Duration::ZERO }
    }

    /// How long to wait with an announcement; none if one is waiting already.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Duration> {
        let at = match self.last {
            Some(last) if last > now => return None,
            Some(last) if now - last < self.quiet => now.max(last + self.pause),
            _ => {
                self.pause = Duration::ZERO;
                now
            }
        };
        self.pause = (self.pause * 2).clamp(self.first, self.longest);
        self.last = Some(at);
        Some(at - now)
    }
}

// === impl PacedEpoch ===

impl PacedEpoch {
    pub(crate) fn new(epoch: Epoch, pace: Pace) -> Self {
        Self { epoch, state: Mutex::new(State { pace, delayed: JoinSet::new() }) }
    }

    /// Bumps the epoch, now or at the end of the pause.
    pub(crate) fn bump(&self) {
        let Ok(runtime) = Handle::try_current() else { return self.epoch.bump() };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { pace, delayed } = &mut *state;
        while delayed.try_join_next().is_some() {}
        match pace.next(Instant::now()) {
            None => (),
            Some(Duration::ZERO) => self.epoch.bump(),
            Some(after) => {
                let epoch = self.epoch.clone();
                let bump = async move {
                    tokio::time::sleep(after).await;
                    epoch.bump();
                };
                delayed.spawn_on(bump, &runtime);
            }
        }
    }
}

impl fmt::Debug for PacedEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedEpoch").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_pause_doubles_up_to_the_longest_until_it_is_quiet() {
        let mut pace = Pace::new(SECOND, SECOND * 60, SECOND * 300);
        let mut now = Instant::now();
        let mut next = |after: u64| {
            now += Duration::from_secs(after);
            pace.next(now).map(|wait| wait.as_secs())
        };
        assert_eq!([next(0), next(0), next(0)], [Some(0), Some(1), None]);
        // That was after a second, so the next is after three.
        assert_eq!([next(2), next(0), next(10)], [Some(1), None, Some(0)]);
        let waits: Vec<_> = std::iter::repeat_with(|| next(60)).take(5).collect();
        assert_eq!(waits, [Some(0); 5], "it is never longer than a minute");
        assert_eq!([next(0), next(61)], [Some(60), Some(59)]);
        assert_eq!([next(400), next(0)], [Some(0), Some(1)], "it was quiet");
    }

    #[tokio::test(start_paused = true)]
    async fn an_epoch_is_bumped_at_once_and_then_once_for_each_pause() {
        let epoch = Epoch::default();
        let paced = PacedEpoch::new(epoch.clone(), Pace::new(SECOND, SECOND * 4, SECOND * 60));
        for _ in 0..10_000 {
            paced.bump();
            tokio::time::sleep(SECOND / 1000).await;
        }
        // At 0, 1, 3 and 7 seconds, since each pause is twice the one before.
        assert_eq!(epoch.now(), 4);
        tokio::time::sleep(SECOND * 4).await;
        assert_eq!(epoch.now(), 5, "the last change is announced");
    }
}
