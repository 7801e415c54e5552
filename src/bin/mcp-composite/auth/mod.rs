//! Authentication of callers over HTTP, as the [authorization of MCP] defines it.
//!
//! [authorization of MCP]: https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization

mod authentication;
mod bearer;
mod jwt;
mod key_set;
mod metadata;
mod middleware;
mod rejection_log;
mod session_id;
mod static_tokens;
mod verification;

pub(crate) use self::{authentication::Authentication, middleware::protect};
