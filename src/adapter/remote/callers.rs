//! The interface to connections that each belong to a single caller.

use futures::future::BoxFuture;
use rmcp::model::ClientRequest;

use crate::message::{BackendError, Reply, Request};

/// The connections to a server for which each caller has a separate connection.
pub(super) trait Callers: Send + Sync {
    /// Sends a request over the connection that belongs to the request's caller.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BackendError>>;

    /// Closes all connections permanently. If the future is dropped, the connections are closed in
    /// the background.
    fn close(&self) -> BoxFuture<'static, ()>;
}

/// Returns `true` if the request must be sent over the connection of its caller.
///
/// All callers share the server's lists, resource subscriptions and log level. Requests that
/// concern them use the connection that belongs to this program.
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
