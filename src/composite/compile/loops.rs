//! Compiles the loops of pipelines and workflows.

use std::time::Duration;

use super::mistakes::DefinitionPath;
use crate::{
    composite::{
        definition::CompositeTool,
        error::DefinitionErrorKind as Kind,
        repeat::{MAX_REPEAT_DELAY, Repeat},
        step::{ForEach, STEP_TIMEOUT, Step},
    },
    engine::plan::{self, CallSite, LoopKind, LoopPlan},
    expr::{Collection, Condition, Root, ScopeNames, is_reserved},
};

/// The upper bound of the loop setting `max_parallel`, which limits how many elements are processed
/// at the same time.
const MAX_LOOP_PARALLEL: usize = 50;
/// The upper bound of the loop setting `max_iterations`, which limits how many elements or
/// iterations a loop may have.
const MAX_ITERATIONS: usize = 1000;
/// The upper bound of the setting `backoff`, which is the factor by which a delay grows.
const MAX_BACKOFF: u32 = 100;
/// The variable that contains the output of the previous iteration of a repeated call. References
/// write it as `$last`.
const LAST: &str = "last";

/// Compiles the settings of a loop step, such as its collection or its end condition. The tool call
/// of the loop is already compiled.
pub(super) struct LoopCompiler<'c> {
    pub(super) definition: &'c CompositeTool,
    pub(super) step: &'c Step,
    pub(super) remarks: &'c mut Vec<String>,
}

/// Returns the names that references in a looped tool call can use: all of `names`, and the
/// variable `item`, which contains the current element.
pub(super) const fn names_within<'n>(names: &ScopeNames<'n>, item: &'n str) -> ScopeNames<'n> {
    ScopeNames { item: Some(item), ..*names }
}

/// Returns the names that references in a repeated call and in its condition can use: all of
/// `names`, and the variable `last`, which contains the output of the previous iteration.
pub(super) const fn names_repeated<'n>(names: &ScopeNames<'n>) -> ScopeNames<'n> {
    names_within(names, LAST)
}

// === impl LoopCompiler ===

impl LoopCompiler<'_> {
    /// Compiles a loop over a collection, and adds its errors at the path `at`. If there are
    /// errors, the result must not be used.
    pub(super) fn for_each(
        mut self,
        each: &ForEach,
        call: CallSite,
        names: &ScopeNames<'_>,
        at: &mut DefinitionPath<'_>,
    ) -> LoopPlan {
        let ForEach {
            collection,
            item_var,
            max_parallel,
            max_iterations,
            delay,
            first_success,
            call: _,
        } = each;
        let (max_parallel, max_iterations, delay) = (*max_parallel, *max_iterations, *delay);
        let collection = Collection::parse(collection, names)
            .map_err(|errors| at.push_all("collection", &errors))
            .unwrap_or_default();
        if !is_variable(item_var) {
            at.push(["item_var"], Kind::IllegalItemVar { name: item_var.clone() });
        }
        at.within_bounds("max_parallel", max_parallel, MAX_LOOP_PARALLEL);
        at.within_bounds("max_iterations", max_iterations, MAX_ITERATIONS);

        let rounds = max_iterations.div_ceil(max_parallel.max(1));
        let timeout = self.step.timeout.unwrap_or(STEP_TIMEOUT);
        let longest = timeout.saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX));
        let CompositeTool { name, timeout: run_timeout, .. } = self.definition;
        if self.step.timeout.is_some() && longest > *run_timeout {
            self.remarks.push(format!(
                "composite `{name}`: step `{}` may take {longest:?}, {rounds} times its `timeout`, and the run {run_timeout:?}",
                self.step.id,
            ));
        }
        let kind = LoopKind::ForEach { collection, first_success: *first_success };
        let each = LoopPlan { kind, max_parallel, max_iterations, delay, call };
        self.remark_delays(&each);
        each
    }

    /// Compiles a loop that ends when a condition holds, and adds its errors at the path `at`. If
    /// there are errors, the result must not be used.
    pub(super) fn repeat(
        mut self,
        repeat: &Repeat,
        call: CallSite,
        names: &ScopeNames<'_>,
        at: &mut DefinitionPath<'_>,
    ) -> LoopPlan {
        let Repeat { until, delay, backoff, max_delay, max_iterations, call: _ } = repeat;
        let (delay, backoff, max_iterations) = (*delay, *backoff, *max_iterations);
        let names = names_repeated(names);
        let condition = at.parsed("until", Condition::parse(until, &names));
        for used in call.uses() {
            // The first iteration has no previous output.
            if used.root == Root::Item && used.certain && !used.optional {
                let place = [&["arguments".into()], &*used.place].concat();
                let reference = used.text.to_owned();
                let fallback = if reference.starts_with('$') { "?" } else { " | default('')" };
                let near = format!("{reference}{fallback}");
                at.push(place, Kind::AbsentLast { reference, near });
            }
        }
        if !(1.0..=f64::from(MAX_BACKOFF)).contains(&backoff) {
            let factor = backoff.to_string();
            at.push(["backoff"], Kind::Backoff { factor, max: MAX_BACKOFF });
        }
        at.meaningless("backoff", backoff > 1.0 && delay.is_zero(), "delay = \"0s\"");
        at.meaningless("max_delay", max_delay.is_some() && backoff <= 1.0, "backoff = 1");
        if let Some(max_delay) = max_delay.filter(|max_delay| delay > *max_delay) {
            at.push(["delay"], Kind::DelayTooLong { delay, max_delay });
        }
        at.within_bounds("max_iterations", max_iterations, MAX_ITERATIONS);

        let until = condition.unwrap_or_default();
        self.remark_until(&until);
        let max_delay = max_delay.unwrap_or_else(|| MAX_REPEAT_DELAY.max(delay));
        let timeout = self.step.timeout;
        let kind = LoopKind::Repeat(plan::Repeat { until, backoff, max_delay, timeout });
        let each = LoopPlan { kind, max_parallel: 1, max_iterations, delay, call };
        self.remark_delays(&each);
        each
    }

    /// Adds a remark if a repeated call may never end, because its condition `until` uses neither
    /// the output nor the index of the latest iteration.
    fn remark_until(&mut self, until: &Condition) {
        let changes = |root| matches!(root, Root::Item | Root::Index);
        if !until.uses().iter().any(|used| changes(used.root)) {
            self.remarks.push(format!(
                "composite `{}`: step `{}` may never end, because its `until` does not read `$last`",
                self.definition.name, self.step.id,
            ));
        }
    }

    /// Adds a remark if the total delay between the iterations of a loop may exceed the timeout of
    /// the run.
    fn remark_delays(&mut self, each: &LoopPlan) {
        // A larger maximum is an error.
        let count = each.max_iterations.min(MAX_ITERATIONS);
        let delays = (1..count).map(|element| each.delay_before(element));
        let delays = delays.fold(Duration::ZERO, Duration::saturating_add);
        let timeout = each.as_repeat().and_then(|repeat| repeat.timeout);
        let longest = timeout.map_or(delays, |timeout| timeout.min(delays));
        let CompositeTool { name, timeout: run_timeout, .. } = self.definition;
        if longest > *run_timeout {
            self.remarks.push(format!(
                "composite `{name}`: step `{}` may wait {longest:?} between its {}s, and the run may take {run_timeout:?}",
                self.step.id, each.noun(),
            ));
        }
    }
}

/// Returns `true` if `name` is a valid variable name for the current element of a loop.
fn is_variable(name: &str) -> bool {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') && !is_reserved(name)
}
