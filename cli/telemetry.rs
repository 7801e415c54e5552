//! The receivers of metrics and spans.

use mcp_composite::{config::Config, trace::TraceLayer};

use crate::metrics::Metrics;

/// The receivers of metrics and spans that the operator has enabled.
#[derive(Clone, Default)]
pub(crate) struct Telemetry {
    pub(crate) metrics: Option<Metrics>,
}

// === impl Telemetry ===

impl Telemetry {
    /// Makes the gateway of this file record what the receivers need. Call this for each version of
    /// the file.
    pub(crate) fn apply(&self, config: Config) -> Config {
        if self.metrics.is_none() {
            return config;
        }
        config.trace(TraceLayer::new().metrics(true))
    }
}
