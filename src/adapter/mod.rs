//! Adapters between rmcp handlers and Tower services, in both directions.
//!
//! A [`HandlerService`] turns a [`ServerHandler`] of rmcp into a Tower service of requests and
//! replies, without a connection. A [`ServeService`] is the reverse: it turns a Tower service into
//! a `ServerHandler`, so any transport of rmcp can serve it to clients. Any Tower layers can be
//! placed between the two.
//!
//! [`ServeService::wrap`] adds Tower layers to a [`ServerHandler`] of rmcp, and returns a server
//! that is also a `ServerHandler`. All client requests except `subscriptions/listen` pass through
//! the layers to the handler. The layers do not see any other traffic: `subscriptions/listen` with
//! its stream, the client's notifications, messages from the handler to the client, and the values
//! that rmcp queries synchronously. These values are the server description, the supported protocol
//! versions and the definition of a single tool.
//!
//! A handler in a [`ServeService`] whose layers do nothing behaves as if rmcp served it directly,
//! except for the following:
//! - If the client cancels a request or disconnects, the request's future is dropped with all its
//!   work. rmcp alone would only cancel the handler's token, and the handler would continue to run.
//!   (rmcp detects a disconnected client only after some seconds.)
//! - If the handler panics, the client receives an internal error. rmcp alone would never send an
//!   answer.
//! - For a client that speaks protocol version 2026-07-28 or later, results have the `resultType`
//!   that this version requires. Its `logging/setLevel` requests are rejected with "method not
//!   found".
//! - If the handler answers a request with `InputRequired`, the client is asked for the input. The
//!   handler is then called again with the answers, at most ten times. This applies to a client
//!   that speaks protocol version 2025-11-25 or older and declares the capability. rmcp alone would
//!   reject the handler's answer.
//! - For a tool call over HTTP, rmcp compares the `Mcp-Param-*` headers with the arguments if it
//!   knows the tool. If no client has listed the tool yet, a wrapped handler first lists its tools
//!   as the client would, and then makes the same check. This needs the feature `http`. Calls of
//!   unlisted tools are not checked without this feature, if the tool is hidden from the client, or
//!   if listing the tools fails. If a tool gains such headers when the tools change, its calls are
//!   not checked until a background listing has finished.
//!
//! A [`Router`] combines several Tower services, its backends, into one. It merges the tools,
//! prompts and resources of the backends under distinct names, and sends each call to the backend
//! that owns the name. A slow, failing or disconnected backend does not affect the others. See
//! [`router`] for the rules. A [`RemoteService`](remote) is a backend that connects to another MCP
//! server over HTTP or as a child process. It reconnects if the connection is lost.
//!
//! # Changes
//!
//! If a backend or layer can change its tools, prompts or resources while clients are connected, it
//! notifies a shared [`Changes`](crate::changes::Changes) value. Pass this value to
//! [`ServeService::changes`] to notify clients as well. Clients with protocol version 2025-11-25 or
//! older receive notifications without a request. Newer clients receive them on their
//! `subscriptions/listen` streams. Clients with protocol version 2025-11-25 or older that use
//! streamable HTTP without a session cannot be notified.
//!
//! A server with a [`Changes`](crate::changes::Changes) value declares `listChanged` in its server
//! description, even if the description comes from a wrapped handler.
//!
//! # Many connections
//!
//! rmcp needs a separate server value for each connection, session or request, so transports such
//! as streamable HTTP take a factory function. Create one [`ServeService`] named `server` and pass
//! `move || Ok(server.clone())`. The clones are cheap, because they share their state.
//!
//! # Clients that are not trusted
//!
//! [`LineTransport`] is MCP's stdio transport with limits on each message, and
//! `ConnectionLimit` (feature `http`) limits messages, sessions and open requests over HTTP.
//!
//! # Failures
//!
//! If the Tower service of a [`ServeService`] returns an error (`S::Error`), the client receives
//! the JSON-RPC error `-32603`. The error message is "the request timed out" for errors of
//! `tower::timeout`, "the server is overloaded" for errors of `tower::load_shed`, and "internal
//! error" for all other errors. The text of these other errors is only logged, because it may
//! contain internal details.
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//!
//! use mcp_composite::adapter::ServeService;
//! use rmcp::{
//!     ErrorData, RoleServer, ServerHandler, ServiceExt,
//!     model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock},
//!     service::RequestContext,
//! };
//! use tower::ServiceBuilder;
//!
//! struct Greeter;
//!
//! impl ServerHandler for Greeter {
//!     async fn call_tool(
//!         &self,
//!         call: CallToolRequestParams,
//!         _: RequestContext<RoleServer>,
//!     ) -> Result<CallToolResponse, ErrorData> {
//!         match &*call.name {
//!             "greet" => Ok(CallToolResult::success(vec![ContentBlock::text("hello")]).into()),
//!             _ => std::future::pending().await,
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let layers = ServiceBuilder::new().concurrency_limit(8).timeout(Duration::from_secs(30));
//! let server = ServeService::wrap(Greeter, layers);
//!
//! // Any transport will do; this one is a pipe in memory.
//! let (near, far) = tokio::io::duplex(4096);
//! let (server, client) = tokio::join!(server.serve(near), ().serve(far));
//! let (_server, client) = (server?, client?);
//!
//! let reply = client.call_tool(CallToolRequestParams::new("greet")).await?;
//! assert_eq!(reply.content[0].as_text().unwrap().text, "hello");
//!
//! let error = client.call_tool(CallToolRequestParams::new("dawdle")).await.unwrap_err();
//! assert!(error.to_string().contains("the request timed out"));
//! # Ok(())
//! # }
//! ```
//!
//! [`ServerHandler`]: rmcp::ServerHandler

#[cfg(feature = "http")]
mod authenticated_caller;
mod branch_client;
#[cfg(feature = "http")]
mod caller_token;
#[cfg(feature = "http")]
mod connections;
pub mod handler;
mod line_transport;
#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
pub(crate) mod listed_tools;
mod progress_routes;
#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
pub(crate) mod remembered_lists;
#[cfg(feature = "remote")]
pub mod remote;
pub mod router;
pub mod secrets;
mod serve;
mod stub_peer;
mod value_count;

use rmcp::model::{ProtocolVersion, ServerCapabilities, SubscriptionFilter};

#[cfg(feature = "remote")]
pub use self::remote::RemoteService;
#[cfg(feature = "http")]
pub use self::{
    authenticated_caller::AuthenticatedCaller,
    caller_token::CallerToken,
    connections::{ConnectionLimit, CountedBody, LimitConnections, LimitedBody},
};
pub use self::{
    handler::HandlerService,
    line_transport::LineTransport,
    router::Router,
    secrets::Secrets,
    serve::{Describe, ServeService},
};

#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
pub(crate) use self::serve::account;
pub(crate) use self::serve::failure;

/// Returns `true` if the protocol version is 2026-07-28 or later.
fn is_modern(version: &ProtocolVersion) -> bool {
    // Protocol versions are ISO dates, whose order is that of their strings.
    version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()
}

/// Returns a filter for changes of all lists for which a server declares `listChanged`.
fn declared_changes(capabilities: &ServerCapabilities) -> SubscriptionFilter {
    let lists = SubscriptionFilter::builder().tools_list_changed().prompts_list_changed();
    lists.resources_list_changed().build().supported_by(capabilities)
}
