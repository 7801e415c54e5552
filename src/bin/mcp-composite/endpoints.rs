//! The MCP endpoints over HTTP: one for the file itself, and one for each view.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt::Display,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    Router as App,
    body::{Body, HttpBody},
    extract::{Request, State},
    http::{self, Response, StatusCode},
    middleware::{Next, from_fn_with_state},
    response::IntoResponse,
};
use futures::future::BoxFuture;
use mcp_composite::{
    adapter::{ConnectionLimit, LimitConnections},
    config::{Gateway, View},
};
use rmcp::transport::{
    StreamableHttpServerConfig, StreamableHttpService,
    streamable_http_server::session::local::LocalSessionManager,
};
use tokio_util::sync::CancellationToken;
use tower::{Layer, Service, ServiceExt};

use crate::server::{Server, server};

type LimitedService = LimitConnections<McpService>;

/// The service that speaks MCP over HTTP. Clones share it. Axum clones a service several times for
/// each request, and clones of the inner service would copy its allowed hosts and origins.
#[derive(Clone)]
struct McpService(Arc<StreamableHttpService<Server, LocalSessionManager>>);

/// The endpoints of a gateway. Clones refer to the same endpoints.
#[derive(Clone)]
pub(crate) struct Endpoints(Arc<Shared>);

struct Shared {
    gateway: Gateway,
    limit: ConnectionLimit,
    config: StreamableHttpServerConfig,
    /// The time that the calls in flight have to end after their view was removed.
    drain: Duration,
    /// The endpoints of the views that were used, by their paths.
    views: Mutex<HashMap<String, Endpoint>>,
}

/// The endpoint of one view, with its own sessions.
struct Endpoint {
    service: LimitedService,
    /// Cancelled to end all sessions and streams.
    end: CancellationToken,
}

// === impl Endpoints ===

impl Endpoints {
    /// Creates the endpoints. They share the limit, and end if the token in `config` is cancelled.
    pub(crate) fn new(
        gateway: &Gateway,
        limit: ConnectionLimit,
        config: StreamableHttpServerConfig,
        drain: Duration,
    ) -> Self {
        let gateway = gateway.clone();
        Self(Arc::new(Shared { gateway, limit, config, drain, views: Mutex::default() }))
    }

    /// Returns the routes of all endpoints: `/mcp`, and the exact path of each view. Needs
    /// [`select_view`](Self::select_view) around it.
    pub(crate) fn routes(&self) -> App {
        let main = Endpoint::new(&self.0, &self.0.gateway.main());
        App::new().nest_service("/mcp", main.service).fallback(call_view).with_state(self.clone())
    }

    /// Makes routes find the view of each request. So a request belongs to one view in all of them,
    /// even if the file is reloaded meanwhile.
    pub(crate) fn select_view(&self, app: App) -> App {
        app.layer(from_fn_with_state(self.0.gateway.clone(), insert_view))
    }

    /// Ends the endpoints of removed views. Their calls in flight have a time limit to end.
    pub(crate) async fn end_removed(&self) -> Infallible {
        let Self(shared) = self;
        // Each reload bumps it.
        let mut changes = shared.gateway.changes().tools().watch();
        loop {
            changes.bumped().await;
            let is_removed = |path: &str, _: &mut Endpoint| shared.gateway.view(path).is_none();
            let removed: Vec<_> =
                shared.views().extract_if(|path, endpoint| is_removed(path, endpoint)).collect();
            for (path, Endpoint { service, end }) in removed {
                tracing::info!("the view {path} was removed");
                let drain = shared.drain;
                tokio::runtime::Handle::current().spawn(async move {
                    tokio::time::sleep(drain).await;
                    end.cancel();
                    drop(service);
                });
            }
        }
    }

    fn service(&self, path: &str, view: &View) -> LimitedService {
        let mut views = self.0.views();
        let endpoint = views.entry(path.to_owned()).or_insert_with(|| Endpoint::new(&self.0, view));
        endpoint.service.clone()
    }
}

/// Adds the view at the path of a request to the extensions of the request.
async fn insert_view(
    State(gateway): State<Gateway>,
    mut request: Request,
    next: Next,
) -> Response<Body> {
    if let Some(view) = gateway.view(request.uri().path()) {
        request.extensions_mut().insert(view);
    }
    next.run(request).await
}

/// Handles a request for a view. Returns the status 404 if there is no view at its path.
async fn call_view(State(endpoints): State<Endpoints>, mut request: Request) -> Response<Body> {
    let view = request.extensions_mut().remove::<View>();
    match view.as_ref().and_then(|view| Some((view.path()?, view))) {
        Some((path, view)) => {
            let response = endpoints.service(path, view).oneshot(request).await;
            response.map_or_else(|never| match never {}, |response| response.map(Body::new))
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

// === impl Shared ===

impl Shared {
    fn views(&self) -> MutexGuard<'_, HashMap<String, Endpoint>> {
        self.views.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Endpoint ===

impl Endpoint {
    fn new(shared: &Shared, view: &View) -> Self {
        let end = shared.config.cancellation_token.child_token();
        let config = shared.config.clone().with_cancellation_token(end.clone());
        let (server, admission) = (server(view), shared.limit.clone());
        let service = StreamableHttpService::new(
            move || admission.admit(&server),
            LocalSessionManager::default().into(),
            config,
        );
        Self { service: shared.limit.layer(McpService(Arc::new(service))), end }
    }
}

// === impl McpService ===

impl<B> Service<http::Request<B>> for McpService
where
    B: HttpBody<Error: Display> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let Self(service) = self.clone();
        Box::pin(async move { Ok(service.handle(request).await.map(Body::new)) })
    }
}
