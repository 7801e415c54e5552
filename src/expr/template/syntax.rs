//! The syntax tree of a template.

use super::{filters, names::Path};

/// A statement, an expression or a text.
#[derive(Debug)]
pub(super) enum Node<E> {
    Text(Box<str>),
    Output(E),
    If {
        /// The conditions and their bodies.
        branches: Vec<(E, Vec<Self>)>,
        otherwise: Vec<Self>,
    },
    For {
        /// The number of loop variables; the first is `local`.
        targets: usize,
        local: usize,
        values: E,
        condition: Option<E>,
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
    /// Its start in bytes.
    pub(super) start: usize,
}

#[derive(Debug)]
pub(super) enum Expr {
    /// A constant in minijinja's syntax.
    Constant(&'static str),
    Number(Box<str>),
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
    Filter(Box<Self>, Box<str>, Vec<Argument>),
    Test(Box<Self>, Box<str>, Vec<Argument>),
    Call(Box<str>, Vec<Argument>),
}

#[derive(Debug)]
pub(super) struct Argument {
    pub(super) name: Option<Box<str>>,
    pub(super) value: Expr,
}

// === impl Expr ===

impl Expr {
    /// Returns the expression in minijinja's syntax, with brackets wherever its precedence could
    /// differ, and with functions in place of operators that could use unlimited memory.
    pub(super) fn emit(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    /// Describes the type of its value, if it is the same in every run.
    pub(super) fn kind(&self, paths: &[Path]) -> Option<&'static str> {
        Some(match self {
            Self::Constant("none") => "null",
            Self::Constant(_) | Self::Not(_) | Self::Compare(..) | Self::Test(..) => "a boolean",
            Self::Number(_) | Self::Negative(_) => "a number",
            Self::Text(_) | Self::Arithmetic("~", ..) => "a string",
            Self::Arithmetic("+", left, right) => {
                let left = left.kind(paths)?;
                return (right.kind(paths) == Some(left)).then_some(left);
            }
            Self::Arithmetic(..) => "a number",
            Self::List(_) | Self::Call(..) => "an array",
            Self::Map(_) => "an object",
            Self::Path(path) => return paths[*path].kind(),
            Self::Filter(_, name, _) => return filters::kind_of(name),
            Self::Part { .. } | Self::Slice { .. } | Self::Logic(..) | Self::If { .. } => {
                return None;
            }
        })
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Constant(text) => out.push_str(text),
            Self::Number(text) => out.push_str(text),
            Self::Text(text) => quote(text, out),
            Self::Path(path) => {
                out.push('v');
                out.push_str(&path.to_string());
            }
            Self::Part { of, key, optional } => {
                let function = if *optional { "part_or_nothing" } else { "part" };
                call(function, [&**of, &**key].into_iter().map(Some), out);
            }
            Self::Slice { of, bounds } => {
                let bounds = bounds.iter().map(Option::as_deref);
                call("slice", std::iter::once(Some(&**of)).chain(bounds), out);
            }
            Self::List(elements) => write_list(elements, out),
            Self::Map(members) => write_map(members, out),
            Self::Not(operand) => unary("not ", operand, out),
            Self::Negative(operand) => {
                out.push_str("(-");
                number("-", operand, out);
                out.push(')');
            }
            Self::Arithmetic("~", left, right) => call("concat", [Some(&**left), Some(right)], out),
            Self::Arithmetic("+", left, right) => call("add", [Some(&**left), Some(right)], out),
            Self::Arithmetic(symbol, left, right) => arithmetic(symbol, left, right, out),
            Self::Logic(word, left, right) => infix(left, word, right, out),
            Self::Compare(first, others) => comparisons(first, others, out),
            Self::If { test, then, otherwise } => {
                conditional(test, then, otherwise.as_deref(), out);
            }
            Self::Filter(of, name, arguments) => postfix(of, "|", name, arguments, out),
            Self::Test(of, name, arguments) => postfix(of, " is ", name, arguments, out),
            Self::Call(name, arguments) => {
                out.push_str(name);
                write_arguments(arguments, out);
            }
        }
    }
}

fn write_list(elements: &[Expr], out: &mut String) {
    out.push('[');
    for element in elements {
        element.write(out);
        out.push(',');
    }
    out.push(']');
}

fn write_map(members: &[(Expr, Expr)], out: &mut String) {
    out.push('{');
    for (key, value) in members {
        key.write(out);
        out.push(':');
        value.write(out);
        out.push(',');
    }
    out.push('}');
}

fn unary(symbol: &str, operand: &Expr, out: &mut String) {
    out.push('(');
    out.push_str(symbol);
    operand.write(out);
    out.push(')');
}

fn arithmetic(symbol: &str, left: &Expr, right: &Expr, out: &mut String) {
    out.push('(');
    number(symbol, left, out);
    out.push_str(symbol);
    number(symbol, right, out);
    out.push(')');
}

fn infix(left: &Expr, word: &str, right: &Expr, out: &mut String) {
    out.push('(');
    left.write(out);
    out.push(' ');
    out.push_str(word);
    out.push(' ');
    right.write(out);
    out.push(')');
}

/// Writes a chain of comparisons, such as `a < b < c`, as a conjunction.
fn comparisons(first: &Expr, others: &[(&'static str, Expr)], out: &mut String) {
    out.push('(');
    let mut left = first;
    for (place, (symbol, right)) in others.iter().enumerate() {
        if place > 0 {
            out.push_str(" and ");
        }
        compare(left, symbol, right, out);
        left = right;
    }
    out.push(')');
}

/// Writes one comparison of a chain.
fn compare(left: &Expr, symbol: &str, right: &Expr, out: &mut String) {
    if is_order(symbol) {
        out.push_str("ordered(");
        left.write(out);
        out.push_str(",\"");
        out.push_str(symbol);
        out.push_str("\",");
        right.write(out);
        out.push(')');
        return;
    }
    out.push('(');
    left.write(out);
    out.push(' ');
    out.push_str(symbol);
    out.push(' ');
    if symbol.ends_with("in") {
        call("container", [Some(right)], out);
    } else {
        right.write(out);
    }
    out.push(')');
}

fn conditional(test: &Expr, then: &Expr, otherwise: Option<&Expr>, out: &mut String) {
    out.push('(');
    then.write(out);
    out.push_str(" if ");
    test.write(out);
    if let Some(otherwise) = otherwise {
        out.push_str(" else ");
        otherwise.write(out);
    }
    out.push(')');
}

/// Writes a filter or a test, which follows its value.
fn postfix(of: &Expr, operator: &str, name: &str, arguments: &[Argument], out: &mut String) {
    out.push('(');
    of.write(out);
    out.push_str(operator);
    out.push_str(name);
    write_arguments(arguments, out);
    out.push(')');
}

/// Returns `true` if an operator needs an order of its operands.
pub(super) fn is_order(symbol: &str) -> bool {
    matches!(symbol, "<" | "<=" | ">" | ">=")
}

/// Writes an operand that must be a number. minijinja's `*` would repeat texts and lists.
fn number(symbol: &str, operand: &Expr, out: &mut String) {
    if let Expr::Number(_) = operand {
        return operand.write(out);
    }
    out.push_str("number(");
    operand.write(out);
    out.push_str(",\"");
    out.push_str(symbol);
    out.push_str("\")");
}

fn call<'e>(name: &str, arguments: impl IntoIterator<Item = Option<&'e Expr>>, out: &mut String) {
    out.push_str(name);
    out.push('(');
    for argument in arguments {
        match argument {
            Some(argument) => argument.write(out),
            None => out.push_str("none"),
        }
        out.push(',');
    }
    out.push(')');
}

fn write_arguments(arguments: &[Argument], out: &mut String) {
    out.push('(');
    for Argument { name, value } in arguments {
        if let Some(name) = name {
            out.push_str(name);
            out.push('=');
        }
        value.write(out);
        out.push(',');
    }
    out.push(')');
}

/// Writes a string literal in minijinja's syntax.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => {
                let mut units = [0; 2];
                for unit in c.encode_utf16(&mut units) {
                    out.push_str("\\u");
                    for shift in [12, 8, 4, 0] {
                        let digit = u32::from(*unit >> shift & 0xf);
                        out.extend(char::from_digit(digit, 16));
                    }
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
