/// What the element of a loop cannot be named: the names that mean something
/// already, and the words that operators, constants and statements are made of.
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

/// What an expression may refer to, by the place where it stands.
///
/// The input always can be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ScopeNames<'n> {
    /// The steps of the plan, in its order.
    pub(crate) steps: &'n [&'n str],
    /// What `$prev` means here.
    pub(crate) previous: Previous,
    /// The steps that have this many before them in the plan, and more, are
    /// too late to be referred to; none are where steps go by what they need.
    pub(crate) before: Option<usize>,
    /// The name of the element that a loop is at.
    pub(crate) item: Option<&'n str>,
    /// Whether there is a run at all, with an id and a name.
    pub(crate) run: bool,
    /// Whether an unknown reference is a literal, and a missing value left out.
    pub(crate) lenient: bool,
}

/// What `$prev` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Previous {
    /// Nothing: steps do not run in a row.
    #[default]
    None,
    /// Nothing yet: this is the first step.
    First,
    /// The output of this step.
    Step(usize),
}
