//! The interface of connections that belong to single callers.

use futures::future::BoxFuture;
use rmcp::model::ClientRequest;

use crate::message::{BackendError, Reply, Request};

/// Connections to a server of which each belongs to one caller.
pub(super) trait Callers: Send + Sync {
    /// Sends a request over the connection of its caller.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BackendError>>;

    /// Closes all connections for good. If the future is dropped, they close in the background.
    fn close(&self) -> BoxFuture<'static, ()>;
}

/// Returns `true` if the request needs the connection of its caller.
///
/// The lists of a server are kept for all callers, and subscriptions and log levels are shared by
/// all callers. So their requests use the connection that belongs to this program.
pub(super) fn belongs_to_caller(message: &ClientRequest) -> bool {
    !matches!(
        message,
        ClientRequest::InitializeRequest(_)
            | ClientRequest::DiscoverRequest(_)
            | ClientRequest::PingRequest(_)
            | ClientRequest::SetLevelRequest(_)
            | ClientRequest::ListToolsRequest(_)
            | ClientRequest::ListPromptsRequest(_)
            | ClientRequest::ListResourcesRequest(_)
            | ClientRequest::ListResourceTemplatesRequest(_)
            | ClientRequest::SubscribeRequest(_)
            | ClientRequest::UnsubscribeRequest(_)
            | ClientRequest::SubscriptionsListenRequest(_)
    )
}
