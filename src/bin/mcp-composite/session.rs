//! A file whose backends are connected while a command runs.

use std::{
    error::Error,
    io::{self, Write},
    num::NonZeroUsize,
};

use futures::future::join_all;
use mcp_composite::{
    adapter::RemoteService,
    config::{AuthConfig, Config, Gateway},
};
use tokio::runtime::{self, Runtime};
use tokio_util::sync::CancellationToken;

use crate::{
    logs::{self, LogFormat},
    observed::{Observed, ObserverOptions},
    redacted::Redacted,
    telemetry::Telemetry,
};

/// The file of a command, and its connected backends.
pub(crate) struct Session {
    pub(crate) config: Config,
    /// The `[auth]` section of the file. Only `serve --http` uses it.
    pub(crate) auth: Option<AuthConfig>,
    pub(crate) gateway: Gateway,
    pub(crate) redacted: Redacted,
    pub(crate) telemetry: Telemetry,
    pub(crate) observed: Observed,
    /// Cancelled when the process is asked to end.
    pub(crate) stop: CancellationToken,
}

/// The settings of a session that are not in the file.
pub(crate) struct Setup {
    /// The filter of the log if `RUST_LOG` is not set.
    pub(crate) default_filter: &'static str,
    pub(crate) log_format: LogFormat,
    pub(crate) telemetry: Telemetry,
    pub(crate) observer: ObserverOptions,
    pub(crate) threads: NonZeroUsize,
}

// === impl Session ===

impl Session {
    /// Connects the backends of a file, runs the command, and stops the backends.
    ///
    /// # Errors
    ///
    /// Returns an error if the recording cannot be written, if the backends cannot be configured,
    /// and the error of the command.
    pub(crate) fn run(
        mut config: Config,
        setup: Setup,
        command: impl AsyncFnOnce(&Self) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        let Setup { default_filter, log_format, telemetry, observer, threads } = setup;
        let redacted = Redacted::of(&config);
        let observed = Observed::new(&observer, &redacted)?;
        let auth = config.take_auth();
        let config = observed.observe(telemetry.apply(config));
        logs::start(default_filter, log_format, &redacted, telemetry.traces.as_ref());
        let traces = telemetry.traces.clone();
        let runtime = runtime(threads)?;
        let result = runtime.block_on(async {
            // Before any child process starts, so that none is left behind.
            let stop = stop_on_signals()?;
            let gateway = Gateway::connect(&config)?;
            observed.set_running(&config);
            let session = Self { config, auth, gateway, redacted, telemetry, observed, stop };
            let result = command(&session).await;
            session.gateway.close().await;
            session.observed.close();
            result
        });
        if let Some(traces) = traces {
            traces.close();
        }
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

    /// Waits until each backend is connected or has failed, and returns an error message for each
    /// one that has failed.
    pub(crate) async fn absent(&self) -> Vec<String> {
        let connected = self.connect().await.into_iter();
        connected.filter_map(|(name, reason)| Some(not_connected(&name, &reason?))).collect()
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

/// Creates a runtime that runs its tasks on this number of threads.
pub(crate) fn runtime(threads: NonZeroUsize) -> io::Result<Runtime> {
    let mut builder = match threads.get() {
        // The thread that waits for the command also runs the tasks, so no other thread is woken.
        1 => runtime::Builder::new_current_thread(),
        _ => runtime::Builder::new_multi_thread(),
    };
    builder.worker_threads(threads.get()).enable_all().build()
}

/// Returns the message for a backend that is not connected.
pub(crate) fn not_connected(name: &str, reason: &str) -> String {
    format!("backend `{name}` is not connected: {reason}")
}

/// Returns a token that is cancelled when this process is asked to end. A second request ends the
/// process at once.
pub(crate) fn stop_on_signals() -> io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    #[cfg(unix)]
    let mut terminations = {
        use tokio::signal::unix::{SignalKind, signal};
        signal(SignalKind::terminate())?
    };
    runtime::Handle::current().spawn(async move {
        let mut signalled = async || {
            #[cfg(unix)]
            tokio::select! {
                _ = tokio::signal::ctrl_c() => (),
                _ = terminations.recv() => (),
            }
            #[cfg(not(unix))]
            let _ = tokio::signal::ctrl_c().await;
        };
        signalled().await;
        tracing::info!("received a signal to stop");
        stopped.cancel();
        signalled().await;
        std::process::exit(1);
    });
    Ok(stop)
}
