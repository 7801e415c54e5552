//! Calls on two threads at the same time, compared with as many on one.

#![expect(clippy::print_stdout, reason = "the table is the output")]
#![expect(clippy::disallowed_types, reason = "what is measured is real time")]

use std::{
    convert::Infallible,
    env,
    hint::black_box,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

use futures::FutureExt;
use mcp_composite::{
    budget::BudgetLayer,
    message::{Reply, Request},
};
use tower::{Layer, Service, ServiceExt};

use super::{Leaf, global, per_caller};

/// The number of calls of a thread in a round.
const CALLS: u32 = 20_000;
const ROUNDS: usize = 21;

/// Prints the time of a call, for one thread and for each of two.
pub(super) fn run() {
    if env::args().any(|argument| argument == "allocations") {
        return;
    }
    let leaf = Leaf::new(1);
    let (all, ann) = (BudgetLayer::new().budget(global()), per_caller("ann"));
    // The second caller shares the budget.
    let ben = ann.clone().caller(|_| Some("ben".to_owned()));
    println!("\n| case | one thread | two threads |");
    println!("|---|---:|---:|");
    row("leaf", &leaf, &leaf);
    row("global", &all.layer(leaf.clone()), &all.layer(leaf.clone()));
    row("one_caller", &ann.layer(leaf.clone()), &ann.layer(leaf.clone()));
    row("two_callers", &ann.layer(leaf.clone()), &ben.layer(leaf));
}

fn row<S>(name: &str, one: &S, other: &S)
where
    S: Service<Request, Response = Reply, Error = Infallible> + Clone + Send,
{
    let alone = median(|| round([one]));
    let both = median(|| round([one, other]));
    println!("| `threads/{name}` | {} ns | {} ns |", alone.as_nanos(), both.as_nanos());
}

/// The time of each call, with one thread for each service.
fn round<S, const THREADS: usize>(services: [&S; THREADS]) -> Duration
where
    S: Service<Request, Response = Reply, Error = Infallible> + Clone + Send,
{
    let start = Barrier::new(THREADS);
    let taken = thread::scope(|scope| {
        let threads = services.map(|service| {
            let (service, start) = (service.clone(), &start);
            scope.spawn(move || {
                start.wait();
                let begun = Instant::now();
                for _ in 0..CALLS {
                    let call = service.clone().oneshot(Request::call_tool("t"));
                    drop(black_box(call.now_or_never().expect("it is answered at once")));
                }
                begun.elapsed()
            })
        });
        threads.map(|thread| thread.join().expect("nothing panics"))
    });
    taken.into_iter().sum::<Duration>() / (CALLS * THREADS as u32)
}

fn median(mut measure: impl FnMut() -> Duration) -> Duration {
    let mut taken: Vec<_> = (0..ROUNDS).map(|_| measure()).collect();
    taken.sort();
    taken[ROUNDS / 2]
}
