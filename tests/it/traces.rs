//! The spans of requests, runs and calls, and the trace contexts that backends receive.

#[cfg(feature = "opentelemetry")]
mod export;
#[cfg(feature = "opentelemetry")]
mod exporter;
mod no_subscriber;
#[cfg(feature = "opentelemetry")]
mod variables;
