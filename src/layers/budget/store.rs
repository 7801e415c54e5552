//! The trait of stores that keep the balances of budgets, and the permits they return.

use std::{fmt, future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tower::BoxError;

use super::{definition::Budget, reservation::Reservation};

/// Keeps the balances of budgets that outlive a run.
///
/// Balances are keyed by the name of the budget and the caller. An amount is reserved before
/// a call, and settled with the actual amount after it.
pub trait BudgetStore: fmt::Debug + Send + Sync {
    /// Reserves an amount of a budget, if enough is left.
    ///
    /// `caller` is set for a budget [per caller](super::Per::Caller). An amount of zero is
    /// reserved if anything is left; it is used for calls whose consumption is unknown in
    /// advance.
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> Reserving;

    /// Opens a budget, so that work that depends only on the budget is done once and not with
    /// each reservation.
    ///
    /// A layer opens its budgets when it wraps a service. An open budget must reserve exactly
    /// what [`reserve`](Self::reserve) would. Defaults to `None`: then
    /// [`reserve`](Self::reserve) is called each time.
    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        let _ = budget;
        None
    }

    /// Waits until all settled and released amounts have reached the backing store.
    ///
    /// Closing a [`Gateway`](crate::config::Gateway) waits for this, for at most five seconds.
    /// Defaults to returning immediately.
    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }
}

/// A budget [opened](BudgetStore::open) by a [`BudgetStore`].
pub trait OpenBudget: Send + Sync {
    /// Reserves an amount, if enough is left; see [`BudgetStore::reserve`].
    fn reserve(&self, caller: Option<&str>, amount: u64) -> Reserving;
}

/// The reply of a [`BudgetStore`] to a reservation.
#[expect(clippy::exhaustive_enums, reason = "a store around another must handle both")]
pub enum Reserving {
    /// An immediate reply.
    Now(Result<Permit, Denied>),
    /// A reply that must be awaited. If it is dropped before, nothing is reserved.
    Later(BoxFuture<'static, Result<Permit, Denied>>),
}

/// A reserved amount of a budget.
///
/// [`settle`](Self::settle) charges the actual amount; dropping the permit releases it. A
/// permit is bound to its store and budget, so it cannot be settled elsewhere. It cannot be
/// settled twice:
///
/// ```compile_fail,E0382
/// # use mcp_composite::budget::Permit;
/// fn charge_twice(permit: Permit) {
///     permit.settle(1);
///     permit.settle(1);
/// }
/// ```
///
/// nor settled through a reference:
///
/// ```compile_fail,E0507
/// # use mcp_composite::budget::Permit;
/// fn charge_others(permit: &Permit) {
///     permit.settle(1);
/// }
/// ```
///
/// nor cloned:
///
/// ```compile_fail,E0277
/// # use mcp_composite::budget::Permit;
/// fn is_copied<T: Clone>() {}
/// is_copied::<Permit>();
/// ```
#[must_use = "dropped, it is given back"]
pub struct Permit(Of);

enum Of {
    Nothing,
    /// A reservation of [`MemoryBudgets`](super::MemoryBudgets), unboxed.
    Memory(Reservation),
    Elsewhere(Box<dyn Held>),
}

/// The reservation behind a [`Permit`]. The store must release the amount when this is
/// dropped without being settled.
pub trait Held: Send + Sync {
    /// Charges the actual amount, even if it is more than was reserved or is left.
    ///
    /// This cannot wait: a remote store is updated in the background.
    fn settle(self: Box<Self>, actual: u64);
}

/// The reason why nothing was reserved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// Not enough is left.
    #[error("not enough is left")]
    Over {
        /// Time until enough is left, if it is known.
        retry_after: Option<Duration>,
    },
    /// The store is unavailable.
    #[error("the store is not available: {0}")]
    Unavailable(BoxError),
}

// === impl Permit ===

impl Permit {
    /// Creates a permit for an amount that a store has reserved.
    pub fn new(held: impl Held + 'static) -> Self {
        Self(Of::Elsewhere(Box::new(held)))
    }

    /// Creates a permit without a reservation, such as for a store that is unavailable and
    /// should not block calls.
    pub const fn free() -> Self {
        Self(Of::Nothing)
    }

    /// Charges the actual amount.
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
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> Reserving {
        (**self).reserve(budget, caller, amount)
    }

    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        (**self).open(budget)
    }
}

impl fmt::Debug for Reserving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(reserved) => f.debug_tuple("Now").field(reserved).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
