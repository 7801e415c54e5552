//! The names under which clients see the items of backends, and the conflict rules.

use std::sync::Arc;

use crate::names;

/// The rule for names that several backends offer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflicts {
    /// Every tool and prompt has the prefix of its backend. Names conflict only where prefixes
    /// overlap; those are left out.
    ///
    /// A resource that several backends offer belongs to the first one.
    #[default]
    Prefix,
    /// Names are not changed. An item that several backends offer belongs to the first one that has
    /// listed it.
    Priority,
    /// Names are not changed. Items that several backends offer are left out until they are
    /// renamed.
    Manual,
}

/// The names under which clients see the items of backends.
#[derive(Debug)]
pub(super) struct ExposedNames {
    pub(super) conflicts: Conflicts,
    pub(super) separator: String,
    /// In the order of the backends.
    pub(super) backends: Vec<BackendNames>,
    /// The backends, those with the longest prefix first.
    by_prefix: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct BackendNames {
    pub(super) name: Arc<str>,
    /// Empty if names are not changed.
    pub(super) prefix: String,
}

// === impl Conflicts ===

impl Conflicts {
    /// Returns the spelling in configuration files.
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

    /// Returns the name of a backend.
    pub(super) fn of(&self, place: usize) -> &Arc<str> {
        &self.backends[place].name
    }

    /// Returns the name that clients see.
    pub(super) fn expose(&self, place: usize, own: &str) -> String {
        let prefix = &self.backends[place].prefix;
        let mut name = String::with_capacity(prefix.len() + own.len());
        name.push_str(prefix);
        name.push_str(own);
        name
    }

    /// Returns the backend's own name, if the name that clients see has the backend's prefix.
    pub(super) fn own<'n>(&self, place: usize, exposed: &'n str) -> Option<&'n str> {
        exposed.strip_prefix(&*self.backends[place].prefix)
    }

    /// Returns the backends whose prefix a name begins with, longest prefix first.
    pub(super) fn by_prefix<'s>(&'s self, exposed: &'s str) -> impl Iterator<Item = usize> + 's {
        let begins =
            move |&place: &usize| self.own(place, exposed).is_some_and(|own| !own.is_empty());
        self.by_prefix.iter().copied().filter(begins)
    }

    /// Returns `true` if clients accept the name of a tool.
    pub(super) fn is_legal(&self, exposed: &str) -> bool {
        names::is_legal(exposed, &self.separator)
    }
}
