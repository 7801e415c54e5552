//! Refusals: typed rejections of requests by layers.

use std::{borrow::Cow, fmt, time::Duration};

use rmcp::model::{ErrorCode, ErrorData};
use serde_json::json;

use super::ItemKind;

/// The maximum number of schema violations in an error message.
const MAX_DISPLAYED_VIOLATIONS: usize = 8;
/// The JSON-RPC error code of calls that are valid but rejected because of earlier calls. JSON-RPC
/// reserves -32000 to -32099 for server-defined errors.
const DENIED: ErrorCode = ErrorCode(-32000);

/// The rejection of a request by a layer. The request has not reached the tool, prompt or resource.
///
/// A refusal is converted to a JSON-RPC error only for the client. Until then, layers that rename
/// tools or arguments can also rename them in the refusal.
///
/// Refusals have the error code `-32602`, which the [specification] requires for unknown tools and
/// malformed calls. There are two exceptions. An unknown resource has the code `-32002`. An
/// exhausted budget and a denied egress tool have the code `-32000`, because the call itself is
/// valid.
///
/// [specification]: https://modelcontextprotocol.io/specification/2026-07-28/server/tools#error-handling
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The requested tool, prompt or resource does not exist, or is hidden from the client.
    Unknown {
        /// The kind of the requested item, such as a tool.
        kind: ItemKind,
        /// The name or URI of the requested item.
        name: Cow<'static, str>,
    },
    /// The requested tool, prompt or resource exists, but cannot be used at the moment.
    Unavailable {
        /// The kind of the requested item, such as a tool.
        kind: ItemKind,
        /// The name or URI of the requested item.
        name: Cow<'static, str>,
    },
    /// The arguments of a tool call do not match the tool's input schema.
    InvalidArguments {
        /// The name of the tool that was called.
        tool: Cow<'static, str>,
        /// The places where the arguments violate the tool's input schema. Never empty.
        violations: Vec<Violation>,
    },
    /// The request exceeds a configured limit on its size or nesting depth.
    OverLimit {
        /// The unit of the limit, such as `bytes` or `levels of nesting`.
        unit: &'static str,
        /// The value of the limit, such as 128 for 128 levels of nesting.
        limit: usize,
        /// The name of the setting for the limit, such as `max_depth`.
        setting: &'static str,
    },
    /// The call costs more than the rest of a [budget](crate::budget).
    OverBudget {
        /// The name of the budget. For the maximum cost of a run, the name of its setting.
        budget: Cow<'static, str>,
        /// The time after which the budget has replenished enough for this call. `None` if it is
        /// unknown.
        retry_after: Option<Duration>,
    },
    /// The call could leak data: the tool makes its arguments visible to others, and the session
    /// has received private and untrusted data. See [`flow`](crate::flow).
    EgressDenied {
        /// The name of the tool that was called.
        tool: Cow<'static, str>,
    },
    /// The call is nested too deeply in other calls, or there are too many nested calls. Tools
    /// probably call each other endlessly.
    Endless {
        /// The name of the tool that was called.
        tool: Cow<'static, str>,
        /// The unit of the limit, such as `nested calls`.
        unit: &'static str,
        /// The value of the limit, such as 8 for 8 nested calls.
        limit: usize,
    },
}

/// A violation of a tool's input schema by the arguments of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the invalid value, as a JSON Pointer ([RFC 6901]) such as `/filter/limit`. Empty
    /// if the violation concerns the arguments as a whole.
    ///
    /// [RFC 6901]: https://www.rfc-editor.org/rfc/rfc6901
    pub path: String,
    /// A description of the violation. It contains no values of the arguments, which may be secret.
    pub message: String,
}

// === impl Refusal ===

impl Refusal {
    /// Creates the refusal of a request whose nesting depth exceeds `levels`.
    pub(crate) const fn too_deep(levels: usize) -> Self {
        Self::OverLimit { unit: "levels of nesting", limit: levels, setting: "max_depth" }
    }

    /// Returns the kind of the refused item, such as a tool. Returns `None` if the refusal names no
    /// item.
    #[must_use]
    pub const fn kind(&self) -> Option<ItemKind> {
        match self {
            Self::Unknown { kind, .. } | Self::Unavailable { kind, .. } => Some(*kind),
            Self::InvalidArguments { .. } | Self::EgressDenied { .. } | Self::Endless { .. } => {
                Some(ItemKind::Tool)
            }
            Self::OverLimit { .. } | Self::OverBudget { .. } => None,
        }
    }

    /// Returns the name or URI of the refused item. Returns `None` if the refusal names no item.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Unknown { name, .. }
            | Self::Unavailable { name, .. }
            | Self::InvalidArguments { tool: name, .. }
            | Self::EgressDenied { tool: name }
            | Self::Endless { tool: name, .. } => Some(name),
            Self::OverLimit { .. } | Self::OverBudget { .. } => None,
        }
    }

    /// Returns a mutable reference to the name or URI of the refused item, for example to replace
    /// it with the name that the client uses. Returns `None` if the refusal names no item.
    pub const fn name_mut(&mut self) -> Option<&mut Cow<'static, str>> {
        match self {
            Self::Unknown { name, .. }
            | Self::Unavailable { name, .. }
            | Self::InvalidArguments { tool: name, .. }
            | Self::EgressDenied { tool: name }
            | Self::Endless { tool: name, .. } => Some(name),
            Self::OverLimit { .. } | Self::OverBudget { .. } => None,
        }
    }

    /// Returns the reason for the refusal. For invalid arguments, lists the violations without the
    /// name of the tool.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::InvalidArguments { violations, .. } => {
                let violations = violations.iter().take(MAX_DISPLAYED_VIOLATIONS);
                violations.map(ToString::to_string).collect::<Vec<_>>().join("; ")
            }
            refusal => refusal.to_error().message.into_owned(),
        }
    }

    /// Converts the refusal to the JSON-RPC error that the client receives.
    #[must_use]
    pub fn to_error(&self) -> ErrorData {
        let data = match self {
            Self::InvalidArguments { violations, .. } => Some(json!({
                "violations": violations
                    .iter()
                    .take(MAX_DISPLAYED_VIOLATIONS)
                    .map(|violation| json!({ "path": violation.path, "message": violation.message }))
                    .collect::<Vec<_>>(),
            })),
            Self::Unknown { kind: ItemKind::Resource, name } => {
                let data = json!({ "uri": name });
                return ErrorData::resource_not_found("resource not found", Some(data));
            }
            Self::OverBudget { budget, retry_after } => {
                let mut data = json!({ "budget": budget });
                if let Some(after) = retry_after {
                    data["retryAfterMs"] = json!(rounded_up(*after, Duration::from_millis(1)));
                }
                return ErrorData::new(DENIED, self.to_string(), Some(data));
            }
            Self::EgressDenied { .. } => {
                return ErrorData::new(DENIED, self.to_string(), None);
            }
            Self::Unknown { .. }
            | Self::Unavailable { .. }
            | Self::OverLimit { .. }
            | Self::Endless { .. } => None,
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
                for (index, violation) in
                    violations.iter().take(MAX_DISPLAYED_VIOLATIONS).enumerate()
                {
                    let separator = if index == 0 { "" } else { "; " };
                    write!(f, "{separator}{violation}")?;
                }
                match violations.len().checked_sub(MAX_DISPLAYED_VIOLATIONS) {
                    Some(more @ 1..) => write!(f, "; and {more} more"),
                    _ => Ok(()),
                }
            }
            Self::OverLimit { unit, limit, setting } => {
                write!(f, "the request has more than {limit} {unit} (`{setting}`)")
            }
            Self::OverBudget { budget, retry_after: None } => {
                write!(f, "the budget `{budget}` is used up")
            }
            Self::OverBudget { budget, retry_after: Some(after) } => {
                let seconds = rounded_up(*after, Duration::from_secs(1));
                write!(f, "the budget `{budget}` is used up; try again in {seconds} s")
            }
            Self::EgressDenied { tool } => write!(
                f,
                "tool `{tool}` is denied: it makes its arguments visible to others, and this \
                 session has received private and untrusted data"
            ),
            Self::Endless { tool, unit, limit } => {
                write!(f, "tool `{tool}` seems to call itself: there are more than {limit} {unit}")
            }
        }
    }
}

/// Converts a retry delay to whole units, such as seconds. Rounds up, because an earlier retry
/// would fail.
fn rounded_up(time: Duration, unit: Duration) -> u64 {
    time.as_nanos().div_ceil(unit.as_nanos()).try_into().unwrap_or(u64::MAX)
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "at `{}`: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_the_reported_time_succeeds() {
        let cases = [
            (Duration::ZERO, 0, 0),
            (Duration::from_nanos(1), 1, 1),
            (Duration::from_micros(1_999_500), 2, 2000),
            (Duration::from_secs(3), 3, 3000),
            (Duration::from_nanos(3_000_000_001), 4, 3001),
            (Duration::MAX, u64::MAX, u64::MAX),
        ];
        for (after, seconds, millis) in cases {
            let refusal = Refusal::OverBudget { budget: "calls".into(), retry_after: Some(after) };
            let text = format!("the budget `calls` is used up; try again in {seconds} s");
            assert_eq!(refusal.to_string(), text);
            let data = refusal.to_error().data.unwrap();
            assert_eq!(data, json!({ "budget": "calls", "retryAfterMs": millis }));
        }
    }
}
