//! A backend of a router, with its type-erased service.

use std::{
    error::Error,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{BoxFuture, FutureExt};
use rmcp::model::ServerConfig;
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use crate::message::{BackendError, BackendErrorKind, Reply, Request};

/// A backend of a [`Router`](super::Router).
#[must_use]
pub struct Backend {
    pub(super) name: Arc<str>,
    pub(super) prefix: Option<String>,
    pub(super) service: Arc<dyn BackendService>,
    pub(super) description: Option<Description>,
}

/// Returns the description of a backend, if it is known.
pub(super) type Description = Arc<dyn Fn() -> Option<ServerConfig> + Send + Sync>;

/// A Tower service with its type erased.
pub(super) trait BackendService: Send + Sync {
    /// Answers a request on a clone of the service as soon as the clone is ready.
    ///
    /// A method that the backend does not know is always reported in the reply.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BoxError>>;
}

/// Locked only to be cloned, so that the service need not be `Sync`.
///
/// The stored service is never polled for readiness, so it holds no permits that others wait for.
struct Answering<S>(Mutex<S>);

// === impl Backend ===

impl Backend {
    /// Creates a backend with this name.
    ///
    /// Each request goes to a clone of the service, which is called when it is ready.
    pub fn new<S>(name: impl Into<Arc<str>>, service: S) -> Self
    where
        S: Service<Request, Response = Reply> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        let service = Arc::new(Answering(Mutex::new(service)));
        Self { name: name.into(), prefix: None, service, description: None }
    }

    /// Sets the prefix of the names of its tools and prompts, instead of its name and the
    /// separator. It may be empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets a function that returns the backend's own description, or `None` while it is unknown.
    ///
    /// Requests are sent to the backend only for capabilities that it declares.
    pub fn description<F>(mut self, description: F) -> Self
    where
        F: Fn() -> Option<ServerConfig> + Send + Sync + 'static,
    {
        self.description = Some(Arc::new(description));
        self
    }

    pub(super) fn describe(&self) -> Option<ServerConfig> {
        self.description.as_ref().and_then(|describe| describe())
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("name", &self.name)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

// === impl Answering ===

impl<S> BackendService for Answering<S>
where
    S: Service<Request, Response = Reply> + Clone + Send + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
{
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BoxError>> {
        let service = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = service.oneshot(request);
        answer.map(|answer| answer.or_else(|error| reply_to(error.into()))).boxed()
    }
}

/// Converts an error that reports an unsupported method into a reply.
fn reply_to(error: BoxError) -> Result<Reply, BoxError> {
    let mut source: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(told) = source {
        if let Some(told) = told.downcast_ref::<BackendError>() {
            return match told.kind() {
                // Clients never see this reply, so it need not name the method.
                BackendErrorKind::Unsupported => Ok(Reply::method_not_found("")),
                _ => Err(error),
            };
        }
        source = told.source();
    }
    Err(error)
}
