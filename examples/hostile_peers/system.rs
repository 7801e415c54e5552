//! The gateway, its backends, and the connections of clients to it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::serve::ListenerExt;
use mcp_composite::{
    adapter::LineTransport,
    config::{Config, Gateway},
    testing,
};
use rmcp::{
    ServiceExt,
    model::{ServerCapabilities, ServerConfig},
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::json;
use tokio::{io::DuplexStream, runtime::Handle, task::JoinSet, time::timeout};
use tower::{BoxError, Layer, ServiceExt as _};

use crate::{
    http::Http,
    invariants::Invariants,
    process::{Process, misbehaving},
    wire::Wire,
};

pub(crate) type Error = BoxError;

const GOOD: &str = include_str!("good.toml");
const HOSTILE: &str = include_str!("hostile.toml");
/// The maximum time of a hostile backend to return how many messages it has sent.
const COUNTING: Duration = Duration::from_secs(5);
/// All hostile backends. `schemas` sends nothing: its arguments are expensive.
pub(crate) const BACKENDS: [&str; 12] = [
    "changes",
    "updates",
    "large",
    "unanswered",
    "many",
    "modern",
    "silenced",
    "schemas",
    "costs",
    "brief",
    "orphans",
    "claims",
];

pub(crate) struct World {
    gateway: Gateway,
    /// The runtime of the gateway; clients have others.
    runtime: Handle,
    pub(crate) invariants: Arc<Invariants>,
    /// The hostile backends and clients that are used, separated by commas; `None` for all.
    only: Option<String>,
    web: Process,
    brief: Process,
    /// Each line is a message that a backend which exits has received.
    log: PathBuf,
    url: String,
    serving: JoinSet<()>,
}

// === impl World ===

impl World {
    pub(crate) async fn new(
        invariants: &Arc<Invariants>,
        only: Option<String>,
    ) -> Result<Self, Error> {
        let web = Process::start("good", "0").await?;
        let brief = Process::start("brief-streams", "0").await?;
        let log = std::env::temp_dir().join(format!("hostile-peers-{}.log", std::process::id()));
        fs::write(&log, "")?;
        let gateway = Gateway::connect(&file(&web, &brief, &log, GOOD)?)?;
        for remote in gateway.backends().remotes() {
            remote.connected().await?;
        }
        let mut serving = JoinSet::new();
        let url = serve_http(&gateway, &mut serving).await?;
        let invariants = invariants.clone();
        Ok(Self {
            gateway,
            runtime: Handle::current(),
            invariants,
            only,
            web,
            brief,
            log,
            url,
            serving,
        })
    }

    /// Adds the hostile backends to the good ones, or removes them.
    pub(crate) async fn reload(&self, is_hostile: bool) -> Result<(), Error> {
        let mut text = GOOD.to_owned();
        if is_hostile {
            // Each part of the file after the first is a backend.
            let parts = HOSTILE.split("[[backends]]").skip(1);
            for part in
                parts.filter(|part| BACKENDS.iter().any(|it| self.has(it) && is_of(part, it)))
            {
                text += "\n[[backends]]";
                text += part;
            }
        }
        let config = file(&self.web, &self.brief, &self.log, &text)?;
        self.gateway.reload(&config).await?;
        Ok(())
    }

    /// Returns `true` if this hostile backend is used.
    pub(crate) fn has(&self, backend: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split(',').any(|name| name == backend))
    }

    /// The client's end of a new connection.
    pub(crate) fn connect(&self) -> DuplexStream {
        let capabilities = ServerCapabilities::builder().enable_tools().build();
        let server = self.gateway.serve(ServerConfig::new(capabilities));
        let (near, far) = tokio::io::duplex(1 << 16);
        self.runtime.spawn(async move {
            let (reader, writer) = tokio::io::split(far);
            if let Ok(running) = server.serve(LineTransport::new(reader, writer)).await {
                drop(running.waiting().await);
            }
        });
        near
    }

    /// A client with a connection of its own, which runs in the caller's runtime.
    pub(crate) async fn wire(&self) -> Result<Arc<Wire>, Error> {
        Wire::connect(self.connect(), self.invariants.clone()).await
    }

    /// A client over HTTP that the gateway knows by this name.
    pub(crate) fn http(&self, caller: &str) -> Http {
        Http::new(&self.url, caller)
    }

    /// Returns the number of hostile messages that each hostile backend has sent since its start.
    pub(crate) async fn sent(&self) -> BTreeMap<&'static str, u64> {
        let mut sent = BTreeMap::new();
        let counting =
            |backend: &&str| self.has(backend) && !matches!(*backend, "schemas" | "orphans");
        for backend in BACKENDS.into_iter().filter(counting) {
            let request = testing::request(&format!("{backend}_sent"), json!({}));
            let reply = timeout(COUNTING, self.gateway.service().oneshot(request)).await;
            let count = reply.ok().and_then(Result::ok).and_then(|reply| {
                reply.tool_result()?.structured_content.as_ref()?["count"].as_u64()
            });
            sent.insert(backend, count.unwrap_or_default());
        }
        if !self.has("orphans") {
            return sent;
        }
        // It exits; each of its processes has received one handshake.
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let started = log.lines().filter(|line| line.contains("notifications/initialized"));
        sent.insert("orphans", started.count() as u64);
        sent
    }

    pub(crate) async fn end(mut self) {
        self.gateway.close().await;
        self.serving.shutdown().await;
        drop(fs::remove_file(&self.log));
        drop((self.web, self.brief));
    }
}

fn file(web: &Process, brief: &Process, log: &Path, text: &str) -> Result<Config, Error> {
    let variable = |name: &str| match name {
        "MISBEHAVING" => Some(misbehaving().display().to_string()),
        "WEB" => Some(web.url.clone()),
        "BRIEF" => Some(brief.url.clone()),
        "LOG" => Some(log.display().to_string()),
        _ => None,
    };
    Ok(Config::from_toml_str_with_env(text, variable)?)
}

fn is_of(part: &str, backend: &str) -> bool {
    part.contains(&format!("name = \"{backend}\""))
}

/// Serves the gateway over HTTP as the example `gateway` does, and returns its URL.
async fn serve_http(gateway: &Gateway, serving: &mut JoinSet<()>) -> Result<String, Error> {
    let capabilities = ServerCapabilities::builder().enable_tools().build();
    let server = gateway.serve(ServerConfig::new(capabilities));
    let config = StreamableHttpServerConfig::default().with_json_response(true);
    let sessions = LocalSessionManager::default().into();
    let limit = gateway.connection_limit();
    let admission = limit.clone();
    let service = StreamableHttpService::new(move || admission.admit(&server), sessions, config);
    let service = limit.layer(service);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    let routes = axum::Router::new().nest_service("/mcp", service);
    serving.spawn(async move { drop(axum::serve(listener, routes).await) });
    Ok(url)
}
