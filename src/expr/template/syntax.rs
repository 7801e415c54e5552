//! The syntax tree of a template.

use super::{filters::Filter, names::Path, numeric::Numeric, predicates::Test};

/// A node of a template: literal text, an expression or a statement.
#[derive(Debug)]
pub(super) enum Node {
    Text(Box<str>),
    Output(Written),
    If {
        /// The conditions of `if` and `elif`, each with the nodes to evaluate if it is the first
        /// true one.
        branches: Vec<(Written, Vec<Self>)>,
        otherwise: Vec<Self>,
    },
    For(ForLoop),
}

/// A `for` statement.
#[derive(Debug)]
pub(super) struct ForLoop {
    /// The number of loop variables. Their indexes among all variables in scope start at `local`.
    pub(super) targets: usize,
    pub(super) local: usize,
    pub(super) values: Written,
    pub(super) condition: Option<Written>,
    pub(super) body: Vec<Node>,
    /// The nodes after `else`, which are evaluated if there are no elements.
    pub(super) otherwise: Vec<Node>,
}

/// A parsed expression.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) expression: Expr,
    /// The paths in the expression, such as `input.a`. [`Expr::Path`] contains an index into this
    /// list.
    pub(super) paths: Vec<Path>,
    /// The number of nodes in the syntax tree of the expression.
    pub(super) size: usize,
    pub(super) text: Box<str>,
}

#[derive(Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Number(Numeric),
    Text(Box<str>),
    /// A name with constant keys, such as `input.a[0]`. Contains an index into [`Written::paths`].
    Path(usize),
    /// A member or element of another expression, as in `input.a[input.key]`. Used if the key is
    /// computed or the other expression is not a path.
    Part {
        of: Box<Self>,
        key: Box<Self>,
        /// If `true`, a missing member or element is undefined. If `false`, it is an error.
        optional: bool,
    },
    Slice {
        of: Box<Self>,
        /// The start, end and step of the slice, as in `[1:3]`. `None` if omitted.
        bounds: [Option<Box<Self>>; 3],
    },
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Not(Box<Self>),
    Negative(Box<Self>),
    Arithmetic(&'static str, Box<Self>, Box<Self>),
    /// The operator `and` or `or` with its operands.
    Logic(&'static str, Box<Self>, Box<Self>),
    Compare(Box<Self>, Vec<(&'static str, Self)>),
    If {
        test: Box<Self>,
        then: Box<Self>,
        otherwise: Option<Box<Self>>,
    },
    Filter(Box<Self>, &'static Filter, Vec<Argument>),
    Test(Box<Self>, &'static Test, Vec<Argument>),
    /// A call of `range`, the only function.
    Range(Vec<Argument>),
}

#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: Option<Box<str>>,
    pub(super) value: Expr,
}

// === impl Expr ===

impl Expr {
    /// Returns the type of the expression's value, such as `a string`. Returns `None` if the type
    /// is not known before a run.
    pub(super) fn kind(&self, paths: &[Path]) -> Option<&'static str> {
        Some(match self {
            Self::Null => "null",
            Self::Bool(_) | Self::Not(_) | Self::Compare(..) | Self::Test(..) => "a boolean",
            Self::Number(_) | Self::Negative(_) => "a number",
            Self::Text(_) | Self::Arithmetic("~", ..) => "a string",
            Self::Arithmetic("+", left, right) => {
                let left = left.kind(paths)?;
                return (right.kind(paths) == Some(left)).then_some(left);
            }
            Self::Arithmetic(..) => "a number",
            Self::List(_) | Self::Range(_) => "an array",
            Self::Map(_) => "an object",
            Self::Path(path) => return paths[*path].kind(),
            Self::Filter(_, filter, _) => return filter.gives,
            Self::Part { .. } | Self::Slice { .. } | Self::Logic(..) | Self::If { .. } => {
                return None;
            }
        })
    }
}

/// Returns `true` if `symbol` is one of the operators `<`, `<=`, `>` and `>=`.
pub(super) fn is_order(symbol: &str) -> bool {
    matches!(symbol, "<" | "<=" | ">" | ">=")
}
