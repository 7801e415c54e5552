//! Variables, the named constants of expressions.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::Value;

use super::{ExpressionError, PathSegment};
use crate::suggest::nearest;

/// The name with which references to variables begin, as in `$vars.team`.
pub(super) const VARIABLES: &str = "vars";

/// A set of named constants to which the expressions of a
/// [composite](crate::composite::CompositeTool) can refer, for example `$vars.team` or `{{
/// vars.team }}`.
///
/// A *secret* variable can be used only in the arguments of a tool call, and not if the tool is a
/// composite. A definition that uses it elsewhere is rejected. `Debug`, previews and diagrams show
/// only the names of secret variables. In logs, spans and the events of observers, arguments that
/// contain a secret variable are replaced by `…`.
///
/// Clones of `Variables` share the values, so cloning is cheap.
///
/// # Examples
///
/// ```
/// use mcp_composite::{
///     composite::{CompositeLayer, CompositeTool, Target},
///     expr::Variables,
/// };
/// use serde_json::json;
///
/// let variables = Variables::new()
///     .with("team", json!("platform"))
///     .with_secret("key", json!("hunter2"));
/// assert_eq!(format!("{variables:?}"), r#"{"key": …, "team": String("platform")}"#);
///
/// let search = Target::new("search")
///     .arguments(json!({ "q": "{{ input.q }} team:{{ vars.team }}", "key": "$vars.key" }));
/// let search = CompositeTool::fan_out("find", "Find", [search]).variables(variables);
/// assert!(CompositeLayer::new([search]).is_ok());
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct Variables(Arc<BTreeMap<String, Variable>>);

#[derive(Clone, PartialEq)]
pub(super) struct Variable {
    value: Arc<Value>,
    is_secret: bool,
}

// === impl Variables ===

impl Variables {
    /// Creates an empty set of variables.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable, or replaces the variable with the same name.
    #[must_use]
    pub fn with(self, name: impl Into<String>, value: Value) -> Self {
        self.add(name.into(), value, false)
    }

    /// Adds a secret variable, or replaces the variable with the same name. Clients cannot see its
    /// value.
    #[must_use]
    pub fn with_secret(self, name: impl Into<String>, value: Value) -> Self {
        self.add(name.into(), value, true)
    }

    fn add(mut self, name: String, value: Value, is_secret: bool) -> Self {
        let variable = Variable { value: Arc::new(value), is_secret };
        Arc::make_mut(&mut self.0).insert(name, variable);
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a variable. The first segment of `path` is its name. `text` is the whole reference,
    /// for error messages.
    pub(super) fn find(
        &self,
        text: &str,
        path: &[PathSegment],
        allows_secrets: bool,
    ) -> Result<Variable, ExpressionError> {
        let name = match path.first() {
            Some(PathSegment::Key(name)) => name.clone(),
            Some(PathSegment::Index(index)) => index.to_string(),
            None => {
                return Err(ExpressionError::UnknownRoot {
                    text: text.to_owned(),
                    expected: "a variable, such as `$vars.team`".to_owned(),
                });
            }
        };
        match self.0.get(&name) {
            Some(variable) if variable.is_secret && !allows_secrets => {
                Err(ExpressionError::SecretVariable { text: text.to_owned() })
            }
            Some(variable) => Ok(variable.clone()),
            None => {
                let known: Vec<_> = self.0.keys().map(String::as_str).collect();
                let near = nearest(&name, &known).map(str::to_owned);
                Err(ExpressionError::UnknownVariable { text: text.to_owned(), name, near })
            }
        }
    }
}

/// Prints secret variables as `…`.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

// === impl Variable ===

impl Variable {
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    pub(super) const fn is_secret(&self) -> bool {
        self.is_secret
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_secret { f.write_str("…") } else { self.value.fmt(f) }
    }
}
