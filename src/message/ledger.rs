//! Spent and reserved amounts of a budget.

/// The spent and the reserved amount of a budget.
///
/// A run has one for its cost and one for each of its budgets; a store of budgets has one for each
/// caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The spent amount; saturates at `u64::MAX`.
    spent: u64,
    /// The exact sum of the reserved amounts, however large: each is subtracted again.
    held: u128,
}

// === impl Tally ===

impl Tally {
    /// Creates a tally with this spent amount and no reservation.
    pub(crate) const fn of(spent: u64) -> Self {
        Self { spent, held: 0 }
    }

    pub(crate) const fn spent(self) -> u64 {
        self.spent
    }

    /// Returns the amount by which `limit` is too small to also reserve `amount`.
    ///
    /// A reservation of zero requires that some amount is left: its actual amount is only known
    /// afterwards.
    pub(crate) fn missing(self, amount: u64, limit: u64) -> u128 {
        (self.used() + u128::from(amount.max(1))).saturating_sub(limit.into())
    }

    /// Returns the amount left of `limit`.
    pub(crate) fn left(self, limit: u64) -> u64 {
        // It is not larger than the limit, so it fits.
        u128::from(limit).saturating_sub(self.used()).try_into().unwrap_or(limit)
    }

    /// Returns `true` if no amount is spent or reserved.
    pub(crate) const fn is_full(self) -> bool {
        self.spent == 0 && self.held == 0
    }

    pub(crate) fn hold(&mut self, amount: u64) {
        self.held += u128::from(amount);
    }

    /// Replaces a reserved amount with the actual amount spent.
    pub(crate) fn close(&mut self, held: u64, actual: u64) {
        self.held -= u128::from(held);
        self.spent = self.spent.saturating_add(actual);
    }

    /// Caps the spent amount at `most`.
    pub(crate) fn cap(&mut self, most: u64) {
        self.spent = self.spent.min(most);
    }

    /// Refunds a spent amount.
    pub(crate) fn come_back(&mut self, amount: u128) {
        let spent = u128::from(self.spent).saturating_sub(amount);
        // It is not larger than before, so it fits.
        self.spent = spent.try_into().unwrap_or(self.spent);
    }

    fn used(self) -> u128 {
        u128::from(self.spent) + self.held
    }
}
