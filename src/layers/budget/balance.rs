//! The balance of a budget, and its refill over time.

use std::time::Duration;

use tokio::time::Instant;

use super::{Budget, Refill};
use crate::message::Tally;

/// The used and reserved amounts of a budget. Defaults to an unused budget.
#[derive(Debug, Default)]
pub(super) struct Balance {
    tally: Tally,
    /// `None` if there is no refill; then the current time is not read.
    clock: Option<Clock>,
}

/// The refill and the time of the last one.
#[derive(Debug)]
struct Clock {
    refill: Refill,
    /// The maximum amount that counts as spent, so that a refill recovers from any sum of
    /// charges.
    most: u64,
    /// The time of the last refill. It advances by whole intervals, so that no time is lost
    /// between them.
    since: Instant,
}

// === impl Balance ===

impl Balance {
    /// Reserves an amount, or returns the time until enough is left, if it is known.
    ///
    /// The limit and refill of `budget` apply from now on, even if earlier ones differed.
    pub(super) fn reserve(&mut self, budget: &Budget, amount: u64) -> Result<(), Option<Duration>> {
        // The time is read once.
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

    /// Charges the actual amount and releases the reserved one.
    pub(super) fn close(&mut self, held: u64, actual: u64) {
        // Refills that are already due must not offset this charge.
        self.tick();
        self.tally.close(held, actual);
        if let Some(clock) = &self.clock {
            self.tally.cap(clock.most);
        }
    }

    /// Returns the amount left of a limit.
    pub(super) fn left(&mut self, limit: u64) -> u64 {
        self.tick();
        self.tally.left(limit)
    }

    /// Returns `true` if the balance equals a new one.
    pub(super) fn is_full(&mut self) -> bool {
        self.tick();
        self.tally.is_full()
    }

    /// Adds the refills that are due.
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

    /// Sets the refill from now on. The first interval starts with the first charge of a full
    /// balance.
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
    /// Returns the amount refilled since the last call.
    fn due(&mut self, now: Instant) -> u128 {
        // If the clock went backward, no time has passed.
        let passed = now.saturating_duration_since(self.since);
        // Usually nothing is due; this check avoids the division.
        if passed < self.refill.every() {
            return 0;
        }
        let (passed, every) = (passed.as_nanos(), self.refill.every().as_nanos());
        let Some(ticks) = passed.checked_div(every).filter(|ticks| *ticks > 0) else {
            return 0;
        };
        // The remainder is less than the passed time, so the subtraction cannot underflow.
        self.since = now - duration(passed % every).unwrap_or_default();
        ticks.saturating_mul(self.refill.amount().into())
    }

    /// Returns the time until `missing` is refilled, if it can be computed.
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
