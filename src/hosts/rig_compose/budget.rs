//! A budget store that uses a guard of `rig-compose`.

use std::{
    fmt, mem,
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use ::rig_compose::{BudgetError, BudgetGuard};
use futures::{
    FutureExt,
    future::{self, BoxFuture, poll_fn},
};

use crate::{
    budget::{Budget, BudgetPermit, BudgetStore, Denied, ReserveReply, Settle},
    mutex::lock,
};

/// A budget store that keeps a single budget in a [`BudgetGuard`] of `rig-compose`.
///
/// A [`BudgetGuard`] counts a single amount, and does not distinguish budgets or callers.
/// Therefore, create a separate `GuardBudgets` for each budget, and let all callers share the
/// budget. The limit and the refill of the [`Budget`] have no effect, because the guard has its
/// own.
///
/// Each tool call reserves an amount in the guard before it runs. When the call ends, the store
/// adjusts the reservation to the actual usage. The store differs from other budget stores in the
/// following cases:
///
/// - A call whose cost is zero or unknown reserves one unit. The store rejects it if the guard is
///   exhausted.
/// - If a call uses more than it has reserved, the excess becomes debt. The store rejects further
///   calls until the guard has enough units to pay the debt.
/// - If a guard releases an amount asynchronously, for example in a remote database, the release
///   may be delayed until the next call. A delayed release is lost if the store is dropped.
/// - If a call is dropped while the guard processes its reservation, the amount may never be
///   released.
#[derive(Clone)]
pub struct GuardBudgets(Arc<Shared>);

struct Shared {
    guard: Arc<dyn BudgetGuard>,
    /// The debt: the amount that calls have used in excess of their reservations, and that is not
    /// yet reserved in the guard.
    owed: Arc<AtomicU64>,
    /// The most recent payment of the debt, which may be complete or still pending. `None` if no
    /// payment was needed.
    payment: Mutex<Option<Payment>>,
    /// The pending futures that return reserved amounts to the guard. They are not polled while
    /// this lock is held.
    releasing: Mutex<Vec<BoxFuture<'static, ()>>>,
}

/// The future of a payment of the debt. It resolves to `true` if all debt was paid. All calls that
/// wait for the payment share this future, so it continues if one of the calls is dropped.
type Payment = future::Shared<BoxFuture<'static, Result<bool, Arc<BudgetError>>>>;

/// An amount that the guard has reserved for one call. Dropping this value releases the amount.
struct Reserved {
    shared: Arc<Shared>,
    amount: u64,
}

/// The unpaid part of a debt while it is being paid. Dropping this value adds the unpaid amount to
/// the debt again.
struct Debt<'o> {
    owed: &'o AtomicU64,
    amount: u64,
}

/// The pending releases of reserved amounts while a call completes them. Dropping this value stores
/// the unfinished releases again for a later call.
struct Settlement<'s> {
    shared: &'s Shared,
    futures: Vec<BoxFuture<'static, ()>>,
}

/// Pays the debt by reserving its amount in the guard. Pays a part of the debt if the guard has
/// less available. Returns `true` if all debt was paid.
///
/// A guard reserves an amount either completely or not at all. Therefore, if the guard denies an
/// amount, the function tries smaller amounts until the guard is exhausted or the debt is paid.
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
    /// Creates a budget store that keeps its budget in `guard`.
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
    fn reserve(&self, _: &Budget, _: Option<&str>, amount: u64) -> ReserveReply {
        let shared = self.0.clone();
        let amount = amount.max(1);
        ReserveReply::Pending(Box::pin(async move {
            Settlement::begin(&shared).finish().await;
            shared.pay().await?;
            let reserved = shared.guard.try_reserve(amount).await;
            if !reserved.map_err(|error| Denied::Unavailable(error.into()))? {
                return Err(Denied::Over { retry_after: None });
            }
            Ok(BudgetPermit::new(Reserved { shared, amount }))
        }))
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            Settlement::begin(&self.0).finish().await;
            // The unpaid part remains as debt.
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
    /// Pays the debt, so that a call may reserve an amount. Returns an error if the guard is
    /// exhausted or fails. Concurrent calls share one payment.
    async fn pay(&self) -> Result<(), Denied> {
        while let Some(payment) = self.payment() {
            if !payment.await.map_err(|error| Denied::Unavailable(error.into()))? {
                return Err(Denied::Over { retry_after: None });
            }
        }
        Ok(())
    }

    /// Returns the pending payment. If there is none, starts a payment. Returns `None` if there is
    /// no debt.
    fn payment(&self) -> Option<Payment> {
        // The payment is not polled while this lock is held.
        let mut payment = lock(&self.payment);
        if payment.as_ref().is_some_and(|payment| payment.peek().is_none()) {
            return payment.clone();
        }
        *payment = (self.owed.load(Ordering::Acquire) > 0).then(|| {
            let (guard, owed) = (self.guard.clone(), self.owed.clone());
            let paid = async move { pay(&*guard, &owed).await };
            let paid = AssertUnwindSafe(paid).catch_unwind().map(|paid| {
                // Without this conversion, a panic would reach all calls that wait for the payment.
                let panicked = |_| Err(BudgetError::Backend("the guard panicked".to_owned()));
                paid.unwrap_or_else(panicked).map_err(Arc::new)
            });
            paid.boxed().shared()
        });
        payment.clone()
    }

    /// Polls the release of a reserved amount once. If the release is still pending, stores it, so
    /// that it is completed before the next reservation.
    fn release(&self, mut future: BoxFuture<'static, ()>) {
        if future.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending() {
            lock(&self.releasing).push(future);
        }
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
        // Polls the payment once. If the payment fails, the debt remains.
        if let Some(mut payment) = self.shared.payment() {
            let _ = payment.poll_unpin(&mut Context::from_waker(Waker::noop()));
        }
    }
}

impl Settle for Reserved {
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
    /// Takes all pending releases from `shared`.
    fn begin(shared: &'s Shared) -> Self {
        Self { shared, futures: mem::take(&mut *lock(&shared.releasing)) }
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
        lock(&self.shared.releasing).append(&mut self.futures);
    }
}
