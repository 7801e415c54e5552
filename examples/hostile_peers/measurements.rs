//! Measurements: the latencies of good calls, and the number of hostile events.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::latencies::Latencies;

/// The number of failures that are reported in full.
const REPORTED: usize = 20;

/// The phase in which a call was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// With the good peers only.
    Alone,
    /// With the hostile peers.
    Attacked,
    /// After a change from one to the other: calls are checked and not measured.
    Between,
}

/// The kinds of good calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    FanOut,
    Workflow,
    Read,
    Subscribe,
    Http,
    Approval,
}

#[derive(Debug)]
pub(crate) struct Score {
    phase: AtomicUsize,
    /// By phase: of all calls, and of each kind.
    all: [Latencies; 2],
    kinds: [[Latencies; Kind::ALL.len()]; 2],
    good: AtomicU64,
    failed: AtomicU64,
    failures: Mutex<Vec<String>>,
    /// The hostile events of each kind.
    hostile: Mutex<BTreeMap<String, u64>>,
}

// === impl Kind ===

impl Kind {
    pub(crate) const ALL: [Self; 7] = [
        Self::Direct,
        Self::FanOut,
        Self::Workflow,
        Self::Read,
        Self::Subscribe,
        Self::Http,
        Self::Approval,
    ];
}

// === impl Score ===

impl Score {
    pub(crate) fn new() -> Self {
        let latencies = || Latencies::new();
        let kinds = || Kind::ALL.map(|_| latencies());
        Self {
            phase: AtomicUsize::new(Phase::Between as usize),
            all: [latencies(), latencies()],
            kinds: [kinds(), kinds()],
            good: AtomicU64::default(),
            failed: AtomicU64::default(),
            failures: Mutex::default(),
            hostile: Mutex::default(),
        }
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as usize, Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Alone,
            1 => Phase::Attacked,
            _ => Phase::Between,
        }
    }

    /// Records a good call that was begun in a phase.
    pub(crate) fn called(&self, phase: Phase, kind: Kind, took: Duration) {
        self.good.fetch_add(1, Ordering::Relaxed);
        if phase != Phase::Between {
            self.all[phase as usize].record(took);
            self.kinds[phase as usize][kind as usize].record(took);
        }
    }

    /// Records a failure.
    pub(crate) fn failed(&self, failure: impl FnOnce() -> String) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        let mut failures = locked(&self.failures);
        if failures.len() < REPORTED {
            failures.push(failure());
        }
    }

    /// Counts hostile events.
    pub(crate) fn hostile(&self, kind: &str, count: u64) {
        *locked(&self.hostile).entry(kind.to_owned()).or_default() += count;
    }

    pub(crate) fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// The 99th percentile of all good calls of a phase.
    pub(crate) fn p99(&self, phase: Phase) -> Duration {
        self.all[phase as usize].quantile(0.99)
    }

    /// Returns the kinds of hostile events that never happened.
    pub(crate) fn missing(&self) -> Vec<String> {
        let hostile = locked(&self.hostile);
        hostile.iter().filter(|(_, count)| **count == 0).map(|(kind, _)| kind.clone()).collect()
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed.load(Ordering::Relaxed);
        writeln!(f, "good calls: {}, failures: {failed}", self.good.load(Ordering::Relaxed))?;
        writeln!(f, "{:<12}{:^42}{:^42}", "", "without hostile peers", "with them")?;
        let alone = Phase::Alone as usize;
        let attacked = Phase::Attacked as usize;
        let line = |f: &mut fmt::Formatter<'_>, name: &str, both: [&Latencies; 2]| {
            write!(f, "  {name:<10}")?;
            for latencies in both {
                let [p50, p99] = [0.5, 0.99].map(|share| latencies.quantile(share));
                let longest = latencies.longest();
                let count = latencies.count();
                write!(f, " {count:>7} p50 {p50:<7.1?} p99 {p99:<8.1?} max {longest:<8.1?}")?;
            }
            writeln!(f)
        };
        for kind in Kind::ALL {
            let both = [alone, attacked].map(|phase| &self.kinds[phase][kind as usize]);
            line(f, &format!("{kind:?}"), both)?;
        }
        line(f, "all", [&self.all[alone], &self.all[attacked]])?;
        writeln!(f, "hostile events:")?;
        for (kind, count) in locked(&self.hostile).iter() {
            writeln!(f, "  {kind:<36} {count:>9}")?;
        }
        locked(&self.failures).iter().try_for_each(|failure| writeln!(f, "  FAILED {failure}"))
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
