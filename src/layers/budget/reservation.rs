//! A reserved amount of a balance in memory.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{balance::Balance, definition::Budget};

/// A balance that all its open reservations share. A caller with an open reservation is not
/// evicted.
pub(super) type Shared = Arc<Mutex<Balance>>;

/// A reserved amount of one balance. Dropping the reservation releases the amount, unless the
/// reservation has been settled.
pub(super) struct Reservation {
    /// `None` once the reservation is settled.
    balance: Option<Shared>,
    amount: u64,
}

// === impl Reservation ===

impl Reservation {
    /// Reserves an amount of a balance.
    ///
    /// # Errors
    ///
    /// If too little is left, returns the time until enough is left. Returns `None` if this time is
    /// unknown.
    pub(super) fn new(
        balance: Shared,
        budget: &Budget,
        amount: u64,
    ) -> Result<Self, Option<Duration>> {
        let reserved = lock(&balance).reserve(budget, amount);
        reserved.map(|()| Self { balance: Some(balance), amount })
    }

    /// Charges the actual amount instead of the reserved amount.
    pub(super) fn settle(mut self, actual: u64) {
        self.close(actual);
    }

    fn close(&mut self, actual: u64) {
        if let Some(balance) = self.balance.take() {
            lock(&balance).close(self.amount, actual);
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.close(0);
    }
}

/// Locks a mutex. Ignores poisoning, because no code panics while holding one of these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
