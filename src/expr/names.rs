//! The names that expressions can refer to.

/// The names that a loop's element cannot have: names with another meaning, and the words for
/// operators, constants and statements.
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

/// The names that an expression can refer to, which depend on its place in a definition.
///
/// The input can be referenced everywhere. `ScopeNames::default()` allows only the input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeNames<'n> {
    /// The names of all steps, ordered by index.
    pub(crate) steps: &'n [&'n str],
    /// The step whose output `$prev` refers to.
    pub(crate) previous: Previous,
    /// In a pipeline, the number of steps before this one. Only these can be referenced. `None` if
    /// all steps can be referenced, because each step runs after the steps that it references.
    pub(crate) before: Option<usize>,
    /// The name that refers to the current element, if the expression is inside a loop.
    pub(crate) item: Option<&'n str>,
    /// Whether the expression can refer to the id of the run and the name of the composite.
    pub(crate) run: bool,
    /// Whether a reference with an unknown name is a literal text, and a missing value is omitted.
    pub(crate) lenient: bool,
}

/// The step whose output `$prev` refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Previous {
    /// There is no previous step, because the steps do not run one after the other. `$prev` is an
    /// unknown name.
    #[default]
    None,
    /// There is no previous step, because the expression is in the first step. `$prev` is an error.
    First,
    /// The step with this index.
    Step(usize),
}
