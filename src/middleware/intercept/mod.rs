//! Rules, which inspect and rewrite requests and their replies.
//!
//! Most layers of an MCP stack inspect each request, then forward, rewrite or answer it, and
//! finally inspect the reply. You write such a layer as a rule, which implements the trait
//! [`Intercept`]. [`Intercepted`] is the Tower service that applies the rule.
//!
//! A rule cannot violate the contract of Tower services, because it cannot call the inner service
//! and cannot wait. It needs no runtime, and does not require the inner service to be `Clone` or
//! `Send`. Forwarding a request allocates no memory.
//!
//! If a rule depends on the tools of the service behind it, for example on their annotations,
//! implement [`InterceptInformed`] instead. [`Informed`] applies such a rule, and caches the tools
//! in a [catalog](crate::catalog). If a rule must wait for something else, use [`from_fn`], which
//! creates a layer that runs an async hook around tool calls.
//!
//! # Examples
//!
//! ```
//! use std::{convert::Infallible, ops::ControlFlow};
//!
//! use mcp_composite::{
//!     intercept::{Intercept, Intercepted},
//!     message::{Reply, Request},
//! };
//! use rmcp::model::CallToolResult;
//! use tower::{ServiceBuilder, ServiceExt, layer::layer_fn};
//!
//! /// Lets nobody call tools whose names begin with `admin_`.
//! #[derive(Clone)]
//! struct NoAdmin;
//!
//! impl Intercept for NoAdmin {
//!     type Memo = ();
//!
//!     fn on_request(&self, request: &mut Request) -> ControlFlow<Reply> {
//!         match request.tool_call() {
//!             Some(call) if call.name.starts_with("admin_") => {
//!                 ControlFlow::Break(Reply::unknown_tool(call.name.clone()))
//!             }
//!             _ => ControlFlow::Continue(()),
//!         }
//!     }
//!
//!     fn on_reply(&self, (): (), reply: &mut Reply) {
//!         if let Some(page) = reply.tools_mut() {
//!             page.tools.retain(|tool| !tool.name.starts_with("admin_"));
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let service = ServiceBuilder::new()
//!     .layer(layer_fn(|inner| Intercepted::new(NoAdmin, inner)))
//!     .service_fn(async |_: Request| Ok::<Reply, Infallible>(CallToolResult::success(vec![]).into()));
//!
//! let reply = service.clone().oneshot(Request::call_tool("search")).await?;
//! assert!(reply.error().is_none());
//! let reply = service.oneshot(Request::call_tool("admin_reset")).await?;
//! assert_eq!(reply.error().unwrap().message, "unknown tool `admin_reset`");
//! # Ok(())
//! # }
//! ```

mod from_fn;
mod informed;
mod intercepted;
#[cfg(test)]
mod tests;

pub(crate) use self::informed::load;
pub use self::{
    from_fn::{FromFn, FromFnLayer, Next, from_fn},
    informed::{Informed, InterceptInformed},
    intercepted::{Intercept, Intercepted},
};

/// The response futures of the services in this module.
pub mod future {
    pub use super::{
        from_fn::ResponseFuture as FromFnFuture, informed::ResponseFuture as InformedFuture,
        intercepted::ResponseFuture as InterceptedFuture,
    };
}
