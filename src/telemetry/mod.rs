//! Observers, tracing spans, metrics and diagrams of composite runs.

pub mod mermaid;

#[cfg(feature = "metrics")]
pub mod metrics;

#[cfg(not(feature = "metrics"))]
#[path = "metrics/none.rs"]
pub(crate) mod metrics;

pub mod observe;

pub(crate) mod spans;
