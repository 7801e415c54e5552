//! Policies for tools that differ from a lock.

use serde::Deserialize;

/// How to handle a tool whose definition differs from the approved definition in the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnDrift {
    /// Hide the tool and log a warning. The tool is neither listed nor callable.
    #[default]
    Hide,
    /// Log a warning. The tool stays available with its changed, unapproved definition.
    Warn,
    /// Log a warning, and answer all requests to the backend of the tool with an error.
    Fail,
}

/// How to handle a tool that is not in the lock, so that no operator has approved it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum OnNew {
    /// Hide the tool and log a warning. The tool is neither listed nor callable.
    #[default]
    Hide,
    /// Log a warning. The tool is available, although it is not in the lock.
    Warn,
    /// Make the tool available, without a warning.
    Allow,
}
