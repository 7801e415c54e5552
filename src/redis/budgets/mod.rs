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
    budget::{Budget, BudgetPermit, BudgetStore, BudgetUsage, Denied, ReserveReply},
    random,
};

/// The default time after which a lease expires.
const LEASE: Duration = Duration::from_secs(10 * 60);
/// The number of random bytes in a lease's id.
const ID: usize = 16;

/// A budget store in Redis that several replicas share.
///
/// Atomic Lua scripts on the Redis server reserve, settle and release amounts, and use the server's
/// clock. So all replicas together never exceed the budget, and the clocks of the replicas need not
/// agree.
///
/// Each reserved amount is a [lease](Self::lease), which expires after some time. If a process ends
/// without settling, its amounts are released when their leases expire. If an expired lease is
/// settled, up to a day later, the used amount is still charged, exactly once. A call continues
/// after its lease has expired. So choose a duration that is longer than that of calls. Otherwise
/// more calls run at the same time than the budget allows.
///
/// When a call ends, its settlement, which charges the used amount, is sent in the background.
/// While the server is away, settlements are retried for the duration of a lease. A settlement that
/// the server rejects, for example because of a key of another type, is logged and not retried.
/// When the last clone and the last permit are dropped, pending settlements are sent at most once
/// more, and not at all if the runtime ends. [`flush`](Self::flush) waits for pending settlements.
///
/// A budget has three keys, and a budget per caller has three keys for each caller:
/// `PREFIX:budget:{SHA-256 OF NAME AND CALLER}`, and the same key with the suffixes `:leases` and
/// `:ended`. The first key contains a hash with the budget's `name` and the amounts `used` and
/// `reserved`. The keys expire when the budget is full again. The keys of budgets without refill
/// remain until they are deleted. Amounts are limited to 2⁵³ − 1.
///
/// If the limit or refill of a budget is changed, this takes effect at the next call. The used
/// amount stays the same. If the server loses its data, all budgets are full again.
#[derive(Clone, Debug)]
pub struct RedisBudgets {
    settling: Arc<Settling>,
    prefix: Arc<str>,
    lease: Duration,
    when_away: WhenAway,
    is_away: Arc<AtomicBool>,
}

/// The setting that decides whether [`RedisBudgets`] admits calls while the Redis server is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenAway {
    /// Reject calls while the server is away.
    #[default]
    Refuse,
    /// Admit calls without charging the budget.
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

    /// Sets the duration of a lease: the time for which the server holds a reserved amount that is
    /// neither settled nor released. Defaults to 10 minutes.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.settling = Arc::new(Settling::new(self.settling.connection().clone(), lease));
        self
    }

    /// Sets what happens to calls while the Redis server is away. By default, they are rejected.
    ///
    /// Each call first waits for the server, at most for the
    /// [timeout](super::RedisServer::timeout).
    #[must_use]
    pub const fn when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// Returns the available amount of a budget. If `caller` is given, returns the amount for that
    /// caller.
    ///
    /// # Errors
    ///
    /// Returns an error if the Redis server does not answer.
    pub async fn remaining(
        &self,
        budget: &Budget,
        caller: Option<&str>,
    ) -> Result<u64, RedisError> {
        let account = Account::of(&self.prefix, budget, caller);
        let asked = account.remaining(self.settling.connection()).await;
        asked.map_err(|away| RedisError::Unavailable(away.to_string().into()))
    }

    /// Waits until the server has received every pending settlement, or the settlement is no longer
    /// retried.
    ///
    /// Call this method before the process ends. While the server is away, it waits at most for the
    /// duration of a lease.
    pub async fn flush(&self) {
        self.settling.flush().await;
    }

    async fn hold(self, account: Account, amount: u64) -> Result<BudgetPermit, Denied> {
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
            Ok(Reserved::Held { was_repeated }) => Ok(BudgetPermit::new(lease.held(was_repeated))),
            Ok(Reserved::Over { retry_after }) => {
                lease.refused();
                Err(Denied::Over { retry_after })
            }
            Err(_) if self.when_away == WhenAway::Admit => Ok(BudgetPermit::free()),
            Err(away) => Err(Denied::Unavailable(away.into())),
        }
    }

    /// Logs when the Redis server becomes unavailable and when it is available again, but not for
    /// each call in between.
    fn note(&self, away: Option<&Away>) {
        let was_away = self.is_away.swap(away.is_some(), Ordering::Relaxed);
        match away {
            Some(away) if !was_away => {
                tracing::warn!(%away, when_away = ?self.when_away, "the budget store is unavailable");
            }
            None if was_away => tracing::info!("the budget store is available again"),
            _ => {}
        }
    }
}

impl BudgetStore for RedisBudgets {
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> ReserveReply {
        let account = Account::of(&self.prefix, budget, caller);
        ReserveReply::Pending(Box::pin(self.clone().hold(account, amount)))
    }

    fn usage(&self, budget: &Budget) -> BoxFuture<'_, Option<BudgetUsage>> {
        let account = Account::of(&self.prefix, budget, None);
        Box::pin(async move {
            let left = account.remaining(self.settling.connection()).await.ok()?;
            Some(BudgetUsage::new(left))
        })
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.settling.flush())
    }
}
