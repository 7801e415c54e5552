use std::{borrow::Cow, fmt};

use rmcp::model::ErrorData;
use serde_json::json;

use super::ItemKind;

/// How many violations of a schema an answer tells.
const VIOLATIONS_TOLD: usize = 8;

/// A request that was refused before it reached what it asks for.
///
/// Refusals keep their type on the way out, so that a layer that renames tools
/// or arguments can put them into the words of its client; they become JSON-RPC
/// errors at the edge. All of them are `-32602`, as the [specification] wants it
/// for unknown tools and malformed calls, but for an unknown resource, which is
/// `-32002`.
///
/// [specification]: https://modelcontextprotocol.io/specification/2026-07-28/server/tools#error-handling
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Nothing of this name, or nothing that this client may know of.
    Unknown {
        /// What was asked for.
        kind: ItemKind,
        /// The name or URI that it was asked for by.
        name: Cow<'static, str>,
    },
    /// It exists, but cannot be used at the moment.
    Unavailable {
        /// What was asked for.
        kind: ItemKind,
        /// The name or URI that it was asked for by.
        name: Cow<'static, str>,
    },
    /// The arguments do not fit the tool's input schema.
    InvalidArguments {
        /// The name of the tool that was called.
        tool: Cow<'static, str>,
        /// What does not fit; never empty.
        violations: Vec<Violation>,
    },
    /// The request is larger or nested deeper than a limit allows.
    OverLimit {
        /// What there is too much of, such as `bytes` or `levels of nesting`.
        unit: &'static str,
        /// How much is allowed.
        limit: usize,
        /// The name of the setting.
        setting: &'static str,
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
    /// Arrays and objects are nested deeper than this.
    pub(crate) const fn too_deep(levels: usize) -> Self {
        Self::OverLimit { unit: "levels of nesting", limit: levels, setting: "max_depth" }
    }

    /// What was asked for, if the refusal tells it.
    #[must_use]
    pub const fn kind(&self) -> Option<ItemKind> {
        match self {
            Self::Unknown { kind, .. } | Self::Unavailable { kind, .. } => Some(*kind),
            Self::InvalidArguments { .. } => Some(ItemKind::Tool),
            Self::OverLimit { .. } => None,
        }
    }

    /// The name or URI of what was asked for, if the refusal tells it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Unknown { name, .. }
            | Self::Unavailable { name, .. }
            | Self::InvalidArguments { tool: name, .. } => Some(name),
            Self::OverLimit { .. } => None,
        }
    }

    /// The name or URI of what was asked for, to put it into the words of the
    /// client.
    pub const fn name_mut(&mut self) -> Option<&mut Cow<'static, str>> {
        match self {
            Self::Unknown { name, .. }
            | Self::Unavailable { name, .. }
            | Self::InvalidArguments { tool: name, .. } => Some(name),
            Self::OverLimit { .. } => None,
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
            Self::Unknown { kind: ItemKind::Resource, name } => {
                let data = json!({ "uri": name });
                return ErrorData::resource_not_found("resource not found", Some(data));
            }
            Self::Unknown { .. } | Self::Unavailable { .. } | Self::OverLimit { .. } => None,
        };
        ErrorData::invalid_params(self.to_string(), data)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { kind, name } => write!(f, "unknown {kind} `{name}`"),
            Self::Unavailable { kind, name } => {
                write!(f, "{kind} `{name}` is not available at the moment")
            }
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
            Self::OverLimit { unit, limit, setting } => {
                write!(f, "the request has more than {limit} {unit} (`{setting}`)")
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
