//! Counts the outcomes of runs and branches.

use std::{collections::BTreeSet, time::Duration};

/// The status of a run or branch. It is a final status if the run or branch has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    Failed,
    TimedOut,
    Cancelled,
    /// The run or branch waits for an answer of a person.
    Waiting,
    Running,
    Completed,
    Skipped,
}

/// All statuses, from the most to the least important. If a flowchart node has several outcomes, it
/// is colored by the most important status.
pub(super) const STATUSES: [Status; 7] = [
    Status::Failed,
    Status::TimedOut,
    Status::Cancelled,
    Status::Waiting,
    Status::Running,
    Status::Completed,
    Status::Skipped,
];

/// For each status, the number of runs of a composite, or of branches of a step. Also contains
/// their total attempts and longest duration.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Tally {
    /// The number of runs or branches with each status, in the order of [`STATUSES`].
    counts: [u64; STATUSES.len()],
    /// The reasons for the outcomes, for the label of a node: error kinds such as `service`,
    /// reasons for skipping branches, and names of limits that were reached.
    reasons: BTreeSet<&'static str>,
    /// The longest duration of any counted run or branch.
    took: Duration,
    /// The total number of tool calls of all counted branches, including retries.
    attempts: u64,
}

// === impl Status ===

impl Status {
    /// Parses the final status of a branch in an event, such as `timed_out`. Returns
    /// [`Failed`](Self::Failed) for an unknown status.
    pub(super) fn of(ended: &str) -> Self {
        let is = |status: &Self| status.name() == ended;
        STATUSES.into_iter().find(is).unwrap_or(Self::Failed)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Skipped => "skipped",
        }
    }

    /// Returns a description of the status for labels, such as `timed out`.
    const fn words(self) -> &'static str {
        match self {
            Self::TimedOut => "timed out",
            Self::Waiting => "waiting for user input",
            Self::Running => "runs",
            _ => self.name(),
        }
    }

    /// Returns the Mermaid style of nodes with this status. The colors are legible on light and
    /// dark pages.
    pub(super) const fn style(self) -> &'static str {
        match self {
            Self::Failed => "fill:#ffe3e3,stroke:#c92a2a,color:#000",
            Self::TimedOut => "fill:#ffe8cc,stroke:#d9480f,color:#000",
            Self::Cancelled => "fill:#f3d9fa,stroke:#862e9c,color:#000",
            Self::Waiting => "fill:#fff3bf,stroke:#e67700,color:#000",
            Self::Running => "fill:#d0ebff,stroke:#1864ab,color:#000",
            Self::Completed => "fill:#d3f9d8,stroke:#2b8a3e,color:#000",
            Self::Skipped => "fill:#f1f3f5,stroke:#868e96,color:#495057",
        }
    }
}

// === impl Tally ===

impl Tally {
    /// Counts a run or branch with the status `now`. `before` is the status with which it was
    /// counted until now, or `None` if it was not counted yet.
    pub(super) fn note(&mut self, before: Option<Status>, now: Status) {
        if let Some(before) = before {
            let count = self.count_mut(before);
            *count = count.saturating_sub(1);
        }
        *self.count_mut(now) += 1;
    }

    pub(super) fn because(&mut self, reason: Option<&'static str>) {
        self.reasons.extend(reason);
    }

    pub(super) fn took(&mut self, took: Duration) {
        self.took = self.took.max(took);
    }

    pub(super) fn called(&mut self, attempts: u32) {
        self.attempts += u64::from(attempts);
    }

    /// Returns the most important status of the counted runs or branches. Returns `None` if none
    /// were counted.
    pub(super) fn worst(&self) -> Option<Status> {
        STATUSES
            .into_iter()
            .zip(self.counts)
            .find(|(_, count)| *count > 0)
            .map(|(status, _)| status)
    }

    /// Returns a summary of the outcomes, such as `failed (tool) in 1.2s, 3 attempts`. Returns
    /// `None` if no runs or branches were counted.
    pub(super) fn summary(&self) -> Option<String> {
        let worst = self.worst()?;
        let all: u64 = self.counts.iter().sum();
        let mut summary = if all == 1 {
            worst.words().to_owned()
        } else {
            let counts = STATUSES.into_iter().zip(self.counts).filter(|(_, count)| *count > 0);
            let counts = counts.map(|(status, count)| format!("{count} {}", status.words()));
            counts.collect::<Vec<_>>().join(", ")
        };
        if !self.reasons.is_empty() {
            let reasons: Vec<_> = self.reasons.iter().copied().collect();
            summary = format!("{summary} ({})", reasons.join(", "));
        }
        // Durations of less than a millisecond are not shown.
        let millis = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            let at_most = if all == 1 { "" } else { "at most " };
            summary = format!("{summary} in {at_most}{:?}", Duration::from_millis(millis));
        }
        if self.attempts > all {
            summary = format!("{summary}, {} attempts", self.attempts);
        }
        Some(summary)
    }

    const fn count_mut(&mut self, status: Status) -> &mut u64 {
        &mut self.counts[status as usize]
    }
}
