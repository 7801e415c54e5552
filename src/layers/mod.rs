//! The Tower layers for MCP servers, except the layer for composite tools.

pub mod advertise;

pub mod alias;

pub mod budget;

#[cfg(feature = "cache")]
pub mod cache;

pub mod filter;

pub mod flow;

pub mod limit;

pub mod lock;

pub mod poll_tasks;

pub mod redact;

pub mod tasks;

pub mod trace;

pub mod truncate;

pub mod validate;
