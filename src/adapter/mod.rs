//! To and from rmcp: a server as a Tower service, a Tower service as a server.
//!
//! [`HandlerService`] makes a [`ServerHandler`] callable: requests go in,
//! replies come out, and no connection is needed. [`ServeService`] is the way
//! back: it is a `ServerHandler` itself and runs over every transport that rmcp
//! has. Between the two stands any stack of Tower layers.
//!
//! [`ServeService::wrap`] does both at once. All requests of the client travel
//! through the layers to the handler. Everything else reaches the same handler
//! directly: notifications, `subscriptions/listen` with what it streams, and
//! what rmcp asks of a server without waiting (its description, its protocol
//! versions, the schema of one tool). What the handler itself sends to the
//! client goes past the layers, too. Around layers that do nothing, a client
//! cannot tell a wrapped handler from a bare one, but for the following:
//!
//! - A request that the client cancels, or whose client is gone, is dropped with
//!   all the work in it. rmcp would only cancel the handler's token and let the
//!   handler run on. (It notices some seconds late that a client is gone.)
//! - A panic is answered with an internal error. rmcp would never answer.
//! - A client of 2026-07-28 or later gets the `resultType` that its version of
//!   the protocol requires, and learns that `logging/setLevel` no longer
//!   exists.
//! - An older client that declares that it can be asked *is* asked what a handler
//!   wants to know that answers with `InputRequired`, and the handler is called
//!   again with the answers, ten times at most. rmcp would refuse that answer.
//! - rmcp compares the `Mcp-Param-*` headers of a call over HTTP with its arguments if it
//!   knows the tool. A call of a tool that no client has listed yet first lists the tools,
//!   as its client would, and is then compared in the same way. That needs the feature
//!   `http`; without it, such a call is not checked. Neither is the call of a tool that its
//!   client is not shown, nor any call while tools cannot be listed. When the tools have
//!   changed, a call of a tool that had no such headers before does not wait: it is not
//!   checked until the tools were listed again, in the background.
//!
//! A [`Router`] makes one service of several: it shows what all its backends
//! have in one list each, under names that tell them apart, and sends every call
//! to the backend it is for. A backend that is slow, broken or gone takes
//! nothing from the others. See [`router`] for the rules. A
//! [`RemoteService`](remote) is such a backend: it keeps a server connected that
//! is a child process or somewhere else.
//!
//! # Changes
//!
//! Where the tools, prompts or resources behind a stack come and go, somebody
//! knows and tells [`Changes`](crate::changes::Changes). With
//! [`ServeService::changes`], so are clients: those of 2025-11-25 and older
//! unasked, newer ones on the streams of `subscriptions/listen` that they ask
//! for. `listChanged` is declared in all that the server says of itself, also
//! where a wrapped handler says it. A client of streamable HTTP without a session
//! that is older than 2026-07-28 cannot be told of anything.
//!
//! # Many connections
//!
//! rmcp runs one `ServeService` for each connection, session or request, so
//! transports such as streamable HTTP want a function that makes them. Make one
//! `server` and give `move || Ok(server.clone())`: what must be shared is, and a
//! clone costs next to nothing.
//!
//! # Clients that are not trusted
//!
//! [`LineTransport`] is MCP's stdio transport with limits on each message, and
//! `ConnectionLimit` (feature `http`) limits messages, sessions and open requests over HTTP.
//!
//! # Failures
//!
//! A service that fails (`S::Error`) is told to the client as a JSON-RPC error
//! `-32603`: "the request timed out" for `tower::timeout`, "the server is
//! overloaded" for `tower::load_shed`, and "internal error" for all others,
//! whose text may hold what a client must not know. Those are logged.
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

/// Whether a protocol version is 2026-07-28 or later.
fn is_modern(version: &ProtocolVersion) -> bool {
    // ISO dates compare as text.
    version.as_str() >= ProtocolVersion::V_2026_07_28.as_str()
}
