use std::sync::Arc;

use crate::names;

/// What happens when two backends offer something under one name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Conflicts {
    /// Every tool and prompt has the prefix of its backend, so that names only
    /// meet where prefixes overlap; those that do are left out.
    ///
    /// The first backend has a resource that several offer.
    #[default]
    Prefix,
    /// Names stay as they are, and the first backend that has listed it has what
    /// several offer.
    Priority,
    /// Names stay as they are, and what several backends offer is left out
    /// until somebody renames it.
    Manual,
}

/// Under which names clients see what backends offer.
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
    /// Empty where names stay as they are.
    pub(super) prefix: String,
}

// === impl Conflicts ===

impl Conflicts {
    /// How a configuration file spells it.
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

    /// The name of a backend.
    pub(super) fn of(&self, place: usize) -> &Arc<str> {
        &self.backends[place].name
    }

    /// The name that clients see.
    pub(super) fn expose(&self, place: usize, own: &str) -> String {
        let prefix = &self.backends[place].prefix;
        let mut name = String::with_capacity(prefix.len() + own.len());
        name.push_str(prefix);
        name.push_str(own);
        name
    }

    /// The name that the backend knows, if the one that clients see can be its.
    pub(super) fn own<'n>(&self, place: usize, exposed: &'n str) -> Option<&'n str> {
        exposed.strip_prefix(&*self.backends[place].prefix)
    }

    /// The backends with whose prefix a name begins, the longest first.
    pub(super) fn by_prefix<'s>(&'s self, exposed: &'s str) -> impl Iterator<Item = usize> + 's {
        let begins =
            move |&place: &usize| self.own(place, exposed).is_some_and(|own| !own.is_empty());
        self.by_prefix.iter().copied().filter(begins)
    }

    /// Whether clients take the name of a tool.
    pub(super) fn is_legal(&self, exposed: &str) -> bool {
        names::is_legal(exposed, &self.separator)
    }
}
