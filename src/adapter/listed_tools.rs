//! A server in this process that lists given tools.

use std::{io, sync::Arc};

use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{ListToolsResult, PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool},
    service::RequestContext,
};
use tokio::{io::duplex, runtime::Handle};

use super::remote::{RemoteBuilder, RemoteService};

/// The size in bytes of the buffer between the server and its client.
const BUFFER: usize = 64 << 10;

/// A server that lists tools, and rejects calls of them.
#[derive(Clone, Debug)]
pub(crate) struct ListedTools(Arc<[Tool]>);

// === impl ListedTools ===

impl ListedTools {
    pub(crate) const fn new(tools: Arc<[Tool]>) -> Self {
        Self(tools)
    }

    /// Returns a client service for this server. For each connection of the service, the server
    /// runs in a new task of the current Tokio runtime.
    pub(crate) fn connect(&self, builder: RemoteBuilder) -> RemoteService {
        let server = self.clone();
        builder.transport(move || {
            let (near, far) = duplex(BUFFER);
            let server = server.clone();
            Handle::current().spawn(async move {
                // An error means that the client has closed the connection.
                if let Ok(running) = server.serve(far).await {
                    let _ = running.waiting().await;
                }
            });
            async move { Ok::<_, io::Error>(near) }
        })
    }
}

impl ServerHandler for ListedTools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(self.0.to_vec()))
    }
}
