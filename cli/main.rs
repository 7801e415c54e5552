//! The program `mcp-composite`: a gateway for any MCP client, and tools for its files.

mod arguments;
mod call;
mod check;
mod init;
mod observed;
mod redacted;
mod report;
mod runs;
mod serve;
mod session;
mod ui;
mod view;
mod watch;

use std::{
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser};
use mcp_composite::config::Config;

use self::{
    arguments::{Arguments, Command},
    observed::ObserverOptions,
    session::Session,
    ui::Page,
};

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Standard error may be closed.
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Box<dyn Error>> {
    let mut out = io::stdout();
    match command {
        Command::Serve(serve) => {
            serve::check_address(&serve)?;
            let file = serve.file.clone();
            let page = serve.ui.map(|address| Page::bind(address, serve.insecure)).transpose()?;
            let options = ObserverOptions::of(&serve);
            Session::run_observed(&file, "info,rmcp=error", &options, async |session| {
                let shown = file.display().to_string();
                ui::serve_with_page(page, session, shown, serve::serve(session, serve)).await
            })
        }
        Command::Check(check) if check.offline => check::offline(&check.file, check.json, out),
        Command::Check(check) => Session::run(&check.file, "off", async |session| {
            check::check(session, check.json, out).await
        }),
        Command::Plan(run) => Session::run(&run.file.clone(), "off", async |session| {
            call::plan(session, run, out).await
        }),
        Command::Call(run) => Session::run(&run.file.clone(), "off", async |session| {
            call::call(session, run, out).await
        }),
        Command::Tools { file, json } => {
            Session::run(&file, "off", async |session| check::tools(session, json, out).await)
        }
        Command::Draw { file, composite } => {
            let flowchart = Config::load(file)?.composite_layer().flowchart(&composite)?;
            Ok(write!(out, "{flowchart}")?)
        }
        Command::View(view) => view::view(&view, out),
        Command::Schema => Ok(write!(out, "{}", Config::JSON_SCHEMA)?),
        Command::Init { file, from } => init::init(&file, from.as_deref(), out),
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "mcp-composite", &mut out);
            Ok(())
        }
    }
}
