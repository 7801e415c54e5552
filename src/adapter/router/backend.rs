//! A backend of a router: a Tower service with a name, a prefix and a description.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use futures::future::{BoxFuture, FutureExt};
use rmcp::model::ServerConfig;
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use crate::{
    message::{BackendErrorKind, Cause, Reply, Request},
    mutex::lock,
};

/// A backend of a [`Router`](super::Router): a Tower service with a name, a prefix for the names of
/// its tools and prompts, and a server description.
#[must_use]
pub struct Backend {
    pub(super) name: Arc<str>,
    pub(super) prefix: Option<String>,
    pub(super) service: Arc<dyn BackendService>,
    pub(super) description: Option<Description>,
}

/// A function that returns the server description of a backend. Returns `None` while the
/// description is unknown.
pub(super) type Description = Arc<dyn Fn() -> Option<ServerConfig> + Send + Sync>;

/// The Tower service of a backend. The router stores it as a trait object, because each backend may
/// have a service of a different type.
pub(super) trait BackendService: Send + Sync {
    /// Clones the service, waits until the clone is ready, and calls it with the request.
    ///
    /// If the backend does not know the method of the request, the future does not fail, but
    /// returns a "method not found" reply.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BoxError>>;
}

/// A backend's Tower service in a mutex. The mutex makes it possible to share a service that is not
/// `Sync` between threads. The lock is held only while the service is cloned.
///
/// The stored service is only cloned, and never polled for readiness. Otherwise, it could reserve a
/// permit, for example of a concurrency limit, and keep other requests waiting.
struct Answering<S>(Mutex<S>);

// === impl Backend ===

impl Backend {
    /// Creates a backend that sends its requests to `service`. Its name must be unique in the
    /// router.
    ///
    /// The router clones the backend's service for each request, and calls the clone as soon as it
    /// is ready.
    pub fn new<S>(name: impl Into<Arc<str>>, service: S) -> Self
    where
        S: Service<Request, Response = Reply> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        let service = Arc::new(Answering(Mutex::new(service)));
        Self { name: name.into(), prefix: None, service, description: None }
    }

    /// Sets the prefix that the router puts before the names of the backend's tools and prompts.
    ///
    /// The prefix of a backend defaults to its name followed by the router's separator, such as
    /// `github_`. The prefix may be empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets a function that returns the backend's server description, which contains its
    /// capabilities. The function should return `None` if the description is unknown, for example
    /// before the first connection.
    ///
    /// If the description is known, the router sends the backend only requests for capabilities
    /// that it declares. For example, a backend that does not declare `prompts` receives no
    /// `prompts/list`.
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
        let service = lock(&self.0).clone();
        let answer = service.oneshot(request);
        answer.map(|answer| answer.or_else(|error| reply_to(error.into()))).boxed()
    }
}

/// Returns a "method not found" reply if the error of a backend's service means that the backend
/// does not know the method. Returns any other error unchanged.
fn reply_to(error: BoxError) -> Result<Reply, BoxError> {
    match Cause::of(&*error) {
        // Clients never see this reply, so the name of the method is not needed.
        Cause::Backend(cause) if cause.kind() == BackendErrorKind::Unsupported => {
            Ok(Reply::method_not_found(""))
        }
        _ => Err(error),
    }
}
