//! A Tower service as a server: the one edge to clients.

mod aside;
mod describe;
mod failure;
mod handler;

use std::{
    any, fmt,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::future::{self, Either, FutureExt};
use rmcp::{
    RoleServer, ServerHandler,
    model::{ClientRequest, ErrorData, ServerResult},
    service::RequestContext,
};
use tower::{BoxError, ServiceExt};
use tower_layer::Layer;
use tower_service::Service;

pub use self::describe::Describe;
use self::{
    aside::Aside,
    describe::Described,
    failure::{caught, failure, mismatch},
    handler::{fill_result_type, is_modern},
};
use super::HandlerService;
use crate::message::{Progress, Reply, Request};

/// A Tower service as a server that rmcp can run over any transport.
///
/// Clones share the service's state as clones of the service do, and cost
/// little: a server over HTTP needs one per request. The service need not be
/// `Sync`.
///
/// See the [module docs](super) for an example, and for what clients see.
pub struct ServeService<S> {
    /// Locked only to be cloned, so that the service need not be `Sync`.
    service: Arc<Mutex<S>>,
    aside: Arc<dyn Aside>,
    opening: Opening,
}

/// Who answers `initialize`, `server/discover` and `ping`.
#[derive(Clone, Copy, Debug)]
enum Opening {
    /// The service, as any other request.
    Inside,
    /// The handler aside, since the service is no whole server.
    Aside,
}

// === impl ServeService ===

impl<S> ServeService<S> {
    /// Serves a Tower service under this description.
    ///
    /// The service answers requests about tools, prompts, resources and so on.
    /// `initialize`, `server/discover` and `ping` are answered from the
    /// description, as it is at that moment, and do not reach the service.
    /// Notifications go nowhere, and `subscriptions/listen` is not implemented.
    #[must_use]
    pub fn new(service: S, description: impl Describe) -> Self {
        Self {
            service: Arc::new(Mutex::new(service)),
            aside: Arc::new(Described(description)),
            opening: Opening::Aside,
        }
    }

    /// Puts a layer around a handler and serves both.
    ///
    /// All requests travel through the layer; everything else goes straight to
    /// the same handler. A `tower::ServiceBuilder` is a layer, too.
    #[must_use]
    pub fn wrap<H, L>(handler: H, layer: L) -> Self
    where
        H: ServerHandler,
        L: Layer<HandlerService<H>, Service = S>,
    {
        let handler = HandlerService::new(handler);
        let aside = Arc::clone(handler.handler());
        Self {
            service: Arc::new(Mutex::new(layer.layer(handler))),
            aside,
            opening: Opening::Inside,
        }
    }
}

impl<S> ServeService<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>,
    S: Clone + Send + 'static,
{
    /// Lets the service answer a request, as long as the client wants it.
    async fn answer(
        &self,
        method: &str,
        message: impl Into<ClientRequest>,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        let modern = is_modern(&context);
        let cancellation = context.ct.clone();
        let progress = context
            .meta
            .get_progress_token()
            .map(|token| Progress::new(token, context.peer.clone()));
        let mut request = Request::new(message, context);
        if let Some(progress) = &progress {
            request.context_mut().set_progress(progress.clone());
        }

        let reply = async {
            let service = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
            service.oneshot(request).await
        };
        let answered = caught(method, reply.map(|reply| reply.map_err(Into::into)));

        // First the token: a call that nobody waits for any more does not start.
        let (cancelled, answered) = (pin!(cancellation.cancelled()), pin!(answered));
        let answered = future::select(cancelled, answered).await;
        if let Some(progress) = progress {
            progress.end();
        }
        match answered {
            // rmcp sends no response to a cancelled request.
            Either::Left(_) => Err(ErrorData::internal_error("the request was cancelled", None)),
            Either::Right((reply, _)) => {
                let mut result = reply?.map_err(|error| failure(method, &*error))?.into_result()?;
                if modern {
                    fill_result_type(&mut result);
                }
                Ok(result)
            }
        }
    }

    /// Lets the service answer a request whose result says nothing.
    async fn acknowledge(
        &self,
        method: &str,
        message: impl Into<ClientRequest>,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        match self.answer(method, message, context).await? {
            // The same thing, once with and once without a `resultType`.
            ServerResult::EmptyResult(_) | ServerResult::TaskAckResult(_) => Ok(()),
            _ => Err(mismatch(method)),
        }
    }
}

impl<S> Clone for ServeService<S> {
    fn clone(&self) -> Self {
        Self {
            service: Arc::clone(&self.service),
            aside: Arc::clone(&self.aside),
            opening: self.opening,
        }
    }
}

impl<S> fmt::Debug for ServeService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeService")
            .field("service", &format_args!("{}", any::type_name::<S>()))
            .field("opening", &self.opening)
            .finish_non_exhaustive()
    }
}
