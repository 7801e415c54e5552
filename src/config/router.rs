//! The section `[router]`.

use serde::Deserialize;

use super::read::Reader;
use crate::{adapter::router::Conflicts, names::MAX_SEPARATOR};

/// The settings of the router, which merges the backends of a file into one server.
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
    /// Separator between the name of a backend and the name of a tool or prompt. Defaults to `_`.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9_./-]{1,8}$")))]
    separator: Option<String>,
    /// How to treat items of the same name in several backends. By default, names get prefixes.
    conflicts: Option<ConflictsName>,
}

/// How to treat items of the same name in several backends.
#[derive(Clone, Copy, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum ConflictsName {
    /// Names begin with the prefix of their backend.
    Prefix,
    /// Names are unchanged. An item that several backends have belongs to the first of them in the
    /// file that has listed it.
    Priority,
    /// Names are unchanged. If several backends have an item of the same name, clients cannot use
    /// any of these items.
    Manual,
}

/// Converts the `[router]` section to a [`RouterConfig`]. Errors in the section are recorded in
/// `reader`.
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

    /// Returns how the router treats items of the same name in several backends.
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
