//! Problems with backends and their items, which a router reports to the operator.

use std::{fmt, sync::Arc};

use crate::{message::ItemKind, warnings::sanitize::Sanitized};

/// A problem with a backend of a router or with its items, such as its tools. The router reports
/// problems to the operator.
///
/// The `Display` output of a problem is a sentence that names the backend. The sentence may contain
/// text from a backend, so it should not be sent to clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Problem {
    /// The router could not list the items of a backend, such as its tools. Clients receive the
    /// backend's last known items instead.
    NotListed {
        /// The name of the backend that could not list its items.
        backend: Arc<str>,
        /// The kind of items that the backend could not list, such as tools.
        kind: ItemKind,
        /// The reason why the backend could not list its items, as a text for the operator.
        reason: String,
    },
    /// The router leaves out an item of a backend, because clients would not accept its name.
    IllegalName {
        /// The name of the backend that lists the item.
        backend: Arc<str>,
        /// The kind of the item that the router leaves out, such as a tool.
        kind: ItemKind,
        /// The name that clients would have seen, including the backend's prefix.
        name: String,
    },
    /// A backend lists two items with the same name or URI. The router uses the first item.
    Twins {
        /// The name of the backend that lists both items.
        backend: Arc<str>,
        /// The kind of both items, such as tools.
        kind: ItemKind,
        /// The name or URI of both items, as clients see it.
        name: String,
    },
    /// Two backends offer an item with the same name or URI. The router uses the item of the first
    /// backend.
    Shadowed {
        /// The name of the backend whose item is used.
        owner: Arc<str>,
        /// The name of the backend whose item is left out.
        hidden: Arc<str>,
        /// The kind of both items, such as tools.
        kind: ItemKind,
        /// The name or URI of both items, as clients see it.
        name: String,
    },
    /// Two backends offer an item with the same name or URI. The router leaves out both items.
    Contested {
        /// The names of both backends that offer the item.
        backends: [Arc<str>; 2],
        /// The kind of both items, such as tools.
        kind: ItemKind,
        /// The name or URI that clients would see.
        name: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed { backend, kind, reason } => {
                write!(
                    f,
                    "failed to list the {kind}s of backend `{}`: {reason}",
                    Sanitized(backend)
                )
            }
            Self::IllegalName { backend, kind, name } => write!(
                f,
                "the {kind} `{}` of backend `{}` is left out: expected a name of 1 to 128 of \
                 `A-Z`, `a-z`, `0-9`, `_`, `-`, `.` and the separator",
                Sanitized(name),
                Sanitized(backend),
            ),
            Self::Twins { backend, kind, name } => write!(
                f,
                "backend `{}` has two {kind}s `{}`: the second is ignored",
                Sanitized(backend),
                Sanitized(name),
            ),
            Self::Shadowed { owner, hidden, kind, name } => write!(
                f,
                "the {kind} `{}` of backend `{}` is left out: the earlier backend `{}` has \
                 one of the same name",
                Sanitized(name),
                Sanitized(hidden),
                Sanitized(owner),
            ),
            Self::Contested { backends: [first, second], kind, name } => write!(
                f,
                "the {kind} `{}` is left out: both backend `{}` and backend `{}` have it",
                Sanitized(name),
                Sanitized(first),
                Sanitized(second),
            ),
        }
    }
}
