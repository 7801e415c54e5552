//! The syntax tree of a template.

use super::{filters::Filter, names::Path, numeric::Numeric, predicates::Test};

/// A statement, an expression or a text.
#[derive(Debug)]
pub(super) enum Node {
    Text(Box<str>),
    Output(Written),
    If {
        /// The conditions and their bodies.
        branches: Vec<(Written, Vec<Self>)>,
        otherwise: Vec<Self>,
    },
    For {
        /// The number of loop variables; the first is `local`.
        targets: usize,
        local: usize,
        values: Written,
        condition: Option<Written>,
        body: Vec<Self>,
        otherwise: Vec<Self>,
    },
}

/// A parsed expression with its references.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) expression: Expr,
    /// The paths that [`Expr::Path`] refers to.
    pub(super) paths: Vec<Path>,
    /// The number of nodes of the expression.
    pub(super) size: usize,
    pub(super) text: Box<str>,
}

#[derive(Debug)]
pub(super) enum Expr {
    Null,
    Bool(bool),
    Number(Numeric),
    Text(Box<str>),
    /// An index into the paths of the expression.
    Path(usize),
    /// A part with a computed key, or a part of a computed value.
    Part {
        of: Box<Self>,
        key: Box<Self>,
        /// Whether it may be missing.
        optional: bool,
    },
    Slice {
        of: Box<Self>,
        /// Start, end and step.
        bounds: [Option<Box<Self>>; 3],
    },
    List(Vec<Self>),
    Map(Vec<(Self, Self)>),
    Not(Box<Self>),
    Negative(Box<Self>),
    Arithmetic(&'static str, Box<Self>, Box<Self>),
    /// `and`, `or`
    Logic(&'static str, Box<Self>, Box<Self>),
    Compare(Box<Self>, Vec<(&'static str, Self)>),
    If {
        test: Box<Self>,
        then: Box<Self>,
        otherwise: Option<Box<Self>>,
    },
    Filter(Box<Self>, &'static Filter, Vec<Argument>),
    Test(Box<Self>, &'static Test, Vec<Argument>),
    /// The only function.
    Range(Vec<Argument>),
}

#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: Option<Box<str>>,
    pub(super) value: Expr,
}

// === impl Expr ===

impl Expr {
    /// Describes the type of its value, if it is the same in every run.
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

/// Returns `true` if an operator needs an order of its operands.
pub(super) fn is_order(symbol: &str) -> bool {
    matches!(symbol, "<" | "<=" | ">" | ">=")
}
