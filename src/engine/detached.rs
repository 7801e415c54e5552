//! Scopes of single calls that count their usage separately, so that a journal can store it.

use std::sync::{Arc, atomic::Ordering};

use serde::{Deserialize, Serialize};

use super::meter::{Meter, Metered, Setting, Used};
use crate::message::Account;

/// The usage of a call that counts separately.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Usage(Vec<Level>);

/// The usage that counts toward one meter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Level {
    #[serde(flatten)]
    used: Used,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reached: Option<Setting>,
}

/// A copy of a meter that counts separately from the original.
#[derive(Debug)]
pub(super) struct Detached {
    copy: Arc<Meter>,
    /// The usage when the copy was made.
    before: Usage,
}

// === impl Usage ===

impl Usage {
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|level| *level == Level::default())
    }

    fn of(meter: &Meter) -> Self {
        Self(meter.chain().map(Level::of).collect())
    }
}

// === impl Level ===

impl Level {
    fn of(meter: &Meter) -> Self {
        Self {
            used: meter.used(),
            reached: meter.run.as_ref().and_then(|run| run.reached.get().copied()),
        }
    }

    fn since(self, before: Self) -> Self {
        let (now, before) = (self.used, before.used);
        let used = Used {
            calls: now.calls.saturating_sub(before.calls),
            result_bytes: now.result_bytes.saturating_sub(before.result_bytes),
            parsed_bytes: now.parsed_bytes.saturating_sub(before.parsed_bytes),
        };
        Self { used, reached: self.reached }
    }
}

// === impl Detached ===

impl Detached {
    /// Creates the meter of a call. For a nested run, it is a copy of `meter` and its outer meters,
    /// with the costs of `account`. The result of a tool is counted when the journal delivers it,
    /// so its meter has no limits.
    pub(super) fn new(meter: &Meter, account: &Arc<Account>, is_nested: bool) -> Self {
        let copy = if is_nested { meter.copy(account) } else { Meter::unlimited() };
        let before = Usage::of(&copy);
        Self { copy: Arc::new(copy), before }
    }

    pub(super) const fn meter(&self) -> &Arc<Meter> {
        &self.copy
    }

    /// Returns the usage since the copy was made.
    pub(super) fn usage(&self) -> Usage {
        let levels = Usage::of(&self.copy).0.into_iter().zip(&self.before.0);
        Usage(levels.map(|(level, &before)| level.since(before)).collect())
    }
}

// === impl Meter ===

impl Meter {
    fn copy(&self, account: &Arc<Account>) -> Self {
        Self {
            run: self.run.as_ref().map(|run| Metered {
                name: run.name.clone(),
                cost: run.cost.as_ref().map(|(max, _)| (*max, account.clone())),
                reached: run.reached.clone(),
            }),
            outer: self.outer.as_ref().map(|outer| Arc::new(outer.copy(account))),
            ..Self::new(self.max_calls, self.max_result_bytes, self.used())
        }
    }

    /// Adds the usage of a call that counted separately, even if it exceeds a limit.
    pub(super) fn add(&self, usage: &Usage) {
        for (meter, level) in self.chain().zip(&usage.0) {
            let Used { calls, result_bytes, parsed_bytes } = level.used;
            meter.calls.fetch_add(calls, Ordering::Relaxed);
            meter.result_bytes.fetch_add(result_bytes, Ordering::Relaxed);
            meter.parsed_bytes.fetch_add(parsed_bytes, Ordering::Relaxed);
            if let (Some(run), Some(setting)) = (&meter.run, level.reached) {
                run.reached.get_or_init(|| setting);
            }
        }
    }

    /// Returns a meter without limits.
    pub(super) fn unlimited() -> Self {
        Self::new(usize::MAX, usize::MAX, Used::default())
    }
}
