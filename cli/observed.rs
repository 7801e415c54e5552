//! The observer of the running file, for the page.

use std::sync::Arc;

use mcp_composite::config::Config;
use tokio::sync::watch;

use crate::{arguments::Serve, runs::RunLog};

/// The parts of the observer that the arguments require.
#[derive(Debug, Default)]
pub(crate) struct ObserverOptions {
    /// Whether the runs are shown on a page.
    is_shown: bool,
    /// Whether arguments are kept.
    shows_data: bool,
}

/// The log of runs, and the file that is running. Clones refer to the same.
///
/// By default there is no log, and then no run has an observer.
#[derive(Clone, Default)]
pub(crate) struct Observed {
    runs: Option<Arc<RunLog>>,
    /// The file that is running; `None` until it is.
    config: watch::Sender<Option<Arc<Config>>>,
}

// === impl ObserverOptions ===

impl ObserverOptions {
    pub(crate) fn of(serve: &Serve) -> Self {
        Self { is_shown: serve.ui.is_some(), shows_data: serve.show_data }
    }
}

// === impl Observed ===

impl Observed {
    /// Creates the log, if it is needed.
    pub(crate) fn new(options: &ObserverOptions) -> Self {
        let ObserverOptions { is_shown, shows_data } = *options;
        let runs = is_shown.then(|| Arc::new(RunLog::new(shows_data)));
        Self { runs, config: watch::Sender::default() }
    }

    /// Adds the observer to a file that will be run. A reload requires this, too.
    pub(crate) fn observe(&self, config: Config) -> Config {
        match &self.runs {
            Some(runs) => config.observer(runs.clone()),
            None => config,
        }
    }

    /// Sets the file that is running now.
    pub(crate) fn set_running(&self, config: &Config) {
        if self.runs.is_some() {
            self.config.send_replace(Some(Arc::new(config.clone())));
        }
    }

    pub(crate) const fn runs(&self) -> Option<&Arc<RunLog>> {
        self.runs.as_ref()
    }

    /// Returns a receiver of the running file.
    pub(crate) fn config(&self) -> watch::Receiver<Option<Arc<Config>>> {
        self.config.subscribe()
    }
}
