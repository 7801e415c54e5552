//! Measures contestants in turn and prints one Markdown table of their times.
//!
//! The time of a round trip varies from second to second by more than the differences of interest,
//! so contestants are measured in turn, for less time than a busy machine leaves to one process at
//! a stretch, and compared within each round. A turn begins with a call that is not counted, to
//! warm the caches. The table has the median of these ratios and, in brackets, their quartiles.

#![expect(clippy::print_stdout, reason = "the table is the output")]
#![expect(clippy::disallowed_types, reason = "what is measured is real time")]

use std::{
    any::Any,
    time::{Duration, Instant},
};

use futures::future::{BoxFuture, FutureExt};
use tokio::runtime::Runtime;

use crate::counting;

/// The number of rounds; odd, so that there is a middle one.
const ROUNDS: usize = 2_001;
/// The approximate duration of a turn.
const TURN: Duration = Duration::from_micros(300);
/// The number of calls over which allocations are averaged.
const COUNTED: usize = 64;

/// The runtime of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Only the thread of the caller.
    Current,
    /// Two workers.
    Two,
}

/// Contestants that are measured in turn.
pub(crate) struct Group {
    name: String,
    contestants: Vec<Contestant>,
    kept: Vec<Box<dyn Any>>,
}

struct Contestant {
    name: &'static str,
    /// The contestants of the group that this one is compared with.
    yardsticks: Vec<&'static str>,
    calls: Box<Calls>,
}

/// Makes the given number of calls, and one before, and returns their time.
type Calls = dyn Fn(usize) -> BoxFuture<'static, Duration>;

/// Prints the header of the table.
pub(crate) fn print_head() {
    println!("| case | median | ratio | allocations | bytes |");
    println!("|---|---:|---|---:|---:|");
}

// === impl Threads ===

impl Threads {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Current => "one_thread",
            Self::Two => "two_threads",
        }
    }

    pub(crate) fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::Current => tokio::runtime::Builder::new_current_thread(),
            Self::Two => tokio::runtime::Builder::new_multi_thread(),
        };
        if self == Self::Two {
            builder.worker_threads(2);
        }
        builder.enable_all().build().expect("a runtime starts")
    }
}

// === impl Group ===

impl Group {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), contestants: Vec::new(), kept: Vec::new() }
    }

    /// Adds a contestant.
    pub(crate) fn case<C, F>(mut self, name: &'static str, call: C) -> Self
    where
        C: Fn() -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send,
    {
        let calls = move |count| {
            let call = call.clone();
            async move {
                call().await;
                let start = Instant::now();
                for _ in 0..count {
                    call().await;
                }
                start.elapsed()
            }
            .boxed()
        };
        self.contestants.push(Contestant { name, yardsticks: Vec::new(), calls: Box::new(calls) });
        self
    }

    /// Compares the contestant that was added last with another one.
    pub(crate) fn against(mut self, yardstick: &'static str) -> Self {
        if let Some(contestant) = self.contestants.last_mut() {
            contestant.yardsticks.push(yardstick);
        }
        self
    }

    /// Keeps a value until the group is dropped.
    pub(crate) fn keep(mut self, kept: impl Any) -> Self {
        self.kept.push(Box::new(kept));
        self
    }

    /// Measures the group, on the runtime that its connections are in, and prints a row for each
    /// contestant.
    pub(crate) fn run(&self, threads: Threads, runtime: &Runtime) {
        let times = |contestant: &Contestant, count| {
            let calls = (contestant.calls)(count);
            match threads {
                Threads::Current => runtime.block_on(calls),
                // A future passed to `block_on` does not run on a worker.
                Threads::Two => {
                    runtime.block_on(async { runtime.spawn(calls).await }).expect("nothing panics")
                }
            }
        };

        // Fills caches, and determines the number of calls of a turn.
        let counts: Vec<usize> = self
            .contestants
            .iter()
            .map(|contestant| {
                times(contestant, 100);
                let taken = times(contestant, 100) / 100;
                (TURN.as_nanos() / taken.as_nanos().max(1)).clamp(1, 100) as usize
            })
            .collect();

        let mut taken = vec![Vec::with_capacity(ROUNDS); self.contestants.len()];
        for round in 0..ROUNDS {
            for turn in 0..self.contestants.len() {
                // Varies which contestant follows which.
                let index = match round % 2 {
                    0 => (turn + round / 2) % self.contestants.len(),
                    _ => (self.contestants.len() - 1 - turn + round / 2) % self.contestants.len(),
                };
                let elapsed = times(&self.contestants[index], counts[index]);
                taken[index].push(elapsed.as_nanos() as f64 / counts[index] as f64);
            }
        }

        for (index, contestant) in self.contestants.iter().enumerate() {
            let ratios: Vec<String> = contestant
                .yardsticks
                .iter()
                .map(|yardstick| {
                    let other = self.contestants.iter().position(|other| other.name == *yardstick);
                    let other = &taken[other.expect("a yardstick is of the same group")];
                    let ratios = taken[index].iter().zip(other).map(|(one, other)| one / other);
                    let [low, median, high] = quartiles(ratios.collect());
                    format!("{median:.2} ({low:.2}–{high:.2}) × `{yardstick}`")
                })
                .collect();
            // With a second thread, the count depends on which thread is faster.
            let (count, bytes) = match threads {
                Threads::Two => (String::new(), String::new()),
                Threads::Current => {
                    let counted = counting::count(|| _ = times(contestant, COUNTED));
                    let per_call = |of: u64| (of as f64 / (COUNTED + 1) as f64).round().to_string();
                    (per_call(counted.count), per_call(counted.bytes))
                }
            };
            let [_, median, _] = quartiles(taken[index].clone());
            println!(
                "| `{}/{}` | {:.1} µs | {} | {count} | {bytes} |",
                self.name,
                contestant.name,
                median / 1e3,
                ratios.join(", "),
            );
        }
    }
}

/// The quartiles of the values.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}
