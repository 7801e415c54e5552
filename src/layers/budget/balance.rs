use std::time::Duration;

use tokio::time::Instant;

use super::{Budget, Refill};
use crate::message::Tally;

/// What those who share a budget have used of it: nothing, by default.
#[derive(Debug, Default)]
pub(super) struct Balance {
    tally: Tally,
    /// None if it does not come back, which then asks nobody for the time.
    clock: Option<Clock>,
}

/// What comes back, and when.
#[derive(Debug)]
struct Clock {
    refill: Refill,
    /// The most that counts as spent, so that a refill recovers from any sum of charges.
    most: u64,
    /// When something came back for the last time. It moves by whole ticks, so that
    /// no time is lost between them.
    since: Instant,
}

// === impl Balance ===

impl Balance {
    /// Holds an amount, or says when there will be enough, if it is known.
    ///
    /// The budget is the one that is asked for now: its limit and its refill may have
    /// been others before.
    pub(super) fn reserve(&mut self, budget: &Budget, amount: u64) -> Result<(), Option<Duration>> {
        // The clock is looked at once.
        if self.clock.is_some() || budget.refilled().is_some() {
            let now = Instant::now();
            self.tick_at(now);
            self.wind(budget, now);
        }
        match self.tally.missing(amount, budget.limit()) {
            0 => {
                self.tally.hold(amount);
                Ok(())
            }
            _ if amount > budget.limit() || budget.limit() == 0 => Err(None),
            missing => Err(self.clock.as_ref().and_then(|clock| clock.until(missing))),
        }
    }

    /// Charges what it really was that so much was held for.
    pub(super) fn close(&mut self, held: u64, actual: u64) {
        // What came back until now is not for what is charged now.
        self.tick();
        self.tally.close(held, actual);
        if let Some(clock) = &self.clock {
            self.tally.cap(clock.most);
        }
    }

    /// What is left of a limit.
    pub(super) fn left(&mut self, limit: u64) -> u64 {
        self.tick();
        self.tally.left(limit)
    }

    /// Whether it is as good as a new one.
    pub(super) fn is_full(&mut self) -> bool {
        self.tick();
        self.tally.is_full()
    }

    /// Lets come back what is due.
    fn tick(&mut self) {
        if self.clock.is_some() {
            self.tick_at(Instant::now());
        }
    }

    fn tick_at(&mut self, now: Instant) {
        if let Some(clock) = &mut self.clock {
            self.tally.come_back(clock.due(now));
        }
    }

    /// Sets what is to come back from now on. The time begins to count with the first
    /// use of what was full.
    fn wind(&mut self, budget: &Budget, now: Instant) {
        let most = budget.most_spent();
        match (&mut self.clock, budget.refilled()) {
            (Some(clock), Some(refill)) if !self.tally.is_full() => {
                (clock.refill, clock.most) = (refill, most);
            }
            (_, refill) => self.clock = refill.map(|refill| Clock { refill, most, since: now }),
        }
    }
}

// === impl Clock ===

impl Clock {
    /// What has come back since it was asked for the last time.
    fn due(&mut self, now: Instant) -> u128 {
        // A clock that went back says that no time has passed.
        let passed = now.saturating_duration_since(self.since);
        // Most of the time nothing is due, and that is known without a division.
        if passed < self.refill.every() {
            return 0;
        }
        let (passed, every) = (passed.as_nanos(), self.refill.every().as_nanos());
        let Some(ticks) = passed.checked_div(every).filter(|ticks| *ticks > 0) else {
            return 0;
        };
        // It is less than what has passed, so there was such a time.
        self.since = now - duration(passed % every).unwrap_or_default();
        ticks.saturating_mul(self.refill.amount().into())
    }

    /// How long it takes until so much has come back, if that can be told.
    fn until(&self, missing: u128) -> Option<Duration> {
        let (amount, every) = (self.refill.amount(), self.refill.every());
        if amount == 0 || every.is_zero() {
            return None;
        }
        let ticks = missing.div_ceil(amount.into());
        let after = duration(every.as_nanos().checked_mul(ticks)?)?;
        Some(after.saturating_sub(self.since.elapsed()))
    }
}

fn duration(nanoseconds: u128) -> Option<Duration> {
    const SECOND: u128 = 1_000_000_000;

    let subsecond = u32::try_from(nanoseconds % SECOND).ok()?;
    Some(Duration::new(u64::try_from(nanoseconds / SECOND).ok()?, subsecond))
}
