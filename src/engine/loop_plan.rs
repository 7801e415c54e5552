//! Loops, which call a tool several times.

use std::time::Duration;

use super::call_site::CallSite;
use crate::expr::{Collection, Condition};

/// A loop of a step. It calls a tool once per element of a collection, or until a condition is
/// true.
#[derive(Debug)]
pub(crate) struct LoopPlan {
    pub(crate) kind: LoopKind,
    /// The maximum number of loop elements or iterations. Each makes one tool call, not counting
    /// retries.
    pub(crate) max_iterations: usize,
    /// The maximum number of loop elements that run at the same time.
    pub(crate) max_parallel: usize,
    /// The delay before each element except the first.
    pub(crate) delay: Duration,
    pub(crate) call: CallSite,
}

#[derive(Debug)]
pub(crate) enum LoopKind {
    /// Calls the tool for each element of a collection. If the collection has more than
    /// `max_iterations` elements, the step fails without making a call.
    ForEach {
        collection: Collection,
        /// If `true`, the loop ends after the first element that succeeds. Other running elements
        /// are then cancelled, and the remaining ones are skipped. If no element succeeds, the step
        /// fails.
        first_success: bool,
    },
    /// Calls the tool until a condition is true.
    Repeat(Repeat),
}

/// A loop that calls a tool until a condition is true.
///
/// In the arguments of the tool call, the item is the output of the previous iteration. The first
/// iteration has no item.
#[derive(Debug)]
pub(crate) struct Repeat {
    /// The condition that ends the loop. In this condition, the item is the output of the iteration
    /// that has just ended.
    pub(crate) until: Condition,
    /// The factor by which the delay grows with each iteration. For example, 2.0 doubles it.
    pub(crate) backoff: f64,
    /// The maximum delay between two iterations.
    pub(crate) max_delay: Duration,
    /// The maximum duration of the whole loop, including its delays. `None` if only the timeout of
    /// the run limits it.
    pub(crate) timeout: Option<Duration>,
}

// === impl LoopPlan ===

impl LoopPlan {
    /// Returns the word for an element of this loop in messages.
    pub(crate) const fn noun(&self) -> &'static str {
        match self.kind {
            LoopKind::ForEach { .. } => "element",
            LoopKind::Repeat(_) => "iteration",
        }
    }

    /// Returns the collection, if the loop calls the tool for each of its elements.
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

    /// Returns `true` if a failed element does not stop the loop. The step can then complete,
    /// provided that the run continues after a failure of the step.
    pub(super) const fn tolerates_failures(&self) -> bool {
        matches!(self.kind, LoopKind::ForEach { first_success: false, .. })
    }

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

    /// Returns an error message if `count`, the number of elements in the collection, is greater
    /// than `max_iterations`.
    pub(super) fn reject(&self, count: usize) -> Option<String> {
        let max = self.max_iterations;
        (count > max)
            .then(|| format!("{count} elements: expected at most {max} (`max_iterations`)"))
    }

    /// Returns the delay before a loop element. The first element, with index 0, has no delay.
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
    /// Returns the error message of a loop whose condition is still false after `count` iterations.
    /// `setting` is the limit that ended the loop, such as `max_iterations`.
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
