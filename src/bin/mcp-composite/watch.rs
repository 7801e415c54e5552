//! Reloads the file of the gateway when it changes.

use std::{convert::Infallible, io, path::PathBuf, time::Duration};

use mcp_composite::config::{Config, Gateway, Sources, Stamp};

use crate::{
    arguments::Serve, auth::Authentication, observed::Observed, redacted::Redacted,
    session::Session, telemetry::Telemetry, view_option::ViewOption,
};

/// The interval between checks of the files.
const LOOK: Duration = Duration::from_secs(1);

/// Keeps a gateway up to date with its file.
pub(crate) struct Watch {
    file: PathBuf,
    view: ViewOption,
    gateway: Gateway,
    /// The authentication of callers over HTTP.
    authentication: Option<Authentication>,
    /// Whether clients connect over HTTP. Clients over stdio are not authenticated.
    is_http: bool,
    redacted: Redacted,
    telemetry: Telemetry,
    observed: Observed,
    /// The files that are running.
    sources: Sources,
    /// The state of the files when they were last read.
    read: Stamp,
    /// Their errors at that time.
    mistakes: Option<String>,
}

/// Waits for `SIGHUP`, which requests a reload.
pub(crate) struct HangUps(#[cfg(unix)] tokio::signal::unix::Signal);

// === impl Watch ===

impl Watch {
    pub(crate) fn new(
        session: &Session,
        serve: &Serve,
        authentication: Option<Authentication>,
    ) -> Self {
        let sources = session.config.sources().clone();
        Self {
            file: serve.file.clone(),
            view: serve.view.clone(),
            gateway: session.gateway.clone(),
            authentication,
            is_http: serve.http.is_some(),
            redacted: session.redacted.clone(),
            telemetry: session.telemetry.clone(),
            observed: session.observed.clone(),
            read: sources.stamp(),
            sources,
            mistakes: None,
        }
    }

    /// Reloads the file on request, and if `look` also when it has changed.
    pub(crate) async fn run(mut self, mut hang_ups: HangUps, look: bool) -> Infallible {
        let mut looked = self.read.clone();
        loop {
            let is_requested = tokio::select! {
                () = hang_ups.next() => true,
                () = tokio::time::sleep(LOOK), if look => false,
            };
            let now = self.sources.stamp();
            // It may still be written; a partial file can look like a complete one with less in it.
            let is_settled = now == looked;
            // The error may be in a file that only the rejected version includes.
            let is_new = now != self.read || self.mistakes.is_some();
            looked = now.clone();
            if is_requested {
                self.mistakes = None;
            }
            if is_requested || (is_settled && is_new) {
                self.reload(now).await;
            }
        }
    }

    async fn reload(&mut self, now: Stamp) {
        match self.try_to_reload().await {
            Ok(config) => {
                let is_same = *config.sources() == self.sources;
                self.sources = config.sources().clone();
                self.read = if is_same { now } else { self.sources.stamp() };
                self.mistakes = None;
            }
            Err(mistakes) => {
                self.read = now;
                if self.mistakes.as_ref() != Some(&mistakes) {
                    tracing::error!(
                        "the reload failed, and the previous configuration stays in use:\n{mistakes}"
                    );
                    self.mistakes = Some(mistakes);
                }
            }
        }
    }

    async fn try_to_reload(&self) -> Result<Config, String> {
        let config = Config::load(&self.file).map_err(|mistakes| mistakes.to_string())?;
        let mut config = self.telemetry.apply(self.view.select(config)?);
        // Before anything connects that could log them.
        self.redacted.learn(&config);
        let auth = config.take_auth().filter(|_| self.is_http);
        let prepared = match (&self.authentication, auth) {
            (Some(authentication), Some(auth)) => {
                authentication.prepare(auth).await?.map(|prepared| (authentication, prepared))
            }
            (None, None) => None,
            _ => return Err("`[auth]` was added or removed: restart the program".to_owned()),
        };
        let config = self.observed.observe(config);
        let reloaded = self.gateway.reload(&config).await.map_err(|error| error.to_string())?;
        if let Some((authentication, prepared)) = prepared {
            authentication.replace(prepared);
        }
        self.observed.set_running(&config);
        tracing::info!("reloaded: {reloaded}");
        Ok(config)
    }
}

// === impl HangUps ===

impl HangUps {
    /// Returns the signals from now on; they no longer end the program.
    #[cfg(unix)]
    pub(crate) fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self(signal(SignalKind::hangup())?))
    }

    #[cfg(unix)]
    async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending().await
        }
    }

    #[cfg(not(unix))]
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self())
    }

    #[cfg(not(unix))]
    async fn next(&mut self) {
        std::future::pending().await
    }
}
