#[cfg(test)]
mod tests;

use std::{
    array,
    collections::{HashMap, VecDeque},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::{Budget, BudgetStore, Denied, OpenBudget, Permit, Reserving, balance::Balance};

/// How many callers are kept of each budget, by default.
const MAX_CALLERS: usize = 100_000;
/// Among how many locks callers are spread.
const SHARDS: usize = 16;
/// How many of its neighbours are looked at when a caller is new: more than one, so
/// that those who are no longer needed are found sooner than others come.
const LOOKS: usize = 2;
/// How many callers of each shard are looked at when there is no room for a new one.
const LOOKS_FOR_ROOM: usize = 8;

/// Budgets that this process keeps.
///
/// It is a handle: its clones keep the same budgets. One that several layers are
/// [given](super::BudgetLayer::store) is charged by all of them.
///
/// A caller whose budget is full again, and who has no call under way, is forgotten.
/// Those of a budget that is never refilled are kept as long as the process lives:
/// they are what the budget is about. So there is a limit to
/// [how many](Self::max_callers) are kept, and calls of new ones beyond it are
/// refused. To forget old ones instead would give them their budget back, which
/// whoever can make up callers could bring about.
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
    /// With the names of the budgets: they are so few that one is found sooner than its
    /// name is hashed. Only locked for long enough to find one.
    budgets: Arc<RwLock<Vec<Named>>>,
    max_callers: usize,
}

/// A new caller, while as many are kept as may be.
#[derive(Debug, thiserror::Error)]
#[error("there are {max_callers} callers with a part of the budget used (`max_callers`)")]
struct TooManyCallers {
    max_callers: usize,
}

type Named = (Arc<str>, Arc<Usage>);

/// A budget that a layer charges.
struct Open {
    budget: Budget,
    kept: Arc<Usage>,
    max_callers: usize,
}

/// What is used of a budget.
struct Usage {
    /// Of all, or of those callers who are not known.
    shared: Shared,
    callers: [Mutex<Callers>; SHARDS],
    /// How many callers there are in all shards.
    count: AtomicUsize,
}

/// What a permit holds on to: while there is one, the caller is not forgotten.
type Shared = Arc<Mutex<Balance>>;

/// Some callers of a budget.
#[derive(Default)]
struct Callers {
    balances: HashMap<Arc<str>, Shared>,
    /// Each of them once, in the order in which they are looked at.
    round: VecDeque<Arc<str>>,
}

/// An amount of one balance. Dropped, it is given back, unless it was settled.
pub(super) struct Taken {
    /// None once it is settled.
    balance: Option<Shared>,
    amount: u64,
}

// === impl MemoryBudgets ===

impl MemoryBudgets {
    /// Nothing is used, and at most 100 000 callers of each budget are kept.
    #[must_use]
    pub fn new() -> Self {
        Self { budgets: Arc::default(), max_callers: MAX_CALLERS }
    }

    /// Sets how many callers of each budget are kept, with one to two hundred bytes
    /// each.
    #[must_use]
    pub const fn max_callers(mut self, callers: usize) -> Self {
        self.max_callers = callers;
        self
    }

    /// What is left of a budget: for a caller, if it is [per
    /// caller](super::Per::Caller), or for those who are not known.
    ///
    /// What is reserved for calls under way is not left.
    #[must_use]
    pub fn remaining(&self, budget: &Budget, caller: Option<&str>) -> u64 {
        let kept = self.kept(budget);
        let balance = match caller {
            None => Some(kept.shared.clone()),
            Some(caller) => kept.shard(caller).balances.get(caller).cloned(),
        };
        balance.map_or(budget.limit(), |balance| lock(&balance).left(budget.limit()))
    }

    /// How many callers of a budget are kept.
    #[must_use]
    pub fn callers(&self, budget: &Budget) -> usize {
        self.kept(budget).count.load(Ordering::Relaxed)
    }

    fn try_reserve(
        &self,
        budget: &Budget,
        caller: Option<&str>,
        amount: u64,
    ) -> Result<Permit, Denied> {
        self.kept(budget).reserve(budget, caller, amount, self.max_callers)
    }

    /// What is kept of a budget.
    fn kept(&self, budget: &Budget) -> Arc<Usage> {
        let name = budget.shared_name();
        let is_it = |(other, _): &Named| Arc::ptr_eq(other, name) || other == name;
        let budgets = self.budgets.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, kept)) = budgets.iter().find(|budget| is_it(budget)) {
            return kept.clone();
        }
        drop(budgets);
        let mut budgets = self.budgets.write().unwrap_or_else(PoisonError::into_inner);
        // Another one may have been as quick.
        let place = budgets.iter().position(is_it).unwrap_or_else(|| {
            budgets.push((name.clone(), Arc::default()));
            budgets.len() - 1
        });
        budgets[place].1.clone()
    }
}

impl BudgetStore for MemoryBudgets {
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> Reserving {
        Reserving::Now(self.try_reserve(budget, caller, amount))
    }

    fn open(&self, budget: &Budget) -> Option<Box<dyn OpenBudget>> {
        let (budget, kept, max_callers) = (budget.clone(), self.kept(budget), self.max_callers);
        Some(Box::new(Open { budget, kept, max_callers }))
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
    fn reserve(&self, caller: Option<&str>, amount: u64) -> Reserving {
        Reserving::Now(self.kept.reserve(&self.budget, caller, amount, self.max_callers))
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
    ) -> Result<Permit, Denied> {
        let balance = match caller {
            None => self.shared.clone(),
            Some(caller) => self
                .caller(caller, max_callers)
                .ok_or_else(|| Denied::Unavailable(TooManyCallers { max_callers }.into()))?,
        };
        let reserved = lock(&balance).reserve(budget, amount);
        match reserved {
            Ok(()) => Ok(Permit::of_memory(Taken { balance: Some(balance), amount })),
            Err(retry_after) => Err(Denied::Over { retry_after }),
        }
    }

    /// The balance of a caller; none if it is a new one and there is no room for it.
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
            // Another call of the same caller was first.
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
        Some(balance)
    }

    fn shard(&self, caller: &str) -> MutexGuard<'_, Callers> {
        // Whoever makes up callers can choose a shard, and only wait there for each
        // other.
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
    /// The balance of a caller, and whether it is new.
    fn get_or_insert(&mut self, caller: &str) -> (Shared, bool) {
        if let Some(balance) = self.balances.get(caller) {
            return (balance.clone(), false);
        }
        let (caller, balance) = (Arc::<str>::from(caller), Shared::default());
        self.balances.insert(caller.clone(), balance.clone());
        self.round.push_back(caller);
        (balance, true)
    }

    /// Looks at so many callers, and forgets those whose balance is as good as a new
    /// one; says how many.
    fn forget_some(&mut self, looks: usize) -> usize {
        let mut forgotten = 0;
        for _ in 0..looks.min(self.round.len()) {
            let Some(caller) = self.round.pop_front() else { break };
            // One that a permit holds on to is not ours alone.
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

// === impl Taken ===

impl Taken {
    /// Charges what it really was.
    pub(super) fn settle(mut self, actual: u64) {
        self.close(actual);
    }

    fn close(&mut self, actual: u64) {
        if let Some(balance) = self.balance.take() {
            lock(&balance).close(self.amount, actual);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.close(0);
    }
}

/// Nothing panics while one of them is held.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
