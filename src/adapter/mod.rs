//! Adapters between rmcp handlers and Tower services, in both directions.
//!
//! [`HandlerService`] turns a [`ServerHandler`] into a Tower service: requests go in, replies come
//! out, and no connection is needed. [`ServeService`] is the reverse: it implements `ServerHandler`
//! and runs over every transport of rmcp. Any stack of Tower layers can stand between the two.
//!
//! [`ServeService::wrap`] does both at once. All client requests pass through the layers to the
//! handler. Everything else reaches the same handler directly: notifications,
//! `subscriptions/listen` with its stream, and what rmcp queries synchronously (the server's
//! description, its protocol versions, the schema of one tool). Messages from the handler to the
//! client bypass the layers, too. With layers that do nothing, a wrapped handler behaves like a
//! bare one, except for the following:
//!
//! - A request that the client cancels, or whose client has disconnected, is dropped with all its
//!   work. rmcp would only cancel the handler's token and let the handler run on. (rmcp notices a
//!   disconnected client some seconds late.)
//! - A panic is answered with an internal error. rmcp would never answer.
//! - A client of 2026-07-28 or later gets the `resultType` that its protocol version requires, and
//!   `logging/setLevel` is method not found for it.
//! - If a handler answers with `InputRequired`, an older client that declares the capability is
//!   asked for the input. The handler is then called again with the answers, ten times at most.
//!   rmcp would reject the handler's answer.
//! - rmcp compares the `Mcp-Param-*` headers of a call over HTTP with its arguments if it knows the
//!   tool. A call of a tool that no client has listed yet first lists the tools, as its client
//!   would, and is then checked in the same way. This needs the feature `http`; without it, such a
//!   call is not checked. Calls of tools that are hidden from the client are not checked either,
//!   nor any call while tools cannot be listed. After the tools have changed, a call of a tool that
//!   had no such headers before is not checked until a background listing has finished.
//!
//! A [`Router`] combines several services into one: it merges the lists of its backends, under
//! distinct names, and sends every call to the backend that owns the name. A slow, failing or
//! disconnected backend does not affect the others. See [`router`] for the rules. A
//! [`RemoteService`](remote) is such a backend: it keeps a server connected, over HTTP or as a
//! child process.
//!
//! # Changes
//!
//! If the tools, prompts or resources of a stack can change, the source of the change notifies
//! [`Changes`](crate::changes::Changes). With [`ServeService::changes`], clients are notified as
//! well: those of 2025-11-25 and older without a request, newer ones on their
//! `subscriptions/listen` streams. `listChanged` is then declared in every description of the
//! server, including that of a wrapped handler. A client of streamable HTTP without a session that
//! is older than 2026-07-28 cannot be notified.
//!
//! # Many connections
//!
//! rmcp runs one `ServeService` for each connection, session or request, so transports such as
//! streamable HTTP take a factory function. Create one `server` and pass
//! `move || Ok(server.clone())`: clones share the common state and are cheap.
//!
//! # Clients that are not trusted
//!
//! [`LineTransport`] is MCP's stdio transport with limits on each message, and
//! `ConnectionLimit` (feature `http`) limits messages, sessions and open requests over HTTP.
//!
//! # Failures
//!
//! If the service fails (`S::Error`), the client receives the JSON-RPC error `-32603`: "the request
//! timed out" for `tower::timeout`, "the server is overloaded" for `tower::load_shed`, and
//! "internal error" for all other errors. Those are logged instead, since their text may hold what
//! a client must not see.
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

mod branch_client;
#[cfg(feature = "http")]
mod connections;
pub mod handler;
mod line_transport;
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

use rmcp::model::ProtocolVersion;

#[cfg(feature = "http")]
pub use self::connections::{ConnectionLimit, CountedBody, LimitConnections, LimitedBody};
#[cfg(feature = "remote")]
pub use self::remote::RemoteService;
pub use self::{
    handler::HandlerService,
    line_transport::LineTransport,
    router::Router,
    secrets::Secrets,
    serve::{Describe, ServeService},
};

#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
pub(crate) use self::serve::account;

/// Returns `true` if a protocol version is 2026-07-28 or later.
fn is_modern(version: &ProtocolVersion) -> bool {
    // ISO dates compare as text.
    version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()
}
