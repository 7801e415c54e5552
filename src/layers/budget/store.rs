use std::{fmt, future, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use tower::BoxError;

use super::{Budget, memory::Taken};

/// Keeps what is left of budgets that outlive a run.
///
/// What is left is kept apart by the name of the budget and the caller. An amount is
/// reserved before a call and settled after it, with what it really was.
pub trait BudgetStore: fmt::Debug + Send + Sync {
    /// Reserves an amount of a budget, if as much is left.
    ///
    /// The caller is given for a budget [per caller](super::Per::Caller). An amount of
    /// zero is reserved if anything is left: it is for calls of which it is not known
    /// before what they use.
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> Reserving;

    /// Opens a budget, for whoever reserves of it with every call, so that what depends
    /// on the budget alone is found once.
    ///
    /// A layer opens its budgets when it is put in front of a service. What is reserved
    /// of one that is open must be what [`reserve`](Self::reserve) would reserve. By
    /// default nothing is opened, and the store is asked each time.
    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        let _ = budget;
        None
    }

    /// Waits until all that was settled or given back is known where it is counted.
    ///
    /// A [`Gateway`](crate::config::Gateway) that is closed waits for it, for five seconds
    /// at most. By default all is known at once.
    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(future::ready(()))
    }
}

/// A budget that a [`BudgetStore`] has [opened](BudgetStore::open).
pub trait OpenBudget: Send + Sync {
    /// Reserves an amount of it, if as much is left; see [`BudgetStore::reserve`].
    fn reserve(&self, caller: Option<&str>, amount: u64) -> Reserving;
}

/// What a [`BudgetStore`] says.
#[expect(clippy::exhaustive_enums, reason = "a store around another must handle both")]
pub enum Reserving {
    /// At once.
    Now(Result<Permit, Denied>),
    /// When it has asked elsewhere. Dropped before, it reserves nothing.
    Later(BoxFuture<'static, Result<Permit, Denied>>),
}

/// An amount that is reserved.
///
/// [Settled](Self::settle), what it really was is charged; dropped, it is given back.
/// It knows its store and its budget, so it can be settled nowhere else. Nobody can
/// settle it twice:
///
/// ```compile_fail,E0382
/// # use mcp_composite::budget::Permit;
/// fn charge_twice(permit: Permit) {
///     permit.settle(1);
///     permit.settle(1);
/// }
/// ```
///
/// nor take another one's to settle it:
///
/// ```compile_fail,E0507
/// # use mcp_composite::budget::Permit;
/// fn charge_others(permit: &Permit) {
///     permit.settle(1);
/// }
/// ```
///
/// nor have two of what was reserved once:
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
    /// In this process, and not worth a box.
    Memory(Taken),
    Elsewhere(Box<dyn Held>),
}

/// What a [`Permit`] holds: an amount that a store has reserved, and that it gives back
/// when this is dropped without being settled.
pub trait Held: Send + Sync {
    /// Charges what it really was, also if it is more than was reserved, or left.
    ///
    /// It cannot wait: a store that is elsewhere tells it in the background.
    fn settle(self: Box<Self>, actual: u64);
}

/// Why nothing was reserved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Denied {
    /// Not enough is left.
    #[error("not enough is left")]
    Over {
        /// When there will be, if it is known.
        retry_after: Option<Duration>,
    },
    /// The store cannot say.
    #[error("the store is not available: {0}")]
    Unavailable(BoxError),
}

// === impl Permit ===

impl Permit {
    /// A permit of what a store has reserved.
    pub fn new(held: impl Held + 'static) -> Self {
        Self(Of::Elsewhere(Box::new(held)))
    }

    /// A permit that nothing is reserved for, such as of a store that is away and shall
    /// not stop anybody.
    pub const fn free() -> Self {
        Self(Of::Nothing)
    }

    /// Charges what it really was.
    pub fn settle(self, actual: u64) {
        match self.0 {
            Of::Nothing => {}
            Of::Memory(taken) => taken.settle(actual),
            Of::Elsewhere(held) => held.settle(actual),
        }
    }

    pub(super) const fn of_memory(taken: Taken) -> Self {
        Self(Of::Memory(taken))
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
