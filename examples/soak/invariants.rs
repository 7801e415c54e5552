//! The invariants, how often each was checked, and its violations.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use mcp_composite::observe::{Event, Observer, RunId, What};
use serde_json::Value;

/// The number of violations that are reported in full.
const MAX_REPORTED: usize = 20;
/// The prefix of all markers; sixteen hexadecimal digits follow.
const MARK: &str = "mark-";
const DIGITS: usize = 16;
/// The branch that has the output of one of its own branches: a fallback.
const ONE_OF_MANY: &str = "else";
/// The text that backends put into every answer, and a redaction removes.
const HIDDEN: &str = "hush";
/// The text of the second of two answers to one request.
const SECOND: &str = "the second answer";

/// An invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Invariant {
    /// Every call is answered exactly once, and there are no answers without a call.
    AnsweredOnce,
    /// An answer or question contains no data of another call.
    OwnMarker,
    /// A tool returns the values that this very call passed.
    Echo,
    /// The output under a branch is from the target of that branch.
    OwnBranch,
    /// Redacted text appears nowhere.
    Redacted,
    /// No call takes longer than its deadline.
    Deadline,
    /// No line of the log contains an argument.
    Log,
    /// Every run that began has ended exactly once.
    RunEnds,
    /// No tasks, processes, files or memory are left behind.
    Baseline,
}

/// Counts the checks, and keeps the violations.
#[derive(Debug, Default)]
pub(crate) struct Invariants(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    checked: BTreeMap<Invariant, u64>,
    broken: BTreeMap<Invariant, u64>,
    violations: Vec<String>,
}

// === impl Invariant ===

impl Invariant {
    const ALL: [Self; 9] = [
        Self::AnsweredOnce,
        Self::OwnMarker,
        Self::Echo,
        Self::OwnBranch,
        Self::Redacted,
        Self::Deadline,
        Self::Log,
        Self::RunEnds,
        Self::Baseline,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::AnsweredOnce => "every call is answered once",
            Self::OwnMarker => "nothing of another call is in an answer or question",
            Self::Echo => "a tool gives back what this call gave it",
            Self::OwnBranch => "a branch has what its own target gave",
            Self::Redacted => "what is redacted is nowhere",
            Self::Deadline => "no call takes longer than it may",
            Self::Log => "no line of the log has an argument in it",
            Self::RunEnds => "every run ends, and once",
            Self::Baseline => "nothing is left behind",
        }
    }
}

// === impl Invariants ===

impl Invariants {
    /// Checks a condition; `otherwise` describes the violation.
    pub(crate) fn check(
        &self,
        invariant: Invariant,
        is_so: bool,
        otherwise: impl FnOnce() -> String,
    ) {
        let mut seen = self.seen();
        *seen.checked.entry(invariant).or_default() += 1;
        if !is_so {
            *seen.broken.entry(invariant).or_default() += 1;
            if seen.violations.len() < MAX_REPORTED {
                seen.violations.push(format!("{invariant:?}: {}", otherwise()));
            }
        }
    }

    /// Returns how often each invariant was checked.
    pub(crate) fn checked(&self) -> [(Invariant, u64); 9] {
        let seen = self.seen();
        Invariant::ALL.map(|it| (it, seen.checked.get(&it).copied().unwrap_or_default()))
    }

    /// Returns the number of violations.
    pub(crate) fn broken(&self) -> u64 {
        self.seen().broken.values().sum()
    }

    /// Checks an answer or question of the call of this marker.
    pub(crate) fn check_answer(&self, marker: &str, answer: &Value) {
        let text = answer.to_string();
        let other = markers(&text).find(|found| *found != marker);
        self.check(Invariant::OwnMarker, other.is_none(), || {
            format!("{} is in an answer to {marker}", other.unwrap_or_default())
        });
        self.check(Invariant::Redacted, !text.contains(HIDDEN), || format!("in {marker}"));
        self.check(Invariant::AnsweredOnce, !text.contains(SECOND), || {
            format!("a second answer is that of {marker}")
        });
        self.check_parts(marker, answer);
    }

    /// Checks the outputs of tools and branches, at any depth.
    fn check_parts(&self, marker: &str, part: &Value) {
        match part {
            Value::Array(parts) => parts.iter().for_each(|part| self.check_parts(marker, part)),
            Value::Object(parts) => {
                // Only tools return their process.
                if parts.contains_key("pid") {
                    self.check(Invariant::Echo, part["marker"] == marker, || {
                        format!("{} in the place of {marker}", part["marker"])
                    });
                }
                if let Some(Value::Object(branches)) = parts.get("branches") {
                    for (id, branch) in branches {
                        let from = &branch["output"]["branch"];
                        let is_own = from.is_null() || from == id || id == ONE_OF_MANY;
                        self.check(Invariant::OwnBranch, is_own, || {
                            format!("the branch {id} of {marker} has what {from} gave")
                        });
                    }
                }
                parts.values().for_each(|part| self.check_parts(marker, part));
            }
            _ => (),
        }
    }

    /// Checks a line of the log.
    pub(crate) fn check_line(&self, line: &str) {
        let found = markers(line).next();
        self.check(Invariant::Log, found.is_none(), || line.to_owned());
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The checks, their number, and the violations.
impl fmt::Display for Invariants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seen = self.seen();
        let count = |counts: &BTreeMap<_, u64>, invariant| counts.get(&invariant).copied();
        for invariant in Invariant::ALL {
            let checked = count(&seen.checked, invariant).unwrap_or_default();
            let broken = count(&seen.broken, invariant).unwrap_or_default();
            writeln!(f, "  {:<52} {checked:>10} checks {broken:>6} broken", invariant.name())?;
        }
        seen.violations.iter().try_for_each(|violation| writeln!(f, "  BROKEN {violation}"))
    }
}

/// Returns a unique marker.
pub(crate) fn marker(random: u64) -> String {
    format!("{MARK}{random:0DIGITS$x}")
}

/// All markers in a text.
pub(crate) fn markers(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(MARK).filter_map(|(start, _)| {
        let marker = text.get(start..start + MARK.len() + DIGITS)?;
        marker[MARK.len()..].bytes().all(|digit| digit.is_ascii_hexdigit()).then_some(marker)
    })
}

/// The runs that have begun and not ended, and whether they wait for a person.
#[derive(Debug)]
pub(crate) struct Runs {
    going_on: Mutex<HashMap<RunId, bool>>,
    invariants: Arc<Invariants>,
}

// === impl Runs ===

impl Runs {
    pub(crate) fn new(invariants: Arc<Invariants>) -> Self {
        Self { going_on: Mutex::default(), invariants }
    }

    /// Returns the number of active runs. Those that wait for a person may never be resumed.
    pub(crate) fn going_on(&self) -> usize {
        self.runs().values().filter(|waits| !**waits).count()
    }

    fn runs(&self) -> MutexGuard<'_, HashMap<RunId, bool>> {
        self.going_on.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Runs {
    fn on_event(&self, event: &Event<'_>) {
        let run = event.run;
        let (is_so, what) = match event.what {
            What::RunStarted { .. } => (self.runs().insert(run, false).is_none(), "began"),
            What::RunSuspended => (self.runs().insert(run, true) == Some(false), "stopped"),
            What::RunResumed => (self.runs().insert(run, false) == Some(true), "went on"),
            What::RunFinished { .. } | What::RunDropped { .. } => {
                (self.runs().remove(&run).is_some(), "ended")
            }
            _ => return,
        };
        self.invariants.check(Invariant::RunEnds, is_so, || {
            format!("a run of `{}` {what} when it could not", event.composite)
        });
    }
}
