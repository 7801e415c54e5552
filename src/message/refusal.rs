use std::{borrow::Cow, fmt};

use rmcp::model::ErrorData;
use serde_json::json;

/// How many violations of a schema an answer tells.
const VIOLATIONS_TOLD: usize = 8;

/// A call that was refused before it reached a tool.
///
/// Refusals keep their type on the way out, so that a layer that renames tools
/// or arguments can put them into the words of its client; they become JSON-RPC
/// errors at the edge. All of them are `-32602`, as the [specification] wants it
/// for unknown tools and malformed calls.
///
/// [specification]: https://modelcontextprotocol.io/specification/2026-07-28/server/tools#error-handling
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No tool of this name, or none that this client may know of.
    UnknownTool {
        /// The name that was called.
        tool: Cow<'static, str>,
    },
    /// The tool exists, but cannot run at the moment.
    Unavailable {
        /// The name that was called.
        tool: Cow<'static, str>,
    },
    /// The arguments do not fit the tool's input schema.
    InvalidArguments {
        /// The name that was called.
        tool: Cow<'static, str>,
        /// What does not fit; never empty.
        violations: Vec<Violation>,
    },
}

/// One place where arguments do not fit a schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where in the arguments, as a JSON Pointer ([RFC 6901]); empty for the
    /// arguments as a whole.
    ///
    /// [RFC 6901]: https://www.rfc-editor.org/rfc/rfc6901
    pub path: String,
    /// What was expected; holds no argument's value.
    pub message: String,
}

// === impl Refusal ===

impl Refusal {
    /// The name of the tool that was called.
    #[must_use]
    pub fn tool(&self) -> &str {
        match self {
            Self::UnknownTool { tool }
            | Self::Unavailable { tool }
            | Self::InvalidArguments { tool, .. } => tool,
        }
    }

    /// The name of the tool that was called, to put it into the words of the
    /// client.
    pub const fn tool_mut(&mut self) -> &mut Cow<'static, str> {
        match self {
            Self::UnknownTool { tool }
            | Self::Unavailable { tool }
            | Self::InvalidArguments { tool, .. } => tool,
        }
    }

    /// The refusal as a JSON-RPC error.
    #[must_use]
    pub fn to_error(&self) -> ErrorData {
        let data = match self {
            Self::InvalidArguments { violations, .. } => Some(json!({
                "violations": violations
                    .iter()
                    .take(VIOLATIONS_TOLD)
                    .map(|violation| json!({ "path": violation.path, "message": violation.message }))
                    .collect::<Vec<_>>(),
            })),
            Self::UnknownTool { .. } | Self::Unavailable { .. } => None,
        };
        ErrorData::invalid_params(self.to_string(), data)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownTool { tool } => write!(f, "unknown tool `{tool}`"),
            Self::Unavailable { tool } => write!(f, "tool `{tool}` is not available at the moment"),
            Self::InvalidArguments { tool, violations } => {
                write!(f, "invalid arguments for `{tool}`: ")?;
                for (index, violation) in violations.iter().take(VIOLATIONS_TOLD).enumerate() {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{violation}")?;
                }
                match violations.len().checked_sub(VIOLATIONS_TOLD) {
                    Some(more @ 1..) => write!(f, "; and {more} more"),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "at `{}`: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}
