//! The spans of requests, runs and calls, and what backends are told of them.

mod alone;
#[cfg(feature = "opentelemetry")]
mod exported;
#[cfg(feature = "opentelemetry")]
mod exporter;
