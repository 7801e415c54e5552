//! Adds up the spent and reserved amounts of a budget or of the maximum cost of a run.

/// The spent amount of a limit, and the amount that is reserved for running calls.
///
/// A run has one tally for its cost, and one for each budget per run. The store of a budget has one
/// tally for each caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The spent amount. Additions saturate at `u64::MAX`.
    spent: u64,
    /// The total reserved amount. It cannot overflow, so that each amount can be subtracted exactly
    /// when its call ends.
    held: u128,
}

// === impl Tally ===

impl Tally {
    /// Creates a tally with this spent amount and no reservations.
    pub(crate) const fn of(spent: u64) -> Self {
        Self { spent, held: 0 }
    }

    pub(crate) const fn spent(self) -> u64 {
        self.spent
    }

    /// Returns how much is missing to reserve `amount` within `limit`. Returns zero if the
    /// reservation is possible.
    ///
    /// Pass zero for a call with an unknown amount. The reservation is then possible if at least
    /// one unit is left.
    pub(crate) fn missing(self, amount: u64, limit: u64) -> u128 {
        (self.used() + u128::from(amount.max(1))).saturating_sub(limit.into())
    }

    /// Returns the part of `limit` that is neither spent nor reserved.
    pub(crate) fn left(self, limit: u64) -> u64 {
        // The result is at most `limit`, so it fits into a `u64`.
        u128::from(limit).saturating_sub(self.used()).try_into().unwrap_or(limit)
    }

    /// Returns `true` if nothing is spent or reserved, so that the whole limit is available.
    pub(crate) const fn is_full(self) -> bool {
        self.spent == 0 && self.held == 0
    }

    pub(crate) fn hold(&mut self, amount: u64) {
        self.held += u128::from(amount);
    }

    /// Ends a call: releases its reserved amount `held`, and adds `actual`, the amount that the
    /// call has used, to the spent amount.
    pub(crate) fn close(&mut self, held: u64, actual: u64) {
        self.held -= u128::from(held);
        self.spent = self.spent.saturating_add(actual);
    }

    /// Reduces the spent amount to `most` if it is larger.
    pub(crate) fn cap(&mut self, most: u64) {
        self.spent = self.spent.min(most);
    }

    /// Refills the limit: reduces the spent amount by `amount`, but not below zero.
    pub(crate) fn come_back(&mut self, amount: u128) {
        let spent = u128::from(self.spent).saturating_sub(amount);
        // The result is at most the spent amount, so it fits into a `u64`.
        self.spent = spent.try_into().unwrap_or(self.spent);
    }

    fn used(self) -> u128 {
        u128::from(self.spent) + self.held
    }
}
