use rmcp::{ServerHandler, model::ServerConfig};

/// What a server says of itself: its name, its instructions, what it can do.
///
/// A [`ServerConfig`] never changes; a closure may give another one each time,
/// such as for backends that come and go. It is asked whenever a client wants to
/// know, so it should be cheap.
pub trait Describe: Send + Sync + 'static {
    /// Describes the server as it is now.
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
