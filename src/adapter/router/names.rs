//! Converts between the backends' own names and the names that clients see, and defines the
//! conflict rules.

use std::sync::Arc;

use serde::Deserialize;

use crate::names;

/// The rule of a router for items, such as tools, that have the same name in several backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Conflicts {
    /// The names of tools and prompts start with the prefix of their backend, as in
    /// `github_search`. Two names can still be equal if one prefix starts with another. Tools and
    /// prompts with equal names are left out.
    ///
    /// The URIs of resources have no prefix. If several backends list the same resource, it belongs
    /// to the first of these backends.
    #[default]
    Prefix,
    /// Names of items are not changed. If several backends list the same item, it belongs to the
    /// first of them, in the order of the backends.
    Priority,
    /// Names of items are not changed. If several backends offer an item with the same name, the
    /// router leaves out all of these items until they are renamed.
    Manual,
}

/// Converts between the backends' own names and the names that clients see.
#[derive(Debug)]
pub(super) struct ExposedNames {
    pub(super) conflicts: Conflicts,
    pub(super) separator: String,
    /// The name and prefix of each backend. The index in this list is the index of the backend.
    pub(super) backends: Vec<BackendNames>,
    /// The indices of all backends, sorted by the length of their prefixes. The backend with the
    /// longest prefix comes first.
    by_prefix: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct BackendNames {
    pub(super) name: Arc<str>,
    /// The prefix that is put before the names of the backend's tools and prompts. Empty if the
    /// conflict rule does not use prefixes.
    pub(super) prefix: String,
}

// === impl Conflicts ===

impl Conflicts {
    /// Returns the name of this rule in configuration files.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Prefix => "prefix",
            Self::Priority => "priority",
            Self::Manual => "manual",
        }
    }
}

// === impl ExposedNames ===

impl ExposedNames {
    pub(super) fn new(
        conflicts: Conflicts,
        separator: String,
        backends: Vec<BackendNames>,
    ) -> Self {
        let mut by_prefix: Vec<_> = (0..backends.len()).collect();
        by_prefix.sort_by_key(|&place| std::cmp::Reverse(backends[place].prefix.len()));
        Self { conflicts, separator, backends, by_prefix }
    }

    /// Returns the name of the backend with the index `place`.
    pub(super) fn of(&self, place: usize) -> &Arc<str> {
        &self.backends[place].name
    }

    /// Returns the name that clients see for a backend's tool or prompt: the prefix followed by the
    /// backend's own name.
    pub(super) fn expose(&self, place: usize, own: &str) -> String {
        [&*self.backends[place].prefix, own].concat()
    }

    /// Removes the backend's prefix from a name that clients see. Returns `None` if the name does
    /// not start with the prefix.
    pub(super) fn own<'n>(&self, place: usize, exposed: &'n str) -> Option<&'n str> {
        exposed.strip_prefix(&*self.backends[place].prefix)
    }

    /// Returns all backends whose prefix is at the start of the name. Backends with longer prefixes
    /// come first.
    pub(super) fn by_prefix<'s>(&'s self, exposed: &'s str) -> impl Iterator<Item = usize> + 's {
        let begins =
            move |&place: &usize| self.own(place, exposed).is_some_and(|own| !own.is_empty());
        self.by_prefix.iter().copied().filter(begins)
    }

    /// Returns `true` if clients accept this string as the name of a tool or prompt.
    pub(super) fn is_legal(&self, exposed: &str) -> bool {
        names::is_legal(exposed, &self.separator)
    }
}
