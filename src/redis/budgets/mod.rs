//! Budgets that replicas share in Redis.

mod account;
mod lease;
mod settling;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;

use self::{
    account::{Account, Reserved},
    lease::Lease,
    settling::Settling,
};
use super::{
    RedisError,
    connection::{Away, Connection},
};
use crate::{
    budget::{Budget, BudgetStore, Denied, Permit, Reserving},
    random,
};

/// Default duration of a lease.
const LEASE: Duration = Duration::from_secs(10 * 60);
/// Number of random bytes in the id of a lease.
const ID: usize = 16;

/// A budget store in Redis that several replicas share.
///
/// Reserving, settling and releasing run as atomic scripts on the server, with its clock: replicas
/// together never exceed the budget, and their clocks need not agree.
///
/// A reservation is a [lease](Self::lease). If a process ends without settling, its reservations
/// are released when their leases expire. Settling an expired lease, up to a day later, still
/// charges the usage, exactly once. A lease does not end the call: choose a longer duration than
/// that of calls, otherwise more calls run at the same time than the budget allows.
///
/// Settlements are sent in the background. If the server is away, they are retried for the duration
/// of a lease. Settlements that the server rejects, for example because of a key of another type,
/// are logged and not retried. When the last clone and the last permit are dropped, pending
/// settlements are sent at most once more, and not at all if the runtime ends.
/// [`flush`](Self::flush) waits for them.
///
/// Each budget, or each caller of a budget per caller, has three keys:
/// `PREFIX:budget:{SHA-256 OF NAME AND CALLER}`, and the same key with the suffixes `:leases` and
/// `:ended`. The first one is a hash with the budget's `name` and the amounts `used` and
/// `reserved`. The keys expire when the budget is full again. Budgets without refill, and the keys
/// of their callers, remain until they are deleted. Amounts above 2⁵³ count as 2⁵³.
///
/// A changed limit or refill of a budget applies from the next call on; used amounts remain used.
/// If the server loses its data, all budgets are full again.
#[derive(Clone, Debug)]
pub struct RedisBudgets {
    settling: Arc<Settling>,
    prefix: Arc<str>,
    lease: Duration,
    when_away: WhenAway,
    is_away: Arc<AtomicBool>,
}

/// Behavior while the store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenAway {
    /// Reject calls.
    #[default]
    Refuse,
    /// Admit calls without charging them.
    Admit,
}

// === impl RedisBudgets ===

impl RedisBudgets {
    pub(super) fn new(connection: Connection, prefix: Arc<str>) -> Self {
        Self {
            settling: Arc::new(Settling::new(connection, LEASE)),
            prefix,
            lease: LEASE,
            when_away: WhenAway::default(),
            is_away: Arc::default(),
        }
    }

    /// Sets how long the server holds a reservation that is neither settled nor released. Defaults
    /// to 10 minutes.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.settling = Arc::new(Settling::new(self.settling.connection().clone(), lease));
        self
    }

    /// Sets the behavior while the server is away. Defaults to rejecting calls.
    ///
    /// Each call waits for the server, at most for the [timeout](super::RedisServer::timeout).
    #[must_use]
    pub const fn when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// Returns the available amount of a budget, for all callers or for one.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is away.
    pub async fn remaining(
        &self,
        budget: &Budget,
        caller: Option<&str>,
    ) -> Result<u64, RedisError> {
        let account = Account::of(&self.prefix, budget, caller);
        let asked = account.remaining(self.settling.connection()).await;
        asked.map_err(|away| RedisError::Unavailable(away.to_string().into()))
    }

    /// Waits until the server has received all settlements.
    ///
    /// Use it before a process ends. While the server is away, it waits for the duration of a
    /// lease.
    pub async fn flush(&self) {
        self.settling.flush().await;
    }

    async fn hold(self, account: Account, amount: u64) -> Result<Permit, Denied> {
        let id =
            random::text::<ID>().map_err(|error| Denied::Unavailable(error.to_string().into()))?;
        self.settling.start();
        let settling = Arc::clone(&self.settling);
        // From here on, the reservation is released even if the caller is dropped.
        let lease = Lease::asked(settling, account, Account::lease(&id, amount));
        let connection = self.settling.connection();
        let asked = lease.account().reserve(connection, lease.name(), amount, self.lease);
        let reserved = asked.await;
        self.note(reserved.as_ref().err());
        match reserved {
            Ok(Reserved::Held { was_repeated }) => Ok(Permit::new(lease.held(was_repeated))),
            Ok(Reserved::Over { retry_after }) => {
                lease.refused();
                Err(Denied::Over { retry_after })
            }
            Err(_) if self.when_away == WhenAway::Admit => Ok(Permit::free()),
            Err(away) => Err(Denied::Unavailable(away.into())),
        }
    }

    /// Logs when the server goes away and when it is back, but not each call in between.
    fn note(&self, away: Option<&Away>) {
        let was_away = self.is_away.swap(away.is_some(), Ordering::Relaxed);
        match away {
            Some(away) if !was_away => {
                tracing::warn!(%away, when_away = ?self.when_away, "budgets cannot be asked for");
            }
            None if was_away => tracing::info!("budgets can be asked for again"),
            _ => {}
        }
    }
}

impl BudgetStore for RedisBudgets {
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> Reserving {
        let account = Account::of(&self.prefix, budget, caller);
        Reserving::Later(Box::pin(self.clone().hold(account, amount)))
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.settling.flush())
    }
}
