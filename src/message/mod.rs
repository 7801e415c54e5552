//! The messages that pass through a stack of layers. A [`Request`] goes from the client to the
//! server, and a [`Reply`] goes back.
//!
//! Every layer and every server in this crate is a `tower::Service<Request, Response = Reply>`. A
//! request consists of an MCP message and its [`Context`]. A reply is a result, a JSON-RPC error or
//! a [`Refusal`], which is the rejection of the request by a layer. The service returns its error
//! type only if it failed to answer, so the layers of Tower can be used without converting errors.
//!
//! Your code can also create a [`Request`] without a client, and call any layer or server with it,
//! as with other Tower services.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::message::{Reply, Request};
//! use rmcp::model::{CallToolResult, ContentBlock};
//! use tower::{ServiceExt, service_fn};
//!
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     Ok(match request.tool_call() {
//!         Some(call) if call.name == "greet" => {
//!             CallToolResult::success(vec![ContentBlock::text("hello")]).into()
//!         }
//!         Some(call) => Reply::unknown_tool(call.name.clone()),
//!         None => Reply::method_not_found(request.method().to_owned()),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let reply = service_fn(server).oneshot(Request::call_tool("greet")).await?;
//! assert!(reply.error().is_none());
//!
//! let reply = service_fn(server).oneshot(Request::call_tool("shout")).await?;
//! assert_eq!(reply.error().unwrap().message, "unknown tool `shout`");
//! # Ok(())
//! # }
//! ```

mod aborted_calls;
mod account;
mod backend_error;
pub(crate) mod branch;
mod branch_name;
pub(crate) mod checkpoint;
pub(crate) mod client;
pub(crate) mod content_size;
mod context;
mod context_trace;
mod delegation;
mod items;
pub(crate) mod journal;
mod ledger;
mod logs;
mod measure;
mod nested_request;
mod progress;
mod propagate;
mod refusal;
mod reply;
mod request;
#[cfg(feature = "remote")]
mod result_type;
mod shared;
mod subject;
mod task_caller;
mod task_name;
pub(crate) mod tasks;
mod tool_result;
mod tool_service;
mod trace;
mod uris;

#[cfg(feature = "cache")]
pub(crate) use self::client::Questions;
#[cfg(any(feature = "remote", feature = "testing"))]
pub(crate) use self::context::CLIENT_CAPABILITIES;
pub(crate) use self::{
    account::{Account, Charged, Hold},
    backend_error::{Cause, is_unsent},
    branch_name::BranchName,
    context::{BranchParts, ContextKey},
    ledger::Tally,
    logs::LogLevel,
    measure::{Bounds, MAX_JSON_DEPTH, is_deeper},
    progress::{Labels, Parts, Pump},
    propagate::Tracing,
    request::{is_of_protocol, known_method},
    task_caller::identified_by,
    tool_result::ToolResult,
};
pub use self::{
    backend_error::{BackendError, BackendErrorKind},
    context::Context,
    items::ItemMut,
    logs::Logs,
    progress::Progress,
    propagate::Propagate,
    refusal::{Refusal, Violation},
    reply::{Reply, ToolAnswer},
    request::Request,
    subject::{ItemKind, Subject},
    tool_service::ToolService,
    trace::TraceContext,
};
#[cfg(feature = "remote")]
pub(crate) use self::{context::members, result_type::expected};
