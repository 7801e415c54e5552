//! The `[router]` section, which defines how the backends are merged into one server.

use serde::Deserialize;

use super::read::Reader;
use crate::{adapter::router::Conflicts, names::MAX_SEPARATOR};

/// The `[router]` settings of a configuration file. The router merges the backends of the file into
/// one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterConfig {
    separator: String,
    conflicts: Conflicts,
}

/// Defines how the router merges the backends into one server.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouterTable {
    /// The separator between a backend's name and a tool or prompt name, as in `github_search`.
    /// Defaults to `_`.
    #[cfg_attr(test, schemars(regex(pattern = "^[A-Za-z0-9_./-]{1,8}$")))]
    separator: Option<String>,
    /// How the router resolves name conflicts, if several backends have a tool, prompt or resource
    /// of the same name. By default, it adds a prefix to each name.
    conflicts: Option<Conflicts>,
}

/// Converts the `[router]` section to a [`RouterConfig`], and reports errors in the section to
/// `reader`.
pub(super) fn build(table: RouterTable, reader: &mut Reader<'_, '_>) -> RouterConfig {
    let mut router =
        RouterConfig { conflicts: table.conflicts.unwrap_or_default(), ..RouterConfig::default() };
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
    /// Returns the separator between a backend's name and a tool name, for example `_` in
    /// `github_search`.
    #[must_use]
    pub fn separator(&self) -> &str {
        &self.separator
    }

    /// Returns how the router resolves name conflicts, if several backends have a tool, prompt or
    /// resource of the same name.
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
