//! Counts the tool calls of runs and the size of their results, and enforces the limits on them.

use std::{
    iter,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde::{Deserialize, Serialize};

use super::outcome::{ErrorKind, StepError};
use crate::{message::Account, mutex::lock};

/// The limit that ended a run, such as `max_calls`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reached {
    pub(crate) setting: Setting,
    pub(crate) limit: u64,
    /// The name of the composite whose limit was reached.
    pub(crate) of: String,
}

/// The name of the limit that ended a run, such as `max_calls`. `None` if no limit ended it.
pub(super) type LimitName = Option<&'static str>;

/// The limits that end a run when the run reaches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Setting {
    Calls,
    ResultBytes,
    Cost,
}

/// Counts the tool calls of a composite and the size of their results, and enforces limits on them.
///
/// The outermost meter belongs to the whole call of a composite. Each run with limits of its own
/// has an additional meter, which also adds its amounts to its outer meters.
#[derive(Debug)]
pub(super) struct Meter {
    pub(super) max_calls: usize,
    pub(super) max_result_bytes: usize,
    pub(super) calls: AtomicUsize,
    pub(super) result_bytes: AtomicUsize,
    /// The estimated memory of all JSON values that the call has parsed from text results. Only the
    /// outermost meter counts it.
    pub(super) parsed_bytes: AtomicUsize,
    /// Held while an amount is added to a meter and to its outer meters, so that other threads see
    /// the amount in all of them or in none. Only the lock of the outermost meter is used.
    pub(super) counting: Mutex<()>,
    /// The run that ends when it reaches a limit of this meter. If `None`, a limit only fails the
    /// tool call that would exceed it.
    pub(super) run: Option<Metered>,
    pub(super) outer: Option<Arc<Self>>,
}

/// The resource usage that a meter has counted. The usage of the whole call of a composite is
/// stored while the run is suspended, so that limits such as `max_calls` apply to the whole call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Used {
    pub(super) calls: usize,
    pub(super) result_bytes: usize,
    pub(super) parsed_bytes: usize,
}

/// A run with limits of its own.
#[derive(Debug)]
pub(super) struct Metered {
    pub(super) name: Arc<str>,
    /// The maximum cost of the run, and the account that adds up the costs of its tool calls.
    /// `None` if the cost is unlimited.
    pub(super) cost: Option<(u64, Arc<Account>)>,
    /// The first limit that the run reached. The report of the run names it.
    pub(super) reached: OnceLock<Setting>,
}

/// The quantities that a [`Meter`] counts. Costs are counted by an [`Account`] instead.
#[derive(Clone, Copy)]
pub(super) enum Counter {
    Calls,
    ResultBytes,
}

/// Returns `used + amount`. Returns `None` if the sum is greater than `max`.
fn sum(used: usize, amount: usize, max: usize) -> Option<usize> {
    used.checked_add(amount).filter(|&sum| sum <= max)
}

// === impl Reached ===

impl Reached {
    /// Returns the message about the limit in the result of the composite `to`. If the limit
    /// belongs to another composite, the message names that composite too.
    pub(crate) fn message(&self, to: &str) -> String {
        let Self { setting, limit, of } = self;
        let setting = setting.name();
        if of == to {
            format!("`{setting}`, which is {limit}, was reached")
        } else {
            format!("`{setting}` of `{of}`, which is {limit}, was reached")
        }
    }

    /// Returns the error of a step or tool call that was rejected because of this limit. `to` is
    /// the name of the composite to which the step belongs.
    pub(crate) fn refusal(&self, to: &str) -> StepError {
        StepError { ends_run: true, ..StepError::new(ErrorKind::Limit, self.message(to)) }
    }
}

// === impl Setting ===

impl Setting {
    /// Returns the name of the limit in configuration files.
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
    /// Creates a meter without an outer meter. It has already counted `used`.
    pub(super) fn new(max_calls: usize, max_result_bytes: usize, used: Used) -> Self {
        Self {
            max_calls,
            max_result_bytes,
            calls: used.calls.into(),
            result_bytes: used.result_bytes.into(),
            parsed_bytes: used.parsed_bytes.into(),
            counting: Mutex::default(),
            run: None,
            outer: None,
        }
    }

    /// Returns the usage that this meter has counted, without that of outer meters.
    pub(super) fn used(&self) -> Used {
        Used {
            calls: self.calls.load(Ordering::Relaxed),
            result_bytes: self.result_bytes.load(Ordering::Relaxed),
            parsed_bytes: self.parsed_bytes.load(Ordering::Relaxed),
        }
    }

    /// Iterates over this meter and its outer meters, from the innermost to the outermost.
    pub(super) fn chain(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |meter| meter.outer.as_deref())
    }

    /// Returns `true` if a limit of this meter or of an outer meter can end a run. Returns `false`
    /// if limits only fail single tool calls.
    pub(super) const fn can_end_runs(&self) -> bool {
        self.run.is_some() || self.outer.is_some()
    }

    pub(super) fn outermost(&self) -> &Self {
        self.chain().last().unwrap_or(self)
    }

    /// Adds `amount` to this meter and to all outer meters. If this would exceed a limit, adds
    /// nothing, and returns the meter with this limit as the error.
    pub(super) fn count(&self, counter: Counter, amount: usize) -> Result<(), &Self> {
        // Most calls belong to a run without limits of its own, and need no lock.
        if self.outer.is_none() {
            self.count_here(counter, amount)
        } else {
            self.count_inside(counter, amount)
        }
    }

    fn count_inside(&self, counter: Counter, amount: usize) -> Result<(), &Self> {
        let outermost = self.outermost();
        let _counting = lock(&outermost.counting);
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

    /// Adds an amount to this meter, but not to its outer meters.
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

    /// Returns the limit of this meter that ended the run. Returns `None` if no limit was reached,
    /// or if limits only fail single tool calls.
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
        Some(Reached { setting, limit, of: run.name.to_string() })
    }

    /// Returns a limit of this meter that is used up, so that the next tool call would exceed it.
    /// Returns `None` if another call is allowed.
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
