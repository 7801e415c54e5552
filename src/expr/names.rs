//! The names that expressions may refer to.

/// Reserved names, which the element of a loop cannot have: names with a meaning of their own, and
/// the words of operators, constants and statements.
pub(crate) const RESERVED: &[&str] = &[
    "input",
    "params",
    "prev",
    "steps",
    "workflow",
    "index",
    "loop",
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "elif",
    "else",
    "for",
    "recursive",
    "true",
    "True",
    "false",
    "False",
    "none",
    "None",
    "null",
];

/// The names that an expression may refer to at its place in a definition.
///
/// The input can always be referenced.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeNames<'n> {
    /// The steps of the plan, in its order.
    pub(crate) steps: &'n [&'n str],
    /// The meaning of `$prev`.
    pub(crate) previous: Previous,
    /// In a pipeline, the number of earlier steps; only these can be referenced. `None` if all
    /// steps can be, because they run in order of their dependencies.
    pub(crate) before: Option<usize>,
    /// The name of the current element of a loop.
    pub(crate) item: Option<&'n str>,
    /// Whether the expression belongs to a run, which has an id and a name.
    pub(crate) run: bool,
    /// Whether an unknown reference is a literal, and a missing value omitted.
    pub(crate) lenient: bool,
}

/// The meaning of `$prev`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Previous {
    /// Undefined, because the steps do not run in sequence.
    #[default]
    None,
    /// Undefined in the first step.
    First,
    /// The output of this step.
    Step(usize),
}
