//! The description of a server: its name, instructions and capabilities.

use rmcp::{ServerHandler, model::ServerConfig};

/// Describes a server: its name, instructions and capabilities.
///
/// A [`ServerConfig`] never changes; a closure may return a different one each time, for example
/// for backends that come and go. It is called for every client that requests the description, so
/// it should be cheap.
pub trait Describe: Send + Sync + 'static {
    /// Returns the current description of the server.
    fn describe(&self) -> ServerConfig;
}

/// A server that has nothing but a description.
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
