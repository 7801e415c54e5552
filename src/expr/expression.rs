use std::{fmt, sync::Arc};

use serde_json::{Map, Value};

use super::{
    EvaluationError, ExpressionError, ExpressionErrors, PathSegment, Reference,
    data::{Data, Root},
    names::ScopeNames,
    partial_value::PartialValue,
    template::Template,
};

/// A JSON value in which strings may refer to other values.
///
/// See the [module docs](crate::expr) for what can be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

/// One thing that an expression refers to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Use<'e> {
    /// The keys and places that lead to it in the expression.
    pub(crate) place: Vec<PathSegment>,
    /// What it begins with.
    pub(crate) root: Root,
    /// Where in that, as far as it is written out.
    pub(crate) path: &'e [PathSegment],
    /// Whether its value may be missing.
    pub(crate) optional: bool,
    /// Whether the whole text is nothing but it, so that its type is kept.
    pub(crate) bare: bool,
    /// Whether it is looked at whatever the other values are, and not on one
    /// branch only.
    pub(crate) certain: bool,
    /// How it is written.
    pub(crate) text: &'e str,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    /// Holds no reference at any depth.
    Literal(Value),
    Reference(Reference),
    Template(Template),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

// === impl Use ===

impl Use<'_> {
    /// The member of the input that it is, wholly or in part.
    pub(crate) fn property(&self) -> Option<&str> {
        match (self.root, self.path.first()?) {
            (Root::Input, PathSegment::Key(key)) => Some(key),
            _ => None,
        }
    }
}

// === impl Expression ===

impl Expression {
    /// Parses the strings in `value`, which may refer to the input only.
    ///
    /// # Errors
    ///
    /// Returns every string that begins with `$` but is no reference, and every
    /// template that is none, with the place where it stands.
    pub fn parse(value: &Value) -> Result<Self, ExpressionErrors> {
        Self::parse_in(value, &ScopeNames::default())
    }

    /// Parses the strings in `value`, which may refer to what has a name there.
    pub(crate) fn parse_in(
        value: &Value,
        names: &ScopeNames<'_>,
    ) -> Result<Self, ExpressionErrors> {
        let mut errors = Vec::new();
        let node = Node::parse(value, names, &mut Vec::new(), &mut errors);
        if errors.is_empty() { Ok(Self(node)) } else { Err(ExpressionErrors::new(errors)) }
    }

    /// Parses a text that is a template also without its braces.
    pub(super) fn parse_logic(text: &str, names: &ScopeNames<'_>) -> Result<Self, ExpressionError> {
        let text = text.trim();
        if Template::is_one(text) {
            Template::parse(text, names).map(Node::Template).map(Self)
        } else if text.starts_with('$') && !text.contains(char::is_whitespace) {
            Node::parse_text(text, names).map(Self)
        } else {
            Template::parse_expression(text, names).map(Node::Template).map(Self)
        }
    }

    /// A value in which nothing is evaluated.
    pub(crate) const fn literal(value: Value) -> Self {
        Self(Node::Literal(value))
    }

    /// Puts in the values that are referred to.
    ///
    /// `None` if the whole expression is an optional reference to nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if a reference that is not optional has no value, or if
    /// a template fails.
    pub fn evaluate(&self, input: &Value) -> Result<Option<Value>, EvaluationError> {
        let data: Arc<dyn Data> = Arc::new(input.clone());
        self.evaluate_in(&data)
    }

    /// Puts in the values that are referred to.
    pub(crate) fn evaluate_in(
        &self,
        data: &Arc<dyn Data>,
    ) -> Result<Option<Value>, EvaluationError> {
        self.0.evaluate(data)
    }

    /// Puts in the values of which `known` says that they are, and leaves the
    /// other texts as they are written.
    pub(crate) fn preview(
        &self,
        data: &Arc<dyn Data>,
        known: &dyn Fn(Root) -> bool,
    ) -> Result<Option<Value>, EvaluationError> {
        self.0.preview(data, known)
    }

    /// All that it refers to, in the order it is written.
    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        let mut uses = Vec::new();
        self.0.collect(&mut Vec::new(), &mut uses);
        uses
    }

    /// The value, if nothing in it is evaluated.
    pub(crate) const fn as_literal(&self) -> Option<&Value> {
        match &self.0 {
            Node::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// The value as it was written, `$$` being `$`.
    pub(crate) fn written(&self) -> Value {
        self.0.written()
    }

    /// The places of all that is evaluated in it, whatever it refers to.
    pub(crate) fn evaluated(&self) -> Vec<Vec<PathSegment>> {
        let mut places = Vec::new();
        self.0.evaluated(&mut Vec::new(), &mut places);
        places
    }

    /// What is known of its value before a run.
    pub(crate) fn sketch(&self) -> PartialValue {
        self.0.sketch()
    }
}

/// As it is written, if it is a text.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Node::Literal(Value::String(text)) => f.write_str(text),
            Node::Reference(reference) => reference.fmt(f),
            Node::Template(template) => template.fmt(f),
            Node::Literal(_) | Node::Array(_) | Node::Object(_) => self.0.written().fmt(f),
        }
    }
}

// === impl Node ===

impl Node {
    fn parse(
        value: &Value,
        names: &ScopeNames<'_>,
        path: &mut Vec<PathSegment>,
        errors: &mut Vec<(Vec<PathSegment>, ExpressionError)>,
    ) -> Self {
        match value {
            Value::String(text) => Self::parse_text(text, names).unwrap_or_else(|error| {
                errors.push((path.clone(), error));
                Self::Literal(Value::Null)
            }),
            Value::Array(elements) => {
                let nodes: Vec<_> = elements
                    .iter()
                    .enumerate()
                    .map(|(index, element)| {
                        path.push(PathSegment::Index(index));
                        let node = Self::parse(element, names, path, errors);
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
                        let node = Self::parse(member, names, path, errors);
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

    fn parse_text(text: &str, names: &ScopeNames<'_>) -> Result<Self, ExpressionError> {
        if Template::is_one(text) {
            return Template::parse(text, names).map(Self::Template);
        }
        Ok(match text.strip_prefix('$') {
            None => Self::Literal(text.into()),
            Some("null") => Self::Literal(Value::Null),
            Some(escaped) if escaped.starts_with('$') => Self::Literal(escaped.into()),
            Some(_) => match Reference::parse(text, names) {
                Err(ExpressionError::UnknownRoot { .. }) if names.lenient => {
                    tracing::warn!(text, "an unknown reference is taken as a text");
                    Self::Literal(text.into())
                }
                reference => Self::Reference(reference?),
            },
        })
    }

    fn evaluate(&self, data: &Arc<dyn Data>) -> Result<Option<Value>, EvaluationError> {
        Ok(Some(match self {
            Self::Literal(value) => value.clone(),
            Self::Reference(reference) => match reference.follow(&**data) {
                Some(value) => value.into_owned(),
                None if reference.is_optional() => return Ok(None),
                None => {
                    return Err(EvaluationError::Missing { reference: reference.to_string() });
                }
            },
            Self::Template(template) => template.evaluate(data)?,
            Self::Array(nodes) => {
                let elements = nodes.iter().filter_map(|node| node.evaluate(data).transpose());
                Value::Array(elements.collect::<Result<_, _>>()?)
            }
            Self::Object(nodes) => {
                let members = nodes.iter().filter_map(|(key, node)| {
                    let value = node.evaluate(data).transpose()?;
                    Some(value.map(|value| (key.clone(), value)))
                });
                Value::Object(members.collect::<Result<_, _>>()?)
            }
        }))
    }

    fn preview(
        &self,
        data: &Arc<dyn Data>,
        known: &dyn Fn(Root) -> bool,
    ) -> Result<Option<Value>, EvaluationError> {
        Ok(Some(match self {
            Self::Array(nodes) => {
                let elements =
                    nodes.iter().filter_map(|node| node.preview(data, known).transpose());
                Value::Array(elements.collect::<Result<_, _>>()?)
            }
            Self::Object(nodes) => {
                let members = nodes.iter().filter_map(|(key, node)| {
                    let value = node.preview(data, known).transpose()?;
                    Some(value.map(|value| (key.clone(), value)))
                });
                Value::Object(members.collect::<Result<_, _>>()?)
            }
            Self::Literal(_) | Self::Reference(_) | Self::Template(_) => {
                let mut uses = Vec::new();
                self.collect(&mut Vec::new(), &mut uses);
                if uses.iter().all(|used| known(used.root)) {
                    return self.evaluate(data);
                }
                self.written()
            }
        }))
    }

    fn sketch(&self) -> PartialValue {
        match self {
            Self::Literal(value) => PartialValue::Known(value.clone()),
            Self::Reference(reference) => {
                PartialValue::Unknown { optional: reference.is_optional() }
            }
            Self::Template(_) => PartialValue::Unknown { optional: false },
            Self::Array(nodes) => PartialValue::Array(nodes.iter().map(Self::sketch).collect()),
            Self::Object(nodes) => {
                let members = nodes.iter().map(|(key, node)| (key.clone(), node.sketch()));
                PartialValue::Object(members.collect())
            }
        }
    }

    /// What was parsed.
    fn written(&self) -> Value {
        match self {
            Self::Literal(value) => value.clone(),
            Self::Reference(reference) => reference.to_string().into(),
            Self::Template(template) => template.to_string().into(),
            Self::Array(nodes) => nodes.iter().map(Self::written).collect(),
            Self::Object(nodes) => {
                let members = nodes.iter().map(|(key, node)| (key.clone(), node.written()));
                Value::Object(members.collect())
            }
        }
    }

    fn evaluated(&self, place: &mut Vec<PathSegment>, places: &mut Vec<Vec<PathSegment>>) {
        match self {
            Self::Literal(_) => (),
            Self::Reference(_) | Self::Template(_) => places.push(place.clone()),
            Self::Array(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    place.push(PathSegment::Index(index));
                    node.evaluated(place, places);
                    place.pop();
                }
            }
            Self::Object(nodes) => {
                for (key, node) in nodes {
                    place.push(PathSegment::Key(key.clone()));
                    node.evaluated(place, places);
                    place.pop();
                }
            }
        }
    }

    fn collect<'e>(&'e self, place: &mut Vec<PathSegment>, uses: &mut Vec<Use<'e>>) {
        match self {
            Self::Literal(_) => (),
            Self::Reference(reference) => uses.push(Use {
                place: place.clone(),
                root: reference.root(),
                path: reference.path(),
                optional: reference.is_optional(),
                bare: true,
                certain: true,
                text: reference.written(),
            }),
            Self::Template(template) => uses.extend(template.uses().map(|used| Use {
                place: place.clone(),
                root: used.root,
                path: &used.path,
                optional: used.optional,
                bare: used.bare,
                certain: used.certain,
                text: &used.text,
            })),
            Self::Array(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    place.push(PathSegment::Index(index));
                    node.collect(place, uses);
                    place.pop();
                }
            }
            Self::Object(nodes) => {
                for (key, node) in nodes {
                    place.push(PathSegment::Key(key.clone()));
                    node.collect(place, uses);
                    place.pop();
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
