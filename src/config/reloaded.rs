//! The changes that a reload of the configuration made to the backends.

use std::fmt;

/// Names of the backends that a reload of the configuration kept, connected and removed. Returned
/// by [`Gateway::reload`](super::Gateway::reload).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// Names of the backends whose process or connection the reload kept.
    pub kept: Vec<String>,
    /// Names of the backends to which the reload connected, because they are new or their
    /// connection settings have changed.
    pub connected: Vec<String>,
    /// Names of the backends that the reload removed, because the new configuration does not
    /// contain them.
    pub removed: Vec<String>,
}

// === impl Reloaded ===

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts =
            [("kept", &self.kept), ("connected", &self.connected), ("removed", &self.removed)];
        let parts =
            parts.into_iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| {
                let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
                format!("{what} {}", names.join(", "))
            });
        f.write_str(&parts.collect::<Vec<_>>().join("; "))
    }
}
