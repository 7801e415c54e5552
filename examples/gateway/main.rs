//! A gateway that any MCP client can be pointed at.
//!
//! It connects the backends of a file and serves them as one server, with the
//! composites of the file:
//!
//! ```text
//! gateway FILE.toml                          over stdio
//! gateway FILE.toml --http 127.0.0.1:8080    over streamable HTTP, at /mcp
//! gateway FILE.toml --check                  shows what clients would see
//! ```
//!
//! Logs go to standard error; `RUST_LOG` filters them. It ends, with all child
//! processes, on `SIGTERM`, on `SIGINT`, and over stdio when its input ends.
//! `--check` connects everything once, prints tools and composites with their
//! schemas and annotations, and fails if anything is wrong.

mod check;
mod log;

use std::{
    error::Error,
    future::IntoFuture,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use futures::future::join_all;
use mcp_composite::{
    adapter::{RemoteService, Router, ServeService},
    composite::{Composite, CompositeLayer},
    config::{Backends, Config},
};
use rmcp::{
    ServiceExt,
    model::{Implementation, ServerCapabilities, ServerConfig},
    service::ServerInitializeError,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService, stdio,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tracing_subscriber::EnvFilter;

/// How long clients wait at the beginning for backends that are slow to start.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);
/// How long clients of HTTP may take to end.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: gateway FILE.toml [--http ADDRESS:PORT | --check]";

type Server = ServeService<Composite<Router>>;

/// What to do, and with which file.
struct Arguments {
    file: PathBuf,
    mode: Mode,
}

enum Mode {
    Stdio,
    Http(SocketAddr),
    Check,
}

fn main() -> ExitCode {
    let result = Arguments::parse(std::env::args().skip(1)).and_then(|Arguments { file, mode }| {
        let config = Config::load(file)?;
        mode.log(log::Redacted::of(&config));
        let runtime = tokio::runtime::Runtime::new()?;
        let result = runtime.block_on(run(&config, mode));
        // Standard input is read by a thread that nobody can wake up.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody may be there to read it.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(config: &Config, mode: Mode) -> Result<(), Box<dyn Error>> {
    // From the beginning, so that no child process is left behind.
    let stop = stop_on_signals()?;
    let backends = config.connect()?;
    let layer = config.composite_layer().epoch(backends.changes().tools().clone());
    let served = match mode {
        Mode::Check => {
            let check = check::check(config, &backends, &layer, io::stdout());
            stop.run_until_cancelled(check).await.unwrap_or_else(|| Err("interrupted".into()))
        }
        Mode::Stdio => {
            wait_for(&backends, &stop).await;
            serve_stdio(server(&backends, &layer), &stop).await
        }
        Mode::Http(address) => {
            wait_for(&backends, &stop).await;
            serve_http(server(&backends, &layer), address, &stop).await
        }
    };
    backends.close().await;
    served
}

/// Waits a moment for the backends. Older clients are told only once what the
/// server has, and many of them do not care that tools come later.
async fn wait_for(backends: &Backends, stop: &CancellationToken) {
    let connected = join_all(backends.remotes().iter().map(RemoteService::connected));
    let connected = tokio::time::timeout(FIRST_PATIENCE, connected);
    let _ = stop.run_until_cancelled(connected).await;
}

/// The composites over the backends, as one server.
fn server(backends: &Backends, layer: &CompositeLayer) -> Server {
    let router = backends.router().clone();
    let name = Implementation::new("gateway", env!("CARGO_PKG_VERSION"));
    let base = ServerConfig::new(ServerCapabilities::default()).with_server_info(name);
    ServeService::new(layer.layer(router.clone()), move || router.describe(base.clone()))
        .changes(backends.changes().clone())
}

async fn serve_stdio(server: Server, stop: &CancellationToken) -> Result<(), Box<dyn Error>> {
    let served = async {
        match server.serve_with_ct(stdio(), stop.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(Into::into),
            // The client has gone without a word.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    // A client may never say a word, and is stopped all the same.
    stop.run_until_cancelled(served).await.unwrap_or(Ok(()))
}

async fn serve_http(
    server: Server,
    address: SocketAddr,
    stop: &CancellationToken,
) -> Result<(), Box<dyn Error>> {
    let config = StreamableHttpServerConfig::default().with_cancellation_token(stop.clone());
    let service = StreamableHttpService::new(
        move || Ok(server.clone()),
        LocalSessionManager::default().into(),
        config,
    );
    let listener = tokio::net::TcpListener::bind(address).await?;
    tracing::info!("serving http://{}/mcp", listener.local_addr()?);
    let app = axum::Router::new().nest_service("/mcp", service);
    let served = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    // A client that is slow to send, or to take, must not keep us.
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_PATIENCE).await;
    };
    tokio::select! {
        served = served.into_future() => Ok(served?),
        () = late => Ok(()),
    }
}

/// A token that is cancelled when somebody wants this process to end.
fn stop_on_signals() -> io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    #[cfg(unix)]
    let terminated = {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate())?;
        async move { terminate.recv().await }
    };
    #[cfg(not(unix))]
    let terminated = std::future::pending::<Option<()>>();
    tokio::runtime::Handle::current().spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => (),
            _ = terminated => (),
        }
        tracing::info!("stops");
        stopped.cancel();
        // Whoever asks again means it.
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(1);
        }
    });
    Ok(stop)
}

impl Mode {
    /// Logs to standard error what `RUST_LOG` says, or else what one wants to know.
    fn log(&self, writer: log::Redacted) {
        let default = match self {
            Self::Stdio | Self::Http(_) => "info,rmcp=warn",
            // It tells the same itself.
            Self::Check => "off",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default.into());
        tracing_subscriber::fmt().with_writer(writer).with_env_filter(filter).init();
    }
}

impl Arguments {
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut arguments = arguments.peekable();
        let (mut file, mut mode) = (None, Mode::Stdio);
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--check" => mode = Mode::Check,
                "--http" => {
                    let address = arguments.next().ok_or(USAGE)?;
                    let address = address.parse().map_err(|_| {
                        format!("`{address}` is no address and port, such as `127.0.0.1:8080`")
                    })?;
                    mode = Mode::Http(address);
                }
                option if option.starts_with('-') || file.is_some() => return Err(USAGE.into()),
                path => file = Some(PathBuf::from(path)),
            }
        }
        Ok(Self { file: file.ok_or(USAGE)?, mode })
    }
}
