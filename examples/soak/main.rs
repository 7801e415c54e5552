//! Thousands of concurrent composites over backends that fail in every way, for any duration, with
//! a check of all invariants.
//!
//! A stack with all layers is in front of a service in memory, whose calls fail at random, and of a
//! gateway with a child process and a server over HTTP, which produce the faults that a call
//! requests, and are killed and restarted. Callers call composites of every strategy, in code and
//! over connections; they answer questions, give up, or never come back; and stack and gateway are
//! reloaded meanwhile.
//!
//! Every call carries a unique marker. An answer with another one, a line of the log with any, a
//! call that is answered twice or too late, a run that does not end, or a task, process or file
//! that is left behind at the end is a violation: it is reported, and the program fails.
//!
//! ```text
//! cargo build --release --all-features --example misbehaving
//! cargo run --release --all-features --example soak -- --minutes 1
//!     [--seed S]      the same faults in memory and the same calls again: 1, if not given
//!     [--callers N]   2000, if not given
//! ```
//!
//! Requires Linux, which reports the resources of a process in `/proc`. The seed does not determine
//! the interleaving of concurrent calls.

#![expect(clippy::print_stdout, reason = "the report is the output")]

mod faults;
mod invariants;
mod latencies;
mod load;
mod log;
mod process;
mod report;
mod resources;
mod system;
mod web;
mod wire;

use std::{
    panic,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use self::{
    faults::Fatal,
    invariants::{Invariant, Invariants, Runs},
    load::Load,
    log::Log,
    report::Report,
    resources::{Memory, Resources},
    system::{DEADLINE, Error, World, injected},
};

const USAGE: &str = "usage: soak --minutes N [--seed S] [--callers N]";
/// The interval between printed lines.
const LINE: Duration = Duration::from_secs(10);
/// The interval between reloads of stack and gateway, if the run is long enough.
const RELOAD: Duration = Duration::from_secs(30);
/// The maximum time for running work to end.
const PATIENCE: Duration = Duration::from_secs(30);
/// The allowed growth of the process under constant load in MiB, besides a tenth of its size.
const GROWTH: f64 = 16.0;
/// The number of callers of the rehearsal, and the tolerance of counts.
const FEW: usize = 20;

struct Arguments {
    time: Duration,
    seed: u64,
    callers: usize,
}

fn main() -> ExitCode {
    let default_hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        // Injected panics are counted, and their backtraces are not useful.
        let text = panic.payload().downcast_ref::<String>().map(String::as_str);
        if text.or_else(|| panic.payload().downcast_ref().copied()) != Some("a fault") {
            default_hook(panic);
        }
    }));
    let result = Arguments::parse(std::env::args().skip(1)).and_then(|arguments| {
        // Four threads also on a small machine, to find races.
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(4).enable_all().build()?.block_on(soak(arguments))
    });
    match result {
        Ok(0) => {
            println!("passed");
            ExitCode::SUCCESS
        }
        Ok(broken) => {
            println!("FAILED: {broken} breaches");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of violations.
async fn soak(Arguments { time, seed, callers }: Arguments) -> Result<u64, Error> {
    let invariants = Arc::<Invariants>::default();
    let log = Log::listen(invariants.clone());

    // A rehearsal, so that one-time initialization is done.
    let rehearsal = Run::new(seed, &invariants).await?;
    rehearsal.load(Duration::from_secs(3), FEW, seed).await?;
    let before = Resources::at_rest().await;
    println!("before: {before}, {:.0} MiB", Memory::now().now);

    let looked = invariants.checked();
    let run = Run::new(seed, &invariants).await?;
    let report = run.load(time, callers, seed).await?;
    for ((invariant, now), (_, before)) in invariants.checked().into_iter().zip(looked) {
        // An invariant that was never checked proves nothing.
        invariants.check(invariant, now > before, || "it was never looked at".to_owned());
    }
    let after = Resources::settled(before, PATIENCE).await;
    invariants.check(Invariant::Baseline, after.is_within(before), || {
        format!("{after} are left of {before}")
    });

    let (growth, size) = report.growth();
    invariants.check(Invariant::Baseline, growth <= GROWTH + size / 10.0, || {
        format!("{growth:.0} MiB more than the {size:.0} of before")
    });
    println!("\nseed {seed}, {callers} callers, {time:?}");
    print!("{report}");
    let memory = Memory::now();
    println!(
        "memory: {:.0} MiB at most, {:.0} at the end, {growth:+.1} under the same load",
        memory.peak, memory.now,
    );
    println!("after: {after}; backends were connected {} times", log.connected());
    print!("invariants:\n{invariants}");
    Ok(invariants.broken())
}

/// A world under load.
struct Run {
    world: World,
    invariants: Arc<Invariants>,
    runs: Arc<Runs>,
}

impl Run {
    async fn new(seed: u64, invariants: &Arc<Invariants>) -> Result<Self, Error> {
        let runs = Arc::new(Runs::new(invariants.clone()));
        let world = World::new(seed, invariants, &runs).await?;
        Ok(Self { world, invariants: invariants.clone(), runs })
    }

    /// Puts it under load, and checks that nothing is running afterwards.
    async fn load(self, time: Duration, callers: usize, seed: u64) -> Result<Arc<Report>, Error> {
        let Self { world, invariants, runs } = self;
        let report = Arc::new(Report::new());
        let load = Arc::new(Load {
            services: world.services.clone(),
            wires: world.wires.clone(),
            invariants: invariants.clone(),
            report: report.clone(),
            fatal: Fatal::new(),
            over: AtomicBool::new(false),
        });
        let idle = Resources::at_rest().await;
        let mut looking = JoinSet::new();
        looking.spawn({
            let report = report.clone();
            async move { report.look().await }
        });
        let mut calling = load.start(callers, seed);
        go_on(&world, &report, time).await?;
        load.over.store(true, Ordering::Relaxed);
        // No call takes longer, including pauses and questions.
        let all = async { while calling.join_next().await.is_some() {} };
        let ended = timeout(DEADLINE * 5 + PATIENCE, all).await;
        invariants.check(Invariant::Deadline, ended.is_ok(), || {
            format!("{} callers never end", calling.len())
        });
        calling.shutdown().await;
        looking.shutdown().await;
        drop(load);

        is_at_rest(&world, &invariants, &runs).await;
        // A connection that was just made again may have some of its own.
        let limit = Resources { tasks: idle.tasks + FEW, files: idle.files + FEW, ..idle };
        let rest = Resources::settled(limit, PATIENCE).await;
        invariants.check(Invariant::Baseline, rest.is_within(limit), || {
            format!("{rest} while nobody calls, and {idle} before anybody did")
        });
        for (fault, count) in injected(&world.faults).into_iter().filter(|_| callers > FEW) {
            println!("  memory  {fault:<12} {count:>9}");
        }
        if callers > FEW {
            println!("  the server over HTTP was started {} times", world.web.starts());
        }
        world.end().await;
        Ok(report)
    }
}

/// Waits, reports progress, and reloads meanwhile.
async fn go_on(world: &World, report: &Report, time: Duration) -> Result<(), Error> {
    let start = Instant::now();
    let every = RELOAD.min(time / 3);
    let (mut lines, mut reloads) = (1, 1);
    while start.elapsed() < time {
        sleep(Duration::from_millis(100).min(time.saturating_sub(start.elapsed()))).await;
        if start.elapsed() >= every * reloads {
            world.reload(reloads as usize).await?;
            reloads += 1;
        }
        if start.elapsed() >= LINE * lines {
            println!("{:>5} s: {}", start.elapsed().as_secs(), report.line());
            lines += 1;
        }
    }
    Ok(())
}

/// Checks that without callers nothing is running or waiting, and all runs have ended.
async fn is_at_rest(world: &World, invariants: &Invariants, runs: &Runs) {
    let end = Instant::now() + PATIENCE;
    let (mut working, mut going_on) = (1, 1);
    while working + going_on > 0 && Instant::now() < end {
        sleep(Duration::from_millis(50)).await;
        working = world.working.load(Ordering::SeqCst);
        going_on = runs.going_on();
    }
    let waiting: usize = world.wires.iter().map(|wire| wire.waiting()).sum();
    invariants.check(Invariant::Baseline, working == 0, || {
        format!("{working} calls are worked at that nobody made")
    });
    invariants.check(Invariant::AnsweredOnce, waiting == 0, || {
        format!("{waiting} calls were never answered")
    });
    invariants.check(Invariant::RunEnds, going_on == 0, || format!("{going_on} runs never end"));
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let (mut minutes, mut seed, mut callers) = (None, 1, 2_000);
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match &*argument {
                "--minutes" => minutes = Some(value.parse::<f64>()?),
                "--seed" => seed = value.parse()?,
                "--callers" => callers = value.parse()?,
                _ => return Err(USAGE.into()),
            }
        }
        let time = Duration::try_from_secs_f64(minutes.ok_or(USAGE)? * 60.0)?;
        Ok(Self { time, seed, callers })
    }
}
