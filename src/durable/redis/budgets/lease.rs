//! Leases: reservations of budget amounts in Redis that expire after some time.

use std::sync::Arc;

use super::{
    account::Account,
    settling::{Settlement, Settling},
};
use crate::budget::Settle;

/// The reservation of an amount of a budget in Redis for one call. Dropping the lease releases the
/// amount.
pub(super) struct Lease {
    settling: Arc<Settling>,
    pub(super) account: Account,
    pub(super) name: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The request for the lease may have been sent. Redis has not responded yet.
    Requested,
    /// Redis has reserved the amount. If `was_repeated` is `true`, the request was sent twice, and
    /// Redis may still receive its first copy.
    Held { was_repeated: bool },
    /// The amount was charged or released, or Redis has rejected the reservation.
    Ended,
}

// === impl Lease ===

impl Lease {
    /// Creates a lease before it is requested from Redis.
    pub(super) const fn requested(settling: Arc<Settling>, account: Account, name: String) -> Self {
        Self { settling, account, name, state: State::Requested }
    }

    /// Records that Redis has reserved the amount. `was_repeated` is `true` if the request was sent
    /// twice.
    pub(super) fn held(mut self, was_repeated: bool) -> Self {
        self.state = State::Held { was_repeated };
        self
    }

    /// Records that Redis has rejected the reservation. There is nothing to release.
    pub(super) fn refused(mut self) {
        self.state = State::Ended;
    }

    fn end(&mut self, actual: u64) {
        let is_unsure = self.state == State::Requested;
        let was_repeated = self.state == State::Held { was_repeated: true };
        self.state = State::Ended;
        self.settling.queue(Settlement {
            account: self.account.clone(),
            lease: std::mem::take(&mut self.name),
            actual,
            is_unsure,
            may_arrive: is_unsure || was_repeated,
        });
    }
}

impl Settle for Lease {
    fn settle(mut self: Box<Self>, actual: u64) {
        self.end(actual);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.state != State::Ended {
            self.end(0);
        }
    }
}
