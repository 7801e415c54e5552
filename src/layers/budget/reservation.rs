//! Reservations of balances in memory.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{balance::Balance, definition::Budget};
use crate::mutex::lock;

/// A balance that several reservations share. The store does not evict a caller while a reservation
/// refers to the balance of the caller.
pub(super) type Shared = Arc<Mutex<Balance>>;

/// An amount of a balance that is reserved for a tool call. [`settle`](Self::settle) charges the
/// actual amount. Dropping the reservation releases the amount.
pub(super) struct Reservation {
    /// The balance from which the amount is reserved. `None` after the reservation is settled.
    balance: Option<Shared>,
    amount: u64,
}

// === impl Reservation ===

impl Reservation {
    /// Reserves `amount` of a balance. `budget` defines the limit and the refill of the balance.
    ///
    /// # Errors
    ///
    /// Returns an error if less than `amount` is left. The error is the time until enough is
    /// available again, or `None` if this time is unknown.
    pub(super) fn new(
        balance: Shared,
        budget: &Budget,
        amount: u64,
    ) -> Result<Self, Option<Duration>> {
        let reserved = lock(&balance).reserve(budget, amount);
        reserved.map(|()| Self { balance: Some(balance), amount })
    }

    /// Charges the actual amount of the call instead of the reserved amount.
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
