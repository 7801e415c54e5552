//! The names that expressions can refer to.

use super::Variables;

/// The keywords of the template language: operators, constants and words of statements. A keyword
/// cannot be a name.
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

/// Further words that cannot be the name of a loop variable, because they already have a meaning in
/// expressions.
pub(super) const RESERVED: [&str; 11] = [
    "input", "params", "prev", "steps", "vars", "workflow", "index", "loop", "True", "False",
    "None",
];

/// The names that an expression can use. They depend on the position of the expression in the
/// definition of a composite.
///
/// All expressions can use `input`. It is the only name in `ScopeNames::default()`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeNames<'n> {
    /// The names of all steps, in the order of their indexes.
    pub(crate) steps: &'n [&'n str],
    /// The step whose output `$prev` reads.
    pub(crate) previous: Previous,
    /// The number of steps to which the expression can refer: in a pipeline, only to the steps
    /// before its own step. `None` if the expression can refer to all steps, because each step runs
    /// after the steps to which it refers.
    pub(crate) before: Option<usize>,
    /// The name by which expressions in a loop refer to the current element. `None` outside of
    /// loops.
    pub(crate) item: Option<&'n str>,
    /// If `true`, the expression can refer to the run and the composite by `workflow.id`,
    /// `workflow.name` and `workflow.started_at`.
    pub(crate) run: bool,
    /// The variables that the expression can read as `vars`. `None` if the expression cannot use
    /// the name `vars`.
    pub(crate) variables: Option<&'n Variables>,
    /// If `true`, the expression can read secret variables, because clients do not see its value.
    pub(crate) allows_secrets: bool,
    /// If `true`, a string such as `$5` whose `$` precedes an unknown name is a literal string, and
    /// all references are optional. If `false`, an unknown name is an error.
    pub(crate) lenient: bool,
}

/// The step whose output `$prev` reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Previous {
    /// `$prev` is an unknown name, because the steps do not run one after the other.
    #[default]
    None,
    /// `$prev` is an error, because the expression belongs to the first step of a pipeline.
    First,
    /// `$prev` reads the output of the step with this index.
    Step(usize),
}

/// Returns `true` if `name` cannot be the name of a loop variable, because it is a keyword or
/// already has a meaning in expressions.
pub(crate) fn is_reserved(name: &str) -> bool {
    KEYWORDS.contains(&name) || RESERVED.contains(&name)
}
