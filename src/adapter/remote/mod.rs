//! A Tower service that forwards requests to a remote MCP server.
//!
//! A [`RemoteService`] forwards requests to one MCP server. It connects in the background, and
//! reconnects if the connection is lost. The service is always ready. Without a connection, calls
//! fail with a [`BackendError`] that names the server. A call during an attempt to connect waits
//! until the attempt succeeds or fails. The service also handles the other messages between the
//! server and its callers:
//! - *Cancellation.* If the future of a call is dropped, the server receives a notification that
//!   cancels the call.
//! - *`_meta`.* The trace context ([SEP-414]: `traceparent`, `tracestate`, `baggage`) and the keys
//!   in [`pass_meta`](RemoteBuilder::pass_meta) are forwarded. Members that describe the caller or
//!   its connection are not forwarded, with one exception: a server with protocol version
//!   2026-07-28 receives the capabilities that allow it to ask the caller questions. Such a server
//!   puts its questions into the result, and the caller calls again with the answers.
//! - *Questions.* A server with protocol version 2025-11-25 or older can ask the user during a call
//!   (`elicitation/create`, with a form). The question is relayed to the client that made the call
//!   if this client also speaks version 2025-11-25 or older, and declares the capability. Otherwise
//!   the server receives an error with the reason. A question is withdrawn when its call ends. Over
//!   pipes, servers do not say which call a question belongs to. In this case, a question is
//!   relayed only if all pending calls belong to one request of one client. See
//!   [`elicitation`](RemoteBuilder::elicitation).
//! - *Progress.* Progress that the server reports is forwarded to the caller through the
//!   [`Context`] of the request, with the caller's own progress token.
//! - *Errors.* Errors about the connection to the server, such as an unsupported protocol version,
//!   are replaced by errors of this service. Otherwise, a caller would mistake them for errors of
//!   its own connection. A result whose type does not match the request becomes an error.
//! - *Changes.* The server's tools are listed on every new connection. The [`Changes`] are notified
//!   if the server reports a change, or if its tools differ after a reconnection.
//! - *Updates.* An update of a resource also concerns the resources that contain it by path, query
//!   or fragment. If callers have subscribed to any of these resources, each of them is reported
//!   once, under the subscribed URI. All other updates are dropped. Therefore, a caller never
//!   receives an unknown URI, and pending updates take no additional memory.
//! - *Lost connections.* If a connection is lost after at least ten seconds, the service reconnects
//!   immediately. Otherwise it waits for half a second to a second, and doubles the delay with each
//!   attempt, up to one to two minutes. Requests are never sent twice. Many HTTP servers that have
//!   lost a session reject a message without naming the request. The service then pings the server.
//!   If the server does not answer the ping, the connection is treated as lost.
//! - *Log messages.* If all pending requests come from one client, the server's log messages are
//!   relayed to this client, from the level that the client has set. Otherwise, messages are only
//!   logged locally. Clients share the connection, so the server's level is the lowest level of all
//!   clients.
//! - *Tasks.* A server with protocol version 2026-07-28 may answer a call with a task only if a
//!   [`PollTasksLayer`](crate::poll_tasks::PollTasksLayer) around the service waits for it. The
//!   server receives the declaration of the extension only then.
//!
//! A [`RemoteService`] declares no client capability except elicitation to a server with protocol
//! version 2025-11-25 or older.
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
mod callers;
mod client;
mod exit_reason;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "http")]
mod http_error;
mod logs;
#[cfg(feature = "http")]
pub mod oauth;
mod ordered_transport;
mod paced_epoch;
mod pending_calls;
mod redaction;
mod sent_tokens;
mod service;
mod state;
#[cfg(feature = "stdio")]
pub mod stdio;
mod supervise;
mod tokens;

#[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
pub(crate) use self::service::Ending;
pub use self::service::{CONNECT_TIMEOUT, RemoteBuilder, RemoteService, ResponseFuture};
