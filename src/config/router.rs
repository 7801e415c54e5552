//! The section `[router]`.

use serde::Deserialize;

use super::read::Reader;
use crate::{adapter::router::Conflicts, names::MAX_SEPARATOR};

/// How the backends of a file are merged into one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    separator: String,
    conflicts: Conflicts,
}

/// How the backends are merged into one server.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouterTable {
    /// Separator between the name of a backend and the name of its tool. Defaults to `_`.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9_./-]{1,8}$")))]
    separator: Option<String>,
    /// How conflicting names of backends are resolved. Defaults to prefixes.
    conflicts: Option<ConflictsName>,
}

/// How conflicting names of backends are resolved.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ConflictsName {
    /// Each name starts with the prefix of its backend.
    Prefix,
    /// Names are unchanged, and the first backend of the file takes precedence.
    Priority,
    /// Names are unchanged, and conflicts are errors.
    Manual,
}

/// Builds the section and reports mistakes in it.
pub(super) fn build(table: RouterTable, reader: &mut Reader<'_, '_>) -> RouterConfig {
    let mut router = RouterConfig {
        conflicts: table.conflicts.map(Conflicts::from).unwrap_or_default(),
        ..RouterConfig::default()
    };
    match table.separator {
        Some(separator) if is_separator(&separator) => router.separator = separator,
        Some(_) => {
            let message = format!(
                "illegal separator: expected 1 to {MAX_SEPARATOR} of `A-Z`, `a-z`, `0-9`, `_`, `-`, `.` and `/`"
            );
            reader.report(&["router".into(), "separator".into()], message);
        }
        None => (),
    }
    router
}

fn is_separator(text: &str) -> bool {
    (1..=MAX_SEPARATOR).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-./".contains(&b))
}

// === impl RouterConfig ===

impl RouterConfig {
    /// Returns the separator between the name of a backend and the name of its tool.
    #[must_use]
    pub fn separator(&self) -> &str {
        &self.separator
    }

    /// Returns how conflicting names of backends are resolved.
    #[must_use]
    pub const fn conflicts(&self) -> Conflicts {
        self.conflicts
    }
}

impl Default for RouterConfig {
    fn default() -> Self {
        Self { separator: "_".to_owned(), conflicts: Conflicts::default() }
    }
}

// === impl ConflictsName ===

impl From<ConflictsName> for Conflicts {
    fn from(name: ConflictsName) -> Self {
        match name {
            ConflictsName::Prefix => Self::Prefix,
            ConflictsName::Priority => Self::Priority,
            ConflictsName::Manual => Self::Manual,
        }
    }
}
