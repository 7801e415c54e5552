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

/// A budget that a guard of theirs keeps.
///
/// A guard is one amount, and knows no names and no callers: give each budget a store of its
/// own, and let it be one for all callers. How much there is, and how it comes back, is what
/// the guard says; the limit and the refill of the [`Budget`] are not looked at.
///
/// What a call reserved is taken from the guard for good once it is settled, and given
/// back to it if the call is dropped. Where a guard cannot express something:
///
/// - It knows no reservation of nothing. A call of which it is not known what it uses
///   reserves one unit, so that calls are refused when nothing is left.
/// - It gives no more than it has. What a call used beyond that is owed: it is taken as soon
///   as the guard has something, and every call is refused until all of it is. While one
///   call pays, the others wait.
/// - It releases asynchronously, and a call is dropped in an instant. So a release is begun
///   at once, which is enough for a guard in memory; one that has to wait goes on while the
///   next amount is reserved, and before that. What still waits when the store is dropped
///   is lost.
/// - A reservation that is dropped while the guard thinks about it may or may not be made.
#[derive(Clone)]
pub struct GuardBudgets(Arc<Shared>);

struct Shared {
    guard: Arc<dyn BudgetGuard>,
    /// What calls used beyond what the guard gave.
    owed: Arc<AtomicU64>,
    /// The last payment of that.
    payment: Mutex<Option<Payment>>,
    /// What the guard has to be told still.
    telling: Mutex<Vec<BoxFuture<'static, ()>>>,
}

/// Somebody pays what is owed, and says whether that was all. Whoever waits for it brings it
/// on, so that nobody can give it up for others.
type Payment = future::Shared<BoxFuture<'static, Result<bool, Arc<BudgetError>>>>;

/// What the guard has reserved for a call.
struct Reserved {
    shared: Arc<Shared>,
    amount: u64,
}

/// What is owed, and somebody pays at the moment; what is left of it is owed on.
struct Debt<'o> {
    owed: &'o AtomicU64,
    amount: u64,
}

/// What somebody tells the guard at the moment; what is left of it goes back.
struct Settlement<'s> {
    shared: &'s Shared,
    futures: Vec<BoxFuture<'static, ()>>,
}

/// Takes from a guard what it can give of what is owed.
///
/// It gives an amount or nothing, so it is asked for less and less: what it has left is
/// gone then, as if it had been used at once.
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
    // It always gives a sum.
    let _ = owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, sum);
}

// === impl GuardBudgets ===

impl GuardBudgets {
    /// Keeps a budget in a guard.
    #[must_use]
    pub fn new(guard: Arc<dyn BudgetGuard>) -> Self {
        Self(Arc::new(Shared {
            guard,
            owed: Arc::default(),
            payment: Mutex::default(),
            telling: Mutex::default(),
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
            // What the guard has no more of is owed still.
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
    /// Pays all that is owed, together with whoever else does.
    async fn pay(&self) -> Result<(), Denied> {
        while let Some(payment) = self.payment() {
            if !payment.await.map_err(|error| Denied::Unavailable(error.into()))? {
                return Err(Denied::Over { retry_after: None });
            }
        }
        Ok(())
    }

    /// The payment that goes on, or a new one if something is owed.
    fn payment(&self) -> Option<Payment> {
        // Nothing is polled while it is held.
        let mut payment = self.payment.lock().unwrap_or_else(PoisonError::into_inner);
        if payment.as_ref().is_some_and(|payment| payment.peek().is_none()) {
            return payment.clone();
        }
        *payment = (self.owed.load(Ordering::Acquire) > 0).then(|| {
            let (guard, owed) = (self.guard.clone(), self.owed.clone());
            let paid = async move { pay(&*guard, &owed).await };
            let paid = AssertUnwindSafe(paid).catch_unwind().map(|paid| {
                // Else all would panic who wait for it.
                let panicked = |_| Err(BudgetError::Backend("the guard panicked".to_owned()));
                paid.unwrap_or_else(panicked).map_err(Arc::new)
            });
            paid.boxed().shared()
        });
        payment.clone()
    }

    /// Tells the guard something: at once if it does not have to wait.
    fn tell(&self, mut future: BoxFuture<'static, ()>) {
        if future.poll_unpin(&mut Context::from_waker(Waker::noop())).is_pending() {
            self.with(|telling| telling.push(future));
        }
    }

    fn with<T>(&self, look: impl FnOnce(&mut Vec<BoxFuture<'static, ()>>) -> T) -> T {
        // Nothing is polled while it is held.
        look(&mut self.telling.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Reserved ===

impl Reserved {
    fn release(&self, amount: u64) {
        let guard = self.shared.guard.clone();
        self.shared.tell(Box::pin(async move { guard.release(amount).await }));
    }

    fn take_more(&self, amount: u64) {
        owe(&self.shared.owed, amount);
        // At once if the guard does not have to wait. If it fails, it is owed still.
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
    /// Takes up all that the guard has to be told.
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
        self.shared.with(|telling| telling.append(&mut left));
    }
}
