//! Creates tracing spans for client requests, for runs of composites and for their branches, such
//! as steps, and propagates trace contexts to backends.
//!
#![doc = include_str!("../../guide/links.md")]
#![doc = include_str!("../../guide/observability.md")]
//!
//! # Examples
//!
//! In this example, each call to a backend gets its own span in the trace of the caller:
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower::BoxError> {
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool},
//!     stack::StackLayer,
//!     testing::{self, Server},
//! };
//! use serde_json::json;
//! use tower::{Layer, ServiceExt};
//!
//! let backends = Server::new().says("near", "found").says("far", "found");
//! let look = CompositeTool::fan_out("look", "Looks everywhere", ["near", "far"]);
//! let stack = StackLayer::new().composite(CompositeLayer::new([look])?).layer(backends.clone());
//!
//! let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
//! let mut request = testing::request("look", json!({}));
//! request.context_mut().meta_mut().set_traceparent(parent);
//! let caller = request.context().trace().unwrap();
//! stack.oneshot(request).await?;
//!
//! let calls = backends.requests().into_iter().filter(|request| request.tool_call().is_some());
//! let traces: Vec<_> = calls.map(|call| call.context().trace().unwrap()).collect();
//! assert_eq!(traces.len(), 2);
//! assert!(traces.iter().all(|trace| trace.trace_id() == caller.trace_id()));
//! assert!(traces[0].span_id() != traces[1].span_id() && traces[0].span_id() != caller.span_id());
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```

mod layer;
mod names;
#[cfg(feature = "opentelemetry")]
mod opentelemetry;
mod service;
mod span;

#[cfg(feature = "opentelemetry")]
pub use self::opentelemetry::OpenTelemetry;
pub use self::{
    layer::TraceLayer,
    service::{ResponseFuture, Trace},
};
pub use crate::message::{Propagate, TraceContext};
