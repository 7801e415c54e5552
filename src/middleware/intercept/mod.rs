//! Rules: a layer's look at a request on its way in and its reply on the way out.
//!
//! Most layers of an MCP stack look at a request, perhaps answer it themselves,
//! perhaps rewrite it, and look at the reply. [`Intercept`] is that and nothing
//! else; [`Intercepted`] is the one Tower service that runs it. A rule never
//! has the inner service in its hands and cannot wait, so it cannot break
//! Tower's contract, and it needs nothing of the inner service: not `Clone`,
//! not `Send`, no runtime. Passing through allocates nothing.
//!
//! A rule that must know the tools behind it is an [`InterceptInformed`], run
//! by [`Informed`], which holds a [catalog](crate::catalog) of them. What must wait
//! for something else is a hook around tool calls, made a layer by [`from_fn`].
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

/// Futures of the services in this module.
pub mod future {
    pub use super::{
        from_fn::ResponseFuture as FromFnFuture, informed::ResponseFuture as InformedFuture,
        intercepted::ResponseFuture as InterceptedFuture,
    };
}
