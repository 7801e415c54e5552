//! The commands and options of the program.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, thread, time::Duration};

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum, ValueHint, value_parser};
use clap_complete::Shell;
use rmcp::model::JsonObject;

use crate::{logs::LogFormat, view_option::ViewOption};

/// The default address of the page.
const UI_ADDRESS: &str = "127.0.0.1:6278";
/// The default maximum size of a recording in bytes: 1 GiB.
const RECORD_MAX_BYTES: u64 = 1 << 30;
/// The highest number of threads. A system that cannot start more would end the program.
const MAX_THREADS: usize = 1024;
/// The help of `--view` of the command `serve`.
const STDIO_VIEW: &str = "Serves the view at this path, such as `/team-a`, over stdio instead of \
                          the file itself. Over HTTP, all views are served";

/// Serves the tools of several MCP servers as one server, with composites that call several of
/// them at once.
///
/// A TOML file names the servers, the composites and the layers around them. `init` writes one,
/// `check` finds its mistakes, and `serve` serves it.
#[derive(Debug, Parser)]
#[command(
    name = "mcp-composite",
    version,
    after_help = "\
Exit codes: 0 if the command succeeded, 1 if it failed, 2 if its arguments are invalid.
Logs go to standard error; the environment variable RUST_LOG filters them. `serve` exports spans
over OTLP if OTEL_EXPORTER_OTLP_ENDPOINT is set."
)]
pub(crate) struct Arguments {
    /// The format of the log.
    #[arg(long, value_name = "FORMAT", global = true, value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[expect(clippy::large_enum_variant, reason = "the program has one value of it")]
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serves a file to MCP clients, over stdio unless `--http` is given.
    Serve(Serve),
    /// Checks a file, and lists the tools that clients would see.
    ///
    /// Connects all backends and calls no tool. Fails if the file has errors, a backend cannot be
    /// reached, a target is missing or a pattern matches nothing. Checks all views, unless `--view`
    /// selects one.
    Check(Check),
    /// Prints the calls that a composite would make, in order. Calls no tool.
    ///
    /// Connects all backends. Fails if a call would be rejected.
    Plan(Run),
    /// Calls a tool as a client would, and prints the result.
    Call(Run),
    /// Prints a composite as a Mermaid flowchart. Connects nothing.
    ///
    /// Marks the steps through which data flows against the rules of `[[flow]]`, and then fails
    /// with the mistakes of the file.
    Draw {
        /// The configuration file.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// The name of the composite.
        composite: String,
        #[command(flatten)]
        view: ViewOption,
    },
    /// Lists the tools that clients would see.
    Tools {
        /// The configuration file.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Prints the tools as JSON, with their schemas.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        view: ViewOption,
    },
    /// Approves the current tools of all backends.
    ///
    /// Writes the definitions of the tools to the file that `[lock]` names. Connects all backends,
    /// and prints the changes since the previous approval. `serve` then hides tools whose
    /// definitions differ from the lock.
    Lock {
        /// The configuration file, which names the lock.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// Writes nothing. Prints the tools that differ from the lock, and fails if there are any.
        #[arg(long)]
        check: bool,
    },
    /// Lists, shows or cancels runs of composites in a running gateway.
    ///
    /// Connects to the page of `serve --ui`, which keeps the last 1000 runs.
    Runs {
        #[command(subcommand)]
        command: RunsCommand,
        /// The address of the page.
        #[arg(long, value_name = "ADDRESS", default_value = UI_ADDRESS, global = true)]
        ui: SocketAddr,
    },
    /// Shows a recording of `serve --record` on a page.
    ///
    /// Lines that are incomplete are left out, with a warning.
    View(View),
    /// Prints the JSON Schema of configuration files, for editors.
    Schema,
    /// Writes a commented configuration file.
    ///
    /// With `--from`, the file has the servers of a client's configuration. Values of environment
    /// variables and headers are not copied: the file refers to variables instead.
    Init {
        /// The file to write. It must not exist.
        #[arg(default_value = "tools.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
        /// A configuration of Claude Desktop, Cursor or VS Code (`mcpServers` or `servers`).
        #[arg(long, value_name = "JSON_FILE", value_hint = ValueHint::FilePath)]
        from: Option<PathBuf>,
    },
    /// Prints the configuration of another gateway as a configuration file of this program.
    ///
    /// Comments at its top name the differences. Connects nothing.
    Import {
        /// The other gateway.
        #[arg(value_enum)]
        from: ImportFormat,
        /// Its configuration.
        #[arg(value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Prints a script that completes commands and options in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
}

/// A command for the runs of a running gateway.
#[derive(Debug, Subcommand)]
pub(crate) enum RunsCommand {
    /// Lists the runs, the oldest first.
    List {
        /// Lists only runs that have not ended.
        #[arg(long)]
        open: bool,
        /// Prints a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Shows the branches of a run, and where it waits.
    Show {
        /// The id of the run.
        id: String,
        /// Prints the run and the runs nested in it as a JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Cancels a run. Its caller receives an error.
    ///
    /// Finally steps with `on_cancel = true` still run. A run that waits for an answer cannot be
    /// cancelled.
    Cancel {
        /// The id of the run.
        id: String,
    },
}

/// A gateway whose configuration can be imported.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ImportFormat {
    /// ToolHive: YAML of a vMCP, or Kubernetes objects with composite tools.
    Toolhive,
}

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("listener").args(["http", "ui"]).multiple(true))]
#[command(mut_arg("view", |arg| arg.conflicts_with("http").help(STDIO_VIEW)))]
#[command(group = ArgGroup::new("observer").args(["ui", "record"]).multiple(true))]
pub(crate) struct Serve {
    /// The configuration file.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Serves streamable HTTP at this address and the path `/mcp`, such as `127.0.0.1:8080`. Each
    /// view of the file is served at its own path.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http: Option<SocketAddr>,
    /// Accepts requests whose `Host` header has this name, such as `tools.example.com` or
    /// `gateway:8080`. Names of this machine are always accepted. Can be repeated.
    #[arg(long, value_name = "HOST", requires = "http", value_parser = host)]
    pub(crate) allow_host: Vec<String>,
    /// Allows `--http` to listen at an address that other machines can reach although the file has
    /// no `[auth]`, and `--ui` to listen at such an address: the page has no authentication. Use
    /// this only behind a proxy or network policy that authenticates callers.
    ///
    /// The option is the same for both, and opens nothing by itself: without such an address of its
    /// own, `--ui` still serves this machine only.
    #[arg(long, requires = "listener")]
    pub(crate) insecure: bool,
    /// Serves clients before 2026-07-28 without sessions.
    ///
    /// Then any replica can answer any request, but these clients cannot be asked questions and
    /// are not notified of changes.
    #[arg(long, requires = "http")]
    pub(crate) stateless: bool,
    /// Accepts requests of web pages of this origin, such as `https://example.com:443`, or `:*`
    /// for any port. Pages of this machine are always accepted. Can be repeated.
    #[arg(long, value_name = "ORIGIN", requires = "http", value_parser = origin)]
    pub(crate) allow_origin: Vec<String>,
    /// The maximum number of sessions, and separately of open requests. Defaults to 4096. Further
    /// requests get the status 429.
    #[arg(long, value_name = "NUMBER", requires = "http")]
    pub(crate) max_connections: Option<NonZeroUsize>,
    /// The maximum number of sessions, and separately of open requests, of each caller. Defaults to
    /// 256. Has an effect if `[auth]` or `[caller]` identifies callers.
    #[arg(long, value_name = "NUMBER", requires = "http")]
    pub(crate) max_connections_per_caller: Option<NonZeroUsize>,
    /// The maximum number of TCP connections. Further ones are closed when they are accepted.
    #[arg(long, value_name = "NUMBER", requires = "http", default_value = "8192")]
    pub(crate) max_tcp_connections: NonZeroUsize,
    /// Closes a connection if its client sends nothing for this long after it has connected, after
    /// a response, or within a request body, or if it reads nothing of a response for this long. A
    /// request head must be complete in this time. A reverse proxy should close idle connections
    /// earlier.
    #[arg(long, value_name = "DURATION", requires = "http", default_value = "75s", value_parser = positive_duration)]
    pub(crate) idle_timeout: Duration,
    /// Answers a request with the status 408 if its body, of at most 4 MiB, is not complete within
    /// this time.
    #[arg(long, value_name = "DURATION", requires = "http", default_value = "60s", value_parser = positive_duration)]
    pub(crate) body_timeout: Duration,
    /// Waits this long for the calls in flight when the process is asked to end by `SIGTERM` or
    /// Ctrl-C. New connections are refused meanwhile. A second signal ends the process at once.
    ///
    /// Then the program closes connections and stores, stops child processes, and writes the last
    /// runs and spans. This takes less than a second if all of them react, and else about 24
    /// seconds. The service manager must wait for longer than both times together.
    #[arg(long, value_name = "DURATION", requires = "http", default_value = "15s", value_parser = humantime::parse_duration)]
    pub(crate) drain: Duration,
    /// Serves metrics for Prometheus at this address and the path `/metrics`, such as
    /// `0.0.0.0:9464`, and the probes `/healthz` and `/readyz`.
    ///
    /// The address may be one that other machines can reach, even without `--insecure`. Its clients
    /// can read the names of tools, composites and backends, but no arguments, results or secrets,
    /// and many of them could keep probes from being answered. Let only the Prometheus server and
    /// the probes reach it.
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// The number of threads that process messages. Defaults to half of the CPU cores, at least 1,
    /// and leaves the other half to the backends.
    #[arg(long, value_name = "NUMBER", default_value_t = default_threads(), hide_default_value = true, value_parser = threads)]
    pub(crate) threads: NonZeroUsize,
    /// Reloads the file within three seconds after it, or a file that it includes, has changed. A
    /// file with errors changes nothing. `SIGHUP` reloads the file, too.
    #[arg(long)]
    pub(crate) watch: bool,
    /// Shows tools, composites, backends and the last 1000 runs on a web page at this address.
    /// Defaults to `127.0.0.1:6278`. Write the option after the file.
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = UI_ADDRESS, value_parser = ui_address)]
    pub(crate) ui: Option<SocketAddr>,
    /// Writes the runs of composites to this file, one JSON object per line, for `view`.
    ///
    /// An existing recording is extended. Secrets of the configuration are not written. See
    /// `--record-max-bytes` for the size.
    #[arg(long, value_name = "RECORDING", value_hint = ValueHint::FilePath)]
    pub(crate) record: Option<PathBuf>,
    /// The maximum size of the recording in bytes. Before a line would exceed it, the file is
    /// renamed to `RECORDING.1`, which replaces an earlier one, and a new recording begins.
    #[arg(long, value_name = "BYTES", requires = "record", default_value_t = RECORD_MAX_BYTES, value_parser = value_parser!(u64).range(1 << 20..))]
    pub(crate) record_max_bytes: u64,
    /// Includes the arguments and results of runs and tools in the page and the recording. They may
    /// contain data of users.
    #[arg(long, requires = "observer")]
    pub(crate) show_data: bool,
    #[cfg(feature = "restate")]
    #[command(flatten)]
    pub(crate) durable: crate::durable::DurableOptions,
    #[command(flatten)]
    pub(crate) view: ViewOption,
}

#[derive(Args, Debug)]
pub(crate) struct View {
    /// The recording.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The address of the page.
    #[arg(long, value_name = "ADDRESS", default_value = UI_ADDRESS)]
    pub(crate) ui: SocketAddr,
    /// Allows `--ui` to listen at an address that other machines can reach, without authentication.
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The configuration file.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Checks the file alone: connects nothing, and needs no environment variables. If the file has
    /// a `[lock]`, the approved tools are those of the backends.
    #[arg(long)]
    pub(crate) offline: bool,
    /// Prints a JSON object with the members `backends`, `tools`, `composites`, `not_advertised`,
    /// `views`, `remarks` and `problems`. Each view has a `path` and `tools`, `composites` and
    /// `not_advertised` of its own.
    ///
    /// With `--offline`, the `server` of each backend is `null`. Without a `[lock]`, `tools` and
    /// `not_advertised` are empty then, and composites have only a `name`: the rest depends on the
    /// backends.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) view: ViewOption,
}

#[derive(Args, Debug)]
pub(crate) struct Run {
    /// The configuration file.
    #[arg(value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The name of the tool, as clients see it.
    pub(crate) tool: String,
    /// The arguments of the call, as a JSON object.
    #[arg(long, value_name = "JSON", default_value = "{}", value_parser = object)]
    pub(crate) input: JsonObject,
    #[command(flatten)]
    pub(crate) view: ViewOption,
}

fn object(text: &str) -> Result<JsonObject, String> {
    serde_json::from_str(text).map_err(|error| format!("expected a JSON object: {error}"))
}

fn default_threads() -> NonZeroUsize {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    NonZeroUsize::new(cores / 2).unwrap_or(NonZeroUsize::MIN)
}

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|&threads| threads <= MAX_THREADS);
    threads
        .and_then(NonZeroUsize::new)
        .ok_or_else(|| format!("expected a number from 1 to {MAX_THREADS}"))
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => Err("expected more than zero".to_owned()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

/// Parses the address of the page. `--ui FILE` is a common mistake, since the address is optional.
fn ui_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| {
        "expected an IP address and a port, such as `127.0.0.1:6278`; if this is the configuration \
         file, write it before `--ui`"
    })
}

/// Parses the value of a `Host` header: rmcp would silently ignore another text.
fn host(text: &str) -> Result<String, &'static str> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !name.ends_with(':') && !name.is_empty() => (name, Some(port)),
        _ => (text, None),
    };
    let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._[]:".contains(&b));
    let is_port = port.is_none_or(|port| port.parse::<u16>().is_ok());
    if is_name && is_port && !name.is_empty() {
        return Ok(text.to_owned());
    }
    Err("expected a host, such as `tools.example.com` or `gateway:8080`")
}

/// Parses an origin as browsers send it: rmcp would silently ignore another text.
fn origin(text: &str) -> Result<String, &'static str> {
    let parts = text.split_once("://").and_then(|(scheme, authority)| {
        let (host, port) = authority.rsplit_once(':')?;
        let is_port = port == "*" || port.parse::<u16>().is_ok();
        let is_host = !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', ' ']);
        Some(!scheme.is_empty() && is_host && is_port)
    });
    match parts {
        Some(true) => Ok(text.to_owned()),
        _ => Err("expected scheme, host and port, such as `https://example.com:443`, or `:*` for \
                  any port"),
    }
}
