//! A trait alias for Tower services that answer MCP requests.

use tower::BoxError;
use tower_service::Service;

use super::{Reply, Request};

/// A trait alias for a Tower service that answers MCP requests. Layers can clone it and call the
/// clones concurrently.
///
/// Implemented for every service with the required bounds. Use it to shorten the bounds of your own
/// layers and functions.
///
/// # Examples
///
/// ```
/// use mcp_composite::message::{Reply, Request, ToolService};
/// use tower::{BoxError, ServiceExt, service_fn};
///
/// async fn ping(service: impl ToolService) -> Result<Reply, BoxError> {
///     service.oneshot(Request::call_tool("ping")).await.map_err(Into::into)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let server = service_fn(|_| async { Ok::<_, BoxError>(Reply::unknown_tool("ping")) });
/// let reply = ping(server).await?;
/// assert_eq!(reply.error().unwrap().message, "unknown tool `ping`");
/// # Ok(())
/// # }
/// ```
pub trait ToolService:
    Service<Request, Response = Reply, Error: Into<BoxError> + Send, Future: Send>
    + Clone
    + Send
    + 'static
{
}

impl<S> ToolService for S where
    S: Service<Request, Response = Reply, Error: Into<BoxError> + Send, Future: Send>
        + Clone
        + Send
        + 'static
{
}
