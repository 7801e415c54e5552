/// What has been spent of an amount, and what is held of it for what is going on.
///
/// A run keeps one of what it costs and of each of its budgets, a store of budgets
/// one of each caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// There is no more to spend than this can tell.
    spent: u64,
    /// The exact sum of what is held, however much that is: what was added is
    /// taken away again.
    held: u128,
}

// === impl Tally ===

impl Tally {
    /// Nothing is held, and this much was spent.
    pub(crate) const fn of(spent: u64) -> Self {
        Self { spent, held: 0 }
    }

    pub(crate) const fn spent(self) -> u64 {
        self.spent
    }

    /// How much too little is left of `limit` to hold `amount` as well.
    ///
    /// To hold nothing, there must be something left: it is held for what is only
    /// known afterwards.
    pub(crate) fn missing(self, amount: u64, limit: u64) -> u128 {
        (self.used() + u128::from(amount.max(1))).saturating_sub(limit.into())
    }

    /// What is left of `limit`.
    pub(crate) fn left(self, limit: u64) -> u64 {
        // It is no more than the limit, so it can be told.
        u128::from(limit).saturating_sub(self.used()).try_into().unwrap_or(limit)
    }

    /// Whether nothing is spent or held.
    pub(crate) const fn is_full(self) -> bool {
        self.spent == 0 && self.held == 0
    }

    pub(crate) fn hold(&mut self, amount: u64) {
        self.held += u128::from(amount);
    }

    /// Spends what something really was that so much was held for.
    pub(crate) fn close(&mut self, held: u64, actual: u64) {
        self.held -= u128::from(held);
        self.spent = self.spent.saturating_add(actual);
    }

    /// Forgets what was spent beyond `most`.
    pub(crate) fn cap(&mut self, most: u64) {
        self.spent = self.spent.min(most);
    }

    /// Gives back what was spent, however long ago.
    pub(crate) fn come_back(&mut self, amount: u128) {
        let spent = u128::from(self.spent).saturating_sub(amount);
        // It is no more than it was, so it can be told.
        self.spent = spent.try_into().unwrap_or(self.spent);
    }

    fn used(self) -> u128 {
        u128::from(self.spent) + self.held
    }
}
