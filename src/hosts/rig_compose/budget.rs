//! A budget store over a guard of `rig-compose`.

use std::{
    fmt, mem,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use ::rig_compose::{BudgetError, BudgetGuard};
use futures::{
    FutureExt,
    future::{self, BoxFuture, poll_fn},
};

use crate::budget::{Budget, BudgetStore, Denied, Held, Permit, Reserving};

/// A budget store that keeps a budget in a guard of `rig-compose`.
///
/// A guard is a single amount without names or callers: give each budget its own store, and share
/// it among all callers. The guard determines the amount and its refill; the limit and the refill
/// of the [`Budget`] are ignored.
///
/// A call's reservation is taken from the guard permanently when the call is settled, and released
/// if the call is dropped. Limitations of guards are handled as follows:
///
/// - A guard cannot reserve zero. A call of unknown cost reserves one unit, so calls are rejected
///   when the guard is exhausted.
/// - A guard cannot be overdrawn. Usage beyond the reservation becomes debt: it is taken as soon as
///   the guard has units, and calls are rejected until all debt is paid. While one call pays, the
///   others wait.
/// - A guard releases asynchronously, but calls are dropped synchronously. So a release is polled
///   once immediately, which is sufficient for a guard in memory; a pending one is completed before
///   the next reservation. Pending releases are lost when the store is dropped.
/// - A reservation that is dropped while the guard processes it may or may not be made.
#[derive(Clone)]
pub struct GuardBudgets(Arc<Shared>);

struct Shared {
    guard: Arc<dyn BudgetGuard>,
    /// Usage beyond what the guard could reserve.
    owed: Arc<AtomicU64>,
    /// The last payment of the debt.
    payment: Mutex<Option<Payment>>,
    /// The pending releases.
    releasing: Mutex<Vec<BoxFuture<'static, ()>>>,
}

/// A payment of debt, which returns `true` if all of it was paid. All waiting calls poll it, so
/// dropping one of them does not cancel it for the others.
type Payment = future::Shared<BoxFuture<'static, Result<bool, Arc<BudgetError>>>>;

/// The reservation of a call in the guard.
struct Reserved {
    shared: Arc<Shared>,
    amount: u64,
}

/// Debt that is being paid. The unpaid rest is restored on drop.
struct Debt<'o> {
    owed: &'o AtomicU64,
    amount: u64,
}

/// Releases that are being completed. Unfinished ones are restored on drop.
struct Settlement<'s> {
    shared: &'s Shared,
    futures: Vec<BoxFuture<'static, ()>>,
}

/// Pays as much of the debt as the guard has units for.
///
/// A guard reserves an amount or nothing, so smaller and smaller parts are tried until the guard is
/// exhausted or the debt is paid.
async fn pay(guard: &dyn BudgetGuard, owed: &AtomicU64) -> Result<bool, BudgetError> {
    let mut debt = Debt { owed, amount: owed.swap(0, Ordering::AcqRel) };
    let mut part = debt.amount;
    while part > 0 {
        if guard.try_reserve(part).await? {
            debt.amount -= part;
            part = part.min(debt.amount);
        } else {
            part /= 2;
        }
    }
    Ok(debt.amount == 0)
}

fn owe(owed: &AtomicU64, amount: u64) {
    let sum = |owed: u64| Some(owed.saturating_add(amount));
    // The closure always returns `Some`.
    let _ = owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, sum);
}

// === impl GuardBudgets ===

impl GuardBudgets {
    /// Creates a budget store over a guard.
    #[must_use]
    pub fn new(guard: Arc<dyn BudgetGuard>) -> Self {
        Self(Arc::new(Shared {
            guard,
            owed: Arc::default(),
            payment: Mutex::default(),
            releasing: Mutex::default(),
        }))
    }
}

impl BudgetStore for GuardBudgets {
    fn reserve(&self, _: &Budget, _: Option<&str>, amount: u64) -> Reserving {
        let shared = self.0.clone();
        let amount = amount.max(1);
        Reserving::Later(Box::pin(async move {
            Settlement::begin(&shared).finish().await;
            shared.pay().await?;
            let reserved = shared.guard.try_reserve(amount).await;
            if !reserved.map_err(|error| Denied::Unavailable(error.into()))? {
                return Err(Denied::Over { retry_after: None });
            }
            Ok(Permit::new(Reserved { shared, amount }))
        }))
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            Settlement::begin(&self.0).finish().await;
            // The unpaid rest remains as debt.
            let _ = self.0.pay().await;
        })
    }
}

impl fmt::Debug for GuardBudgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuardBudgets").field("owed", &self.0.owed).finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    /// Pays all debt, together with other callers.
    async fn pay(&self) -> Result<(), Denied> {
        while let Some(payment) = self.payment() {
            if !payment.await.map_err(|error| Denied::Unavailable(error.into()))? {
                return Err(Denied::Over { retry_after: None });
            }
        }
        Ok(())
    }

    /// Returns the payment in progress, or a new one if there is debt.
    fn payment(&self) -> Option<Payment> {
        // Nothing is polled while the lock is held.
        let mut payment = self.payment.lock().unwrap_or_else(PoisonError::into_inner);
        if payment.as_ref().is_some_and(|payment| payment.peek().is_none()) {
            return payment.clone();
        }
        *payment = (self.owed.load(Ordering::Acquire) > 0).then(|| {
            let (guard, owed) = (self.guard.clone(), self.owed.clone());
            let paid = async move { pay(&*guard, &owed).await };
            let paid = AssertUnwindSafe(paid).catch_unwind().map(|paid| {
                // Otherwise all waiting callers would panic.
                let panicked = |_| Err(BudgetError::Backend("the guard panicked".to_owned()));
                paid.unwrap_or_else(panicked).map_err(Arc::new)
            });
            paid.boxed().shared()
        });
        payment.clone()
    }

    /// Polls a release once, and keeps it for later if it is pending.
    fn release(&self, mut future: BoxFuture<'static, ()>) {
        if future.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.with(|releasing| releasing.push(future));
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Vec<BoxFuture<'static, ()>>) -> T) -> T {
        // Nothing is polled while the lock is held.
        look(&mut self.releasing.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Reserved ===

impl Reserved {
    fn release(&self, amount: u64) {
        let guard = self.shared.guard.clone();
        self.shared.release(Box::pin(async move { guard.release(amount).await }));
    }

    fn take_more(&self, amount: u64) {
        owe(&self.shared.owed, amount);
        // Polls the payment once. If it fails, the debt remains.
        if let Some(mut payment) = self.shared.payment() {
            let _ = payment.poll_unpin(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl Held for Reserved {
    fn settle(mut self: Box<Self>, actual: u64) {
        let reserved = mem::take(&mut self.amount);
        match reserved.checked_sub(actual) {
            Some(0) => (),
            Some(less) => self.release(less),
            None => self.take_more(actual - reserved),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.amount > 0 {
            self.release(self.amount);
        }
    }
}

// === impl Debt ===

impl Drop for Debt<'_> {
    fn drop(&mut self) {
        owe(self.owed, self.amount);
    }
}

// === impl Settlement ===

impl<'s> Settlement<'s> {
    /// Takes all pending releases.
    fn begin(shared: &'s Shared) -> Self {
        Self { shared, futures: shared.with(mem::take) }
    }

    async fn finish(mut self) {
        poll_fn(|cx| {
            self.futures.retain_mut(|future| future.poll_unpin(cx).is_pending());
            if self.futures.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

impl Drop for Settlement<'_> {
    fn drop(&mut self) {
        let mut left = mem::take(&mut self.futures);
        self.shared.with(|releasing| releasing.append(&mut left));
    }
}
