//! The receivers of metrics, spans and events.

use mcp_composite::{
    config::Config,
    trace::{OpenTelemetry, TraceLayer},
};

use crate::{metrics::Metrics, progress::Progress, traces::Traces};

/// The receivers of metrics, spans and events that are enabled.
#[derive(Clone, Default)]
pub(crate) struct Telemetry {
    pub(crate) metrics: Option<Metrics>,
    pub(crate) traces: Option<Traces>,
    pub(crate) progress: Option<Progress>,
}

// === impl Telemetry ===

impl Telemetry {
    /// Makes the gateway of this file record what the receivers need. Call this for each version of
    /// the file.
    pub(crate) fn apply(&self, mut config: Config) -> Config {
        if let Some(progress) = &self.progress {
            config = config.observer(progress.clone());
        }
        if self.metrics.is_none() && self.traces.is_none() {
            return config;
        }
        let trace = TraceLayer::new().metrics(self.metrics.is_some());
        config.trace(if self.traces.is_some() { trace.propagate(OpenTelemetry) } else { trace })
    }
}
