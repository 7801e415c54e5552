//! Tools that are implemented by closures and Tower services.
//!
//! A [`Function`] is a tool implemented in this process, by an async closure ([`tool_fn`]) or a
//! Tower service ([`tool_service`]). Functions can be served in two ways:
//!
//! - A [`ToolSet`] is a server whose tools are functions. Use it at the bottom of a stack, or
//!   behind a [`Router`](crate::adapter::Router).
//! - A [`FunctionsLayer`] adds functions to the tools of the service that it wraps.
//!
//! Layers above a [`ToolSet`] or [`FunctionsLayer`] treat functions like any other tools, and
//! composites can call them. This allows a composite to call an agent, a model or any other code
//! without a separate server.
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
//! In a [`tool_fn`], the arguments of a call are deserialized into the first parameter of the
//! closure. The parameter's type is any type that serde can deserialize, or a
//! [`JsonObject`](rmcp::model::JsonObject) with all arguments. If the deserialization fails, the
//! call is rejected without calling the closure. The tool's input schema is listed, but it is
//! neither derived from the parameter's type nor checked. To check arguments against the schema,
//! add a [`ValidateLayer`](crate::validate::ValidateLayer) above the functions, as for any tool.
//!
//! # Results
//!
//! The return value of a function is converted to a tool result. A string becomes text. A JSON
//! object becomes structured content, which is also repeated as text. A
//! [`CallToolResult`](rmcp::model::CallToolResult) is returned unchanged. An error becomes a failed
//! result (`isError`) that contains the error message, which the caller sees. [`IntoToolResult`]
//! describes all conversions. If a function panics, the panic is caught by the composite that calls
//! the function, or by the [server](crate::adapter::ServeService) of the stack.
//!
//! # Functions that call tools
//!
//! A function, such as an agent, may call tools of the stack that it is part of. Make these
//! requests [within](crate::message::Request::within) the context that the function receives. The
//! requests then belong to the same caller, are charged to the same run, and are canceled together
//! with the function call.
//!
//! To end infinite recursion, a function call that is nested in more than eight other calls is
//! rejected. If a function makes requests in its own task, these requests are counted even if they
//! are not made within the context. The branches of a composite do not reset the count.
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
//! assert_eq!(text, "tool `agent` seems to call itself: there are more than 8 nested calls");
//! # Ok(())
//! # }
//! ```

mod function;
mod layer;
mod result;
mod set;

pub use self::{
    function::{Function, FunctionCall, tool_fn, tool_service},
    layer::{Functions, FunctionsLayer},
    result::IntoToolResult,
    set::{DuplicateTools, ToolSet},
};

/// The response futures of the services in this module.
pub mod future {
    pub use super::{
        layer::ResponseFuture as FunctionsFuture, set::ResponseFuture as ToolSetFuture,
    };
}
