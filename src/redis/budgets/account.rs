//! The account of a budget in Redis.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use ::redis::{Script, ScriptInvocation};
use futures::FutureExt;

use crate::{
    budget::Budget,
    random,
    redis::{
        connection::{Away, Connection},
        keys::digest,
    },
};

/// The largest integer that is exact in a Redis script.
const MAX: u64 = (1 << 53) - 1;
/// Maximum number of characters of a name, which is stored for operators.
const NAME: usize = 64;

static RESERVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("account.lua"), include_str!("reserve.lua")))
});
static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("account.lua"), include_str!("settle.lua"))));
static REMAINING: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("account.lua"), include_str!("remaining.lua")))
});

/// A budget of one caller or of all callers, in Redis.
#[derive(Clone, Debug)]
pub(super) struct Account {
    keys: [String; 3],
    limit: u64,
    /// Maximum usage that is counted if the budget is refilled.
    most: u64,
    /// The amount of each refill.
    amount: u64,
    /// The refill interval in microseconds; 0 disables refills.
    every: u64,
    name: String,
}

/// The outcome of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    Held {
        /// Whether the request was repeated, so that the first one may still arrive.
        was_repeated: bool,
    },
    Over {
        retry_after: Option<Duration>,
    },
}

// === impl Account ===

impl Account {
    pub(super) fn of(prefix: &str, budget: &Budget, caller: Option<&str>) -> Self {
        let name = budget.name();
        let id = digest([name].into_iter().chain(caller).map(str::as_bytes));
        // The part in braces is the hash tag, which keeps all keys on one server of a cluster.
        let key = format!("{prefix}:budget:{{{}}}", random::hex(&id));
        let keys = [format!("{key}:leases"), format!("{key}:ended")];
        let [leases, ended] = keys;
        let (amount, every) = match budget.refilled() {
            Some(refill) if refill.amount() > 0 && !refill.every().is_zero() => {
                (refill.amount().min(MAX), micros(refill.every()))
            }
            _ => (0, 0),
        };
        Self {
            keys: [key, leases, ended],
            limit: budget.limit().min(MAX),
            most: budget.most_spent().min(MAX),
            amount,
            every,
            name: name.chars().take(NAME).collect(),
        }
    }

    /// Reserves an amount for a lease.
    pub(super) async fn reserve(
        &self,
        at: &Connection,
        lease: &str,
        amount: u64,
        lasts: Duration,
    ) -> Result<Reserved, Away> {
        let mut reserve = self.prepare(&RESERVE);
        reserve.arg(lease).arg(amount.min(MAX)).arg(micros(lasts));
        let times = AtomicU32::new(0);
        let asked = at.ask(|mut server| {
            times.fetch_add(1, Ordering::Relaxed);
            let reserve = &reserve;
            async move { reserve.invoke_async::<(i64, i64)>(&mut server).await }.boxed()
        });
        Ok(match asked.await? {
            (1, _) => Reserved::Held { was_repeated: times.into_inner() > 1 },
            (_, micros) => {
                let retry_after = u64::try_from(micros).ok().map(Duration::from_micros);
                Reserved::Over { retry_after }
            }
        })
    }

    /// Settles a lease, whose reservation may still arrive if `may_arrive`.
    pub(super) async fn settle(
        &self,
        at: &Connection,
        lease: &str,
        actual: u64,
        may_arrive: bool,
    ) -> Result<(), Away> {
        let mut settle = self.prepare(&SETTLE);
        settle.arg(lease).arg(actual.min(MAX)).arg(u8::from(may_arrive)).arg(self.most);
        let asked = at.ask(|mut server| {
            let settle = &settle;
            async move { settle.invoke_async(&mut server).await }.boxed()
        });
        asked.await
    }

    pub(super) async fn remaining(&self, at: &Connection) -> Result<u64, Away> {
        let remaining = self.prepare(&REMAINING);
        let asked = at.ask(|mut server| {
            let remaining = &remaining;
            async move { remaining.invoke_async(&mut server).await }.boxed()
        });
        asked.await
    }

    /// Returns the name of a lease with this amount.
    pub(super) fn lease(id: &str, amount: u64) -> String {
        format!("{id}:{}", amount.min(MAX))
    }

    fn prepare<'a>(&self, script: &'a Script) -> ScriptInvocation<'a> {
        let mut invocation = script.prepare_invoke();
        for key in &self.keys {
            invocation.key(key);
        }
        invocation.arg(self.limit).arg(self.amount).arg(self.every).arg(&self.name);
        invocation
    }
}

/// Returns the duration in microseconds, at least one.
fn micros(duration: Duration) -> u64 {
    // Longer durations count as never, and the sum with a timestamp is exact.
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).clamp(1, MAX / 4)
}
