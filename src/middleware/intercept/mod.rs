//! Rules that inspect and rewrite requests and their replies.
//!
//! Most layers of an MCP stack inspect a request, answer or rewrite it, and inspect the reply.
//! [`Intercept`] is the trait of such rules, and [`Intercepted`] is the Tower service that
//! applies one. A rule has no access to the inner service and cannot wait, so it cannot violate
//! Tower's contract, and it requires nothing of the inner service: neither `Clone` nor `Send`
//! nor a runtime. Forwarding allocates nothing.
//!
//! A rule that depends on the tools behind it is an [`InterceptInformed`], applied by
//! [`Informed`], which holds a [catalog](crate::catalog) of them. For logic that must wait for
//! something else, [`from_fn`] makes a layer of an async hook around tool calls.
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
