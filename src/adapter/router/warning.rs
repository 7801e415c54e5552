//! The problems that a router reports to the operator.

use std::{fmt, sync::Arc};

use crate::{message::ItemKind, warnings::sanitize::Sanitized};

/// A problem with the backends of a router, for the operator.
///
/// Displays as a sentence that names the backends. It may contain text from a backend, so do not
/// send it to clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Problem {
    /// The list of a backend is not available; its last known list is used.
    NotListed {
        /// The backend.
        backend: Arc<str>,
        /// The kind of the list.
        kind: ItemKind,
        /// The reason.
        reason: String,
    },
    /// An item is left out because clients do not accept its name.
    IllegalName {
        /// The backend.
        backend: Arc<str>,
        /// The kind of the item.
        kind: ItemKind,
        /// The name that clients would see.
        name: String,
    },
    /// A backend has two items of the same name; the first one is used.
    Twins {
        /// The backend.
        backend: Arc<str>,
        /// The kind of the items.
        kind: ItemKind,
        /// The name that clients see.
        name: String,
    },
    /// Two backends have an item of the same name; that of the first is used.
    Shadowed {
        /// The backend whose item is used.
        owner: Arc<str>,
        /// The backend whose item is left out.
        hidden: Arc<str>,
        /// The kind of the items.
        kind: ItemKind,
        /// The name or URI that clients see.
        name: String,
    },
    /// Two backends have an item of the same name; both are left out.
    Contested {
        /// The backends.
        backends: [Arc<str>; 2],
        /// The kind of the items.
        kind: ItemKind,
        /// The name or URI that clients would see.
        name: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotListed { backend, kind, reason } => {
                write!(f, "backend `{}` does not list its {kind}s: {reason}", Sanitized(backend))
            }
            Self::IllegalName { backend, kind, name } => write!(
                f,
                "the {kind} `{}` of backend `{}` is left out: clients take names of 1 to 128 of \
                 `A-Z`, `a-z`, `0-9`, `_`, `-`, `.` and the separator",
                Sanitized(name),
                Sanitized(backend),
            ),
            Self::Twins { backend, kind, name } => write!(
                f,
                "backend `{}` has two {kind}s `{}`: the first counts",
                Sanitized(backend),
                Sanitized(name),
            ),
            Self::Shadowed { owner, hidden, kind, name } => write!(
                f,
                "the {kind} `{}` of backend `{}` is left out: backend `{}` comes first and has \
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
