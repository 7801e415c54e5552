//! A file whose backends are connected while a command runs.

use std::{
    error::Error,
    io::{self, Write},
    path::Path,
};

use futures::future::join_all;
use mcp_composite::{
    adapter::RemoteService,
    config::{Config, Gateway},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::{
    observed::{Observed, ObserverOptions},
    redacted::Redacted,
};

/// The file of a command, and its connected backends.
pub(crate) struct Session {
    pub(crate) config: Config,
    pub(crate) gateway: Gateway,
    pub(crate) redacted: Redacted,
    pub(crate) observed: Observed,
    /// Cancelled when the process is asked to end.
    pub(crate) stop: CancellationToken,
}

// === impl Session ===

impl Session {
    /// Reads a file, connects its backends, runs the command, and stops the backends.
    ///
    /// Logs to standard error with the filter `RUST_LOG`, or else `default_filter`.
    ///
    /// # Errors
    ///
    /// Returns an error if the file has errors, if the backends cannot be configured, and the error
    /// of the command.
    pub(crate) fn run(
        file: &Path,
        default_filter: &str,
        command: impl AsyncFnOnce(&Self) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        Self::run_observed(file, default_filter, &ObserverOptions::default(), command)
    }

    /// The same, and observes the runs of composites.
    ///
    /// # Errors
    ///
    /// Also returns an error if the recording cannot be written, before any backend is connected.
    pub(crate) fn run_observed(
        file: &Path,
        default_filter: &str,
        options: &ObserverOptions,
        command: impl AsyncFnOnce(&Self) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let config = Config::load(file)?;
        let redacted = Redacted::of(&config);
        let observed = Observed::new(options, &redacted)?;
        let config = observed.observe(config);
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| default_filter.into());
        tracing_subscriber::fmt().with_writer(redacted.clone()).with_env_filter(filter).init();
        let runtime = tokio::runtime::Runtime::new()?;
        let result = runtime.block_on(async {
            // Before any child process starts, so that none is left behind.
            let stop = stop_on_signals()?;
            let gateway = Gateway::connect(&config)?;
            observed.set_running(&config);
            let session = Self { config, gateway, redacted, observed, stop };
            let result = command(&session).await;
            session.gateway.close().await;
            session.observed.close();
            result
        });
        // A thread reads standard input and cannot be interrupted.
        runtime.shutdown_background();
        result
    }

    /// Waits until each backend is connected or has failed, and returns an error message for each
    /// one that has failed, by its name.
    pub(crate) async fn connect(&self) -> Vec<(String, Option<String>)> {
        let backends = self.gateway.backends();
        let connected = join_all(backends.remotes().iter().map(RemoteService::connected)).await;
        let names = backends.remotes().iter().map(|remote| remote.name().to_owned());
        names.zip(connected.into_iter().map(Result::err)).collect()
    }

    /// Completes with the result of `work`, or with an error when the process is asked to end.
    pub(crate) async fn until_stopped(
        &self,
        work: impl Future<Output = Result<(), Box<dyn Error>>>,
    ) -> Result<(), Box<dyn Error>> {
        let worked = self.stop.run_until_cancelled(work).await;
        worked.unwrap_or_else(|| Err("interrupted".into()))
    }

    /// Prints a text without secrets.
    ///
    /// # Errors
    ///
    /// Returns an error if the output cannot be written.
    pub(crate) fn print(&self, text: &str, out: &mut impl Write) -> io::Result<()> {
        out.write_all(self.redacted.text(text).as_bytes())?;
        out.flush()
    }

    /// Returns the error of a command that found problems, without secrets.
    ///
    /// # Errors
    ///
    /// Returns an error with one line for each problem, if there are any.
    pub(crate) fn fail_with(&self, problems: &[String]) -> Result<(), Box<dyn Error>> {
        if problems.is_empty() {
            return Ok(());
        }
        Err(self.redacted.text(&problems.join("\n")).into())
    }
}

/// Returns the message for a backend that is not connected.
pub(crate) fn not_connected(name: &str, reason: &str) -> String {
    format!("backend `{name}` is not connected: {reason}")
}

/// Returns a token that is cancelled when this process is asked to end.
pub(crate) fn stop_on_signals() -> io::Result<CancellationToken> {
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
