//! Limits how often a source of changes, such as a server, can announce changes to listeners.

use std::time::Duration;

use tokio::time::Instant;

/// Limits how often a source of changes sends announcements. The pause between two announcements
/// doubles each time, up to a maximum.
#[derive(Debug)]
pub(crate) struct Pace {
    /// The pause after the first announcement.
    first: Duration,
    longest: Duration,
    /// If the last announcement is older than this, the next one is sent immediately, and the pause
    /// after it is `first` again.
    quiet: Duration,
    /// The time of the last announcement. It is in the future if the announcement is scheduled, but
    /// not sent yet. `None` before the first announcement.
    last: Option<Instant>,
    /// The minimum pause between the last announcement and the next.
    pause: Duration,
}

// === impl Pace ===

impl Pace {
    pub(crate) const fn new(first: Duration, longest: Duration, quiet: Duration) -> Self {
        Self { first, longest, quiet, last: None, pause: Duration::ZERO }
    }

    /// Schedules an announcement of a change, and returns the delay after which the caller must
    /// send it. Returns `None` if an announcement is already scheduled, which also covers this
    /// change.
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pause_doubles_up_to_its_maximum_and_resets_when_quiet() {
        let mut pace = Pace::new(SECOND, SECOND * 60, SECOND * 300);
        let mut now = Instant::now();
        let mut next = |after: u64| {
            now += Duration::from_secs(after);
            pace.next(now).map(|wait| wait.as_secs())
        };
        assert_eq!([next(0), next(0), next(0)], [Some(0), Some(1), None]);
        // The previous announcement was at one second, so the next is at three seconds.
        assert_eq!([next(2), next(0), next(10)], [Some(1), None, Some(0)]);
        let waits: Vec<_> = std::iter::repeat_with(|| next(60)).take(5).collect();
        assert_eq!(waits, [Some(0); 5], "it is never longer than a minute");
        assert_eq!([next(0), next(61)], [Some(60), Some(59)]);
        assert_eq!([next(400), next(0)], [Some(0), Some(1)], "it was quiet");
    }
}
