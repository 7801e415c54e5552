//! The error of a backend that failed to answer.

use std::{error::Error, fmt, sync::Arc};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

/// The error of a backend that failed to answer.
///
/// Its text names the backend and may be shown to a client. The reason is in
/// [`source`](Error::source) only, since it may contain addresses, paths and other internals.
#[derive(Debug)]
pub struct BackendError {
    backend: Arc<str>,
    kind: BackendErrorKind,
    source: Option<BoxError>,
}

/// The reason why a backend failed to answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// The backend is not connected: the request was not sent.
    NotConnected,
    /// The connection was lost before the backend answered.
    ConnectionLost,
    /// The backend did not answer in time.
    TimedOut,
    /// The backend is overloaded: the request was not sent.
    Overloaded,
    /// The backend does not support the method.
    ///
    /// Not the JSON-RPC error of that code, which a client would attribute to the server that it
    /// talks to. A list that the backend does not offer is a [`Reply`](super::Reply) with that
    /// error instead, as of a handler in this process.
    Unsupported,
    /// Any other failure.
    Failed,
}

// === impl BackendError ===

impl BackendError {
    /// Creates an error of the backend with this name.
    #[must_use]
    pub fn new(backend: impl Into<Arc<str>>, kind: BackendErrorKind) -> Self {
        Self { backend: backend.into(), kind, source: None }
    }

    /// Wraps the error of a service that represents a backend.
    ///
    /// Returns an error that already names this backend unchanged.
    #[must_use]
    pub fn from_service(backend: &Arc<str>, error: BoxError) -> Self {
        let error = match error.downcast::<Self>() {
            Ok(told) if told.backend == *backend => return *told,
            Ok(told) => told,
            Err(error) => {
                let kind = BackendErrorKind::of(&*error);
                return Self { backend: backend.clone(), kind, source: Some(error) };
            }
        };
        Self { backend: backend.clone(), kind: error.kind, source: Some(error) }
    }

    /// Adds the reason, for logs.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the name of the backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Returns `true` if the backend is not connected or the connection was lost.
    #[cfg(feature = "remote")]
    pub(crate) const fn is_of_connection(&self) -> bool {
        matches!(self.kind, BackendErrorKind::NotConnected | BackendErrorKind::ConnectionLost)
    }

    /// Returns the kind of the failure.
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

// === impl BackendErrorKind ===

impl BackendErrorKind {
    /// Determines the kind from an error and its sources.
    fn of(error: &(dyn Error + 'static)) -> Self {
        let mut source = Some(error);
        while let Some(error) = source {
            if let Some(told) = error.downcast_ref::<BackendError>() {
                return told.kind;
            }
            if error.is::<Elapsed>() {
                return Self::TimedOut;
            }
            if error.is::<Overloaded>() {
                return Self::Overloaded;
            }
            source = error.source();
        }
        Self::Failed
    }
}
