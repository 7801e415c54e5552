//! The traits of stores for budget balances, and the permits that stores return.

use std::{fmt, future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tower::BoxError;

use super::{definition::Budget, reservation::Reservation};

/// A store for the balances of global budgets and budgets per caller. Implement this trait to share
/// budgets between processes, for example in a database. Budgets per run do not use the store.
///
/// A `BudgetStore` keeps a balance for each pair of budget name and caller. A
/// [`BudgetLayer`](super::BudgetLayer) reserves an amount before each tool call, and settles the
/// reservation with the actual amount after the call.
pub trait BudgetStore: fmt::Debug + Send + Sync {
    /// Reserves an amount of a budget before a tool call. Returns [`Denied::Over`] if too little is
    /// left.
    ///
    /// `caller` is `None` for a global budget. For a budget [per caller](super::Per::Caller), it is
    /// `None` if the caller is unidentified.
    ///
    /// If the consumption of the call is unknown in advance, as for a budget of bytes, `amount` is
    /// zero. The store must then grant the reservation if any amount is left, and deny it
    /// otherwise.
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> ReserveReply;

    /// Opens a budget, so that many reservations can be made without repeating work such as looking
    /// up the budget.
    ///
    /// A [`BudgetLayer`](super::BudgetLayer) opens its budgets when it wraps a service. If this
    /// method returns an [`OpenBudget`], the layer calls [`OpenBudget::reserve`] instead of
    /// [`reserve`](Self::reserve). Both must have the same effect. The default implementation
    /// returns `None`, so the layer uses `reserve`.
    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        let _ = budget;
        None
    }

    /// Returns the usage of a budget, for operators. Returns `None` if the usage is unknown, for
    /// example because the store is unavailable. The default implementation returns `None`.
    fn usage(&self, budget: &Budget) -> BoxFuture<'_, Option<BudgetUsage>> {
        let _ = budget;
        Box::pin(future::ready(None))
    }

    /// Waits until the store has written all settled and released amounts to its backend, for
    /// example a database.
    ///
    /// When a [`Gateway`](crate::config::Gateway) is closed, it calls `flush` and waits up to five
    /// seconds for it. The default implementation completes immediately.
    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }
}

/// The current usage of a budget. Returned by [`BudgetStore::usage`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BudgetUsage {
    /// The amount that is available to further calls: neither spent nor reserved. For a budget [per
    /// caller](super::Per::Caller), this is the amount available to unidentified callers, who share
    /// one balance.
    pub left: u64,
    /// The number of callers that have their own balance, or `None` if the store does not count
    /// them.
    pub callers: Option<usize>,
}

/// One budget of a [`BudgetStore`]. [`BudgetStore::open`] looks the budget up once and returns this
/// handle, so that the reservations of later calls need no look-up.
pub trait OpenBudget: Send + Sync {
    /// Reserves an amount of the budget, like [`BudgetStore::reserve`].
    fn reserve(&self, caller: Option<&str>, amount: u64) -> ReserveReply;
}

/// The reply of a [`BudgetStore`] to a reservation. It is either available immediately, or pending.
#[expect(clippy::exhaustive_enums, reason = "a store around another must handle both")]
pub enum ReserveReply {
    /// The store replied immediately, with a permit or a denial.
    Ready(Result<BudgetPermit, Denied>),
    /// The store will reply later, for example because it is remote. Dropping the future before it
    /// completes cancels the reservation.
    Pending(BoxFuture<'static, Result<BudgetPermit, Denied>>),
}

/// An amount of a budget that is reserved for a tool call.
///
/// A permit belongs to the store and the budget that created it. [`settle`](Self::settle) charges
/// the actual amount of the call. If the permit is dropped without being settled, the reserved
/// amount is released. The type system prevents misuse of permits. For example, a permit cannot be
/// settled twice:
///
/// ```compile_fail,E0382
/// # use mcp_composite::budget::BudgetPermit;
/// fn charge_twice(permit: BudgetPermit) {
///     permit.settle(1);
///     permit.settle(1);
/// }
/// ```
///
/// A permit cannot be settled through a reference:
///
/// ```compile_fail,E0507
/// # use mcp_composite::budget::BudgetPermit;
/// fn charge_others(permit: &BudgetPermit) {
///     permit.settle(1);
/// }
/// ```
///
/// A permit cannot be cloned:
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
    /// A reservation in [`MemoryBudgets`](super::MemoryBudgets). It needs no allocation, unlike the
    /// reservations of other stores.
    Memory(Reservation),
    Elsewhere(Box<dyn Settle>),
}

/// The reservation of a custom [`BudgetStore`], wrapped in a [`BudgetPermit`]. If it is dropped
/// without being settled, it must release the reserved amount.
pub trait Settle: Send + Sync {
    /// Charges the actual amount, even if it exceeds the reserved amount or the amount that is
    /// left.
    ///
    /// `settle` is not async. A remote store must therefore update its balance in the background.
    fn settle(self: Box<Self>, actual: u64);
}

/// The reason why a [`BudgetStore`] denied a reservation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// Too little of the budget is left for the reservation.
    #[error("not enough is left")]
    Over {
        /// The time until enough of the budget will be available, or `None` if this time is
        /// unknown.
        retry_after: Option<Duration>,
    },
    /// The store is unavailable and cannot check the budget.
    #[error("the store is not available: {0}")]
    Unavailable(BoxError),
}

// === impl BudgetUsage ===

impl BudgetUsage {
    /// Creates the usage of a budget whose available amount is `left`.
    #[must_use]
    pub const fn new(left: u64) -> Self {
        Self { left, callers: None }
    }

    /// Sets the number of callers that have their own balance.
    #[must_use]
    pub const fn callers(mut self, callers: usize) -> Self {
        self.callers = Some(callers);
        self
    }
}

// === impl BudgetPermit ===

impl BudgetPermit {
    /// Creates a permit that contains a reservation of a custom store.
    pub fn new(held: impl Settle + 'static) -> Self {
        Self(Of::Elsewhere(Box::new(held)))
    }

    /// Creates a permit that neither reserves nor charges anything. A store can return such a
    /// permit to allow calls while it is unavailable.
    pub const fn free() -> Self {
        Self(Of::Nothing)
    }

    /// Charges the actual amount of the call, and releases the reserved amount.
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
