//! Policies for tools that differ from a lock.

/// The policy of a [`LockLayer`](super::LockLayer) for tools whose definitions differ from the
/// approved definitions in the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrift {
    /// Hides the tool and logs a warning. The tool is neither listed nor callable. This is the
    /// default.
    #[default]
    Hide,
    /// Logs a warning. The tool stays available with its changed, unapproved definition.
    Warn,
    /// Logs a warning, and rejects all requests to the server with an error.
    Fail,
}

/// The policy of a [`LockLayer`](super::LockLayer) for tools that are not in the lock, so that no
/// operator has approved them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnNew {
    /// Hides the tool and logs a warning. The tool is neither listed nor callable. This is the
    /// default.
    #[default]
    Hide,
    /// Logs a warning. The tool is available, although it is not in the lock.
    Warn,
    /// Makes a tool that is not in the lock available, without a warning.
    Allow,
}
