//! A server that knows releases and deploys them: the backend of all replicas.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use axum::serve::ListenerExt;
use rmcp::{
    Json, ServerHandler,
    handler::server::wrapper::Parameters,
    schemars::{self, JsonSchema},
    serde::{Deserialize, Serialize},
    tool, tool_handler, tool_router,
    transport::{
        StreamableHttpService, streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio::task::JoinSet;

/// Records its calls.
#[derive(Clone, Default)]
pub(crate) struct Releases {
    calls: Arc<Mutex<Vec<String>>>,
}

/// A running server, which ends when this value is dropped.
pub(crate) struct Served {
    pub(crate) url: String,
    _serving: JoinSet<io::Result<()>>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Service {
    /// The name of the service.
    service: String,
}

#[derive(Serialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Release {
    version: String,
    /// The number of changes since the previous release.
    changes: u32,
}

#[derive(Deserialize, JsonSchema)]
#[serde(crate = "rmcp::serde")]
struct Deployment {
    service: String,
    version: String,
    /// The environment to deploy to.
    environment: String,
}

#[tool_router]
impl Releases {
    #[tool(description = "Describes the newest release", annotations(read_only_hint = true))]
    fn get_release(&self, Parameters(Service { service }): Parameters<Service>) -> Json<Release> {
        self.note(format!("get_release {service}"));
        Json(Release { version: "1.4.0".to_owned(), changes: 12 })
    }

    #[tool(description = "Deploys a release")]
    fn deploy_release(
        &self,
        Parameters(Deployment { service, version, environment }): Parameters<Deployment>,
    ) -> String {
        self.note(format!("deploy_release {service}"));
        format!("{service} {version} is in {environment}")
    }

    fn note(&self, call: String) {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }

    /// Returns all calls so far, such as `get_release shop`.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves on a free port.
    pub(crate) async fn serve(&self) -> io::Result<Served> {
        let releases = self.clone();
        let service = StreamableHttpService::new(
            move || Ok(releases.clone()),
            Arc::new(LocalSessionManager::default()),
            Default::default(),
        );
        let app = axum::Router::new().nest_service("/mcp", service);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/mcp", listener.local_addr()?);
        // No part of an answer waits until the client has acknowledged the previous one.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await });
        Ok(Served { url, _serving: serving })
    }
}

#[tool_handler]
impl ServerHandler for Releases {}
