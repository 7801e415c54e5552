//! The interface to a pool of connections to a remote server, with one connection per caller.

use std::fmt;

use futures::future::BoxFuture;
use rmcp::model::ClientRequest;

use crate::message::{BackendError, Reply, Request};

/// A pool of connections to one remote server. Each caller has its own connection.
pub(super) trait Callers: fmt::Debug + Send + Sync {
    /// Sends a request over the connection that belongs to the request's caller.
    fn answer(&self, request: Request) -> BoxFuture<'static, Result<Reply, BackendError>>;

    /// Closes all connections permanently. If the future is dropped, the connections are closed in
    /// the background.
    fn close(&self) -> BoxFuture<'static, ()>;
}

/// Returns `true` if a request must be sent over the caller's own connection to the server. All
/// other requests are sent over the connection that all callers share.
///
/// The server's lists, resource subscriptions and log level are the same for all callers, so
/// requests for them use the shared connection.
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
