//! The names that expressions can refer to.

use super::Variables;

/// The words for operators, constants and statements. They cannot be used as names.
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

/// Other names that cannot be used for loop elements, because they have another meaning.
pub(super) const RESERVED: [&str; 11] = [
    "input", "params", "prev", "steps", "vars", "workflow", "index", "loop", "True", "False",
    "None",
];

/// The names to which an expression can refer. They depend on the place of the expression in the
/// definition of a composite.
///
/// All expressions can refer to the input. `ScopeNames::default()` contains only the input.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeNames<'n> {
    /// The names of all steps, in the order of their indexes.
    pub(crate) steps: &'n [&'n str],
    /// The step whose output is the value of `$prev`.
    pub(crate) previous: Previous,
    /// In a pipeline, the number of steps before the step of the expression, which can refer only
    /// to these steps. `None` if the expression can refer to all steps. In this case, a step always
    /// runs after the steps to which its expressions refer.
    pub(crate) before: Option<usize>,
    /// The name by which expressions in a loop refer to the current element. `None` outside of
    /// loops.
    pub(crate) item: Option<&'n str>,
    /// Whether the expression can refer to the run and the composite, for example by `workflow.id`,
    /// `workflow.name` or `workflow.started_at`.
    pub(crate) run: bool,
    /// The variables that expressions can refer to. `None` if `vars` is an unknown name.
    pub(crate) variables: Option<&'n Variables>,
    /// Whether the expression can refer to secret variables, because clients do not see its value.
    pub(crate) allows_secrets: bool,
    /// Whether strings with an unknown name after the `$` are literals, and all references are
    /// optional.
    pub(crate) lenient: bool,
}

/// The step whose output is the value of `$prev`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Previous {
    /// No previous step exists, because the steps do not run one after the other. `$prev` is an
    /// unknown name.
    #[default]
    None,
    /// No previous step exists, because the expression belongs to the first step of a pipeline.
    /// `$prev` is an error.
    First,
    /// The step with this index.
    Step(usize),
}

/// Returns `true` if `name` cannot be used for loop elements, because it is a keyword or has
/// another meaning.
pub(crate) fn is_reserved(name: &str) -> bool {
    KEYWORDS.contains(&name) || RESERVED.contains(&name)
}
