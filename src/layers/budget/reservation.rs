//! Reservations of balances in memory.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{balance::Balance, definition::Budget};

/// A balance that several reservations can share. While a reservation refers to it, the store does
/// not evict the caller of the balance.
pub(super) type Shared = Arc<Mutex<Balance>>;

/// An amount of a balance that is reserved for a tool call. Dropping the reservation without
/// settling it releases the amount.
pub(super) struct Reservation {
    /// The balance. `None` after the reservation is settled.
    balance: Option<Shared>,
    amount: u64,
}

// === impl Reservation ===

impl Reservation {
    /// Reserves an amount of a balance.
    ///
    /// # Errors
    ///
    /// If too little is left, returns the time until enough will be available again, or `None` if
    /// this time is unknown.
    pub(super) fn new(
        balance: Shared,
        budget: &Budget,
        amount: u64,
    ) -> Result<Self, Option<Duration>> {
        let reserved = lock(&balance).reserve(budget, amount);
        reserved.map(|()| Self { balance: Some(balance), amount })
    }

    /// Settles the reservation: charges the actual amount, and releases the reserved amount.
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

/// Locks a mutex. Ignores poisoning, because no code can panic while it holds one of these locks.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
