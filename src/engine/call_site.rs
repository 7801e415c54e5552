//! The tool calls of plans.

use std::sync::Arc;

use rmcp::model::JsonObject;

use super::branches::SpawnHint;
use crate::expr::{Expression, Use};

/// A tool call in the definition of a composite. In a loop, a run makes this call once per element.
#[derive(Debug)]
pub(crate) struct CallSite {
    /// The index of this call site in the list of all call sites of the plan.
    pub(crate) site: usize,
    pub(crate) tool: Arc<str>,
    pub(crate) arguments: Arguments,
    /// The format in which the text of a tool result is parsed, such as JSON. The parsed value
    /// becomes the output of the step. `None` if texts are not parsed.
    pub(crate) parse: Option<Parse>,
    /// If `true`, the arguments contain values of secret variables, which observers must not see.
    pub(crate) has_secrets: bool,
    pub(crate) hint: SpawnHint,
}

/// The source of the arguments of a tool call.
#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    /// Passes the input of the composite to the tool, unchanged.
    Input,
    /// Evaluates an expression to a JSON object. The expression can read data of the run, such as
    /// the outputs of other steps.
    Mapped(Expression),
}

/// The format in which the text of a tool result is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parse {
    /// JSON. If the result has several text blocks with one JSON text each, the output is an array
    /// of their values.
    Json,
    /// Comma-separated values with a header line. The output is an array with one object per
    /// further line.
    Csv,
}

// === impl CallSite ===

impl CallSite {
    /// Returns a copy of the evaluated arguments in which the values of secret variables are
    /// replaced. Returns `None` if the arguments contain no secret variables.
    pub(super) fn without_secrets(&self, arguments: &JsonObject) -> Option<JsonObject> {
        match &self.arguments {
            Arguments::Mapped(expression) if self.has_secrets => {
                Some(expression.without_secrets(arguments))
            }
            Arguments::Mapped(_) | Arguments::Input => None,
        }
    }

    pub(crate) fn uses(&self) -> Vec<Use<'_>> {
        match &self.arguments {
            Arguments::Input => Vec::new(),
            Arguments::Mapped(expression) => expression.uses(),
        }
    }
}

// === impl Arguments ===

impl Arguments {
    pub(crate) fn has_secrets(&self) -> bool {
        match self {
            Self::Input => false,
            Self::Mapped(expression) => expression.has_secrets(),
        }
    }
}

// === impl Parse ===

impl Parse {
    /// Returns the name of the format in configuration files, such as `json`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }
}

#[cfg(feature = "config")]
impl crate::named::Named for Parse {
    const ALL: &'static [(&'static str, Self)] =
        &[(Self::Json.name(), Self::Json), (Self::Csv.name(), Self::Csv)];
}
