//! The names that expressions can refer to.

/// The names that cannot be used for the elements of a loop: names with another meaning, and the
/// keywords for operators, constants and statements.
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

/// The names to which an expression can refer. They depend on the place of the expression in the
/// definition.
///
/// The input can be referenced everywhere. `ScopeNames::default()` allows only the input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeNames<'n> {
    /// The names of all steps, in the order of their indexes.
    pub(crate) steps: &'n [&'n str],
    /// The step to whose output `$prev` refers.
    pub(crate) previous: Previous,
    /// In a pipeline, the number of steps before this step. Expressions can refer only to these
    /// steps. `None` if they can refer to all steps, because each step runs after the steps to
    /// which it refers.
    pub(crate) before: Option<usize>,
    /// The name of the current loop element. `None` if the expression is not inside a loop.
    pub(crate) item: Option<&'n str>,
    /// Whether the expression can refer to the ID of the run and the name of the composite.
    pub(crate) run: bool,
    /// Whether a string with an unknown name after `$` is a literal, and all references are
    /// optional.
    pub(crate) lenient: bool,
}

/// The step to whose output `$prev` refers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Previous {
    /// No previous step exists, because the steps do not run one after the other. `$prev` is then
    /// an unknown name.
    #[default]
    None,
    /// No previous step exists, because the expression belongs to the first step. `$prev` is then
    /// an error.
    First,
    /// The step with this index.
    Step(usize),
}
