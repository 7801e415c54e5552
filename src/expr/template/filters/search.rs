//! The filter `search`, which finds matches of a regular expression in a string.

use std::rc::Rc;

use regex::Captures;

use crate::expr::template::{
    arguments::{Arguments, Call},
    budget::{Budget, Evaluated, Failure},
    pattern::Pattern,
    value::{Text, Value},
};

/// A search costs one evaluation step for this many bytes, multiplied by the number of states of
/// the regular expression.
const BYTES_PER_STEP: usize = 64;
/// Compiling a regular expression costs this many evaluation steps for each of its states.
const STEPS_PER_STATE: usize = 4;

/// The filter `search`. Returns the first match of a regular expression in a string, or undefined.
/// With `all=true`, returns a list of all matches that do not overlap.
pub(super) fn search<'v>(
    Call { budget, value, mut arguments }: Call<'_, 'v>,
) -> Evaluated<Value<'v>> {
    let pattern = arguments.text("pattern")?.ok_or_else(Arguments::missing)?;
    let is_all = arguments.flag("all")?.unwrap_or(false);
    arguments.end()?;
    let pattern = budget.pattern(&pattern)?;
    let text = value.as_str().unwrap_or_default();
    pattern.charge(budget, text)?;
    if !is_all {
        let first = pattern.regex.captures(text);
        return first.map_or(Ok(Value::Undefined), |captures| pattern.found(budget, &captures));
    }
    let matches = pattern.regex.captures_iter(text).map(|captures| {
        // The search for each match begins with the same preparations, which take time.
        budget.step(pattern.states)?;
        pattern.found(budget, &captures)
    });
    budget.list(matches)
}

// === impl Pattern ===

impl Pattern {
    /// Counts the evaluation steps for one search in `text`.
    fn charge(&self, budget: &Budget, text: &str) -> Evaluated<()> {
        budget.step(self.states + (text.len() / BYTES_PER_STEP).saturating_mul(self.states))
    }

    /// Converts a match to a value: an object with the named groups of the regular expression or,
    /// if it has none, the matched string.
    fn found<'v>(&self, budget: &Budget, captures: &Captures<'_>) -> Evaluated<Value<'v>> {
        let mut names = self.regex.capture_names().flatten().peekable();
        if names.peek().is_none() {
            return budget.text(captures[0].to_owned());
        }
        let members = names.map(|name| {
            let group = captures.name(name);
            let group = group.map_or(Ok(Value::Null), |group| budget.text(group.as_str().into()));
            budget.spend(name.len())?;
            Ok((Text::Shared(name.into()), group?))
        });
        budget.map(members.collect::<Evaluated<_>>()?)
    }
}

// === impl Budget ===

impl Budget {
    /// Compiles a regular expression, and counts the evaluation steps for this. Reuses the last
    /// compiled expression if it is the same, because the filter may be applied to each element of
    /// a list.
    fn pattern(&self, pattern: &str) -> Evaluated<Rc<Pattern>> {
        let mut last = self.pattern.borrow_mut();
        if let Some(last) = last.as_ref().filter(|last| last.regex.as_str() == pattern) {
            return Ok(last.clone());
        }
        let compiled = Rc::new(Pattern::new(pattern).map_err(Failure::other)?);
        self.step(compiled.states.saturating_mul(STEPS_PER_STATE))?;
        *last = Some(compiled.clone());
        Ok(compiled)
    }
}
