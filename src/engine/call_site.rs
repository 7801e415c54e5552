//! The tool calls of plans.

use std::sync::Arc;

use rmcp::model::JsonObject;

use super::branches::SpawnHint;
use crate::expr::{Expression, Use};

/// A tool call in the definition of a composite. A run makes this call once or, in a loop, once per
/// element.
#[derive(Debug)]
pub(crate) struct CallSite {
    /// The index of this call site in the plan's list of call sites.
    pub(crate) site: usize,
    /// The name of the tool to call.
    pub(crate) tool: Arc<str>,
    /// The source of the arguments of the call.
    pub(crate) arguments: Arguments,
    /// The format in which a tool result that has only text is parsed. The parsed value becomes the
    /// step's output. `None` if the text is not parsed.
    pub(crate) parse: Option<Parse>,
    /// If `true`, the arguments contain secret variables, which must be hidden from observers.
    pub(crate) has_secrets: bool,
    /// Decides whether the next calls at this site are spawned as Tokio tasks immediately, or first
    /// polled once in the task of the run.
    pub(crate) hint: SpawnHint,
}

/// The source of the arguments of a tool call.
#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    /// The arguments are the input of the run, unchanged.
    Input,
    /// The arguments are built by an expression that evaluates to a JSON object. The expression can
    /// read data of the run, such as the outputs of other steps.
    Mapped(Expression),
}

/// The format in which the text of a tool result is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parse {
    /// JSON. If several text blocks contain one JSON text each, the output is an array of their
    /// values.
    Json,
    /// Comma-separated values with a header line. The output is an array with one object per
    /// further line.
    Csv,
}

// === impl CallSite ===

impl CallSite {
    /// Returns a copy of the evaluated arguments in which the values of secret variables are
    /// hidden. Returns `None` if no part of the arguments comes from a secret variable.
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
    /// Returns `true` if the arguments contain secret variables.
    pub(crate) fn has_secrets(&self) -> bool {
        match self {
            Self::Input => false,
            Self::Mapped(expression) => expression.has_secrets(),
        }
    }
}

// === impl Parse ===

impl Parse {
    /// Returns the name that configuration files use for this format.
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
