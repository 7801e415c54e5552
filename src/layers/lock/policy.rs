//! The treatment of tools that differ from a lock.

/// The treatment of a tool whose definition differs from the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrift {
    /// The tool is neither listed nor callable, and a warning is logged. The default.
    #[default]
    Hide,
    /// A warning is logged, and the tool stays available with its current definition.
    Warn,
    /// A warning is logged, and all requests to the server fail.
    Fail,
}

/// The treatment of a tool that is not in the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnNew {
    /// The tool is neither listed nor callable, and a warning is logged. The default.
    #[default]
    Hide,
    /// A warning is logged, and the tool is available.
    Warn,
    /// The tool is available.
    Allow,
}
