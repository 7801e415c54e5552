//! The error type of services that forward requests to a backend server, and the causes of errors.

use std::{any::Any, error::Error, fmt, sync::Arc};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

/// The error of a request to which a backend server did not reply, for example because it is not
/// connected.
///
/// Clients may see the message of a `BackendError`, which names the backend and the kind of
/// failure. Details, such as addresses and paths, are only in [`source`](Error::source), which
/// clients never see.
#[derive(Debug)]
pub struct BackendError {
    backend: Arc<str>,
    kind: BackendErrorKind,
    source: Option<BoxError>,
}

/// The reason why a backend server did not reply to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The backend is not connected, so the request was not sent.
    NotConnected,
    /// The connection to the backend was lost before the backend answered.
    ConnectionLost,
    /// The backend did not answer in time.
    TimedOut,
    /// The backend is overloaded, so the request was not sent.
    Overloaded,
    /// The backend does not support the method of the request.
    ///
    /// This kind replaces the backend's JSON-RPC error "method not found". Clients would otherwise
    /// conclude that the whole server does not support the method. If a backend does not offer a
    /// list, however, its JSON-RPC error is returned in a [`Reply`](super::Reply).
    Unsupported,
    /// The backend failed for another reason.
    Failed,
}

/// The cause of a service error. Clients may see it. The message of the error is not included,
/// because it may contain addresses, paths and other internal details.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cause<'e> {
    TimedOut,
    Overloaded,
    /// A backend did not reply. The message of this error names only the backend and the kind of
    /// failure.
    Backend(&'e BackendError),
    Unknown,
}

// === impl BackendError ===

impl BackendError {
    /// Creates an error of the given kind for the backend with the name `backend`.
    #[must_use]
    pub fn new(backend: impl Into<Arc<str>>, kind: BackendErrorKind) -> Self {
        Self { backend: backend.into(), kind, source: None }
    }

    /// Converts an error of a backend's Tower service to a `BackendError`. `backend` is the name of
    /// the backend. If `error` is already a `BackendError` of this backend, returns it unchanged.
    #[must_use]
    pub fn from_service(backend: &Arc<str>, error: BoxError) -> Self {
        let error: BoxError = match error.downcast::<Self>() {
            Ok(error) if error.backend == *backend => return *error,
            Ok(error) => error,
            Err(error) => error,
        };
        let kind = match Cause::of(&*error) {
            Cause::TimedOut => BackendErrorKind::TimedOut,
            Cause::Overloaded => BackendErrorKind::Overloaded,
            Cause::Backend(error) => error.kind,
            Cause::Unknown => BackendErrorKind::Failed,
        };
        Self { backend: backend.clone(), kind, source: Some(error) }
    }

    /// Sets the [`source`](Error::source) of the error: details for the operator, which are logged.
    /// Clients never see them.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the name of the backend that did not reply.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns `true` if the backend was not connected, or if its connection was lost.
    #[cfg(feature = "remote")]
    pub(crate) const fn is_of_connection(&self) -> bool {
        matches!(self.kind, BackendErrorKind::NotConnected | BackendErrorKind::ConnectionLost)
    }

    /// Returns the reason why the backend did not reply.
    #[must_use]
    pub const fn kind(&self) -> BackendErrorKind {
        self.kind
    }
}

impl fmt::Display for BackendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backend = &self.backend;
        match self.kind {
            BackendErrorKind::NotConnected => write!(f, "backend `{backend}` is not connected"),
            BackendErrorKind::ConnectionLost => {
                write!(f, "the connection to backend `{backend}` was lost before it answered")
            }
            BackendErrorKind::TimedOut => write!(f, "backend `{backend}` did not answer in time"),
            BackendErrorKind::Overloaded => write!(f, "backend `{backend}` is overloaded"),
            BackendErrorKind::Unsupported => {
                write!(f, "backend `{backend}` does not support this method")
            }
            BackendErrorKind::Failed => write!(f, "backend `{backend}` could not answer"),
        }
    }
}

impl Error for BackendError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

// === impl Cause ===

impl<'e> Cause<'e> {
    /// Returns the cause of `error`: the first [`BackendError`], timeout or overload error of Tower
    /// in `error` and its sources.
    pub(crate) fn of(error: &'e (dyn Error + 'static)) -> Self {
        let mut source = Some(error);
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<BackendError>() {
                return Self::Backend(error);
            }
            if error.is::<Elapsed>() {
                return Self::TimedOut;
            }
            if error.is::<Overloaded>() {
                return Self::Overloaded;
            }
            source = error.source();
        }
        Self::Unknown
    }
}

/// Returns `true` if the request was not sent, so that it is safe to send it again. The backend was
/// not connected or was overloaded, or Tower's load shedding rejected the request.
///
/// Returns `false` for error types other than [`BoxError`] and [`BackendError`], which are not
/// inspected.
pub(crate) fn is_unsent<E: 'static>(error: &E) -> bool {
    let any: &dyn Any = error;
    let error: &(dyn Error + 'static) = match any.downcast_ref::<BoxError>() {
        Some(error) => &**error,
        None => match any.downcast_ref::<BackendError>() {
            Some(error) => error,
            None => return false,
        },
    };
    match Cause::of(error) {
        Cause::Overloaded => true,
        Cause::Backend(error) => {
            matches!(error.kind(), BackendErrorKind::NotConnected | BackendErrorKind::Overloaded)
        }
        Cause::TimedOut | Cause::Unknown => false,
    }
}
