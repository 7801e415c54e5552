//! The lease of a reserved amount in Redis.

use std::sync::Arc;

use super::{
    account::Account,
    settling::{Settlement, Settling},
};
use crate::budget::Held;

/// An amount that is or may be reserved in Redis. Released on drop.
pub(super) struct Lease {
    settling: Arc<Settling>,
    account: Account,
    name: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The reservation was requested, and the server has not answered.
    Asked,
    /// The server holds the reservation; a repeated request may still arrive.
    Held { was_repeated: bool },
    /// The lease is settled or was refused.
    Ended,
}

// === impl Lease ===

impl Lease {
    /// Creates the lease of a reservation that is about to be requested.
    pub(super) const fn asked(settling: Arc<Settling>, account: Account, name: String) -> Self {
        Self { settling, account, name, state: State::Asked }
    }

    /// Marks the reservation as held, possibly after a repeated request.
    pub(super) fn held(mut self, was_repeated: bool) -> Self {
        self.state = State::Held { was_repeated };
        self
    }

    /// Marks the reservation as refused.
    pub(super) fn refused(mut self) {
        self.state = State::Ended;
    }

    pub(super) const fn account(&self) -> &Account {
        &self.account
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn end(&mut self, actual: u64) {
        let is_unsure = self.state == State::Asked;
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

impl Held for Lease {
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
