//! The spans of requests, runs and calls, and the trace contexts that backends receive.

mod alone;
#[cfg(feature = "opentelemetry")]
mod exported;
#[cfg(feature = "opentelemetry")]
mod exporter;
#[cfg(feature = "opentelemetry")]
mod variables;
