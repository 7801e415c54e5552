//! The names that expressions can use.

use super::variables::{VARIABLES, Variables};

/// The keywords of templates. A keyword cannot be a name.
pub(crate) const KEYWORDS: [&str; 14] = [
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "elif",
    "for",
    "true",
    "false",
    "none",
    "null",
    "recursive",
];

/// Further words that loop variables cannot have as names, because they already have a meaning.
pub(super) const RESERVED: [&str; 11] = [
    "input", "params", "prev", "steps", "vars", "workflow", "index", "loop", "True", "False",
    "None",
];

/// The names that an expression can use. They depend on the place of the expression in the
/// definition. For example, only expressions in a loop can use `item`.
///
/// All expressions can use `input`. `ScopeNames::default()` contains no other name.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeNames<'n> {
    /// The names of all steps, in the order of their indexes.
    pub(crate) steps: &'n [&'n str],
    /// The meaning of `$prev`.
    pub(crate) previous: Previous,
    /// The number of steps that the expression can read, because only the steps before a step of a
    /// pipeline have run. `None` if the expression can read all steps.
    pub(crate) before: Option<usize>,
    /// The name of the current element of a loop, such as `item`. `None` outside of loops.
    pub(crate) item: Option<&'n str>,
    /// If `true`, the expression can use `workflow.id`, `workflow.name` and `workflow.started_at`.
    pub(crate) run: bool,
    /// The variables that the expression can read, as in `vars.team`. `None` if it cannot use
    /// `vars`.
    pub(crate) variables: Option<&'n Variables>,
    /// If `true`, the expression can read secret variables, because clients cannot see its value.
    pub(crate) allows_secrets: bool,
    /// If `true`, a string with an unknown name, such as `$5`, is literal, and all references are
    /// optional. If `false`, an unknown name is an error.
    pub(crate) lenient: bool,
}

/// The meaning of `$prev` in an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Previous {
    /// `$prev` is an unknown name, because the composite is not a pipeline.
    #[default]
    None,
    /// `$prev` is an error, because the first step of a pipeline has no previous step.
    First,
    /// `$prev` reads the output of the step with this index.
    Step(usize),
}

// === impl ScopeNames ===

impl<'n> ScopeNames<'n> {
    /// Returns the names with which the references of the expression can begin, such as `input`.
    pub(super) fn known(&self) -> Vec<&'n str> {
        // A reserved name has its own meaning, and its use as a loop variable is another error.
        let item = self.item.filter(|item| !is_reserved(item));
        let names = [
            ("input", true),
            ("prev", self.previous != Previous::None),
            ("steps", !self.steps.is_empty()),
            (item.unwrap_or_default(), item.is_some()),
            ("index", self.item.is_some()),
            ("workflow", self.run),
            (VARIABLES, self.variables.is_some_and(|variables| !variables.is_empty())),
        ];
        names.into_iter().filter_map(|(name, is_known)| is_known.then_some(name)).collect()
    }
}

/// Returns `true` if `name` cannot be the name of a loop variable, because it has another meaning.
pub(crate) fn is_reserved(name: &str) -> bool {
    KEYWORDS.contains(&name) || RESERVED.contains(&name)
}
