//! Serves a Tower service to clients as an MCP server.

mod changes;
mod describe;
mod elicitation_bridge;
pub(crate) mod failure;
mod handler;
mod notifications;
#[cfg(feature = "http")]
mod param_headers;
mod passthrough;
mod protocol_version;
mod service;
mod subscriptions;
mod tools;

#[cfg(any(feature = "http", all(feature = "config", feature = "stdio")))]
pub(crate) use self::service::account;
pub use self::{describe::Describe, service::ServeService};
