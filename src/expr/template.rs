//! Templates: strings with expressions in `{{ }}` and statements in `{% %}`.

use std::{fmt, sync::Arc};

use serde_json::Value;

use self::{
    budget::Failure,
    names::{Path, Scope, Start},
    syntax::{Node, Written},
    tokens::{Mistake, Piece, fault},
};
use super::{
    EvaluationError, ExpressionError, PathSegment,
    data::{Data, Root},
    names::ScopeNames,
    reference::Use,
};
use crate::text_position::{line_number, line_start};

mod arguments;
mod budget;
mod evaluate;
mod filters;
mod names;
mod numeric;
mod operators;
mod order;
mod parser;
mod pattern;
mod predicates;
mod statements;
mod syntax;
#[cfg(test)]
mod tests;
mod text_builder;
mod tokens;
mod value;

pub(crate) use self::budget::MAX_RENDERED_BYTES;

/// The maximum length of a template, in bytes.
const MAX_TEMPLATE_BYTES: usize = 64 << 10;

/// The maximum length of a template in error messages, in characters.
const MAX_DISPLAYED_TEMPLATE: usize = 80;

/// A parsed template: a single expression such as `{{ input.count }}`, or a text with expressions
/// and statements.
#[derive(Clone, Debug)]
pub(super) struct Template(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    written: Box<str>,
    content: Content,
    /// For each path of the content, `true` if the template checks with `is defined` whether the
    /// value exists, here or elsewhere. The value may then be missing everywhere in the template.
    checked: Box<[bool]>,
    /// If `true`, the template reads a secret variable.
    has_secrets: bool,
}

#[derive(Debug)]
enum Content {
    /// The whole template is one expression, such as `{{ input.count }}`. Its value keeps its type.
    Expression(Written),
    Text(Vec<Node>),
}

// === impl Template ===

impl Template {
    /// Returns `true` if a string is a template: it contains `{{` or `{%`.
    pub(super) fn is_one(text: &str) -> bool {
        text.contains("{{") || text.contains("{%")
    }

    /// Parses a template with braces, such as `Dear {{ input.name }}`.
    pub(super) fn parse(text: &str, names: &ScopeNames<'_>) -> Result<Self, ExpressionError> {
        Self::parse_with(text, || {
            let mut pieces = tokens::pieces(text)?;
            // A leading `$$` means `$`, as in a literal string.
            if let Some(Piece::Text(first)) = pieces.first_mut()
                && first.starts_with("$$")
            {
                *first = &first[1..];
            }
            let mut scope = Scope::new(names);
            match &*pieces {
                [Piece::Output(code)] => {
                    Ok(Content::Expression(parser::expression(text, code, &mut scope)?))
                }
                _ => Ok(Content::Text(statements::template(text, pieces, &mut scope)?)),
            }
        })
    }

    /// Parses a template without braces, such as `input.count > 3`.
    pub(super) fn parse_expression(
        text: &str,
        names: &ScopeNames<'_>,
    ) -> Result<Self, ExpressionError> {
        Self::parse_with(text, || {
            let code = tokens::expression(text)?;
            let written = parser::expression(text, &code, &mut Scope::new(names))?;
            Ok(Content::Expression(written))
        })
    }

    fn parse_with(
        text: &str,
        parse: impl FnOnce() -> Result<Content, Mistake>,
    ) -> Result<Self, ExpressionError> {
        let content = if text.len() > MAX_TEMPLATE_BYTES {
            Err(fault(0, format!("more than {MAX_TEMPLATE_BYTES} bytes")))
        } else {
            parse()
        };
        match content {
            Ok(content) => {
                let (checked, has_secrets) = (content.checked(), content.has_secrets());
                Ok(Self(Arc::new(Inner { written: text.into(), content, checked, has_secrets })))
            }
            Err(Mistake::Reference(error)) => Err(error),
            Err(Mistake::Syntax { reason, at }) => {
                let before = &text[..at];
                let column = before[line_start(before)..].chars().count() + 1;
                let line = line_number(before);
                Err(ExpressionError::Template { reason, line, column })
            }
        }
    }

    /// Evaluates the template. Returns the value of a single expression, and otherwise a string.
    pub(super) fn evaluate(&self, data: &dyn Data) -> Result<Value, EvaluationError> {
        let value = match &self.0.content {
            Content::Expression(code) => code.value(data),
            Content::Text(nodes) => evaluate::render(nodes, data).map(Value::String),
        };
        value.map_err(|(text, failure)| match failure {
            Failure::Missing(reference) => EvaluationError::Missing { reference },
            Failure::WrappedArray(reference) => EvaluationError::WrappedArray { reference },
            Failure::TooLarge => {
                EvaluationError::TooLarge { template: shorten(text), max: MAX_RENDERED_BYTES }
            }
            failure => {
                EvaluationError::Template { template: shorten(text), reason: failure.to_string() }
            }
        })
    }

    pub(super) fn has_secrets(&self) -> bool {
        self.0.has_secrets
    }

    /// Returns the text of each reference to a secret variable, such as `vars.key`.
    pub(super) fn secrets(&self) -> impl Iterator<Item = &str> {
        let secrets = self.0.content.paths().filter(|(path, _)| path.is_secret());
        secrets.map(|(path, _)| &*path.text)
    }

    /// Returns the references whose values always appear unchanged in the value of the template.
    /// Excludes references inside `{% if %}` and `{% for %}` blocks and in larger expressions.
    pub(super) fn bare_references(&self) -> Vec<(Root, &[PathSegment])> {
        let codes: Vec<&Written> = match &self.0.content {
            Content::Expression(code) => vec![code],
            Content::Text(nodes) => {
                let outputs = nodes.iter().filter_map(|node| match node {
                    Node::Output(code) => Some(code),
                    Node::Text(_) | Node::If { .. } | Node::For(_) => None,
                });
                outputs.collect()
            }
        };
        let bare = codes.into_iter().filter(|code| code.is_bare());
        let paths = bare.filter_map(|code| match &*code.paths {
            [Path { start: Start::Root(root), segments, .. }] => Some((*root, &**segments)),
            _ => None,
        });
        paths.collect()
    }

    /// Returns all references to values of the run, in order. Excludes loop variables. `place` is
    /// the path of the template in an expression.
    pub(super) fn uses(&self, place: &[PathSegment]) -> Vec<Use<'_>> {
        let bare = matches!(&self.0.content, Content::Expression(code) if code.is_bare());
        let paths = self.0.content.paths().zip(&self.0.checked);
        let uses = paths.filter_map(|((path, certain), checked)| {
            // Loop variables are omitted, because they are not values of the run.
            let Start::Root(root) = path.start else { return None };
            Some(Use {
                place: place.to_vec(),
                root,
                path: &path.segments,
                optional: path.optional || *checked,
                bare,
                certain: certain && path.certain,
                text: &path.text,
            })
        });
        uses.collect()
    }
}

/// Templates are equal if their texts are equal and their references have the same meaning.
impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        self.0.written == other.0.written && self.uses(&[]) == other.uses(&[])
    }
}

/// Formats the template as written in the definition.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.written)
    }
}

/// Truncates a template for an error message to [`MAX_DISPLAYED_TEMPLATE`] characters.
fn shorten(text: &str) -> String {
    let end = text.char_indices().nth(MAX_DISPLAYED_TEMPLATE).map(|(end, _)| end);
    end.map_or_else(|| text.to_owned(), |end| format!("{}…", &text[..end]))
}

// === impl Content ===

impl Content {
    /// Returns all expressions in the template. The flag is `true` if the expression is always
    /// evaluated, and `false` if an `{% if %}` or `{% for %}` block may skip it.
    fn codes(&self) -> Vec<(&Written, bool)> {
        let mut codes = Vec::new();
        match self {
            Self::Expression(code) => codes.push((code, true)),
            Self::Text(nodes) => collect(nodes, true, &mut codes),
        }
        codes
    }

    /// Returns all paths, in order. The flag of a path is `true` if its code is always evaluated.
    fn paths(&self) -> impl Iterator<Item = (&Path, bool)> {
        let codes = self.codes().into_iter();
        codes.flat_map(|(code, certain)| code.paths.iter().map(move |path| (path, certain)))
    }

    fn has_secrets(&self) -> bool {
        self.paths().any(|(path, _)| path.is_secret())
    }

    /// Returns for each path whether `is defined` checks it, or a value that contains it.
    fn checked(&self) -> Box<[bool]> {
        let checked: Vec<_> = self.paths().filter(|(path, _)| path.checked).collect();
        let is_checked = |(path, _): (&Path, bool)| {
            checked.iter().any(|(checked, _)| {
                checked.start == path.start && path.segments.starts_with(&checked.segments)
            })
        };
        self.paths().map(is_checked).collect()
    }
}

/// Appends all expressions in `nodes` to `codes`. The flag of an expression is `true` if it is
/// always evaluated, and `false` if an `{% if %}` or `{% for %}` block may skip it. `certain` is
/// `false` if `nodes` are inside such a block.
fn collect<'c>(nodes: &'c [Node], certain: bool, codes: &mut Vec<(&'c Written, bool)>) {
    for node in nodes {
        match node {
            Node::Text(_) => (),
            Node::Output(code) => codes.push((code, certain)),
            Node::If { branches, otherwise } => {
                for (index, (test, nodes)) in branches.iter().enumerate() {
                    codes.push((test, certain && index == 0));
                    collect(nodes, false, codes);
                }
                collect(otherwise, false, codes);
            }
            Node::For(each) => {
                codes.push((&each.values, certain));
                codes.extend(each.condition.iter().map(|condition| (condition, false)));
                collect(&each.body, false, codes);
                collect(&each.otherwise, false, codes);
            }
        }
    }
}
