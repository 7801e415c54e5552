//! The `[lock]` section, which restricts the backends' tools to approved definitions.

use std::path::{Path, PathBuf};

use serde::Deserialize;

#[cfg(any(feature = "stdio", feature = "http"))]
use super::BackendConfig;
use super::{LockError, include::Sources, read::Reader};
#[cfg(any(feature = "stdio", feature = "http"))]
use crate::lock::LockLayer;
use crate::{
    composite::Segment,
    lock::{Lock, OnDrift, OnNew},
};

const SECTION: &str = "lock";

/// Compares the backends' tools with approved definitions. By default, a tool is hidden if its
/// definition has changed or was never approved.
#[derive(Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["file"])))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LockTable {
    /// Path of the lock file, such as `tools.lock`, relative to this file. The command
    /// `mcp-composite lock` writes the lock file.
    file: Option<String>,
    /// How to handle a tool whose definition differs from the approved definition in the lock file.
    /// Defaults to `hide`.
    on_drift: Option<OnDrift>,
    /// How to handle a tool that is not in the lock file. Defaults to `hide`.
    on_new: Option<OnNew>,
}

/// The `[lock]` settings of a configuration file: the path of the lock file, which contains
/// approved tool definitions, and the treatment of tools that differ from them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockConfig {
    file: PathBuf,
    on_drift: OnDrift,
    on_new: OnNew,
}

/// Converts the `[lock]` section to a [`LockConfig`], and reports errors in the section to
/// `reader`. Does not read the lock file.
pub(super) fn build(
    table: Option<LockTable>,
    sources: &mut Sources,
    reader: &mut Reader<'_, '_>,
) -> Option<LockConfig> {
    let table = table?;
    let file = reader.required(table.file, "file", &[SECTION.into()]);
    if file.trim().is_empty() {
        let message = "`file` is blank: expected the path of the lock, such as `tools.lock`";
        reader.report(&[SECTION.into(), Segment::from("file")], message);
    }
    let file = sources.directory().join(file);
    sources.set_lock(file.clone());
    let on_drift = table.on_drift.unwrap_or_default();
    let on_new = table.on_new.unwrap_or_default();
    Some(LockConfig { file, on_drift, on_new })
}

// === impl LockConfig ===

impl LockConfig {
    /// Returns the path of the lock file. If the configuration was read from a string, a relative
    /// path refers to the working directory of the process.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads the lock file, which contains the approved tool definitions of the backends.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be read, or if it is not a valid lock file.
    pub fn read(&self) -> Result<Lock, LockError> {
        Lock::load(&self.file)
    }

    /// Reads the lock file. Adds a layer to each backend that compares the tools of the backend
    /// with the approved definitions in the lock file.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn apply(&self, backends: &mut [BackendConfig]) -> Result<(), LockError> {
        let lock = self.read()?;
        for backend in backends {
            let layer = LockLayer::new(&lock, backend.name());
            let layer = layer.on_drift(self.on_drift).on_new(self.on_new);
            backend.layer = backend.layer.clone().lock(layer);
        }
        Ok(())
    }
}
