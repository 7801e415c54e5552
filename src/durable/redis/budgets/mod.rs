//! Budgets in Redis that several replicas share.

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

/// The default of [`RedisBudgets::lease`].
const LEASE: Duration = Duration::from_secs(10 * 60);
/// The number of random bytes in the ID of a lease.
const ID: usize = 16;

/// A budget store in Redis that several replicas share.
///
/// Redis reserves and charges amounts atomically, and with the clock of its server. A budget
/// therefore limits all replicas together, even if their clocks differ.
///
/// The amount that is reserved for a call is a [lease](Self::lease). If a process ends during a
/// call, Redis releases the amount when the lease expires. Choose a lease duration that is longer
/// than any call. A call continues after its lease has expired, so that more calls may run at the
/// same time than the budget allows. If the call ends within a day of the expiry, the used amount
/// is still charged.
///
/// When a call ends, the used amount is charged in the background. While the Redis server is
/// unavailable, the store retries to charge it for the duration of a lease. If the server rejects
/// the charge, for example because a key has another type, the error is logged. To wait for pending
/// charges before the process ends, call [`flush`](Self::flush).
///
/// The keys of a budget in Redis begin with `PREFIX:budget:`, and expire when the budget is full
/// again. The keys of a budget without a refill remain until you delete them. Amounts are limited
/// to 2⁵³ − 1.
///
/// Changes to the limit or the refill of a budget take effect at the next call. The used amount
/// stays the same. If the Redis server loses its data, all budgets are full again.
#[derive(Clone, Debug)]
pub struct RedisBudgets {
    settling: Arc<Settling>,
    prefix: Arc<str>,
    lease: Duration,
    when_away: WhenAway,
    is_away: Arc<AtomicBool>,
}

/// Determines whether [`RedisBudgets`] admits tool calls while the Redis server is unavailable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenAway {
    /// Rejects calls to tools with a budget.
    #[default]
    Refuse,
    /// Admits calls to tools with a budget, and does not charge them to the budget.
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

    /// Sets the duration of a lease. After this time, Redis releases the amount that is reserved
    /// for a call, even if the call has not ended. Defaults to 10 minutes.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.settling = Arc::new(Settling::new(self.settling.connection.clone(), lease));
        self
    }

    /// Sets whether calls are rejected or admitted while the Redis server is unavailable. By
    /// default, they are rejected.
    ///
    /// With both settings, a call to a tool with a budget waits for the Redis server at most for
    /// the [timeout](super::RedisServer::timeout).
    #[must_use]
    pub const fn when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// Returns the remaining amount of a budget. Pass `caller` for a budget in which each caller
    /// has its own amount, and `None` for a budget that all callers share.
    ///
    /// # Errors
    ///
    /// Returns an error if the Redis server does not respond.
    pub async fn remaining(
        &self,
        budget: &Budget,
        caller: Option<&str>,
    ) -> Result<u64, RedisError> {
        let account = Account::of(&self.prefix, budget, caller);
        let remaining = account.remaining(&self.settling.connection).await;
        remaining.map_err(|away| RedisError::Unavailable(away.to_string().into()))
    }

    /// Waits until the used amounts of all ended calls are charged in Redis, or until charging them
    /// has failed. Call it before the process ends, so that no usage is lost. While the Redis
    /// server is unavailable, `flush` waits at most for the duration of a lease.
    pub async fn flush(&self) {
        self.settling.flush().await;
    }

    async fn hold(self, account: Account, amount: u64) -> Result<BudgetPermit, Denied> {
        let id =
            random::text::<ID>().map_err(|error| Denied::Unavailable(error.to_string().into()))?;
        self.settling.start();
        let settling = Arc::clone(&self.settling);
        // Created before the request, so that the reservation is released even if this future is
        // dropped.
        let lease = Lease::requested(settling, account, Account::lease(&id, amount));
        let connection = &self.settling.connection;
        let reply = lease.account.reserve(connection, &lease.name, amount, self.lease);
        let reserved = reply.await;
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

    /// Logs a warning when the Redis server becomes unavailable, and a message when it is available
    /// again. `away` is the error of the current request, or `None` if the request succeeded.
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
            let left = account.remaining(&self.settling.connection).await.ok()?;
            Some(BudgetUsage::new(left))
        })
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.settling.flush())
    }
}
