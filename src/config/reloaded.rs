//! The effect of a reload on the backends.

use std::fmt;

/// The names of the backends that a reload has kept, connected and removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// Backends whose process or connection was kept.
    pub kept: Vec<String>,
    /// Backends that were connected, since they are new or their connection settings have changed.
    pub connected: Vec<String>,
    /// Backends that were removed.
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
