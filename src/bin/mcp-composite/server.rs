//! The MCP server of a view, without a transport.

use mcp_composite::{
    adapter::{Router, ServeService},
    config::View,
    reload::Reload,
    stack::Stack,
};
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};

/// The server of a view, to which a client connects.
pub(crate) type Server = ServeService<Reload<Stack<Router>>>;

/// Returns the server for the clients of a view.
pub(crate) fn server(view: &View) -> Server {
    let name = Implementation::new("mcp-composite", env!("CARGO_PKG_VERSION"));
    view.serve(ServerConfig::new(ServerCapabilities::default()).with_server_info(name))
}
