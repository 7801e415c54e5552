//! Counts the resources that calls use, for each run with limits.

use std::{
    iter,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::outcome::{ErrorKind, StepError};
use crate::message::Account;

/// A limit of a run that was reached, so that some work was skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) setting: Setting,
    pub(crate) limit: u64,
    /// The run with the limit.
    pub(crate) of: Arc<str>,
}

/// The name of the limit that ended the run before the other steps, if any.
pub(super) type LimitName = Option<&'static str>;

/// The kinds of limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Setting {
    Calls,
    ResultBytes,
    Cost,
}

/// Counts the resources that calls use: of one call of a client, and within it of each run with
/// limits of its own.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) max_calls: usize,
    pub(super) max_result_bytes: usize,
    pub(super) calls: AtomicUsize,
    pub(super) result_bytes: AtomicUsize,
    /// Only counted for the whole client call.
    pub(super) parsed_bytes: AtomicUsize,
    /// The lock of the outermost meter, held while a nested run counts: an amount that one meter
    /// refuses is never visible in another.
    pub(super) counting: Mutex<()>,
    /// The run that ends when the limit is reached; without one, only the call that exceeds the
    /// limit fails.
    pub(super) run: Option<Metered>,
    pub(super) outer: Option<Arc<Self>>,
}

/// The run of a meter.
#[derive(Debug)]
pub(super) struct Metered {
    pub(super) name: Arc<str>,
    /// The maximum cost, and the account of the actual cost.
    pub(super) cost: Option<(u64, Arc<Account>)>,
    /// The limit that was reached first.
    pub(super) reached: OnceLock<Setting>,
}

/// The counted resources.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    Calls,
    ResultBytes,
}

/// Returns the sum of both, or `None` if it exceeds `max`.
fn sum(used: usize, amount: usize, max: usize) -> Option<usize> {
    used.checked_add(amount).filter(|&sum| sum <= max)
}

// === impl Reached ===

impl Reached {
    /// Describes the limit for the run with this name.
    pub(crate) fn message(&self, to: &str) -> String {
        let Self { setting, limit, of } = self;
        let setting = setting.name();
        if **of == *to {
            format!("`{setting}`, which is {limit}, was reached")
        } else {
            format!("`{setting}` of `{of}`, which is {limit}, was reached")
        }
    }

    /// Returns the error for work that the limit rejects, for the run with this name.
    pub(crate) fn refusal(&self, to: &str) -> StepError {
        StepError { ends_run: true, ..StepError::new(ErrorKind::Limit, self.message(to)) }
    }
}

// === impl Setting ===

impl Setting {
    /// Returns the name in configuration files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Calls => "max_calls",
            Self::ResultBytes => "max_result_bytes",
            Self::Cost => "max_cost",
        }
    }
}

// === impl Meter ===

impl Meter {
    /// Returns this meter and the outer ones.
    pub(super) fn chain(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |meter| meter.outer.as_deref())
    }

    /// Returns `true` if this meter or an outer one belongs to a run that ends at a limit.
    pub(super) const fn can_end_runs(&self) -> bool {
        self.run.is_some() || self.outer.is_some()
    }

    pub(super) fn outermost(&self) -> &Self {
        self.chain().last().unwrap_or(self)
    }

    /// Adds an amount to this meter and the outer ones. If it exceeds a limit, returns the meter of
    /// the limit, whose run ends.
    pub(super) fn count(&self, counter: Counter, amount: usize) -> Result<(), &Self> {
        // Most calls belong to no run with limits of its own, and take no lock.
        if self.outer.is_none() {
            self.count_here(counter, amount)
        } else {
            self.count_inside(counter, amount)
        }
    }

    /// Adds an amount to the meter of a run and to the outer ones.
    fn count_inside(&self, counter: Counter, amount: usize) -> Result<(), &Self> {
        let outermost = self.outermost();
        let _counting = outermost.counting.lock().unwrap_or_else(PoisonError::into_inner);
        let inner = || self.chain().filter(|meter| meter.outer.is_some());
        let is_too_much = |meter: &&Self| {
            let (used, max) = meter.counter(counter);
            sum(used.load(Ordering::Relaxed), amount, max).is_none()
        };
        if let Some(meter) = inner().find(is_too_much) {
            meter.note_reached(counter);
            return Err(meter);
        }
        outermost.count_here(counter, amount)?;
        for meter in inner() {
            meter.counter(counter).0.fetch_add(amount, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds an amount to this meter alone.
    fn count_here(&self, counter: Counter, amount: usize) -> Result<(), &Self> {
        let (used, max) = self.counter(counter);
        let add = |used| sum(used, amount, max);
        match used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(()),
            Err(_) => {
                self.note_reached(counter);
                Err(self)
            }
        }
    }

    fn note_reached(&self, counter: Counter) {
        if let Some(run) = &self.run {
            run.reached.get_or_init(|| counter.setting());
        }
    }

    const fn counter(&self, counter: Counter) -> (&AtomicUsize, usize) {
        match counter {
            Counter::Calls => (&self.calls, self.max_calls),
            Counter::ResultBytes => (&self.result_bytes, self.max_result_bytes),
        }
    }

    /// Returns the limit of this meter's run that was reached, if any.
    pub(super) fn reached(&self) -> Option<Reached> {
        let run = self.run.as_ref()?;
        let is_over = |(_, account): &&(u64, Arc<Account>)| account.is_over();
        let by_cost = || run.cost.as_ref().filter(is_over).map(|_| Setting::Cost);
        let setting = run.reached.get().copied().or_else(by_cost)?;
        let limit = match (setting, &run.cost) {
            (Setting::Cost, Some((max, _))) => *max,
            (Setting::ResultBytes, _) => amount(self.max_result_bytes),
            (Setting::Calls | Setting::Cost, _) => amount(self.max_calls),
        };
        Some(Reached { setting, limit, of: run.name.clone() })
    }

    /// Returns a limit with nothing left, if any.
    pub(super) fn used_up(&self) -> Option<Setting> {
        let is_used_up = |counter: &Counter| {
            let (used, max) = self.counter(*counter);
            used.load(Ordering::Relaxed) >= max
        };
        let counters = [Counter::Calls, Counter::ResultBytes];
        let by_cost = || {
            let (_, account) = self.run.as_ref()?.cost.as_ref()?;
            account.is_used_up().then_some(Setting::Cost)
        };
        counters.into_iter().find(is_used_up).map(Counter::setting).or_else(by_cost)
    }
}

// === impl Counter ===

impl Counter {
    const fn setting(self) -> Setting {
        match self {
            Self::Calls => Setting::Calls,
            Self::ResultBytes => Setting::ResultBytes,
        }
    }
}

fn amount(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
