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

/// One backend of a [`Router`](super::Router).
#[must_use]
pub struct Backend {
    pub(super) name: Arc<str>,
    pub(super) prefix: Option<String>,
    pub(super) service: Arc<dyn BackendService>,
    pub(super) description: Option<Description>,
}

/// Asks a backend what it says of itself.
pub(super) type Description = Arc<dyn Fn() -> Option<ServerConfig> + Send + Sync>;

/// A Tower service whose type does not matter any more.
pub(super) trait BackendService: Send + Sync {
    /// Answers a request on a clone of the service, as soon as that is ready.
    ///
    /// A method that the backend does not know is always told in the reply.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BoxError>>;
}

/// Locked only to be cloned, so that the service need not be `Sync`.
///
/// What is cloned was never made ready, so it holds nothing that others wait for.
struct Answering<S>(Mutex<S>);

// === impl Backend ===

impl Backend {
    /// A backend of this name.
    ///
    /// Each request goes to a clone of the service, which is called when it is
    /// ready.
    pub fn new<S>(name: impl Into<Arc<str>>, service: S) -> Self
    where
        S: Service<Request, Response = Reply> + Clone + Send + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
    {
        let service = Arc::new(Answering(Mutex::new(service)));
        Self { name: name.into(), prefix: None, service, description: None }
    }

    /// Sets what the names of its tools and prompts begin with, instead of its
    /// name and the separator; it may be empty.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = Some(prefix.into());
        self
    }

    /// Sets what tells what the backend says of itself, and nothing as long as
    /// that is not known.
    ///
    /// The backend is only asked for what it says it has.
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

/// The reply that an error stands for, if it stands for one.
fn reply_to(error: BoxError) -> Result<Reply, BoxError> {
    let mut source: Option<&(dyn Error + 'static)> = Some(&*error);
    while let Some(told) = source {
        if let Some(told) = told.downcast_ref::<BackendError>() {
            return match told.kind() {
                // Clients never see it, so it need not name the method.
                BackendErrorKind::Unsupported => Ok(Reply::method_not_found("")),
                _ => Err(error),
            };
        }
        source = told.source();
    }
    Err(error)
}
