use std::{error::Error, fmt, sync::Arc};

use tower::{BoxError, load_shed::error::Overloaded, timeout::error::Elapsed};

/// A backend that could not answer.
///
/// Its text names the backend and may be told to a client. Why it happened is
/// in [`source`](Error::source) and not in the text: that may hold addresses,
/// paths and more that is nobody's business.
#[derive(Debug)]
pub struct BackendError {
    backend: Arc<str>,
    kind: BackendErrorKind,
    source: Option<BoxError>,
}

/// What became of a backend that could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BackendErrorKind {
    /// There is no connection to it at the moment: the request was not sent.
    NotConnected,
    /// The connection was lost before it answered.
    ConnectionLost,
    /// It did not answer in time.
    TimedOut,
    /// It has more to do than it takes on: the request was not sent.
    Overloaded,
    /// It does not know the method.
    ///
    /// Not a JSON-RPC error of that code, which a client would take for being
    /// about the server that it talks to. A list that the backend does not offer is
    /// a [`Reply`](super::Reply) with that error instead, as of a handler in this process.
    Unsupported,
    /// Anything else.
    Failed,
}

// === impl BackendError ===

impl BackendError {
    /// An error of the backend of this name.
    #[must_use]
    pub fn new(backend: impl Into<Arc<str>>, kind: BackendErrorKind) -> Self {
        Self { backend: backend.into(), kind, source: None }
    }

    /// What a service that stands for a backend failed with.
    ///
    /// An error that names this backend already stays as it is.
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

    /// Adds why it happened, for whoever reads the log.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The name of the backend.
    #[must_use]
    pub fn backend(&self) -> &str {
        &self.backend
    }

    /// Whether there is no connection to it, or no longer.
    #[cfg(feature = "remote")]
    pub(crate) const fn is_of_connection(&self) -> bool {
        matches!(self.kind, BackendErrorKind::NotConnected | BackendErrorKind::ConnectionLost)
    }

    /// What became of it.
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
    /// Looks for an error that says it in an error and its sources.
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
