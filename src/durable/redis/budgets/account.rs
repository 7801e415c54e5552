//! Reserves and charges amounts of one budget with Lua scripts in Redis.

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

/// The largest integer that Lua scripts in Redis represent exactly. Larger amounts are reduced to
/// it.
const MAX: u64 = (1 << 53) - 1;
/// The maximum length of a budget's name in Redis, in characters. The name is stored only for
/// operators who inspect the data.
const NAME: usize = 64;

static RESERVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("account.lua"), include_str!("reserve.lua")))
});
static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("account.lua"), include_str!("settle.lua"))));
static REMAINING: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("account.lua"), include_str!("remaining.lua")))
});

/// The balance of a budget in Redis. All callers share one balance, or each caller has its own.
#[derive(Clone, Debug)]
pub(super) struct Account {
    keys: [String; 3],
    limit: u64,
    /// The maximum usage that is recorded for a budget with a refill. Higher usage is reduced to
    /// it.
    most: u64,
    /// The amount of each refill. Zero if the budget is never refilled.
    amount: u64,
    /// The interval between refills in microseconds. Zero if the budget is never refilled.
    every: u64,
    name: String,
}

/// The response of Redis to a reservation: the amount is reserved, or the budget is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    Held {
        /// If `true`, the request was sent twice, because the connection was lost. Redis may
        /// receive the first copy after it has responded to the second one.
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
        // In a Redis key, braces mark the hash tag, which keeps all keys of the budget on one
        // server of a cluster.
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

    /// Reserves `amount` in the lease with the name `lease`. Redis releases the amount after
    /// `lasts`, unless the call ends earlier.
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
        let reply = at.ask(|mut server| {
            times.fetch_add(1, Ordering::Relaxed);
            let reserve = &reserve;
            async move { reserve.invoke_async::<(i64, i64)>(&mut server).await }.boxed()
        });
        Ok(match reply.await? {
            (1, _) => Reserved::Held { was_repeated: times.into_inner() > 1 },
            (_, micros) => {
                let retry_after = u64::try_from(micros).ok().map(Duration::from_micros);
                Reserved::Over { retry_after }
            }
        })
    }

    /// Ends a lease, and charges `actual`, the amount that the call has used. If `may_arrive` is
    /// `true`, Redis may still receive a delayed reservation for this lease, and must reject it.
    pub(super) async fn settle(
        &self,
        at: &Connection,
        lease: &str,
        actual: u64,
        may_arrive: bool,
    ) -> Result<(), Away> {
        let mut settle = self.prepare(&SETTLE);
        settle.arg(lease).arg(actual.min(MAX)).arg(u8::from(may_arrive)).arg(self.most);
        at.invoke(&settle).await
    }

    pub(super) async fn remaining(&self, at: &Connection) -> Result<u64, Away> {
        at.invoke(&self.prepare(&REMAINING)).await
    }

    /// Returns the name of a lease, which consists of a random `id` and the reserved amount.
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

/// Converts a duration to microseconds for a Lua script. The result is at least 1 and at most a
/// quarter of [`MAX`], so that a script can add it to a timestamp exactly.
fn micros(duration: Duration) -> u64 {
    // The upper bound ensures that the sum of the duration and a timestamp is exact. It exceeds the
    // lifetime of any server.
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).clamp(1, MAX / 4)
}
