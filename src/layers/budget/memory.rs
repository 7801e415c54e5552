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
    reservation::{Reservation, Shared, lock},
    store::{BudgetPermit, BudgetStore, BudgetUsage, Denied, OpenBudget, ReserveReply},
};

/// Default maximum number of callers whose balances are kept for each budget.
const MAX_CALLERS: usize = 100_000;
/// Number of shards into which the callers of a budget are divided. Each shard has its own lock.
const SHARDS: usize = 16;
/// Number of callers that are checked for eviction whenever a new caller is added. More than one,
/// so that unneeded callers are evicted faster than new callers arrive.
const LOOKS: usize = 2;
/// Number of callers that are checked for eviction in each shard when the maximum number of callers
/// is reached.
const LOOKS_FOR_ROOM: usize = 8;

/// A [`BudgetStore`] in the memory of the process.
///
/// A `MemoryBudgets` is a handle: all clones of it share the balances, and so do all layers that
/// use a clone as their [store](super::BudgetLayer::store).
///
/// For each budget, the store keeps a balance per caller. It evicts a caller whose balance is full
/// again and who has no running call. If a budget is never refilled, its callers are kept for the
/// lifetime of the process. So the number of callers is [limited](Self::max_callers), and calls of
/// further callers are rejected. The store does not evict old callers instead, because this would
/// reset their balances, and an attacker could cause it with forged callers.
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
    /// The balances of each budget. A list is faster than a map here, because there are only a few
    /// budgets. The lock is held only for the lookup.
    budgets: Arc<RwLock<Vec<Named>>>,
    max_callers: usize,
}

/// The error if the maximum number of callers is reached.
#[derive(Debug, thiserror::Error)]
#[error("the budget has the maximum number of callers: {max_callers} (`max_callers`)")]
struct TooManyCallers {
    max_callers: usize,
}

type Named = (Arc<str>, Arc<Usage>);

/// A budget that was opened in the store, with its balances.
struct Open {
    budget: Budget,
    kept: Arc<Usage>,
    max_callers: usize,
}

/// The balances of a budget.
struct Usage {
    /// The balance that all calls share if the budget is global. If the budget is per caller, all
    /// unidentified callers share this balance.
    shared: Shared,
    callers: [Mutex<Callers>; SHARDS],
    /// Number of callers in all shards.
    count: AtomicUsize,
}

/// The callers of a budget in one shard.
#[derive(Default)]
struct Callers {
    balances: HashMap<Arc<str>, Shared>,
    /// Each caller once, in the order of the next eviction checks.
    round: VecDeque<Arc<str>>,
}

// === impl MemoryBudgets ===

impl MemoryBudgets {
    /// Creates a store that keeps at most 100 000 callers of each budget.
    #[must_use]
    pub fn new() -> Self {
        Self { budgets: Arc::default(), max_callers: MAX_CALLERS }
    }

    /// Sets the maximum number of callers of each budget. Each caller takes one to two hundred
    /// bytes of memory. Defaults to 100 000.
    #[must_use]
    pub const fn max_callers(mut self, callers: usize) -> Self {
        self.max_callers = callers;
        self
    }

    /// Returns the amount of a budget that is neither spent nor reserved for running calls.
    ///
    /// For a budget [per caller](super::Per::Caller), returns the amount that `caller` has left.
    /// `None` stands for all unidentified callers, which share one balance.
    #[must_use]
    pub fn remaining(&self, budget: &Budget, caller: Option<&str>) -> u64 {
        let kept = self.kept(budget);
        let balance = match caller {
            None => Some(kept.shared.clone()),
            Some(caller) => kept.shard(caller).balances.get(caller).cloned(),
        };
        balance.map_or(budget.limit(), |balance| lock(&balance).left(budget.limit()))
    }

    /// Returns the number of callers whose balances are kept for a budget.
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

    /// Returns the balances of a budget. Adds the budget first if the store does not know it.
    fn kept(&self, budget: &Budget) -> Arc<Usage> {
        let name = budget.shared_name();
        let is_it = |(other, _): &Named| Arc::ptr_eq(other, name) || other == name;
        let budgets = self.budgets.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = budgets.iter().find(|budget| is_it(budget)) {
            return kept.clone();
        }
        drop(budgets);
        let mut budgets = self.budgets.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have added the budget meanwhile.
        let place = budgets.iter().position(is_it).unwrap_or_else(|| {
            budgets.push((name.clone(), Arc::default()));
            budgets.len() - 1
        });
        budgets[place].1.clone()
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

    /// Returns the balance of a caller. Adds the caller first if it is new. Returns `None` if the
    /// maximum number of callers is reached.
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
            // A concurrent call has added the caller first.
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Some(balance)
    }

    fn shard(&self, caller: &str) -> MutexGuard<'_, Callers> {
        // An attacker can choose callers so that all are in one shard. They then only slow down the
        // callers of that shard.
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
    /// Returns the balance of a caller, and `true` if the caller was added by this call.
    fn get_or_insert(&mut self, caller: &str) -> (Shared, bool) {
        if let Some(balance) = self.balances.get(caller) {
            return (balance.clone(), false);
        }
        let (caller, balance) = (Arc::<str>::from(caller), Shared::default());
        self.balances.insert(caller.clone(), balance.clone());
        self.round.push_back(caller);
        (balance, true)
    }

    /// Checks the next `looks` callers, and evicts those whose balance is full and who have no
    /// running call. Returns the number of evicted callers.
    fn forget_some(&mut self, looks: usize) -> usize {
        let mut forgotten = 0;
        for _ in 0..looks.min(self.round.len()) {
            let Some(caller) = self.round.pop_front() else { break };
            // `Arc::get_mut` returns `None` while a reservation shares the balance.
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
