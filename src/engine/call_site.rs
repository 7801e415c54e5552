//! The tool calls of plans.

use std::sync::Arc;

use rmcp::model::JsonObject;

use super::branches::SpawnHint;
use crate::expr::{Expression, Use};

/// A place in a plan where a tool is called.
#[derive(Debug)]
pub(crate) struct CallSite {
    /// The index of this call site in the plan's list of call sites.
    pub(crate) site: usize,
    /// The tool to call.
    pub(crate) tool: Arc<str>,
    /// The arguments of the call.
    pub(crate) arguments: Arguments,
    /// The format in which a tool result that consists only of text is parsed.
    pub(crate) parse: Option<Parse>,
    /// Whether the arguments contain secret variables.
    pub(crate) has_secrets: bool,
    /// Decides whether the next calls at this site are spawned as Tokio tasks immediately, or first
    /// polled once in the task of the run.
    pub(crate) hint: SpawnHint,
}

/// The arguments of a call.
#[derive(Clone, Debug)]
pub(crate) enum Arguments {
    /// The input of the run.
    Input,
    /// The arguments are a JSON object that is built from data of the run, such as the outputs of
    /// other steps.
    Mapped(Expression),
}

/// The format of a text that is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parse {
    /// JSON. Several texts become an array.
    Json,
    /// Comma-separated values, which become an array of objects.
    Csv,
}

// === impl CallSite ===

impl CallSite {
    /// Returns a copy of the evaluated arguments in which secret variables are hidden. Returns
    /// `None` if the arguments contain none.
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
