use std::{fmt, sync::Arc};

use crate::{message::ItemKind, warnings::sanitize::Sanitized};

/// What an operator must know about the backends of a router.
///
/// Prints a sentence that names the backends. It may hold what a backend said
/// about itself, so it is not for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Problem {
    /// A backend does not say what it has; what it last said is used.
    NotListed {
        /// The backend.
        backend: Arc<str>,
        /// What was asked for.
        kind: ItemKind,
        /// Why not.
        reason: String,
    },
    /// A name that clients would not take is left out.
    IllegalName {
        /// The backend.
        backend: Arc<str>,
        /// What has the name.
        kind: ItemKind,
        /// The name that clients would see.
        name: String,
    },
    /// A backend has two of one name, and the first counts.
    Twins {
        /// The backend.
        backend: Arc<str>,
        /// What has the name.
        kind: ItemKind,
        /// The name that clients see.
        name: String,
    },
    /// Two backends have one name, and that of the first counts.
    Shadowed {
        /// The backend that counts.
        owner: Arc<str>,
        /// The backend whose own is left out.
        hidden: Arc<str>,
        /// What has the name.
        kind: ItemKind,
        /// The name or URI that clients see.
        name: String,
    },
    /// Two backends have one name, and both are left out.
    Contested {
        /// The backends.
        backends: [Arc<str>; 2],
        /// What has the name.
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
