//! The faults that calls request from backends that are processes.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use fastrand::Rng;
use tokio::time::Instant;

/// The minimum time between losses of a process: one that does not live for ten seconds is
/// restarted later and later, and the other calls need a running process.
const EVERY: Duration = Duration::from_secs(15);

/// The fault of calls that should succeed.
pub(crate) const WELL: &str = "well";

/// The faults in parts per thousand of all calls; the rest succeeds.
const FAULTS: [(&str, u32); 10] = [
    ("slow", 60),
    ("failure", 40),
    ("error", 40),
    ("malformed", 20),
    ("twice", 60),
    ("late", 20),
    ("huge", 20),
    ("asks", 10),
    ("wrong-id", 4),
    ("silent", 4),
];
const ALL: u32 = 1_000;

/// Limits how often a process is lost.
pub(crate) struct Fatal {
    pipe: Mutex<Instant>,
    web: Mutex<Instant>,
}

// === impl Fatal ===

impl Fatal {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { pipe: Mutex::new(now), web: Mutex::new(now) }
    }

    /// Chooses the fault of a call of the child process.
    pub(crate) fn pipe(&self, rng: &mut Rng) -> &'static str {
        let fatal = ["killed", "exit", "breaks-off"];
        if is_time(&self.pipe) { fatal[rng.usize(0..3)] } else { usual(rng, &["garbage"]) }
    }

    /// Chooses the fault of a call of the server over HTTP.
    pub(crate) fn web(&self, rng: &mut Rng) -> &'static str {
        let fatal = ["killed", "exit"];
        if is_time(&self.web) {
            fatal[rng.usize(0..2)]
        } else {
            usual(rng, &["garbage", "refuses", "breaks-off"])
        }
    }
}

fn is_time(last: &Mutex<Instant>) -> bool {
    let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
    let is_time = last.elapsed() > EVERY;
    if is_time {
        *last = Instant::now();
    }
    is_time
}

fn usual(rng: &mut Rng, more: &[&'static str]) -> &'static str {
    let mut part = rng.u32(0..ALL);
    for (fault, parts) in FAULTS.into_iter().chain(more.iter().map(|fault| (*fault, 6))) {
        match part.checked_sub(parts) {
            None => return fault,
            Some(rest) => part = rest,
        }
    }
    WELL
}
