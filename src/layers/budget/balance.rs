//! The balance of a budget, and its refill over time.

use std::time::Duration;

use tokio::time::Instant;

use super::{Budget, Refill};
use crate::message::Tally;

/// The amount of a budget that is spent, and the amount that is reserved for running calls.
/// `Default` returns the balance of an unused budget.
#[derive(Debug, Default)]
pub(super) struct Balance {
    tally: Tally,
    /// The refill of the budget, with the time of the last refill. `None` if the budget has no
    /// refill.
    clock: Option<Clock>,
}

/// The refill of a budget, and the time of the last refill.
#[derive(Debug)]
struct Clock {
    refill: Refill,
    /// Maximum spent amount: [`Budget::most_spent`]. Charges beyond it are not counted.
    most: u64,
    /// The end of the last complete refill interval, or the time at which the first interval
    /// started.
    since: Instant,
}

// === impl Balance ===

impl Balance {
    /// Reserves `amount` of the balance. Uses the current limit and refill of `budget`, which may
    /// have changed since the last reservation.
    ///
    /// # Errors
    ///
    /// Returns an error if less than `amount` is left. The error is the time until refills have
    /// added enough, or `None` if this time is unknown or refills can never add enough.
    pub(super) fn reserve(&mut self, budget: &Budget, amount: u64) -> Result<(), Option<Duration>> {
        // Read the current time only once.
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

    /// Ends a call: releases `held`, the amount that was reserved for the call, and charges the
    /// actual amount.
    pub(super) fn close(&mut self, held: u64, actual: u64) {
        // Add the refills that are due first, so that they do not offset this charge.
        self.tick();
        self.tally.close(held, actual);
        if let Some(clock) = &self.clock {
            self.tally.cap(clock.most);
        }
    }

    /// Returns the amount of `limit` that is neither spent nor reserved.
    pub(super) fn left(&mut self, limit: u64) -> u64 {
        self.tick();
        self.tally.left(limit)
    }

    /// Returns `true` if nothing is spent or reserved, so that the whole limit is available.
    pub(super) fn is_full(&mut self) -> bool {
        self.tick();
        self.tally.is_full()
    }

    /// Adds the amounts of all refill intervals that have ended.
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

    /// Replaces the refill with that of `budget`, which may have changed. If nothing is spent or
    /// reserved, also starts a new refill interval at `now`.
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
    /// Returns the amount to refill for all intervals that have ended by `now` since the last call.
    /// Starts the next interval at the end of the last one.
    fn due(&mut self, now: Instant) -> u128 {
        // If the clock went backward, assume that no time has passed.
        let passed = now.saturating_duration_since(self.since);
        // Avoid the division in the common case that no refill is due.
        if passed < self.refill.every() {
            return 0;
        }
        let (passed, every) = (passed.as_nanos(), self.refill.every().as_nanos());
        let Some(ticks) = passed.checked_div(every).filter(|ticks| *ticks > 0) else {
            return 0;
        };
        // The subtraction cannot underflow, because the remainder is less than the time since
        // `self.since`.
        self.since = now - duration(passed % every).unwrap_or_default();
        ticks.saturating_mul(self.refill.amount().into())
    }

    /// Returns the time until refills have added the amount `missing`. Returns `None` if the refill
    /// adds nothing, or if the time does not fit into a [`Duration`].
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
