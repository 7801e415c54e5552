//! A remote MCP server as a Tower service.
//!
//! A [`RemoteService`] keeps one server connected: it connects in the background, reconnects when
//! the connection is lost, and forwards requests. It is always ready: without a connection, calls
//! fail with a [`BackendError`] that names the server, and other backends are not affected. A call
//! during an attempt to connect waits for its outcome.
//!
//! - *Cancellation.* A call that is dropped is cancelled at the server.
//! - *`_meta`.* The caller's entries about itself and its connection are not forwarded. The trace
//!   context ([SEP-414]: `traceparent`, `tracestate`, `baggage`) is, and so are the keys in
//!   [`pass_meta`](RemoteBuilder::pass_meta). A server of 2026-07-28 receives the capabilities of
//!   the caller that concern input, since the caller answers such requests itself, by calling
//!   again.
//! - *Questions.* If an older server asks the user during a call (`elicitation/create`, with a
//!   form), the question is relayed to the client that made the call, if the client also speaks an
//!   older protocol and declares the capability. Otherwise the server gets an error with the
//!   reason. A question is withdrawn when its call ends. Over pipes, servers do not say which call
//!   a question belongs to, so all calls in flight must belong to one request of one client. See
//!   [`elicitation`](RemoteBuilder::elicitation).
//! - *Progress* of the server is forwarded to the request's [`Context`], under the token there.
//! - *Errors.* Errors about the connection to the server (a missing method or an unsupported
//!   protocol version) are translated, since a caller would take them for errors of its own
//!   connection. A result of the wrong type is an error.
//! - *Changes.* The server's tools are listed on every connection. If the server reports a change,
//!   or has other tools after a reconnect, the [`Changes`] are notified.
//! - *Updates* of resources are forwarded under the URI that was subscribed to, once for each
//!   subscribed resource that the update concerns: the resource itself, and those that contain it
//!   by path, query or fragment. Updates of other resources are dropped, so a caller learns no URI
//!   that it does not know, and no update takes memory.
//! - *Lost connections.* If a lost connection was good for ten seconds, it is reconnected at once.
//!   Otherwise the delay is half a second to a second, doubles each time, and is limited to one to
//!   two minutes. Requests are never sent twice. If a server rejects a message without naming the
//!   request, as many HTTP servers do that have lost a session, it is pinged; without an answer,
//!   the connection is lost.
//!
//! - *Log messages* of the server during requests of a single client are relayed to that client,
//!   from the level that the client has set; others are only logged locally. The clients share the
//!   connection, so the server is set to the lowest of their levels.
//!
//! For an older server, elicitation is the only client capability that is declared.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::{adapter::remote::RemoteService, message::Request};
//! use rmcp::{ServerHandler, ServiceExt, tool, tool_handler, tool_router};
//! use tower::ServiceExt as _;
//!
//! struct Clock;
//!
//! #[tool_router]
//! impl Clock {
//!     #[tool(description = "The time")]
//!     fn now(&self) -> String { "noon".into() }
//! }
//!
//! #[tool_handler]
//! impl ServerHandler for Clock {}
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A server in this process, for the sake of the example. For a child process
//! // there is `child_process`, and for one over HTTP there is `http`.
//! let clock = RemoteService::builder("clock").transport(|| async {
//!     let (near, far) = tokio::io::duplex(4096);
//! #   #[expect(clippy::disallowed_methods, reason = "the server of the example")]
//!     tokio::spawn(async { Clock.serve(far).await.unwrap().waiting().await });
//!     Ok::<_, std::io::Error>(near)
//! });
//!
//! let reply = clock.clone().oneshot(Request::call_tool("now")).await?;
//! assert_eq!(reply.tool_result().unwrap().content[0].as_text().unwrap().text, "noon");
//!
//! clock.close().await;
//! let error = clock.oneshot(Request::call_tool("now")).await.unwrap_err();
//! assert_eq!(error.to_string(), "backend `clock` is not connected");
//! # Ok(())
//! # }
//! ```
//!
//! [SEP-414]: https://modelcontextprotocol.io/specification/2026-07-28/basic/index#meta
//! [`BackendError`]: crate::message::BackendError
//! [`Changes`]: crate::changes::Changes
//! [`Context`]: crate::message::Context

mod call;
mod client;
mod exit_reason;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
mod http_error;
mod logs;
mod ordered_transport;
mod paced_epoch;
mod pending_calls;
mod redaction;
mod service;
mod state;
#[cfg(feature = "stdio")]
pub mod stdio;
mod supervise;
mod tokens;

#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
pub(crate) use self::service::Ending;
pub use self::service::{CONNECT_TIMEOUT, RemoteBuilder, RemoteService, ResponseFuture};
