//! To and from rmcp.
//!
//! [`HandlerService`] makes a [`ServerHandler`] callable: requests go in,
//! replies come out, and no connection is needed.
//!
//! [`ServerHandler`]: rmcp::ServerHandler

mod absent;
pub mod handler;

pub use self::handler::HandlerService;
