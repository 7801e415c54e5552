use std::fmt;

use serde_json::{Map, Value};

use super::{PathSegment, Reference, ReferenceError};

/// A JSON value in which strings may refer to other values.
///
/// See the [module docs](crate::expr) for what can be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

/// A reference and where it stands in its expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<'e> {
    /// The keys and places that lead to it.
    pub path: Vec<PathSegment>,
    /// What it refers to.
    pub reference: &'e Reference,
}

/// A value that a reference needs is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{reference}` has no value")]
pub struct Missing {
    /// The reference as it was written.
    pub reference: String,
}

/// Every mistake in an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpressionErrors(Vec<(Vec<PathSegment>, ReferenceError)>);

#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// Holds no reference at any depth.
    Literal(Value),
    Reference(Reference),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

// === impl Expression ===

impl Expression {
    /// Parses the strings in `value`.
    ///
    /// # Errors
    ///
    /// Returns every string that begins with `$` but is no reference, and every
    /// template, with the place where it stands.
    pub fn parse(value: &Value) -> Result<Self, ExpressionErrors> {
        let mut errors = Vec::new();
        let node = Node::parse(value, &mut Vec::new(), &mut errors);
        if errors.is_empty() { Ok(Self(node)) } else { Err(ExpressionErrors(errors)) }
    }

    /// Puts in the values that are referred to.
    ///
    /// `None` if the whole expression is an optional reference to nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if a reference that is not optional has no value.
    pub fn evaluate(&self, input: &Value) -> Result<Option<Value>, Missing> {
        self.0.evaluate(input)
    }

    /// All references, in the order they are written.
    #[must_use]
    pub fn references(&self) -> Vec<Found<'_>> {
        let mut found = Vec::new();
        self.0.collect(&mut Vec::new(), &mut found);
        found
    }
}

// === impl Node ===

impl Node {
    fn parse(
        value: &Value,
        path: &mut Vec<PathSegment>,
        errors: &mut Vec<(Vec<PathSegment>, ReferenceError)>,
    ) -> Self {
        match value {
            Value::String(text) => Self::parse_text(text).unwrap_or_else(|error| {
                errors.push((path.clone(), error));
                Self::Literal(Value::Null)
            }),
            Value::Array(elements) => {
                let nodes: Vec<_> = elements
                    .iter()
                    .enumerate()
                    .map(|(index, element)| {
                        path.push(PathSegment::Index(index));
                        let node = Self::parse(element, path, errors);
                        path.pop();
                        node
                    })
                    .collect();
                if nodes.iter().all(Self::is_literal) {
                    Self::Literal(nodes.into_iter().filter_map(Self::into_literal).collect())
                } else {
                    Self::Array(nodes)
                }
            }
            Value::Object(members) => {
                let nodes: Vec<_> = members
                    .iter()
                    .map(|(key, member)| {
                        path.push(PathSegment::Key(key.clone()));
                        let node = Self::parse(member, path, errors);
                        path.pop();
                        (key.clone(), node)
                    })
                    .collect();
                if nodes.iter().all(|(_, node)| node.is_literal()) {
                    let literals = nodes
                        .into_iter()
                        .filter_map(|(key, node)| Some((key, node.into_literal()?)))
                        .collect::<Map<_, _>>();
                    Self::Literal(Value::Object(literals))
                } else {
                    Self::Object(nodes)
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Self::Literal(value.clone()),
        }
    }

    fn parse_text(text: &str) -> Result<Self, ReferenceError> {
        // Templates have a meaning of their own, so that they are no plain text
        // even where they cannot be used.
        if text.contains("{{") {
            return Err(ReferenceError::Template);
        }
        Ok(match text.strip_prefix('$') {
            None => Self::Literal(text.into()),
            Some("null") => Self::Literal(Value::Null),
            Some(escaped) if escaped.starts_with('$') => Self::Literal(escaped.into()),
            Some(_) => Self::Reference(Reference::parse(text)?),
        })
    }

    fn evaluate(&self, input: &Value) -> Result<Option<Value>, Missing> {
        Ok(Some(match self {
            Self::Literal(value) => value.clone(),
            Self::Reference(reference) => match reference.follow(input) {
                Some(value) => value.clone(),
                None if reference.is_optional() => return Ok(None),
                None => return Err(Missing { reference: reference.to_string() }),
            },
            Self::Array(nodes) => {
                let elements = nodes.iter().filter_map(|node| node.evaluate(input).transpose());
                Value::Array(elements.collect::<Result<_, _>>()?)
            }
            Self::Object(nodes) => {
                let members = nodes.iter().filter_map(|(key, node)| {
                    let value = node.evaluate(input).transpose()?;
                    Some(value.map(|value| (key.clone(), value)))
                });
                Value::Object(members.collect::<Result<_, _>>()?)
            }
        }))
    }

    fn collect<'e>(&'e self, path: &mut Vec<PathSegment>, found: &mut Vec<Found<'e>>) {
        match self {
            Self::Literal(_) => (),
            Self::Reference(reference) => found.push(Found { path: path.clone(), reference }),
            Self::Array(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    path.push(PathSegment::Index(index));
                    node.collect(path, found);
                    path.pop();
                }
            }
            Self::Object(nodes) => {
                for (key, node) in nodes {
                    path.push(PathSegment::Key(key.clone()));
                    node.collect(path, found);
                    path.pop();
                }
            }
        }
    }

    const fn is_literal(&self) -> bool {
        matches!(self, Self::Literal(_))
    }

    fn into_literal(self) -> Option<Value> {
        match self {
            Self::Literal(value) => Some(value),
            _ => None,
        }
    }
}

// === impl ExpressionErrors ===

impl ExpressionErrors {
    /// Iterates over the mistakes and where they stand.
    pub fn iter(&self) -> impl Iterator<Item = (&[PathSegment], &ReferenceError)> {
        self.0.iter().map(|(path, error)| (path.as_slice(), error))
    }
}

impl fmt::Display for ExpressionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (_, error)) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ExpressionErrors {}
