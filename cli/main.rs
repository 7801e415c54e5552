//! A gateway for any MCP client.
//!
//! It connects the backends of a file and serves them as one server, as the file configures:
//!
//! ```text
//! gateway FILE.toml                          over stdio
//! gateway FILE.toml --http 127.0.0.1:8080    over streamable HTTP, at /mcp
//!                       [--stateless]        without sessions
//!                       [--allow-origin URL] also for web pages of this origin
//!                       [--max-connections N]
//!                       [--max-connections-per-caller N]
//!                                            limit sessions and open requests
//! gateway FILE.toml --check                  shows what clients would see
//! gateway FILE.toml --plan NAME [--input JSON]
//!                                            shows what a composite would do
//! gateway FILE.toml --mermaid NAME           draws a composite
//! ```
//!
//! Logs go to standard error; `RUST_LOG` filters them. Events during a request begin with the spans
//! of the request, its run and its branch; without them:
//! `RUST_LOG=info,mcp_composite::trace=off,mcp_composite::run=off`. The gateway ends, with all
//! child processes, on `SIGTERM`, on `SIGINT`, and over stdio when its input ends. `--check`
//! connects everything once, prints tools and composites with their schemas and annotations, and
//! fails if there are problems. Tools that are not advertised are listed separately.
//!
//! Over HTTP, clients before 2026-07-28 have a session, which is in this process. With
//! `--stateless` they have none, so that any replica can answer any request; but they cannot be
//! asked questions and are not notified of changes. Later clients never have a session, and can be
//! asked in both modes.
//!
//! A web page in a browser can send requests to this machine, and its browser sends its origin as
//! `Origin`. The gateway answers 403 to every origin except those of this machine (`localhost`,
//! `127.0.0.1` and `[::1]`, at any port) and those that `--allow-origin` names, such as
//! `--allow-origin https://inspector.example.com:443`. The option can be repeated, and `:*` is any
//! port. A request without `Origin` is not from a browser, and is allowed.
//!
//! At most 4096 sessions and as many requests are open at a time, and at most 256 of each for a
//! caller, if `[caller]` identifies it. A request beyond that gets the status 429.
//! `--max-connections` and `--max-connections-per-caller` set other limits.
//!
//! `--plan` connects everything once and prints the calls of the composite with this input, in
//! order, with the arguments as far as they are known before anything runs. It calls no tool.
//!
//! `--mermaid` prints the composite, with the composites it calls, as a Mermaid flowchart. It
//! connects nothing.
//!
//! On `SIGHUP` the file is read again and replaces the previous one; see `Gateway::reload`. With
//! `--watch` that also happens within three seconds after it, or a file that it includes, has
//! changed: the times and sizes of the files are checked once a second, and a change is applied
//! when the next check finds no other, so that a partially written file is not read. A file with
//! errors changes nothing, and all its errors are logged.

mod check;
mod log;
mod plan;
mod watch;

use std::{
    error::Error,
    future::IntoFuture,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use axum::serve::ListenerExt;
use futures::future::join_all;
use mcp_composite::{
    adapter::{ConnectionLimit, LineTransport, RemoteService, Router, ServeService},
    config::{Backends, Config, Gateway},
    reload::Reload,
    stack::Stack,
};
use rmcp::{
    ServiceExt,
    model::{Implementation, JsonObject, ServerCapabilities, ServerConfig},
    service::ServerInitializeError,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tracing_subscriber::EnvFilter;

use self::{
    log::Redacted,
    watch::{HangUps, Watch},
};

/// How long clients wait at the beginning for backends that are slow to start.
const FIRST_PATIENCE: Duration = Duration::from_secs(5);
/// How long clients of HTTP may take to end.
const LAST_PATIENCE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: gateway FILE.toml \
    [--check | --plan NAME [--input JSON] | --mermaid NAME | [--http ADDRESS:PORT [--stateless] [--allow-origin URL]... \
    [--max-connections N] [--max-connections-per-caller N]] \
    [--watch]]";

/// The origins of web pages that this machine serves itself, at any port.
const LOOPBACK_ORIGINS: [&str; 6] = [
    "http://localhost:*",
    "http://127.0.0.1:*",
    "http://[::1]:*",
    "https://localhost:*",
    "https://127.0.0.1:*",
    "https://[::1]:*",
];

type Server = ServeService<Reload<Stack<Router>>>;

/// The mode, and its file.
struct Arguments {
    file: PathBuf,
    /// The composite to draw, if that is the mode.
    drawn: Option<String>,
    mode: Mode,
    /// Whether to watch the file for changes.
    watch: bool,
}

enum Mode {
    Stdio,
    Http(Http),
    Check,
    Plan { composite: String, input: JsonObject },
}

/// The options of serving over HTTP.
struct Http {
    address: SocketAddr,
    sessions: bool,
    /// The allowed origins of web pages, besides those of this machine.
    origins: Vec<String>,
    limits: Limits,
}

/// The connection limits that were set.
#[derive(Default, PartialEq, Eq)]
struct Limits {
    max: Option<usize>,
    max_per_caller: Option<usize>,
}

fn main() -> ExitCode {
    let result = Arguments::parse(std::env::args().skip(1)).and_then(|arguments| {
        let config = Config::load(&arguments.file)?;
        let redacted = Redacted::of(&config);
        if let Some(composite) = &arguments.drawn {
            let flowchart = config.composite_layer().flowchart(composite)?;
            return Ok(write!(io::stdout(), "{flowchart}")?);
        }
        arguments.mode.log(redacted.clone());
        let runtime = tokio::runtime::Runtime::new()?;
        let result = runtime.block_on(run(arguments, &config, redacted));
        // A thread reads standard input and cannot be interrupted.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(
    Arguments { file, mode, watch, .. }: Arguments,
    config: &Config,
    redacted: Redacted,
) -> Result<(), Box<dyn Error>> {
    // From the beginning, so that no child process is left behind.
    let stop = stop_on_signals()?;
    let hang_ups = HangUps::new()?;
    let gateway = Gateway::connect(config)?;
    let watched = Watch::new(file, config, gateway.clone(), redacted).run(hang_ups, watch);
    let served = async {
        match mode {
            Mode::Check => {
                let check = check::check(config, &gateway, io::stdout());
                stop.run_until_cancelled(check).await.unwrap_or_else(|| Err("interrupted".into()))
            }
            Mode::Plan { composite, input } => {
                let plan = plan::plan(config, &gateway, &composite, input, io::stdout());
                stop.run_until_cancelled(plan).await.unwrap_or_else(|| Err("interrupted".into()))
            }
            Mode::Stdio => {
                wait_for(&gateway.backends(), &stop).await;
                serve_stdio(server(&gateway), &stop).await
            }
            Mode::Http(http) => {
                wait_for(&gateway.backends(), &stop).await;
                serve_http(&gateway, http, &stop).await
            }
        }
    };
    let result = tokio::select! {
        served = served => served,
        never = watched => match never {},
    };
    gateway.close().await;
    result
}

/// Waits a moment for the backends. Older clients learn the server's capabilities only once, and
/// many ignore that tools are added later.
async fn wait_for(backends: &Backends, stop: &CancellationToken) {
    let connected = join_all(backends.remotes().iter().map(RemoteService::connected));
    let connected = tokio::time::timeout(FIRST_PATIENCE, connected);
    let _ = stop.run_until_cancelled(connected).await;
}

fn server(gateway: &Gateway) -> Server {
    let name = Implementation::new("gateway", env!("CARGO_PKG_VERSION"));
    gateway.serve(ServerConfig::new(ServerCapabilities::default()).with_server_info(name))
}

async fn serve_stdio(server: Server, stop: &CancellationToken) -> Result<(), Box<dyn Error>> {
    let transport = LineTransport::new(tokio::io::stdin(), tokio::io::stdout());
    let served = async {
        match server.serve_with_ct(transport, stop.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(Into::into),
            // The client has closed the connection.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    };
    // A client that never sends anything is stopped all the same.
    stop.run_until_cancelled(served).await.unwrap_or(Ok(()))
}

async fn serve_http(
    gateway: &Gateway,
    Http { address, sessions, origins, limits }: Http,
    stop: &CancellationToken,
) -> Result<(), Box<dyn Error>> {
    let origins = LOOPBACK_ORIGINS.map(str::to_owned).into_iter().chain(origins);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(origins)
        .enforce_origin_validation()
        .with_legacy_session_mode(sessions)
        // In one piece, unless a notification comes before the answer.
        .with_json_response(true)
        .with_cancellation_token(stop.clone());
    let limit = limits.apply(gateway.connection_limit());
    let (server, admission) = (server(gateway), limit.clone());
    let service = StreamableHttpService::new(
        move || admission.admit(&server),
        LocalSessionManager::default().into(),
        config,
    );
    let service = limit.layer(service);
    let listener = tokio::net::TcpListener::bind(address).await?;
    tracing::info!("serving http://{}/mcp", listener.local_addr()?);
    // A stream is written in pieces. Without this, each would wait until the client has
    // acknowledged the previous one, which it may delay by 40 ms.
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "`TCP_NODELAY` cannot be set on a connection");
        }
    });
    let app = axum::Router::new().nest_service("/mcp", service);
    let served = axum::serve(listener, app).with_graceful_shutdown(stop.clone().cancelled_owned());
    // A client that is slow to send or to read must not delay the end.
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(LAST_PATIENCE).await;
    };
    tokio::select! {
        served = served.into_future() => Ok(served?),
        () = late => Ok(()),
    }
}

/// Returns a token that is cancelled when this process is asked to end.
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
        // A second signal ends the process at once.
        if tokio::signal::ctrl_c().await.is_ok() {
            std::process::exit(1);
        }
    });
    Ok(stop)
}

impl Mode {
    /// Logs to standard error as `RUST_LOG` says, or else a default selection.
    fn log(&self, writer: Redacted) {
        let default = match self {
            Self::Stdio | Self::Http(_) => "info,rmcp=error",
            // It prints the same itself.
            Self::Check | Self::Plan { .. } => "off",
        };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default.into());
        tracing_subscriber::fmt().with_writer(writer).with_env_filter(filter).init();
    }
}

impl Arguments {
    #[expect(clippy::too_many_lines, reason = "one arm per flag")]
    fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut arguments = arguments.peekable();
        let (mut file, mut mode, mut watch) = (None, Mode::Stdio, false);
        let (mut drawn, mut input, mut stateless) = (None, None, false);
        let (mut allowed_origins, mut limits) = (Vec::new(), Limits::default());
        while let Some(argument) = arguments.next() {
            match &*argument {
                "--check" => mode = Mode::Check,
                "--watch" => watch = true,
                "--stateless" => stateless = true,
                "--allow-origin" => {
                    allowed_origins.push(origin(arguments.next().ok_or(USAGE)?)?);
                }
                "--plan" => {
                    let composite = arguments.next().ok_or(USAGE)?;
                    mode = Mode::Plan { composite, input: JsonObject::new() };
                }
                "--mermaid" => {
                    drawn = Some(arguments.next().ok_or(USAGE)?);
                }
                "--input" => {
                    let text = arguments.next().ok_or(USAGE)?;
                    let value = serde_json::from_str(&text);
                    input = Some(
                        value
                            .map_err(|error| format!("the input is not a JSON object: {error}"))?,
                    );
                }
                "--http" => {
                    let address = arguments.next().ok_or(USAGE)?;
                    let address = address.parse().map_err(|_| {
                        format!("`{address}` is not an address and port, such as `127.0.0.1:8080`")
                    })?;
                    mode = Mode::Http(Http {
                        address,
                        sessions: true,
                        origins: Vec::new(),
                        limits: Limits::default(),
                    });
                }
                "--max-connections" => limits.max = Some(number(arguments.next())?),
                "--max-connections-per-caller" => {
                    limits.max_per_caller = Some(number(arguments.next())?);
                }
                option if option.starts_with('-') || file.is_some() => return Err(USAGE.into()),
                path => file = Some(PathBuf::from(path)),
            }
        }
        match (&mut mode, input) {
            (Mode::Plan { input, .. }, Some(given)) => *input = given,
            (_, Some(_)) => return Err(USAGE.into()),
            (_, None) => (),
        }
        match &mut mode {
            Mode::Http(http) => {
                http.sessions = !stateless;
                http.origins = allowed_origins;
                http.limits = limits;
            }
            _ if stateless || !allowed_origins.is_empty() => return Err(USAGE.into()),
            _ if limits != Limits::default() => return Err(USAGE.into()),
            _ => (),
        }
        if watch && matches!(mode, Mode::Check | Mode::Plan { .. }) {
            return Err(USAGE.into());
        }
        if drawn.is_some() && (watch || !matches!(mode, Mode::Stdio)) {
            return Err(USAGE.into());
        }
        Ok(Self { file: file.ok_or(USAGE)?, drawn, mode, watch })
    }
}

impl Limits {
    fn apply(self, mut limit: ConnectionLimit) -> ConnectionLimit {
        if let Some(max) = self.max {
            limit = limit.max(max);
        }
        if let Some(max) = self.max_per_caller {
            limit = limit.max_per_caller(max);
        }
        limit
    }
}

/// Parses the number of a limit, which is at least 1.
fn number(text: Option<String>) -> Result<usize, Box<dyn Error>> {
    let text = text.ok_or(USAGE)?;
    let number = text.parse::<usize>().ok().filter(|&number| number > 0);
    number.ok_or_else(|| {
        format!("`{text}` is not a number of connections: expected 1 or more").into()
    })
}

/// Parses an origin as browsers send it: rmcp would silently ignore another text.
fn origin(text: String) -> Result<String, String> {
    let parts = text.split_once("://").and_then(|(scheme, authority)| {
        let (host, port) = authority.rsplit_once(':')?;
        let is_port = port == "*" || port.parse::<u16>().is_ok();
        let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ']);
        Some(!scheme.is_empty() && is_host && is_port)
    });
    match parts {
        Some(true) => Ok(text),
        _ => Err(format!(
            "`{text}` is not an origin: expected scheme, host and port, such as \
             `https://example.com:443`, or `:*` for any port"
        )),
    }
}
