//! The regular expressions of the filter `search`.

use regex::{Regex, RegexBuilder};
use regex_automata::nfa::thompson::{self, NFA};

/// The maximum size of a compiled regular expression, in bytes.
const MAX_COMPILED_BYTES: usize = 128 * 1024;

/// A compiled regular expression.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) regex: Regex,
    /// The number of states of the regular expression as a nondeterministic finite automaton. The
    /// maximum duration of a search is proportional to it.
    pub(super) states: usize,
}

// === impl Pattern ===

impl Pattern {
    /// Compiles a regular expression in the syntax of the `regex` crate.
    ///
    /// # Errors
    ///
    /// Returns an error message in one line if the expression is invalid or its compiled form is
    /// too large.
    pub(super) fn new(pattern: &str) -> Result<Self, String> {
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
}
