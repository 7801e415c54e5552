//! The server description, which clients request with `initialize` and `server/discover`.

use rmcp::{ServerHandler, model::ServerConfig};

/// A source of the MCP server description, which contains the server's name, instructions and
/// capabilities.
///
/// Use a [`ServerConfig`] for a description that never changes. Use a closure for a description
/// that may change, for example if backends connect and disconnect. The closure is called whenever
/// a client requests the description, so it should be cheap.
pub trait Describe: Send + Sync + 'static {
    /// Returns the current description of the server.
    fn describe(&self) -> ServerConfig;
}

/// A [`ServerHandler`] that returns a server description, and uses rmcp's defaults for everything
/// else.
pub(super) struct Described<D>(pub(super) D);

// === impl Describe ===

impl Describe for ServerConfig {
    fn describe(&self) -> ServerConfig {
        self.clone()
    }
}

impl<F: Fn() -> ServerConfig + Send + Sync + 'static> Describe for F {
    fn describe(&self) -> ServerConfig {
        self()
    }
}

// === impl Described ===

impl<D: Describe> ServerHandler for Described<D> {
    fn get_info(&self) -> ServerConfig {
        self.0.describe()
    }
}
