//! The counts and measurements of a run, and the final report.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, VecDeque},
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{faults::WELL, latencies::Latencies, resources::Memory};

/// The number of the most frequent kinds of errors that are reported.
const MAX_REPORTED: usize = 30;
/// The interval between measurements of the lag of this process.
const LOOK: Duration = Duration::from_millis(100);
/// The number of measurements for which a call may still be affected by a lag.
const LOOKS: usize = 300;

pub(crate) struct Report {
    /// By tool and outcome.
    outcomes: Mutex<BTreeMap<&'static str, BTreeMap<&'static str, u64>>>,
    /// By backend and fault.
    faults: Mutex<BTreeMap<(&'static str, &'static str), u64>>,
    /// By the text of the error, without its numbers.
    errors: Mutex<BTreeMap<String, u64>>,
    latencies: Latencies,
    questions: AtomicU64,
    calls: AtomicU64,
    going_on: AtomicUsize,
    most_going_on: AtomicUsize,
    /// The lag of this process, at the last measurements and at most.
    late: Mutex<VecDeque<Duration>>,
    latest: Mutex<Duration>,
    /// Samples of the size of this process, in MiB.
    sizes: Mutex<Vec<f64>>,
}

/// A guard that counts one running call until it is dropped.
pub(crate) struct Begun<'r>(&'r Report);

// === impl Report ===

impl Report {
    pub(crate) fn new() -> Self {
        Self {
            outcomes: Mutex::default(),
            faults: Mutex::default(),
            errors: Mutex::default(),
            latencies: Latencies::new(),
            questions: AtomicU64::default(),
            calls: AtomicU64::default(),
            going_on: AtomicUsize::default(),
            most_going_on: AtomicUsize::default(),
            late: Mutex::default(),
            latest: Mutex::default(),
            sizes: Mutex::default(),
        }
    }

    pub(crate) fn begin(&self) -> Begun<'_> {
        let now = self.going_on.fetch_add(1, Ordering::Relaxed) + 1;
        self.most_going_on.fetch_max(now, Ordering::Relaxed);
        Begun(self)
    }

    pub(crate) fn end(&self, begun: Begun<'_>, tool: &'static str, outcome: &'static str) {
        drop(begun);
        self.calls.fetch_add(1, Ordering::Relaxed);
        *locked(&self.outcomes).entry(tool).or_default().entry(outcome).or_default() += 1;
    }

    pub(crate) fn fault(&self, backend: &'static str, fault: &'static str) {
        if fault != WELL {
            *locked(&self.faults).entry((backend, fault)).or_default() += 1;
        }
    }

    /// Records the error of an answer.
    pub(crate) fn record_error(&self, answer: &Value) {
        match answer {
            Value::Array(parts) => parts.iter().for_each(|part| self.record_error(part)),
            Value::Object(parts) => {
                if let Some(message) = answer["error"]["message"].as_str() {
                    // The following lines are about branches, which are recorded separately.
                    let line = message.lines().next().unwrap_or_default();
                    let message = line.replace(|digit: char| digit.is_ascii_digit(), "");
                    *locked(&self.errors).entry(message).or_default() += 1;
                }
                parts.values().for_each(|part| self.record_error(part));
            }
            _ => (),
        }
    }

    pub(crate) fn record_question(&self) {
        self.questions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn took(&self, took: Duration) {
        self.latencies.record(took);
    }

    /// Returns the recent lag of this process: a busy machine must not fail calls.
    pub(crate) fn lag(&self) -> Duration {
        locked(&self.late).iter().max().copied().unwrap_or_default()
    }

    /// Measures the lag and the size of this process forever.
    pub(crate) async fn look(&self) {
        for turn in 0_u64.. {
            let start = Instant::now();
            sleep(LOOK).await;
            let late = start.elapsed().saturating_sub(LOOK);
            let mut looks = locked(&self.late);
            looks.push_back(late);
            if looks.len() > LOOKS {
                looks.pop_front();
            }
            drop(looks);
            let mut latest = locked(&self.latest);
            *latest = late.max(*latest);
            drop(latest);
            if turn % 10 == 0 {
                locked(&self.sizes).push(Memory::now().own);
            }
        }
    }

    /// Returns the growth of this process in MiB, from the second quarter of the time to the last,
    /// and its size in the second.
    pub(crate) fn growth(&self) -> (f64, f64) {
        let sizes = locked(&self.sizes).clone();
        let quarter = sizes.len() / 4;
        let median = |part: &[f64]| {
            let mut part = part.to_vec();
            part.sort_by(f64::total_cmp);
            part.get(part.len() / 2).copied().unwrap_or_default()
        };
        let before = median(&sizes[quarter..quarter * 2]);
        (median(&sizes[sizes.len() - quarter..]) - before, before)
    }

    /// Returns the current status in a line.
    pub(crate) fn line(&self) -> String {
        format!(
            "{} calls, {} going on, p50 {:?}, p99 {:?}, {:.0} MiB",
            self.calls.load(Ordering::Relaxed),
            self.going_on.load(Ordering::Relaxed),
            self.latency(0.5),
            self.latency(0.99),
            Memory::now().now,
        )
    }

    fn latency(&self, share: f64) -> Duration {
        let millis = self.latencies.quantile(share).as_secs_f64() * 1e3;
        Duration::from_millis(millis.round().max(1.0) as u64)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcomes = locked(&self.outcomes);
        let calls = self.calls.load(Ordering::Relaxed);
        let most = self.most_going_on.load(Ordering::Relaxed);
        writeln!(f, "calls: {calls}, at most {most} at the same time")?;
        for (tool, outcomes) in outcomes.iter() {
            let all: u64 = outcomes.values().sum();
            let parts: Vec<_> =
                outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
            writeln!(f, "  {tool:<14} {all:>9}: {}", parts.join(", "))?;
        }
        let questions = self.questions.load(Ordering::Relaxed);
        writeln!(f, "questions answered by calling again: {questions}")?;
        writeln!(f, "requested faults:")?;
        for ((backend, fault), count) in locked(&self.faults).iter() {
            writeln!(f, "  {backend:<7} {fault:<12} {count:>9}")?;
        }
        writeln!(f, "errors reported:")?;
        let mut errors: Vec<_> = locked(&self.errors).clone().into_iter().collect();
        errors.sort_by_key(|(_, count)| Reverse(*count));
        for (message, count) in errors.iter().take(MAX_REPORTED) {
            writeln!(f, "  {count:>9} {message}")?;
        }
        let longest = self.latencies.longest();
        writeln!(
            f,
            "latency: p50 {:?}, p99 {:?}, longest {longest:.1?}; this process was {:.0?} late at most",
            self.latency(0.5),
            self.latency(0.99),
            *locked(&self.latest),
        )
    }
}

// === impl Begun ===

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.going_on.fetch_sub(1, Ordering::Relaxed);
    }
}

fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
