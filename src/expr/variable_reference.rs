//! References to variables.

use serde_json::Value;

use super::{
    ExpressionError, PathSegment,
    names::ScopeNames,
    reference::{Parts, follow},
    variables::{VARIABLES, Variable, Variables},
};

/// A reference to a variable, such as `$vars.team`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct VariableReference {
    written: Box<str>,
    variable: Variable,
    /// The path from the value of the variable to the referenced value. Empty if the reference
    /// reads the whole variable.
    path: Vec<PathSegment>,
    /// If `true`, the referenced value may be missing. If `false`, the parser has checked that it
    /// exists.
    optional: bool,
}

// === impl VariableReference ===

impl VariableReference {
    /// Parses a reference to a variable. Returns `None` if `text` is not such a reference, or if
    /// the expression cannot use variables.
    pub(super) fn parse(
        text: &str,
        names: &ScopeNames<'_>,
    ) -> Option<Result<Self, ExpressionError>> {
        let variables = names.variables?;
        let parts = Parts::parse_if(text, |name| name == VARIABLES)?;
        Some(parts.and_then(|parts| Self::of(text, parts, variables, names)))
    }

    fn of(
        text: &str,
        Parts { mut path, optional, .. }: Parts<'_>,
        variables: &Variables,
        names: &ScopeNames<'_>,
    ) -> Result<Self, ExpressionError> {
        let variable = variables.find(text, &path, names.allows_secrets)?;
        path.remove(0);
        let optional = optional || names.lenient;
        if !optional && follow(variable.value(), &path).is_none() {
            return Err(ExpressionError::NoPartOfVariable { text: text.to_owned() });
        }
        Ok(Self { written: text.into(), variable, path, optional })
    }

    /// Returns the referenced value. Returns `None` if it is missing and the reference is optional.
    pub(super) fn value(&self) -> Option<&Value> {
        follow(self.variable.value(), &self.path)
    }

    pub(super) fn written(&self) -> &str {
        &self.written
    }

    pub(super) const fn is_secret(&self) -> bool {
        self.variable.is_secret()
    }
}
