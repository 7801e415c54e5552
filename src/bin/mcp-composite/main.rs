//! The program `mcp-composite`: a gateway for any MCP client, and tools for its files.

mod arguments;
mod auth;
mod body_timeout;
mod call;
mod check;
mod drain;
mod draw;
#[cfg(feature = "restate")]
mod durable;
mod endpoints;
mod guard;
mod init;
mod listener;
mod lock;
mod log_limit;
mod logs;
mod metrics;
mod observed;
mod probes;
mod progress;
mod redacted;
mod rejected_hosts;
mod report;
mod runs;
mod runs_command;
mod serve;
mod server;
mod session;
mod telemetry;
mod traces;
mod ui;
mod view;
mod view_option;
mod watch;

use std::{
    error::Error,
    io::{self, Write},
    num::NonZeroUsize,
    process::ExitCode,
};

use clap::{CommandFactory, Parser};
use mcp_composite::config::Config;
use mimalloc::MiMalloc;

use self::{
    arguments::{Arguments, Command, ImportFormat, Serve},
    logs::LogFormat,
    metrics::Metrics,
    observed::ObserverOptions,
    progress::Progress,
    session::{Session, Setup},
    telemetry::Telemetry,
    traces::Traces,
    ui::Page,
};

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The filter of the log of `serve` if `RUST_LOG` is not set. rmcp logs an error whenever a client
/// leaves during a call or exceeds a limit, so clients could fill the log.
const SERVE_FILTER: &str =
    "info,rmcp=error,rmcp::service=off,rmcp::transport::common::server_side_http=off";

fn main() -> ExitCode {
    // A core dump would contain the secrets of the file. If the limit cannot be set, the system has
    // none for core dumps, or allows no change.
    #[cfg(unix)]
    let _ = rlimit::Resource::CORE.get_hard().and_then(|hard| rlimit::Resource::CORE.set(0, hard));
    let arguments = Arguments::parse();
    let log_format = arguments.log_format;
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            logs::write_error(&*error, log_format);
            ExitCode::FAILURE
        }
    }
}

fn run(Arguments { log_format, command }: Arguments) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout();
    let quiet = Setup {
        default_filter: "off",
        log_format,
        telemetry: Telemetry::default(),
        observer: ObserverOptions::default(),
        threads: NonZeroUsize::MIN,
    };
    match command {
        Command::Serve(options) => serve(&options, log_format),
        Command::Check(check) if check.offline => check::offline(&check, quiet, out),
        Command::Check(check) => {
            Session::run(check.view.load(&check.file)?, quiet, async |session| {
                check::check(session, check.json, out).await
            })
        }
        Command::Plan(run) => Session::run(run.view.load(&run.file)?, quiet, async |session| {
            call::plan(session, run, out).await
        }),
        Command::Call(run) => {
            let telemetry = Telemetry { progress: Progress::on_terminal(), ..Telemetry::default() };
            let setup = Setup { telemetry, ..quiet };
            Session::run(run.view.load(&run.file)?, setup, async |session| {
                call::call(session, run, out).await
            })
        }
        Command::Tools { file, json, view } => {
            Session::run(view.load(&file)?, quiet, async |session| {
                check::tools(session, json, out).await
            })
        }
        Command::Draw { file, composite, view } => draw::draw(&file, &composite, &view, out),
        Command::Lock { file, check } => lock::lock(&file, check, quiet, out),
        Command::Runs { command, ui } => runs_command::run(&command, ui, out),
        Command::View(view) => view::view(&view, out),
        Command::Schema => Ok(write!(out, "{}", Config::JSON_SCHEMA)?),
        Command::Init { file, from } => init::init(&file, from.as_deref(), out),
        Command::Import { from: ImportFormat::Toolhive, file } => {
            Ok(write!(out, "{}", Config::toolhive_to_toml(file)?)?)
        }
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "mcp-composite", &mut out);
            Ok(())
        }
    }
}

fn serve(options: &Serve, log_format: LogFormat) -> Result<(), Box<dyn Error>> {
    let config = options.view.load(&options.file)?;
    serve::check_address(options, config.auth().is_some())?;
    #[cfg(feature = "restate")]
    let (config, durable) = durable::apply(&options.durable, options.insecure, config)?;
    #[cfg(not(feature = "restate"))]
    let durable = None;
    let page = options.ui.map(|address| Page::bind(address, options.insecure)).transpose()?;
    let metrics = options.metrics.map(|_| Metrics::install()).transpose()?;
    let telemetry = Telemetry { metrics, traces: Traces::from_env()?, ..Telemetry::default() };
    let observer = ObserverOptions::of(options);
    let setup = Setup {
        default_filter: SERVE_FILTER,
        log_format,
        telemetry,
        observer,
        threads: options.threads,
    };
    Session::run(config, setup, async |session| {
        let file = options.file.display().to_string();
        ui::serve_with_page(page, session, file, serve::serve(session, options, durable)).await
    })
}
