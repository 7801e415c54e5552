//! Budgets that replicas share.

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

/// How long a lease lasts, unless it is said otherwise.
const LEASE: Duration = Duration::from_secs(10 * 60);
/// How many random bytes tell leases apart.
const ID: usize = 16;

/// Budgets that several replicas share, in Redis.
///
/// An amount is reserved, settled and given back by a script that the server runs as
/// one step, on its own clock: replicas never use more than there is together, and
/// their clocks need not agree.
///
/// A reservation is a [lease](Self::lease). A process that ends without settling loses
/// nothing for good: what it held is there again when its leases have ended. A lease
/// that is settled after it has ended, up to a day later, charges what was used all the
/// same, once. A lease does not end the call: let it last longer than calls do, else
/// more calls run at a time than a budget has room for.
///
/// What is settled is told in the background. A server that is away is told when it is
/// back, for as long as a lease lasts; one that refuses what it is told, as when a key is
/// something else, is not told again, and the log says so. What is still to be told when
/// the last clone and the last permit are gone is told once more at most, and not at all
/// if the runtime ends. [`flush`](Self::flush) waits for it.
///
/// For each budget, and for each caller of one that is kept per caller, there are three
/// keys, `PREFIX:budget:{SHA-256 OF NAME AND CALLER}`, the same with `:leases`, and
/// with `:ended`. The first is a hash that says how the budget is `name`d, how much is
/// `used` and how much `reserved`. They go by themselves when the budget is full again.
/// One that does not refill stays until it is deleted, and so does each caller's share
/// of it. Numbers above 2⁵³ count as that.
///
/// Another limit or refill for the same name holds from the next call on: what is used
/// stays used. A server that loses its memory begins all budgets anew.
#[derive(Clone, Debug)]
pub struct RedisBudgets {
    settling: Arc<Settling>,
    prefix: Arc<str>,
    lease: Duration,
    when_away: WhenAway,
    is_away: Arc<AtomicBool>,
}

/// What becomes of calls while a store is away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenAway {
    /// They are refused.
    #[default]
    Refuse,
    /// They are admitted, and charged to nobody.
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

    /// Sets after which time the server gives back what was reserved and neither
    /// settled nor given back; ten minutes by default.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self.settling = Arc::new(Settling::new(self.settling.connection().clone(), lease));
        self
    }

    /// Sets what becomes of calls while the server is away; they are refused by default.
    ///
    /// Each of them waits until it is known, at most for the
    /// [timeout](super::RedisStore::timeout).
    #[must_use]
    pub const fn when_away(mut self, when_away: WhenAway) -> Self {
        self.when_away = when_away;
        self
    }

    /// How much of a budget is left to be reserved, of all or of one caller.
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

    /// Waits until the server has been told of all that was settled or given back.
    ///
    /// It is for a process that ends. While the server is away it waits for as long as
    /// a lease lasts.
    pub async fn flush(&self) {
        self.settling.flush().await;
    }

    async fn hold(self, account: Account, amount: u64) -> Result<Permit, Denied> {
        let id =
            random::text::<ID>().map_err(|error| Denied::Unavailable(error.to_string().into()))?;
        self.settling.start();
        let settling = Arc::clone(&self.settling);
        // From here on it is given back, also if nobody waits for the answer.
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

    /// Logs when the server goes and when it comes back, and not each call between.
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
