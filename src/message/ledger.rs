//! Tracks how much of a budget, or of the maximum cost of a run, is spent and reserved.

/// The spent amount of a budget or cost, and the amount that is reserved for calls in progress.
///
/// A run has one tally for its cost, and one for each of its budgets. A budget store has one tally
/// for each caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The spent amount, which saturates at `u64::MAX`.
    spent: u64,
    /// The sum of all reserved amounts. It must not saturate, because each reserved amount is
    /// subtracted again when its call ends.
    held: u128,
}

// === impl Tally ===

impl Tally {
    /// Creates a tally with the given spent amount and no reservations.
    pub(crate) const fn of(spent: u64) -> Self {
        Self { spent, held: 0 }
    }

    pub(crate) const fn spent(self) -> u64 {
        self.spent
    }

    /// Returns the amount by which a reservation of `amount` would exceed `limit`. Returns zero if
    /// the reservation fits.
    ///
    /// A reservation of zero is made for a call whose amount is not known yet. It fits if at least
    /// one unit is left.
    pub(crate) fn missing(self, amount: u64, limit: u64) -> u128 {
        (self.used() + u128::from(amount.max(1))).saturating_sub(limit.into())
    }

    /// Returns the part of `limit` that is neither spent nor reserved.
    pub(crate) fn left(self, limit: u64) -> u64 {
        // The result is at most `limit`, so it fits into a `u64`.
        u128::from(limit).saturating_sub(self.used()).try_into().unwrap_or(limit)
    }

    /// Returns `true` if the whole limit is available, because no amount is spent or reserved.
    pub(crate) const fn is_full(self) -> bool {
        self.spent == 0 && self.held == 0
    }

    pub(crate) fn hold(&mut self, amount: u64) {
        self.held += u128::from(amount);
    }

    /// Releases the reservation `held` of a call, and adds the call's actual amount to the spent
    /// amount.
    pub(crate) fn close(&mut self, held: u64, actual: u64) {
        self.held -= u128::from(held);
        self.spent = self.spent.saturating_add(actual);
    }

    /// Reduces the spent amount to `most` if it exceeds `most`.
    pub(crate) fn cap(&mut self, most: u64) {
        self.spent = self.spent.min(most);
    }

    /// Replenishes the budget: subtracts `amount` from the spent amount, down to zero.
    pub(crate) fn come_back(&mut self, amount: u128) {
        let spent = u128::from(self.spent).saturating_sub(amount);
        // The result is at most the spent amount, so it fits into a `u64`.
        self.spent = spent.try_into().unwrap_or(self.spent);
    }

    fn used(self) -> u128 {
        u128::from(self.spent) + self.held
    }
}
