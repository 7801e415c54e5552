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

/// The largest number that is exact in a script of Redis.
const MAX: u64 = (1 << 53) - 1;
/// How many characters of a name are kept for people.
const NAME: usize = 64;

static RESERVE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("account.lua"), include_str!("reserve.lua")))
});
static SETTLE: LazyLock<Script> =
    LazyLock::new(|| Script::new(concat!(include_str!("account.lua"), include_str!("settle.lua"))));
static REMAINING: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(include_str!("account.lua"), include_str!("remaining.lua")))
});

/// A budget of one caller, or of all, at the server.
#[derive(Clone, Debug)]
pub(super) struct Account {
    keys: [String; 3],
    limit: u64,
    /// The most that counts as used if it comes back.
    most: u64,
    /// How much comes back each time.
    amount: u64,
    /// How long that takes, in microseconds; 0 is never.
    every: u64,
    name: String,
}

/// What became of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reserved {
    Held {
        /// Whether the server was asked again, and the first time may still arrive.
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
        // What stands in braces says in a cluster where keys are: all at one place.
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

    /// Reserves what a lease says.
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

    /// Ends a lease; it may be that it is still asked to be made.
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

    /// How a lease of this amount is called.
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

/// In microseconds, and at least one.
fn micros(duration: Duration) -> u64 {
    // Longer is never, and its sum with a time of day is exact.
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX).clamp(1, MAX / 4)
}
