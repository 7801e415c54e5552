//! The loops of plans.

use std::time::Duration;

use super::call_site::CallSite;
use crate::expr::{Collection, Condition};

/// A loop: calls a tool several times.
#[derive(Debug)]
pub(crate) struct LoopPlan {
    pub(crate) kind: LoopKind,
    /// The maximum number of loop elements or iterations. Each of them makes one tool call, not
    /// counting retries.
    pub(crate) max_iterations: usize,
    /// The maximum number of loop elements that are processed at the same time.
    pub(crate) max_parallel: usize,
    /// The delay before each element except the first.
    pub(crate) delay: Duration,
    pub(crate) call: CallSite,
}

/// The elements of a loop.
#[derive(Debug)]
pub(crate) enum LoopKind {
    /// The elements of a collection. If the collection has more elements than the maximum, the step
    /// fails without making any call.
    ForEach {
        collection: Collection,
        /// Whether the loop ends after the first element that succeeds. Its running elements are
        /// then cancelled, and the others are skipped. If no element succeeds, the step fails.
        first_success: bool,
    },
    /// The iterations up to the first one after which a condition holds.
    Repeat(Repeat),
}

/// A loop that ends when a condition holds.
///
/// In its expressions, the item is the output of the previous iteration. It is absent in the first
/// iteration.
#[derive(Debug)]
pub(crate) struct Repeat {
    /// The condition that ends the loop. Its item is the output of the iteration that has just
    /// ended.
    pub(crate) until: Condition,
    /// The factor by which the delay grows with each iteration.
    pub(crate) backoff: f64,
    /// The delay at which the growth stops.
    pub(crate) max_delay: Duration,
    /// The maximum duration of the loop with its delays. `None` if only the run limits it.
    pub(crate) timeout: Option<Duration>,
}

// === impl LoopPlan ===

impl LoopPlan {
    /// Returns the name of an element in messages.
    pub(crate) const fn noun(&self) -> &'static str {
        match self.kind {
            LoopKind::ForEach { .. } => "element",
            LoopKind::Repeat(_) => "iteration",
        }
    }

    /// Returns the collection, if the loop processes the elements of one.
    pub(crate) const fn as_collection(&self) -> Option<&Collection> {
        match &self.kind {
            LoopKind::ForEach { collection, .. } => Some(collection),
            LoopKind::Repeat(_) => None,
        }
    }

    pub(crate) const fn as_repeat(&self) -> Option<&Repeat> {
        match &self.kind {
            LoopKind::Repeat(repeat) => Some(repeat),
            LoopKind::ForEach { .. } => None,
        }
    }

    /// Returns `true` if the loop ends after the first element that succeeds.
    pub(crate) const fn ends_at_success(&self) -> bool {
        matches!(self.kind, LoopKind::ForEach { first_success: true, .. })
    }

    /// Returns `true` if the step completes although elements have failed, provided that the run
    /// continues after a failure of the step.
    pub(super) const fn tolerates_failures(&self) -> bool {
        matches!(self.kind, LoopKind::ForEach { first_success: false, .. })
    }

    /// Returns the line that describes the loop in a diagram.
    pub(super) fn note(&self) -> String {
        let Self { kind, max_iterations, max_parallel, .. } = self;
        match kind {
            LoopKind::ForEach { collection, first_success } => {
                let end = if *first_success { ", until one succeeds" } else { "" };
                format!("for each of {collection}, {max_parallel} at a time{end}")
            }
            LoopKind::Repeat(Repeat { until, .. }) => {
                format!("until {until}, {max_iterations} times at most")
            }
        }
    }

    /// Returns an error message if `count`, the number of elements in the collection, exceeds the
    /// maximum of the loop.
    pub(super) fn reject(&self, count: usize) -> Option<String> {
        let max = self.max_iterations;
        (count > max)
            .then(|| format!("{count} elements: expected at most {max} (`max_iterations`)"))
    }

    /// Returns the delay before an element, which is not the first.
    pub(crate) fn delay_before(&self, element: usize) -> Duration {
        let repeat = self.as_repeat().filter(|_| !self.delay.is_zero());
        let Some(repeat) = repeat else { return self.delay };
        let earlier = i32::try_from(element.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.delay.as_secs_f64() * repeat.backoff.powi(earlier);
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(repeat.max_delay);
        delay.min(repeat.max_delay)
    }
}

// === impl Repeat ===

impl Repeat {
    /// Returns the error message of a loop that ends because of the limit `setting`, although its
    /// condition does not hold after `count` iterations.
    pub(super) fn unfinished(&self, count: usize, setting: &str) -> String {
        let iterations = if count == 1 { "iteration" } else { "iterations" };
        let until = &self.until;
        format!("`{until}` is still false after {count} {iterations} (`{setting}`)")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{
        engine::{branches::SpawnHint, call_site::Arguments},
        expr::Expression,
    };

    #[test]
    fn delay_grows_by_its_factor_up_to_its_maximum() {
        let seconds = Duration::from_secs;
        let each = LoopPlan {
            kind: LoopKind::Repeat(Repeat {
                until: Condition::default(),
                backoff: 2.0,
                max_delay: seconds(9),
                timeout: None,
            }),
            max_iterations: 1000,
            max_parallel: 1,
            delay: seconds(1),
            call: CallSite {
                site: 0,
                tool: "tool".into(),
                arguments: Arguments::Mapped(Expression::literal(Value::Null)),
                parse: None,
                has_secrets: false,
                hint: SpawnHint::default(),
            },
        };
        let delays = [1, 2, 3, 4, 5, 999, usize::MAX].map(|element| each.delay_before(element));
        assert_eq!(delays, [1, 2, 4, 8, 9, 9, 9].map(seconds));
    }
}
