//! The observer of the running file, for the page and for recordings.

use std::{path::PathBuf, sync::Arc};

use mcp_composite::config::Config;
use tokio::sync::watch;

use crate::{
    arguments::Serve,
    redacted::Redacted,
    runs::{CompositeRecord, Recorder, RunLog},
};

/// The parts of the observer that the arguments require.
#[derive(Debug, Default)]
pub(crate) struct ObserverOptions {
    /// Whether the runs are shown on a page.
    is_shown: bool,
    /// The recording to write.
    recording: Option<PathBuf>,
    /// The maximum size of the recording in bytes.
    max_bytes: u64,
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
    redacted: Redacted,
}

// === impl ObserverOptions ===

impl ObserverOptions {
    pub(crate) fn of(serve: &Serve) -> Self {
        Self {
            is_shown: serve.ui.is_some(),
            recording: serve.record.clone(),
            max_bytes: serve.record_max_bytes,
            shows_data: serve.show_data,
        }
    }
}

// === impl Observed ===

impl Observed {
    /// Creates the log, if it is needed, and opens the recording.
    ///
    /// # Errors
    ///
    /// Returns an error if the recording cannot be written.
    pub(crate) fn new(options: &ObserverOptions, redacted: &Redacted) -> Result<Self, String> {
        let ObserverOptions { is_shown, recording, max_bytes, shows_data } = options;
        if !is_shown && recording.is_none() {
            return Ok(Self::default());
        }
        let redacted = redacted.clone();
        let recorder = recording.as_ref();
        let recorder = recorder.map(|path| Recorder::open(path, *max_bytes, redacted.clone()));
        let runs = Some(Arc::new(RunLog::new(*shows_data, recorder.transpose()?)));
        Ok(Self { runs, config: watch::Sender::default(), redacted })
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
        let Some(runs) = &self.runs else { return };
        if let Some(recorder) = runs.recorder() {
            recorder.composites(CompositeRecord::of(config, &self.redacted));
        }
        self.config.send_replace(Some(Arc::new(config.clone())));
    }

    pub(crate) const fn runs(&self) -> Option<&Arc<RunLog>> {
        self.runs.as_ref()
    }

    /// Returns a receiver of the running file.
    pub(crate) fn config(&self) -> watch::Receiver<Option<Arc<Config>>> {
        self.config.subscribe()
    }

    /// Completes the recording.
    pub(crate) fn close(&self) {
        if let Some(runs) = &self.runs {
            runs.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(options: &ObserverOptions) -> String {
        let config = Config::from_toml_str("").unwrap();
        let observed = Observed::new(options, &Redacted::default()).unwrap();
        format!("{:?}", observed.observe(config).composite_layer())
    }

    #[test]
    fn runs_are_observed_only_on_request() {
        let options = ObserverOptions { is_shown: true, ..ObserverOptions::default() };
        let (without, with) = (observed(&ObserverOptions::default()), observed(&options));
        assert!(without.contains("Observers(0)"), "{without}");
        assert!(with.contains("Observers(1)"), "{with}");
    }
}
