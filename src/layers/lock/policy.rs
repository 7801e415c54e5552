//! Policies for tools that differ from a lock.

use serde::Deserialize;

/// The policy of a lock layer for tools whose definitions differ from the approved definitions in
/// the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnDrift {
    /// Hide the tool and log a warning. The tool is neither listed nor callable. This is the
    /// default.
    #[default]
    Hide,
    /// Log a warning. The tool stays available with its changed, unapproved definition.
    Warn,
    /// Log a warning, and answer all requests to the backend of the tool with an error.
    Fail,
}

/// The policy of a lock layer for tools that are not in the lock, so that no operator has approved
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnNew {
    /// Hide the tool and log a warning. The tool is neither listed nor callable. This is the
    /// default.
    #[default]
    Hide,
    /// Log a warning. The tool is available, although it is not in the lock.
    Warn,
    /// Make the tool available, without a warning.
    Allow,
}
