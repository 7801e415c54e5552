//! Measures cases side by side and prints their times in one Markdown table.
//!
//! A call is timed from `poll_ready` to the drop of its response, on a request
//! that was made before the clock started.

#![expect(clippy::print_stdout, reason = "the table is the output")]
#![expect(clippy::disallowed_types, reason = "what is measured is real time")]

use std::{
    convert::Infallible,
    env, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use criterion::Criterion;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};
use tower::Service;

use crate::{
    counting::{self, Allocations},
    profile::{call, profile},
};

/// The number of requests made before the clock starts.
const CHUNK: u64 = 32;

/// Cases that are measured one after another.
pub(crate) struct Group {
    name: String,
    threads: Threads,
    cases: Vec<Case>,
}

/// The runtime of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// Only the thread of the caller.
    Current,
    /// Two workers, of which the caller occupies one.
    Two,
}

struct Case {
    name: &'static str,
    /// The case of the group that this one is compared with.
    yardstick: Option<&'static str>,
    calls: Box<dyn Calls>,
}

/// Calls a service with always the same request.
trait Calls {
    fn time(&self, runtime: &Runtime, threads: Threads, calls: u64) -> Duration;

    fn allocations(&self, runtime: &Runtime) -> Allocations;

    fn profile(&self);
}

struct Prepared<S, R> {
    service: S,
    request: R,
}

/// Measures all groups, or those that the command line selects.
///
/// With `allocations` on the command line, only allocations are counted. `profile CASE` makes
/// calls of one case for a [profiler](profile).
pub(crate) fn run(groups: &[Group]) {
    let current = Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    if let Some(case) = env::args().skip_while(|argument| argument != "profile").nth(1) {
        let cases = groups.iter().flat_map(|group| group.cases.iter().map(move |it| (group, it)));
        let mut named = cases.filter(|(group, it)| format!("{}/{}", group.name, it.name) == case);
        let (_, case) = named.next().expect("the case exists");
        return case.calls.profile();
    }
    if env::args().any(|argument| argument == "allocations") {
        print_table(groups, &current, |_, _| None);
        return;
    }

    let since = SystemTime::now();
    let output = output_directory();
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2))
        .output_directory(&output)
        .configure_from_args();
    for group in groups {
        let workers;
        let runtime = match group.threads {
            Threads::Current => &current,
            Threads::Two => {
                workers = Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_time()
                    .build()
                    .expect("a runtime starts");
                &workers
            }
        };
        let mut measured = criterion.benchmark_group(&group.name);
        for case in &group.cases {
            measured.bench_function(case.name, |bencher| {
                bencher.iter_custom(|calls| case.calls.time(runtime, group.threads, calls));
            });
        }
        measured.finish();
    }
    criterion.final_summary();

    let times = |group: &Group, case: &Case| {
        let directory = output.join(group.name.replace('/', "_")).join(case.name).join("new");
        Times::read(&directory, since)
    };
    let is_measured = |group: &Group| group.cases.iter().any(|case| times(group, case).is_some());
    if groups.iter().any(is_measured) {
        print_table(groups, &current, |group, case| Some(times(group, case)));
    }
}

/// The directory where criterion keeps its estimates: `criterion` in the target directory.
fn output_directory() -> PathBuf {
    let bench = env::current_exe().expect("a bench knows its own path");
    bench.ancestors().nth(3).expect("a bench is in target/release/deps").join("criterion")
}

/// Prints a row for each case, and omits those without times.
fn print_table(
    groups: &[Group],
    runtime: &Runtime,
    times: impl Fn(&Group, &Case) -> Option<Option<Times>>,
) {
    println!("| case | median | ratio | fastest | ratio | allocations | bytes |");
    println!("|---|---:|---|---:|---|---:|---:|");
    for group in groups {
        for case in &group.cases {
            let taken = match times(group, case) {
                None => None,
                Some(Some(taken)) => Some(taken),
                Some(None) => continue,
            };
            let yardstick = group.cases.iter().find(|other| Some(other.name) == case.yardstick);
            let compared = yardstick.and_then(|other| Some((other.name, times(group, other)??)));
            let cells = |of: fn(&Times) -> f64| {
                let taken = taken.as_ref().map(of);
                let ratio = taken
                    .zip(compared.as_ref())
                    .map(|(taken, (name, other))| format!("{:.2} × `{name}`", taken / of(other)));
                (taken.map(duration).unwrap_or_default(), ratio.unwrap_or_default())
            };
            let (median, median_ratio) = cells(|times| times.median);
            let (fastest, fastest_ratio) = cells(|times| times.fastest);
            // With a second thread, the count depends on which thread is faster.
            let (count, bytes) = match group.threads {
                Threads::Two => (String::new(), String::new()),
                Threads::Current => {
                    let allocations = case.calls.allocations(runtime);
                    (allocations.count.to_string(), allocations.bytes.to_string())
                }
            };
            println!(
                "| `{}/{}` | {median} | {median_ratio} | {fastest} | {fastest_ratio} | {count} | {bytes} |",
                group.name, case.name,
            );
        }
    }
}

/// Formats a duration with three significant digits.
fn duration(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds {
        ..1e3 => (nanoseconds, "ns"),
        ..1e6 => (nanoseconds / 1e3, "µs"),
        _ => (nanoseconds / 1e6, "ms"),
    };
    let decimals = match value {
        ..10.0 => 2,
        ..100.0 => 1,
        // Single nanoseconds matter in the pass-through cases.
        _ => usize::from(unit == "ns"),
    };
    format!("{value:.decimals$} {unit}")
}

/// The times that criterion measured for a case, in nanoseconds per call.
struct Times {
    median: f64,
    /// The fastest sample, which is the least affected by other work on the machine.
    fastest: f64,
}

// === impl Times ===

impl Times {
    /// Reads the estimates of criterion, unless they are from an earlier run.
    fn read(directory: &Path, since: SystemTime) -> Option<Self> {
        let estimates = directory.join("estimates.json");
        if fs::metadata(&estimates).ok()?.modified().ok()? < since {
            return None;
        }
        let read =
            |path: &Path| -> Option<Value> { serde_json::from_slice(&fs::read(path).ok()?).ok() };
        let median = read(&estimates)?["median"]["point_estimate"].as_f64()?;
        let sample = read(&directory.join("sample.json"))?;
        let (times, calls) = (sample["times"].as_array()?, sample["iters"].as_array()?);
        let fastest = times
            .iter()
            .zip(calls)
            .filter_map(|(time, calls)| Some(time.as_f64()? / calls.as_f64()?))
            .fold(f64::INFINITY, f64::min);
        Some(Self { median, fastest })
    }
}

// === impl Group ===

impl Group {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), threads: Threads::Current, cases: Vec::new() }
    }

    /// Sets the runtime. Defaults to one thread.
    pub(crate) fn on(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// Adds a case: `service`, called with `request`.
    pub(crate) fn case<S, R>(mut self, name: &'static str, service: &S, request: &R) -> Self
    where
        S: Service<R, Error = Infallible, Future: Send> + Clone + Send + 'static,
        R: Clone + Send + 'static,
    {
        let calls = Box::new(Prepared { service: service.clone(), request: request.clone() });
        self.cases.push(Case { name, yardstick: None, calls });
        self
    }

    /// Compares the case that was added last with another one.
    pub(crate) fn against(mut self, yardstick: &'static str) -> Self {
        if let Some(case) = self.cases.last_mut() {
            case.yardstick = Some(yardstick);
        }
        self
    }
}

// === impl Prepared ===

impl<S, R> Calls for Prepared<S, R>
where
    S: Service<R, Error = Infallible, Future: Send> + Clone + Send + 'static,
    R: Clone + Send + 'static,
{
    fn time(&self, runtime: &Runtime, threads: Threads, calls: u64) -> Duration {
        let mut service = self.service.clone();
        let request = self.request.clone();
        let timed = async move {
            let mut elapsed = Duration::ZERO;
            let mut left = calls;
            while left > 0 {
                let chunk = left.min(CHUNK);
                let requests: Vec<R> = (0..chunk).map(|_| request.clone()).collect();
                let start = Instant::now();
                for request in requests {
                    call(&mut service, request).await;
                }
                elapsed += start.elapsed();
                left -= chunk;
            }
            elapsed
        };
        match threads {
            Threads::Current => runtime.block_on(timed),
            // The future that is blocked on runs on no worker, but its tasks do.
            Threads::Two => {
                runtime.block_on(async { runtime.spawn(timed).await }).expect("nothing panics here")
            }
        }
    }

    fn allocations(&self, runtime: &Runtime) -> Allocations {
        let mut service = self.service.clone();
        let mut counted = Allocations::default();
        // The first calls fill caches: catalogs, queues, timer wheels.
        for _ in 0..4 {
            let request = self.request.clone();
            counted = counting::count(|| runtime.block_on(call(&mut service, request)));
        }
        counted
    }

    fn profile(&self) {
        profile(&self.service, &self.request);
    }
}
