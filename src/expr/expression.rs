//! Expressions: JSON values with references and templates in their strings.

use std::fmt;

use serde_json::{Map, Value};

use super::{
    EvaluationError, ExpressionError, ExpressionErrors, PathSegment,
    data::{Data, Root},
    names::ScopeNames,
    partial_value::PartialValue,
    reference::{Reference, Use},
    template::Template,
    variable_reference::VariableReference,
};

/// A JSON value whose strings may contain references, such as `$input.query`, and templates, such
/// as `Dear {{ input.name }}`. Evaluating the expression replaces them with values of a run.
///
/// The [module docs](crate::expr) describe the syntax of references and templates.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression(Node);

/// Replaces values that contain secret variables.
const HIDDEN: &str = "…";

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Literal(Value),
    Reference(Reference),
    /// A reference to a variable, such as `$vars.team`. Boxed because it is rare.
    Variable(Box<VariableReference>),
    Template(Template),
    Array(Vec<Self>),
    Object(Vec<(String, Self)>),
}

// === impl Expression ===

impl Expression {
    /// Parses the references and templates in the strings of `value`. References can only read the
    /// input, as in `$input.query`.
    ///
    /// # Errors
    ///
    /// Returns an error for each string with an invalid reference or template, with the path to the
    /// string.
    pub fn parse(value: &Value) -> Result<Self, ExpressionErrors> {
        Self::parse_in(value, &ScopeNames::default())
    }

    /// Parses the references and templates in the strings of `value`. They can use the names in
    /// `names`.
    pub(crate) fn parse_in(
        value: &Value,
        names: &ScopeNames<'_>,
    ) -> Result<Self, ExpressionErrors> {
        let mut errors = Vec::new();
        let node = Node::parse(value, names, &mut Vec::new(), &mut errors);
        if errors.is_empty() { Ok(Self(node)) } else { Err(ExpressionErrors::new(errors)) }
    }

    /// Parses a condition or a collection: a reference, a template, or a template without its
    /// braces.
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

    /// Creates an expression that evaluates to `value`. The strings in `value` are not parsed.
    pub(crate) const fn literal(value: Value) -> Self {
        Self(Node::Literal(value))
    }

    /// Evaluates the expression: replaces references and templates with their values. `input` is
    /// the input of the run, which references such as `$input.query` read.
    ///
    /// If an optional reference, such as `$input.lang?`, has no value, the array element or object
    /// member with this reference is omitted. If the whole expression is such a reference,
    /// `evaluate` returns `None`.
    ///
    /// # Errors
    ///
    /// Returns an error if a reference has no value and is not optional, or if a template cannot be
    /// evaluated.
    pub fn evaluate(&self, input: &Value) -> Result<Option<Value>, EvaluationError> {
        self.evaluate_in(input)
    }

    /// Evaluates the expression like [`evaluate`](Self::evaluate), with values from `data`.
    pub(crate) fn evaluate_in(&self, data: &dyn Data) -> Result<Option<Value>, EvaluationError> {
        self.0.evaluate(data)
    }

    /// Evaluates the expression as far as possible before a run. `known` returns `true` for values
    /// that are known, such as the input. References and templates that read other values remain as
    /// text.
    pub(crate) fn preview(
        &self,
        data: &dyn Data,
        known: &dyn Fn(Root) -> bool,
    ) -> Result<Option<Value>, EvaluationError> {
        self.0.preview(data, known)
    }

    /// Returns all references to values of a run, in order. References to variables are not
    /// included.
    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        let mut uses = Vec::new();
        self.0.visit(&mut Vec::new(), &mut |node, place| node.add_uses(place, &mut uses));
        uses
    }

    /// Returns the value of the expression if it contains no references and templates.
    pub(crate) const fn as_literal(&self) -> Option<&Value> {
        match &self.0 {
            Node::Literal(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the JSON value from which the expression was parsed. The only difference is that the
    /// first `$` of strings that begin with `$$` is missing.
    pub(crate) fn written(&self) -> Value {
        self.0.written()
    }

    /// Returns the paths to all strings in the expression that are references or templates.
    pub(crate) fn evaluated(&self) -> Vec<Vec<PathSegment>> {
        let mut places = Vec::new();
        self.0.visit(&mut Vec::new(), &mut |node, place| {
            if !node.is_literal() {
                places.push(place.to_vec());
            }
        });
        places
    }

    pub(crate) fn has_secrets(&self) -> bool {
        self.0.has_secrets()
    }

    /// Returns all references to secret variables. Each has its text and the path to its string.
    pub(crate) fn secrets(&self) -> Vec<(Vec<PathSegment>, &str)> {
        let mut secrets = Vec::new();
        self.0.visit(&mut Vec::new(), &mut |node, place| {
            secrets.extend(node.secrets().into_iter().map(|text| (place.to_vec(), text)));
        });
        secrets
    }

    /// Returns the references that insert their values unchanged into the text of the expression.
    /// Excludes references with a filter, such as `{{ input.name | upper }}`, and references inside
    /// a condition. Returns an empty list if the expression is an array or an object.
    pub(crate) fn bare_references(&self) -> Vec<(Root, &[PathSegment])> {
        match &self.0 {
            Node::Reference(reference) => vec![(reference.root(), reference.path())],
            Node::Template(template) => template.bare_references(),
            Node::Literal(_) | Node::Variable(_) | Node::Array(_) | Node::Object(_) => Vec::new(),
        }
    }

    /// Returns a copy of `value`, to which this expression was evaluated. Members that contain
    /// secret variables are replaced with `…`.
    pub(crate) fn without_secrets(&self, value: &Map<String, Value>) -> Map<String, Value> {
        let mut value = value.clone();
        for (name, member) in &mut value {
            let is_secret = match &self.0 {
                Node::Object(nodes) => {
                    nodes.iter().any(|(other, node)| other == name && node.has_secrets())
                }
                _ => true,
            };
            if is_secret {
                *member = HIDDEN.into();
            }
        }
        value
    }

    /// Returns the part of the value that is known before a run. References and templates are
    /// unknown parts.
    pub(crate) fn sketch(&self) -> PartialValue {
        self.0.sketch()
    }
}

/// Formats the expression as written in the definition.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Node::Literal(Value::String(text)) => f.write_str(text),
            Node::Reference(reference) => reference.fmt(f),
            Node::Variable(variable) => f.write_str(variable.written()),
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
            Some(_) => match Self::parse_reference(text, names) {
                Err(ExpressionError::UnknownRoot { .. }) if names.lenient => {
                    tracing::warn!(text, "an unknown reference is treated as text");
                    Self::Literal(text.into())
                }
                reference => reference?,
            },
        })
    }

    fn parse_reference(text: &str, names: &ScopeNames<'_>) -> Result<Self, ExpressionError> {
        match VariableReference::parse(text, names) {
            Some(variable) => variable.map(Box::new).map(Self::Variable),
            None => Reference::parse(text, names).map(Self::Reference),
        }
    }

    fn evaluate(&self, data: &dyn Data) -> Result<Option<Value>, EvaluationError> {
        Ok(Some(match self {
            Self::Literal(value) => value.clone(),
            Self::Reference(reference) => match reference.follow(data) {
                Some(value) => value.into_owned(),
                None if reference.is_optional() => return Ok(None),
                None => return Err(reference.missing(data)),
            },
            Self::Variable(variable) => return Ok(variable.value().cloned()),
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
        data: &dyn Data,
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
            Self::Variable(variable) if variable.is_secret() => self.written(),
            Self::Template(template) if template.has_secrets() => self.written(),
            Self::Literal(_) | Self::Reference(_) | Self::Variable(_) | Self::Template(_) => {
                let mut uses = Vec::new();
                self.add_uses(&[], &mut uses);
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
            Self::Variable(variable) => match variable.value() {
                Some(value) if !variable.is_secret() => PartialValue::Known(value.clone()),
                Some(_) => PartialValue::Unknown { optional: false },
                None => PartialValue::Unknown { optional: true },
            },
            Self::Template(_) => PartialValue::Unknown { optional: false },
            Self::Array(nodes) => PartialValue::Array(nodes.iter().map(Self::sketch).collect()),
            Self::Object(nodes) => {
                let members = nodes.iter().map(|(key, node)| (key.clone(), node.sketch()));
                PartialValue::Object(members.collect())
            }
        }
    }

    /// Returns the JSON value from which this node was parsed.
    fn written(&self) -> Value {
        match self {
            Self::Literal(value) => value.clone(),
            Self::Reference(reference) => reference.to_string().into(),
            Self::Variable(variable) => variable.written().into(),
            Self::Template(template) => template.to_string().into(),
            Self::Array(nodes) => nodes.iter().map(Self::written).collect(),
            Self::Object(nodes) => {
                let members = nodes.iter().map(|(key, node)| (key.clone(), node.written()));
                Value::Object(members.collect())
            }
        }
    }

    /// Calls `visit` with each literal, reference, variable and template in this node, and with its
    /// path. `place` is the path of this node.
    fn visit<'e>(
        &'e self,
        place: &mut Vec<PathSegment>,
        visit: &mut dyn FnMut(&'e Self, &[PathSegment]),
    ) {
        match self {
            Self::Literal(_) | Self::Reference(_) | Self::Variable(_) | Self::Template(_) => {
                visit(self, place);
            }
            Self::Array(nodes) => {
                for (index, node) in nodes.iter().enumerate() {
                    place.push(PathSegment::Index(index));
                    node.visit(place, visit);
                    place.pop();
                }
            }
            Self::Object(nodes) => {
                for (key, node) in nodes {
                    place.push(PathSegment::Key(key.clone()));
                    node.visit(place, visit);
                    place.pop();
                }
            }
        }
    }

    fn add_uses<'e>(&'e self, place: &[PathSegment], uses: &mut Vec<Use<'e>>) {
        match self {
            Self::Reference(reference) => uses.push(reference.as_use(place)),
            Self::Template(template) => uses.extend(template.uses(place)),
            Self::Literal(_) | Self::Variable(_) | Self::Array(_) | Self::Object(_) => (),
        }
    }

    /// Returns the texts of references to secret variables in this string. Does not search arrays
    /// and objects.
    fn secrets(&self) -> Vec<&str> {
        match self {
            Self::Variable(variable) if variable.is_secret() => vec![variable.written()],
            Self::Template(template) => template.secrets().collect(),
            _ => Vec::new(),
        }
    }

    fn has_secrets(&self) -> bool {
        match self {
            Self::Literal(_) | Self::Reference(_) => false,
            Self::Variable(variable) => variable.is_secret(),
            Self::Template(template) => template.has_secrets(),
            Self::Array(nodes) => nodes.iter().any(Self::has_secrets),
            Self::Object(nodes) => nodes.iter().any(|(_, node)| node.has_secrets()),
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
