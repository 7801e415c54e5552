//! The filter that searches a text with a regular expression.

use regex::{Captures, Regex, RegexBuilder};
use regex_automata::nfa::thompson::{self, NFA};

use crate::expr::template::{
    arguments::{Arguments, Call},
    value::{Budget, Evaluated, Failure, Text, Value},
};

/// The maximum size in bytes of a compiled regular expression.
const MAX_COMPILED_BYTES: usize = 128 * 1024;
/// The number of text bytes that a search compares with one state of the expression in one step.
const BYTES_PER_STEP: usize = 64;
/// The number of steps that it takes to compile one state of an expression.
const STEPS_PER_STATE: usize = 4;

/// A compiled regular expression.
#[derive(Debug)]
pub(in crate::expr::template) struct Pattern {
    regex: Regex,
    /// The number of states of its NFA. The time of a search is proportional to this number in the
    /// worst case.
    states: usize,
}

// === impl Pattern ===

impl Pattern {
    /// Compiles a regular expression in the syntax of the crate `regex`.
    ///
    /// # Errors
    ///
    /// Returns the reason in one line if the expression is invalid or too large.
    pub(in crate::expr::template) fn new(pattern: &str) -> Result<Self, String> {
        let regex = RegexBuilder::new(pattern)
            .size_limit(MAX_COMPILED_BYTES)
            .dfa_size_limit(MAX_COMPILED_BYTES)
            .build();
        let regex = regex.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => {
                format!("the regular expression needs more than {MAX_COMPILED_BYTES} bytes")
            }
            error => {
                let text = error.to_string();
                let reason = text.lines().last().unwrap_or_default();
                format!("invalid regular expression: {}", reason.trim_start_matches("error: "))
            }
        })?;
        let config = thompson::Config::new().nfa_size_limit(Some(MAX_COMPILED_BYTES));
        let nfa = NFA::compiler().configure(config).build(pattern);
        let states = nfa.map_err(|error| error.to_string())?.states().len();
        Ok(Self { regex, states })
    }

    /// Deducts the steps for one search of a text from the budget.
    fn charge(&self, budget: &Budget, text: &str) -> Evaluated<()> {
        budget.step(self.states + (text.len() / BYTES_PER_STEP).saturating_mul(self.states))
    }

    /// Returns the value of a match: an object if the expression has named groups, and otherwise
    /// the matched text.
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

/// Returns the first match of a regular expression in a text, or the undefined value if there is
/// none. With `all=true`, returns a list of all matches that do not overlap.
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
        // Each search begins with the same preparations.
        budget.step(pattern.states)?;
        pattern.found(budget, &captures)
    });
    budget.list(matches)
}

impl Budget {
    /// Returns a compiled expression, and deducts the steps of its compilation from the budget. An
    /// evaluation keeps the last expression, which a filter may apply to each element of a list.
    fn pattern(&self, pattern: &str) -> Evaluated<std::rc::Rc<Pattern>> {
        let mut last = self.pattern.borrow_mut();
        if let Some(last) = last.as_ref().filter(|last| last.regex.as_str() == pattern) {
            return Ok(last.clone());
        }
        let compiled = std::rc::Rc::new(Pattern::new(pattern).map_err(Failure::other)?);
        self.step(compiled.states.saturating_mul(STEPS_PER_STATE))?;
        *last = Some(compiled.clone());
        Ok(compiled)
    }
}
