//! Measures cases in turn and prints their times in one Markdown table.
//!
//! The time of a layer is less than the variation of a call's time from one second to the next, so
//! cases are measured in turn and compared within each round. The table has the median of these
//! differences and ratios. A turn begins with a call that is not counted, to warm the caches.
//!
//! A call is timed from `poll_ready` to the drop of its reply, on a request that
//! was made before the clock started.

#![expect(clippy::print_stdout, reason = "the table is the output")]
#![expect(clippy::disallowed_types, reason = "what is measured is real time")]

use std::{
    convert::Infallible,
    env,
    future::poll_fn,
    hint::black_box,
    time::{Duration, Instant},
};

use mcp_composite::message::{Reply, Request};
use tokio::runtime::Runtime;
use tower::Service;

use crate::counting::{self, Allocations};

/// The approximate time that a group is measured.
const GROUP: Duration = Duration::from_secs(8);
/// The minimum and maximum number of rounds.
const ROUNDS: (u128, u128) = (51, 4_001);
/// The approximate duration of a turn, and its maximum number of calls.
const TURN: Duration = Duration::from_micros(100);
const MAX_CALLS: usize = 200;

/// Cases that are measured in turn.
pub(crate) struct Group {
    name: String,
    cases: Vec<Case>,
}

struct Case {
    name: String,
    /// The case of the group that this one is compared with.
    yardstick: Option<&'static str>,
    calls: Box<Calls>,
    /// The allocations for a call before it is made.
    before: Allocations,
}

/// Makes the given number of calls and returns their time.
type Calls = dyn Fn(&Runtime, usize) -> Duration;

/// Measures the groups that the command line selects.
///
/// With `allocations` on the command line, only allocations are counted.
pub(crate) fn run(groups: &[Group]) {
    // Cargo itself says `--bench`.
    let mut args = env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    let only_allocations = args.next_if_eq("allocations").is_some();
    let filter = args.next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_time().build().expect("a runtime starts");

    println!("| case | median | more | ratio | allocations | bytes |");
    println!("|---|---:|---:|---|---:|---:|");
    for group in groups.iter().filter(|group| group.name.contains(&filter)) {
        group.run(&runtime, only_allocations);
    }
}

// === impl Group ===

impl Group {
    pub(crate) fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), cases: Vec::new() }
    }

    /// Adds a case: `service`, called with `request`.
    pub(crate) fn case<S>(self, name: impl Into<String>, service: &S, request: &Request) -> Self
    where
        S: Service<Request, Response = Reply, Error = Infallible> + Clone + 'static,
    {
        let (service, request) = (service.clone(), request.clone());
        let before = counting::count(|| drop(black_box(request.clone())));
        self.push(name, before, move |runtime, calls| {
            let mut service = service.clone();
            let mut requests = Vec::with_capacity(2 + MAX_CALLS);
            requests.extend((0..=calls).map(|_| request.clone()));
            runtime.block_on(async {
                let mut requests = requests.into_iter();
                call(&mut service, requests.next().expect("there is one more than counted")).await;
                let start = Instant::now();
                for request in requests {
                    call(&mut service, request).await;
                }
                start.elapsed()
            })
        })
    }

    /// Adds a case: a service that is created for every call.
    pub(crate) fn first_call<S>(
        self,
        name: impl Into<String>,
        make: impl Fn() -> S + 'static,
        request: &Request,
    ) -> Self
    where
        S: Service<Request, Response = Reply, Error = Infallible> + 'static,
    {
        let request = request.clone();
        let before = counting::count(|| drop(black_box((make(), request.clone()))));
        self.push(name, before, move |runtime, calls| {
            runtime.block_on(async {
                let mut taken = Duration::ZERO;
                for _ in 0..calls {
                    let (mut service, request) = (make(), request.clone());
                    let start = Instant::now();
                    call(&mut service, request).await;
                    taken += start.elapsed();
                }
                taken
            })
        })
    }

    /// Compares the case that was added last with another one.
    pub(crate) fn against(mut self, yardstick: &'static str) -> Self {
        if let Some(case) = self.cases.last_mut() {
            case.yardstick = Some(yardstick);
        }
        self
    }

    fn push(
        mut self,
        name: impl Into<String>,
        before: Allocations,
        calls: impl Fn(&Runtime, usize) -> Duration + 'static,
    ) -> Self {
        let calls = Box::new(calls);
        self.cases.push(Case { name: name.into(), yardstick: None, calls, before });
        self
    }

    /// Measures the group, and prints a row for each case.
    fn run(&self, runtime: &Runtime, only_allocations: bool) {
        let taken = if only_allocations { Vec::new() } else { self.times(runtime) };
        for (index, case) in self.cases.iter().enumerate() {
            let yardstick = case.yardstick.map(|yardstick| {
                let other = self.cases.iter().position(|other| other.name == yardstick);
                other.expect("a yardstick is of the same group")
            });
            let cells = taken.get(index).map(|times| {
                let against = |of: fn(f64, f64) -> f64| {
                    let pairs = times.iter().zip(&taken[yardstick?]);
                    Some(quartiles(pairs.map(|(one, other)| of(*one, *other)).collect()))
                };
                let more = against(|one, other| one - other);
                let more = more.map(|[_, median, _]| duration(median)).unwrap_or_default();
                let ratio = against(|one, other| one / other);
                let ratio = ratio.zip(case.yardstick).map(|([low, median, high], yardstick)| {
                    format!("{median:.2} ({low:.2}–{high:.2}) × `{yardstick}`")
                });
                let [_, median, _] = quartiles(times.clone());
                (duration(median), more, ratio.unwrap_or_default())
            });
            let (median, more, ratio) = cells.unwrap_or_default();
            let Allocations { count, bytes } = case.allocations(runtime);
            println!(
                "| `{}/{}` | {median} | {more} | {ratio} | {count} | {bytes} |",
                self.name, case.name,
            );
        }
    }

    /// Returns the nanoseconds of a call of each case in each round.
    fn times(&self, runtime: &Runtime) -> Vec<Vec<f64>> {
        // Fills caches, and determines the number of calls of a turn.
        let turns: Vec<(usize, Duration)> =
            self.cases.iter().map(|case| case.turn(runtime)).collect();
        let round: Duration = turns.iter().map(|(_, taken)| *taken).sum();
        let rounds = GROUP.as_nanos() / round.as_nanos().max(1);
        let rounds = rounds.clamp(ROUNDS.0, ROUNDS.1) as usize;

        let mut taken = vec![Vec::with_capacity(rounds); self.cases.len()];
        for round in 0..rounds {
            for turn in 0..self.cases.len() {
                // Varies which case follows which.
                let index = match round % 2 {
                    0 => (turn + round / 2) % self.cases.len(),
                    _ => (self.cases.len() - 1 - turn + round / 2) % self.cases.len(),
                };
                let (calls, _) = turns[index];
                let elapsed = (self.cases[index].calls)(runtime, calls);
                taken[index].push(elapsed.as_nanos() as f64 / calls as f64);
            }
        }
        taken
    }
}

// === impl Case ===

impl Case {
    /// Returns the number of calls of a turn, and their time.
    fn turn(&self, runtime: &Runtime) -> (usize, Duration) {
        (self.calls)(runtime, 1);
        let one = (self.calls)(runtime, 1).as_nanos().max(1);
        // The more calls, the less the first one predicts the others.
        let some = (TURN.as_nanos() / one).clamp(1, MAX_CALLS as u128) as usize;
        let one = (self.calls)(runtime, some).as_nanos() / some as u128;
        let calls = (TURN.as_nanos() / one.max(1)).clamp(1, MAX_CALLS as u128) as usize;
        let start = Instant::now();
        (self.calls)(runtime, calls);
        (calls, start.elapsed())
    }

    /// Returns the allocations of a call: the average of [`MAX_CALLS`] calls, because some services
    /// do the work of several calls at once.
    fn allocations(&self, runtime: &Runtime) -> Allocations {
        (self.calls)(runtime, 1);
        let [one, all] =
            [1, 1 + MAX_CALLS].map(|calls| counting::count(|| _ = (self.calls)(runtime, calls)));
        let calls = MAX_CALLS as u64;
        Allocations {
            count: (all.count - one.count + calls / 2) / calls - self.before.count,
            bytes: (all.bytes - one.bytes + calls / 2) / calls - self.before.bytes,
        }
    }
}

async fn call<S>(service: &mut S, request: Request)
where
    S: Service<Request, Response = Reply, Error = Infallible>,
{
    let Ok(()) = poll_fn(|cx| service.poll_ready(cx)).await;
    let Ok(reply) = service.call(request).await;
    drop(black_box(reply));
}

/// The quartiles of the values.
fn quartiles(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
}

/// Formats a duration with three significant digits.
fn duration(nanoseconds: f64) -> String {
    let (value, unit) = match nanoseconds.abs() {
        ..1e3 => (nanoseconds, "ns"),
        ..1e6 => (nanoseconds / 1e3, "µs"),
        _ => (nanoseconds / 1e6, "ms"),
    };
    let decimals = match value.abs() {
        _ if unit == "ns" => 0,
        ..10.0 => 2,
        ..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}
