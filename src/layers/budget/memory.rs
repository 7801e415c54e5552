//! A budget store in the memory of the process.

#[cfg(test)]
mod tests;

use std::{
    array,
    collections::{HashMap, VecDeque},
    fmt, future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::future::BoxFuture;

use super::{
    definition::Budget,
    reservation::{Reservation, Shared},
    store::{BudgetPermit, BudgetStore, BudgetUsage, Denied, OpenBudget, ReserveReply},
};
use crate::mutex::lock;

/// Default maximum number of callers per budget for which a store keeps balances.
const MAX_CALLERS: usize = 100_000;
/// Number of shards into which the callers of a budget are divided. Each shard has its own lock,
/// which reduces contention between callers.
const SHARDS: usize = 16;
/// Number of callers that are checked for eviction when a caller is added. It is greater than one,
/// so that evictions can be faster than additions.
const LOOKS: usize = 2;
/// Number of callers in each shard that are checked for eviction when the maximum number of callers
/// is reached.
const LOOKS_FOR_ROOM: usize = 8;

/// A [`BudgetStore`] in the memory of the process.
///
/// All clones of a `MemoryBudgets` share the balances. To share balances between layers, give each
/// layer a clone as its [store](super::BudgetLayer::store).
///
/// For each budget [per caller](super::Per::Caller), a `MemoryBudgets` keeps the balances of at
/// most [`max_callers`](Self::max_callers) callers. It denies the calls of further callers. The
/// store removes the balance of a caller when the balance is full again and no call of the caller
/// is running. If the budget has no refill, a charged balance never becomes full again, and so it
/// is never removed.
///
/// # Examples
///
/// ```
/// use mcp_composite::budget::{Budget, BudgetLayer, MemoryBudgets, Unit};
///
/// let calls = Budget::new("calls", Unit::Calls, 1000);
/// let budgets = MemoryBudgets::new();
/// let layer = BudgetLayer::new().budget(calls.clone()).store(budgets.clone());
/// assert_eq!(budgets.remaining(&calls, None), 1000);
/// ```
#[derive(Clone)]
pub struct MemoryBudgets {
    /// The balances of each budget. A list, because a linear search is faster than a map if there
    /// are only a few budgets.
    budgets: Arc<RwLock<Vec<Named>>>,
    max_callers: usize,
}

/// The error for a call of a new caller if the store already has the maximum number of callers.
#[derive(Debug, thiserror::Error)]
#[error("the budget has the maximum number of callers: {max_callers} (`max_callers`)")]
struct TooManyCallers {
    max_callers: usize,
}

type Named = (Arc<str>, Arc<Usage>);

/// A handle for one budget, returned by [`BudgetStore::open`]. Refers directly to the balances of
/// the budget, so that reservations need no lookup.
struct Open {
    budget: Budget,
    kept: Arc<Usage>,
    max_callers: usize,
}

/// The balances of a budget: one that is shared, and one for each identified caller.
struct Usage {
    /// For a global budget, the balance of all calls. For a budget per caller, the balance of all
    /// unidentified callers.
    shared: Shared,
    callers: [Mutex<Callers>; SHARDS],
    /// The number of callers with a balance, in all shards together.
    count: AtomicUsize,
}

/// One shard of the callers of a budget, with the balance of each caller.
#[derive(Default)]
struct Callers {
    balances: HashMap<Arc<str>, Shared>,
    /// The queue of callers to check for eviction, next first. Contains each caller once. A caller
    /// that is not evicted moves to the end.
    round: VecDeque<Arc<str>>,
}

// === impl MemoryBudgets ===

impl MemoryBudgets {
    /// Creates a store that keeps the balances of at most 100 000 callers per budget.
    #[must_use]
    pub fn new() -> Self {
        Self { budgets: Arc::default(), max_callers: MAX_CALLERS }
    }

    /// Sets the maximum number of callers per budget. The store uses 100 to 200 bytes of memory for
    /// each caller. Defaults to 100 000.
    #[must_use]
    pub const fn max_callers(mut self, callers: usize) -> Self {
        self.max_callers = callers;
        self
    }

    /// Returns the amount of a budget that is neither spent nor reserved for running calls.
    ///
    /// For a budget [per caller](super::Per::Caller), returns the amount that `caller` has left. If
    /// `caller` is `None`, returns the amount that all unidentified callers together have left.
    #[must_use]
    pub fn remaining(&self, budget: &Budget, caller: Option<&str>) -> u64 {
        let kept = self.kept(budget);
        let balance = match caller {
            None => Some(kept.shared.clone()),
            Some(caller) => kept.shard(caller).balances.get(caller).cloned(),
        };
        balance.map_or(budget.limit(), |balance| lock(&balance).left(budget.limit()))
    }

    /// Returns the number of callers for which the store keeps a balance of the budget.
    #[must_use]
    pub fn callers(&self, budget: &Budget) -> usize {
        self.kept(budget).count.load(Ordering::Relaxed)
    }

    fn try_reserve(
        &self,
        budget: &Budget,
        caller: Option<&str>,
        amount: u64,
    ) -> Result<BudgetPermit, Denied> {
        self.kept(budget).reserve(budget, caller, amount, self.max_callers)
    }

    /// Returns the balances of a budget. Adds the budget if the store does not contain it yet.
    fn kept(&self, budget: &Budget) -> Arc<Usage> {
        let name = &budget.name;
        let is_it = |(other, _): &Named| Arc::ptr_eq(other, name) || other == name;
        let budgets = self.budgets.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = budgets.iter().find(|budget| is_it(budget)) {
            return kept.clone();
        }
        drop(budgets);
        let mut budgets = self.budgets.write().unwrap_or_else(PoisonError::into_inner);
        // Search again, because another thread may have added the budget after the read lock was
        // released.
        let index = budgets.iter().position(is_it).unwrap_or_else(|| {
            budgets.push((name.clone(), Arc::default()));
            budgets.len() - 1
        });
        budgets[index].1.clone()
    }
}

impl BudgetStore for MemoryBudgets {
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> ReserveReply {
        ReserveReply::Ready(self.try_reserve(budget, caller, amount))
    }

    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        let (budget, kept, max_callers) = (budget.clone(), self.kept(budget), self.max_callers);
        Some(Box::new(Open { budget, kept, max_callers }))
    }

    fn usage(&self, budget: &Budget) -> BoxFuture<'_, Option<BudgetUsage>> {
        let usage = BudgetUsage::new(self.remaining(budget, None)).callers(self.callers(budget));
        Box::pin(future::ready(Some(usage)))
    }
}

impl Default for MemoryBudgets {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryBudgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryBudgets")
            .field("max_callers", &self.max_callers)
            .finish_non_exhaustive()
    }
}

// === impl Open ===

impl OpenBudget for Open {
    fn reserve(&self, caller: Option<&str>, amount: u64) -> ReserveReply {
        ReserveReply::Ready(self.kept.reserve(&self.budget, caller, amount, self.max_callers))
    }
}

// === impl Usage ===

impl Usage {
    fn reserve(
        &self,
        budget: &Budget,
        caller: Option<&str>,
        amount: u64,
        max_callers: usize,
    ) -> Result<BudgetPermit, Denied> {
        let balance = match caller {
            None => self.shared.clone(),
            Some(caller) => self
                .caller(caller, max_callers)
                .ok_or_else(|| Denied::Unavailable(TooManyCallers { max_callers }.into()))?,
        };
        match Reservation::new(balance, budget, amount) {
            Ok(reservation) => Ok(BudgetPermit::of_memory(reservation)),
            Err(retry_after) => Err(Denied::Over { retry_after }),
        }
    }

    /// Returns the balance of a caller, and adds the caller if it is new. Returns `None` if the
    /// caller is new and the maximum number of callers is reached.
    fn caller(&self, caller: &str, max_callers: usize) -> Option<Shared> {
        if let Some(balance) = self.shard(caller).balances.get(caller) {
            return Some(balance.clone());
        }
        self.forget_some(&mut self.shard(caller), LOOKS);
        if !self.count_one_more(max_callers) {
            for shard in &self.callers {
                self.forget_some(&mut lock(shard), LOOKS_FOR_ROOM);
            }
            if !self.count_one_more(max_callers) {
                return None;
            }
        }
        let (balance, is_new) = self.shard(caller).get_or_insert(caller);
        if !is_new {
            // A concurrent call added the caller first, and has already counted it.
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Some(balance)
    }

    fn shard(&self, caller: &str) -> MutexGuard<'_, Callers> {
        // An attacker can choose identities that all fall into the same shard, but then slows down
        // only the callers of this shard.
        let sum = caller.bytes().fold(0, |sum: usize, byte| sum.wrapping_add(byte.into()));
        lock(&self.callers[sum % SHARDS])
    }

    fn forget_some(&self, callers: &mut Callers, looks: usize) {
        let forgotten = callers.forget_some(looks);
        self.count.fetch_sub(forgotten, Ordering::Relaxed);
    }

    fn count_one_more(&self, max: usize) -> bool {
        let one_more = |count| (count < max).then_some(count + 1);
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            shared: Shared::default(),
            callers: array::from_fn(|_| Mutex::default()),
            count: AtomicUsize::new(0),
        }
    }
}

// === impl Callers ===

impl Callers {
    /// Returns the balance of a caller, and adds the caller if it is new. The flag is `true` if the
    /// caller was added.
    fn get_or_insert(&mut self, caller: &str) -> (Shared, bool) {
        if let Some(balance) = self.balances.get(caller) {
            return (balance.clone(), false);
        }
        let (caller, balance) = (Arc::<str>::from(caller), Shared::default());
        self.balances.insert(caller.clone(), balance.clone());
        self.round.push_back(caller);
        (balance, true)
    }

    /// Checks the next `looks` callers for eviction. Evicts each caller that has no running call
    /// and nothing spent, so that its whole limit is available. Returns the number of evicted
    /// callers.
    fn forget_some(&mut self, looks: usize) -> usize {
        let mut forgotten = 0;
        for _ in 0..looks.min(self.round.len()) {
            let Some(caller) = self.round.pop_front() else { break };
            // `Arc::get_mut` returns `None` while a reservation of a running call shares the
            // balance.
            let balance = self.balances.get_mut(&caller).and_then(Arc::get_mut);
            let is_needed = balance.is_none_or(|balance| {
                !balance.get_mut().unwrap_or_else(PoisonError::into_inner).is_full()
            });
            if is_needed {
                self.round.push_back(caller);
            } else {
                self.balances.remove(&caller);
                forgotten += 1;
            }
        }
        forgotten
    }
}
