//! Compiles the arguments of a tool call.

use serde_json::Value;

use super::mistakes::DefinitionPath;
use crate::{
    engine::plan::Arguments,
    expr::{Expression, ExpressionError, ScopeNames, kind},
};

/// Compiles `written`, the arguments that the definition sets for a tool call. If the definition
/// sets none, returns the default arguments `otherwise`.
pub(super) fn compile(
    written: Option<&Value>,
    otherwise: Arguments,
    names: &ScopeNames<'_>,
    at: &mut DefinitionPath<'_>,
) -> Arguments {
    let Some(value) = written else { return otherwise };
    let no_object = |at: &mut DefinitionPath<'_>, found| {
        let error =
            ExpressionError::WrongKind { what: "`arguments`", found, expected: "an object" };
        at.push(["arguments"], error.into());
        Arguments::Input
    };
    // A string is allowed because it may be a reference to an object.
    if !value.is_object() && !value.is_string() {
        return no_object(at, kind(Some(value)));
    }
    match Expression::parse_in(value, names) {
        Ok(expression) if value.is_string() && expression.as_literal().is_some() => {
            no_object(at, "a string")
        }
        Ok(expression) => Arguments::Mapped(expression),
        Err(errors) => {
            at.push_all("arguments", &errors);
            Arguments::Input
        }
    }
}
