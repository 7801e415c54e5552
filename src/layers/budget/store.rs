//! The trait of stores that keep the balances of budgets, and the permits they return.

use std::{fmt, future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tower::BoxError;

use super::{definition::Budget, reservation::Reservation};

/// A store that keeps the balances of all budgets that outlive a run: global budgets and budgets
/// per caller.
///
/// The store keeps one balance for each budget name and caller. A layer reserves an amount before
/// each call, and settles the reservation with the actual amount after the call.
pub trait BudgetStore: fmt::Debug + Send + Sync {
    /// Reserves an amount of a budget before a call. Returns [`Denied::Over`] if too little is
    /// left.
    ///
    /// `caller` is `None` if the budget is global. It is also `None` if the budget is [per
    /// caller](super::Per::Caller) and the caller is unidentified.
    ///
    /// An `amount` of zero means that the consumption of the call is unknown in advance. In this
    /// case, the store must grant the reservation if anything is left, and deny it otherwise.
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> ReserveReply;

    /// Opens a budget for many reservations, so that work such as looking up the budget is done
    /// once instead of for each reservation.
    ///
    /// A layer opens its budgets when it wraps a service. If this method returns an [`OpenBudget`],
    /// the layer calls [`OpenBudget::reserve`] instead of [`reserve`](Self::reserve), and both must
    /// have the same effect. The default implementation returns `None`, so that the layer calls
    /// [`reserve`](Self::reserve).
    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        let _ = budget;
        None
    }

    /// Returns how much of a budget is used, for operators. Returns `None` if the store does not
    /// know, for example because it is unavailable. The default implementation returns `None`.
    fn usage(&self, budget: &Budget) -> BoxFuture<'_, Option<BudgetUsage>> {
        let _ = budget;
        Box::pin(future::ready(None))
    }

    /// Waits until all settled and released amounts have reached the backing store.
    ///
    /// Closing a [`Gateway`](crate::config::Gateway) awaits the returned future for at most five
    /// seconds. The future of the default implementation is ready immediately.
    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }
}

/// The usage of a budget, as a [`BudgetStore`] knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUsage {
    /// The amount that is neither spent nor reserved for running calls. For a budget [per
    /// caller](super::Per::Caller), the amount that all unidentified callers have left.
    pub left: u64,
    /// The number of callers who have a balance of their own. `None` if the store does not know it.
    pub callers: Option<usize>,
}

/// A budget [opened](BudgetStore::open) by a [`BudgetStore`].
pub trait OpenBudget: Send + Sync {
    /// Reserves an amount of the budget, like [`BudgetStore::reserve`].
    fn reserve(&self, caller: Option<&str>, amount: u64) -> ReserveReply;
}

/// The reply of a [`BudgetStore`] to a reservation.
#[expect(clippy::exhaustive_enums, reason = "a store around another must handle both")]
pub enum ReserveReply {
    /// The store has replied immediately.
    Ready(Result<BudgetPermit, Denied>),
    /// The reply must be awaited. If the future is dropped before the reply, nothing is reserved.
    Pending(BoxFuture<'static, Result<BudgetPermit, Denied>>),
}

/// A reserved amount of a budget.
///
/// [`settle`](Self::settle) charges the actual amount. Dropping the permit without settling it
/// releases the reserved amount. A permit is bound to its store and budget, so it cannot be settled
/// elsewhere. A permit cannot be settled twice:
///
/// ```compile_fail,E0382
/// # use mcp_composite::budget::BudgetPermit;
/// fn charge_twice(permit: BudgetPermit) {
///     permit.settle(1);
///     permit.settle(1);
/// }
/// ```
///
/// nor settled through a reference:
///
/// ```compile_fail,E0507
/// # use mcp_composite::budget::BudgetPermit;
/// fn charge_others(permit: &BudgetPermit) {
///     permit.settle(1);
/// }
/// ```
///
/// nor cloned:
///
/// ```compile_fail,E0277
/// # use mcp_composite::budget::BudgetPermit;
/// fn is_copied<T: Clone>() {}
/// is_copied::<BudgetPermit>();
/// ```
#[must_use = "dropped, it is given back"]
pub struct BudgetPermit(Of);

enum Of {
    Nothing,
    /// A reservation of [`MemoryBudgets`](super::MemoryBudgets), stored without a box.
    Memory(Reservation),
    Elsewhere(Box<dyn Settle>),
}

/// The reservation behind a [`BudgetPermit`]. If the reservation is dropped without being settled,
/// the store must release the reserved amount.
pub trait Settle: Send + Sync {
    /// Charges the actual amount, even if it is more than was reserved or is left.
    ///
    /// This method is not async, so an implementation must update a remote store in the background.
    fn settle(self: Box<Self>, actual: u64);
}

/// The reason why a [`BudgetStore`] reserved nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// Not enough of the budget is left.
    #[error("not enough is left")]
    Over {
        /// The time until enough is left, or `None` if this time is unknown.
        retry_after: Option<Duration>,
    },
    /// The store is unavailable.
    #[error("the store is not available: {0}")]
    Unavailable(BoxError),
}

// === impl BudgetUsage ===

impl BudgetUsage {
    /// Creates the usage of a budget of which this amount is left.
    #[must_use]
    pub const fn new(left: u64) -> Self {
        Self { left, callers: None }
    }

    /// Sets the number of callers who have a balance of their own.
    #[must_use]
    pub const fn callers(mut self, callers: usize) -> Self {
        self.callers = Some(callers);
        self
    }
}

// === impl BudgetPermit ===

impl BudgetPermit {
    /// Creates a permit for an amount that a store has reserved.
    pub fn new(held: impl Settle + 'static) -> Self {
        Self(Of::Elsewhere(Box::new(held)))
    }

    /// Creates a permit without a reservation, for example if a store is unavailable but calls
    /// should still be allowed.
    pub const fn free() -> Self {
        Self(Of::Nothing)
    }

    /// Charges the actual amount instead of the reserved amount.
    pub fn settle(self, actual: u64) {
        match self.0 {
            Of::Nothing => {}
            Of::Memory(reservation) => reservation.settle(actual),
            Of::Elsewhere(held) => held.settle(actual),
        }
    }

    pub(super) const fn of_memory(reservation: Reservation) -> Self {
        Self(Of::Memory(reservation))
    }
}

impl<S: BudgetStore + ?Sized> BudgetStore for Arc<S> {
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> ReserveReply {
        (**self).reserve(budget, caller, amount)
    }

    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        (**self).open(budget)
    }

    fn usage(&self, budget: &Budget) -> BoxFuture<'_, Option<BudgetUsage>> {
        (**self).usage(budget)
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        (**self).flush()
    }
}

impl fmt::Debug for ReserveReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(reserved) => f.debug_tuple("Ready").field(reserved).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

impl fmt::Debug for BudgetPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetPermit").finish_non_exhaustive()
    }
}
