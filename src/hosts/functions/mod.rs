//! Closures and services as tools.
//!
//! A [`Function`] is a tool implemented in this process: an async closure ([`tool_fn`]) or a Tower
//! service ([`tool_service`]). A [`ToolSet`] is a server of functions, for the bottom of a stack or
//! behind a [`Router`](crate::adapter::Router); a [`FunctionsLayer`] adds them to the tools of the
//! service it wraps. Layers above treat them like any other tool, and composites can call them. So
//! an agent, a call of a model or a function without a server can be a target.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::{functions::{ToolSet, tool_fn}, message::Request};
//! use rmcp::model::Tool;
//! use serde::Deserialize;
//! use serde_json::json;
//! use tower::{BoxError, ServiceExt};
//!
//! #[derive(Deserialize)]
//! struct Price { item: String, pieces: u32 }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let schema = json!({
//!     "type": "object",
//!     "properties": { "item": { "type": "string" }, "pieces": { "type": "integer" } },
//!     "required": ["item", "pieces"],
//! });
//! let tool = Tool::new("price", "What some pieces cost", schema.as_object().unwrap().clone());
//! let price = tool_fn(tool, async |Price { item, pieces }, _| match &*item {
//!     "tea" => Ok(json!({ "cents": pieces * 250 })),
//!     _ => Err(format!("there is no {item}")),
//! });
//! let server = ToolSet::new([price])?;
//!
//! let mut call = Request::call_tool("price");
//! let arguments = json!({ "item": "tea", "pieces": 2 });
//! call.tool_call_mut().unwrap().arguments = arguments.as_object().cloned();
//! let reply = server.oneshot(call).await?;
//! let result = reply.tool_result().unwrap();
//! assert_eq!(result.structured_content, Some(json!({ "cents": 500 })));
//! # Ok(())
//! # }
//! ```
//!
//! # Arguments
//!
//! Arguments are deserialized into the parameter type of the closure: any type that serde can
//! deserialize, or a [`JsonObject`](rmcp::model::JsonObject) for all arguments. If this fails, the
//! call is rejected without calling the closure. The input schema of the tool is only listed: it is
//! neither derived from the type nor checked here. As for any tool, a
//! [`ValidateLayer`](crate::validate::ValidateLayer) above checks it.
//!
//! # Results
//!
//! A string becomes text; an object becomes structured content with a text that mirrors it; a
//! [`CallToolResult`](rmcp::model::CallToolResult) is returned unchanged. An error becomes a result
//! (`isError`) with its text, which the caller sees. See [`IntoToolResult`]. Panics are not caught
//! here, but by a composite that calls the function, and by the
//! [server](crate::adapter::ServeService) of the stack.
//!
//! # Functions that call tools
//!
//! A function may call the stack that it is part of, like an agent. It makes its requests
//! [within](crate::message::Request::within) the context that it receives. Then they belong to the
//! same caller, are charged to the same run, and are canceled with it. Infinite recursion is
//! rejected after eight nested calls, even for requests that are not made within the context, if
//! the function calls from its own task; the branches of a composite do not reset this limit.
//!
//! ```
//! use std::sync::{Arc, OnceLock};
//!
//! use mcp_composite::{functions::{ToolSet, tool_fn}, message::Request};
//! use rmcp::model::{JsonObject, Tool};
//! use tower::{BoxError, ServiceExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), BoxError> {
//! let stack = Arc::new(OnceLock::<ToolSet>::new());
//! let to_call = stack.clone();
//! let agent = tool_fn(
//!     Tool::new("agent", "Asks itself", Arc::default()),
//!     move |_: JsonObject, context| {
//!         let stack = to_call.get().expect("it is built").clone();
//!         async move {
//!             let reply = stack.oneshot(Request::call_tool("agent").within(&context)).await?;
//!             match reply.error() {
//!                 Some(error) => Err(BoxError::from(error.message.to_string())),
//!                 None => Ok(reply.tool_result().cloned().unwrap_or_default()),
//!             }
//!         }
//!     },
//! );
//! let agent = stack.get_or_init(|| ToolSet::new([agent]).expect("one tool")).clone();
//!
//! let reply = agent.oneshot(Request::call_tool("agent")).await?;
//! let text = &reply.tool_result().unwrap().content[0].as_text().unwrap().text;
//! assert_eq!(text, "tool `agent` seems to call itself: there are more than 8 calls within each other");
//! # Ok(())
//! # }
//! ```

mod function;
mod layer;
mod result;
mod set;

pub use self::{
    function::{Call, Function, tool_fn, tool_service},
    layer::{Functions, FunctionsLayer},
    result::IntoToolResult,
    set::{DuplicateTools, ToolSet},
};

/// Futures of the services in this module.
pub mod future {
    pub use super::{
        layer::ResponseFuture as FunctionsFuture, set::ResponseFuture as ToolSetFuture,
    };
}
