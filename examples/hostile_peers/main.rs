//! Hostile peers among good ones: how much they slow down the calls of the good ones.
//!
//! One gateway has good backends, and in turn with that, the same and hostile ones. Good
//! callers call tools, fan-outs and workflows of the good backends at a fixed rate, check
//! each answer, and measure how long it takes. The program fails if
//!
//! - the 99th percentile of good calls with the hostile peers is more than twice that without
//!   them, by more than a bucket of the histogram (6 %);
//! - any good call fails, takes more than 10 s or returns something wrong;
//! - a client is asked more questions than the limits allow, or is notified of more changes
//!   than a few per second; a backend takes over a resource; a refill recovers no budget; an
//!   HTTP backend that ends its streams is connected more than a few times per second;
//! - this process, which has the gateway and all clients, ever has more than 512 MiB;
//! - a kind of hostile event never happened.
//!
//! # The hostile peers
//!
//! The hostile processes and clients run on the same machine as the gateway. Their rates are
//! hostile but bounded, and their messages are prepared in advance, so that the comparison
//! measures the work of the gateway and not the processor time that the attackers take from
//! it. Back-pressure of the gateway slows them down further.
//!
//! | backend | what it does | rate |
//! |---|---|--:|
//! | `changes` | `list_changed` of tools, prompts and resources | 2000 per second |
//! | `updates` | `resources/updated` of 500 resources, in turn with URIs of 4 MiB | 1000 and 2 per second |
//! | `large` | asks 300 questions of 4 MiB during a call | 2 per second |
//! | `unanswered` | asks 300 questions of 1 MB of a client that does not answer | 2 per second |
//! | `many` | asks 1500 small questions during a call | 200 per second |
//! | `modern` | answers calls with 3000 questions (2026-07-28) | 10 calls per second |
//! | `silenced` | the same with one question, and `elicitation = false` | 10 calls per second |
//! | `schemas` | has schemas that are expensive to check, called with up to 3 MiB | 1 call per second |
//! | `costs` | reports costs of `u64::MAX` against shared budgets | 20 calls per second |
//! | `brief` | HTTP: sends `retry: 0` and ends each event stream | as often as it is connected |
//! | `orphans` | exits after 0.5 s, while a process that it has started holds its pipes | as often as it is started |
//! | `claims` | lists and links resources of others | 20 calls per second |
//!
//! | client | rate |
//! |---|--:|
//! | subscribes to 500 resources that are updated, and never reads | once |
//! | cancels subscriptions of URIs of 2 KB | 100 per second |
//! | abandons calls of 20 ms about when they are answered | 50 per second |
//! | calls tools that do not exist | 200 per second |
//! | leaves runs of 50 KB suspended, which fill the store of 4 MiB | 20 per second |
//!
//! Good callers make 100 calls per second. The gateway, the good callers and the hostile
//! clients each have a runtime with threads of their own.
//!
//! # Phases
//!
//! A tenth of the time, but at least 20 s, is a round. A third of each is without the
//! hostile peers, the rest with them, so drift of the machine affects both. After each change,
//! for 3 s, calls are checked and not measured. The gateway reloads its file in between and
//! keeps the good backends.
//!
//! ```text
//! cargo build --release --all-features --example misbehaving
//! cargo run --release --all-features --example hostile_peers -- --minutes 20
//!     [--seed S]      the same calls again: 1, if not given
//!     [--only NAMES]  with these backends of the table only, separated by commas; `names`
//!                     and `states` are the clients that invent names or fill the store
//! ```
//!
//! It needs Linux, for the size of this process.

#![expect(clippy::print_stdout, reason = "the report is the output")]

mod good_callers;
mod hostile;
mod http;
#[expect(dead_code, reason = "the soak has more invariants")]
#[path = "../soak/invariants.rs"]
mod invariants;
#[path = "../soak/latencies.rs"]
mod latencies;
mod measurements;
#[expect(dead_code, reason = "the soak starts processes again")]
#[path = "../soak/process.rs"]
mod process;
#[expect(dead_code, reason = "the soak looks at tasks and files, too")]
#[path = "../soak/resources.rs"]
mod resources;
mod system;
#[expect(dead_code, reason = "the soak looks at what waits")]
#[path = "../soak/wire.rs"]
mod wire;

use std::{collections::BTreeMap, process::ExitCode, sync::Arc, time::Duration};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    time::{Instant, sleep},
};

use self::{
    good_callers::Callers,
    hostile::Attackers,
    invariants::Invariants,
    latencies::Latencies,
    measurements::{Phase, Score},
    resources::Memory,
    system::{Error, World},
};

const USAGE: &str = "usage: hostile_peers --minutes N [--seed S] [--only NAMES]";
/// The shortest round, and the part of a long run that is one.
const ROUND: Duration = Duration::from_secs(20);
const ROUNDS: u32 = 10;
/// The time after each change during which calls are not measured.
const WARM_UP: Duration = Duration::from_secs(3);
/// The allowed ratio of latencies with the hostile peers to those without them.
const FACTOR: f64 = 2.0;
/// The maximum memory of this process in MiB.
const MOST_MEMORY: f64 = 512.0;
/// How often per second a server that ends its streams may be connected: its own stream and
/// those of the three calls that are cut at a time each pause for a second.
const MOST_STREAMS: f64 = 8.0;
/// How many notifications per second a client may get without a subscription to an updated
/// resource.
const MOST_NOTIFICATIONS: f64 = 6.0;

struct Arguments {
    time: Duration,
    seed: u64,
    only: Option<String>,
}

fn main() -> ExitCode {
    let result = Arguments::parse(std::env::args().skip(1)).and_then(|arguments| {
        let [gateway, good, hostile] = [runtime(2)?, runtime(1)?, runtime(1)?];
        gateway.block_on(soak(arguments, good.handle(), hostile.handle()))
    });
    match result {
        Ok(true) => {
            println!("passed");
            ExitCode::SUCCESS
        }
        Ok(false) => {
            println!("FAILED");
            ExitCode::FAILURE
        }
        Err(error) => {
            println!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn runtime(threads: usize) -> Result<Runtime, Error> {
    Ok(Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

/// Returns `true` if all checks passed.
#[expect(clippy::too_many_lines, reason = "the phases of one run, in order")]
async fn soak(arguments: Arguments, good: &Handle, hostile: &Handle) -> Result<bool, Error> {
    let Arguments { time, seed, only } = arguments;
    let invariants = Arc::<Invariants>::default();
    let score = Arc::new(Score::new());
    let world = Arc::new(World::new(&invariants, only).await?);
    let callers = {
        let (world, score) = (world.clone(), score.clone());
        good.spawn(async move { Callers::start(&world, &score, seed).await }).await??
    };
    let round = (time / ROUNDS).max(ROUND).min(time);
    let start = Instant::now();
    let mut attacked = Duration::ZERO;
    let mut before = BTreeMap::new();
    let mut notified = 0;
    for number in 1.. {
        phase(&score, Phase::Alone, round / 3).await;
        let notified_before = callers.wires[0].notified();
        world.reload(true).await?;
        let attack = Instant::now();
        let attackers = {
            let (world, score) = (world.clone(), score.clone());
            let seed = seed.wrapping_mul(31).wrapping_add(number);
            hostile.spawn(async move { Attackers::start(&world, &score, seed) }).await?
        };
        phase(&score, Phase::Attacked, round * 2 / 3).await;
        score.enter(Phase::Between);
        let sent = world.sent().await;
        for (backend, count) in &sent {
            // These continue over the rounds.
            let goes_on = matches!(*backend, "brief" | "orphans");
            let before = before.insert(*backend, *count).filter(|_| goes_on).unwrap_or_default();
            score.hostile(&format!("`{backend}`: sent"), count - before);
        }
        let ended = score.clone();
        hostile.spawn(async move { attackers.end(&ended).await }).await?;
        attacked += attack.elapsed();
        notified += callers.wires[0].notified() - notified_before;
        world.reload(false).await?;
        let memory = Memory::now();
        println!(
            "{:>5} s: p99 {:.1?} without and {:.1?} with hostile peers, {} failures, {:.0} MiB, {:.0} at most",
            start.elapsed().as_secs(),
            score.p99(Phase::Alone),
            score.p99(Phase::Attacked),
            score.failures(),
            memory.now,
            memory.peak,
        );
        if start.elapsed() + round / 2 > time {
            break;
        }
    }
    good.spawn(callers.end()).await?;
    if let Ok(world) = Arc::try_unwrap(world).map_err(drop) {
        world.end().await;
    }

    let per_second = |count: u64| count as f64 / attacked.as_secs_f64();
    let streams = per_second(before.get("brief").copied().unwrap_or_default());
    let notifications = per_second(notified);
    let [alone, with] = [Phase::Alone, Phase::Attacked].map(|phase| score.p99(phase));
    let memory = Memory::now();
    let missing = score.missing();
    let checks = [
        (
            with.as_secs_f64() <= alone.as_secs_f64() * FACTOR * Latencies::resolution() * 1.001,
            format!("p99 of good calls: {alone:.1?} without and {with:.1?} with hostile peers"),
        ),
        (score.failures() == 0, format!("failures: {}", score.failures())),
        (invariants.broken() == 0, format!("answers of other calls: {}", invariants.broken())),
        (missing.is_empty(), format!("hostile events that never happened: {missing:?}")),
        (memory.peak <= MOST_MEMORY, format!("memory: {:.0} MiB at most", memory.peak)),
        (streams <= MOST_STREAMS, format!("streams opened: {streams:.1} per second")),
        (
            notifications <= MOST_NOTIFICATIONS,
            format!("notifications of a client: {notifications:.1} per second"),
        ),
    ];
    println!("\nseed {seed}, {time:?}, rounds of {round:?}");
    print!("{score}");
    if invariants.broken() > 0 {
        print!("{invariants}");
    }
    for (is_so, what) in &checks {
        println!("{} {what}", if *is_so { "ok    " } else { "FAILED" });
    }
    Ok(checks.iter().all(|(is_so, _)| *is_so))
}

/// Measures a phase, after a change to it.
async fn phase(score: &Score, phase: Phase, time: Duration) {
    score.enter(Phase::Between);
    sleep(WARM_UP).await;
    score.enter(phase);
    sleep(time.saturating_sub(WARM_UP)).await;
    score.enter(Phase::Between);
}

impl Arguments {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let (mut minutes, mut seed, mut only) = (None, 1, None);
        while let Some(argument) = arguments.next() {
            let value = arguments.next().ok_or(USAGE)?;
            match &*argument {
                "--minutes" => minutes = Some(value.parse::<f64>()?),
                "--seed" => seed = value.parse()?,
                "--only" => only = Some(value),
                _ => return Err(USAGE.into()),
            }
        }
        let time = Duration::try_from_secs_f64(minutes.ok_or(USAGE)? * 60.0)?;
        Ok(Self { time, seed, only })
    }
}
