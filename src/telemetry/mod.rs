//! Observability of composite runs: observers, tracing spans, metrics and diagrams.

pub mod mermaid;

#[cfg(feature = "metrics")]
pub mod metrics;

#[cfg(not(feature = "metrics"))]
#[path = "metrics/none.rs"]
pub(crate) mod metrics;

pub mod observe;

pub(crate) mod spans;
