//! Closures and services as tools.
//!
//! A [`Function`] is a tool that is code of this process: an async closure
//! ([`tool_fn`]) or a Tower service ([`tool_service`]). A [`ToolSet`] is a server of
//! them, to stand at the bottom of a stack or behind a
//! [`Router`](crate::adapter::Router); a [`FunctionsLayer`] puts them beside the tools of
//! the service it wraps. Either way they are tools like any other: layers above see no
//! difference, and composites call them. So an agent, a model that is asked, or a function
//! with no server of its own can be a target.
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
//! They are read into what the closure takes: any type that serde can read, or a
//! [`JsonObject`](rmcp::model::JsonObject) for all there are. What cannot be read is
//! refused, and the closure not called. The input schema of the tool is what clients are
//! told, and is not derived from the type, nor checked here: that is what a
//! [`ValidateLayer`](crate::validate::ValidateLayer) above does, as for any tool.
//!
//! # Results
//!
//! A text is a text; an object is the structured content, with a text that mirrors it; a
//! [`CallToolResult`](rmcp::model::CallToolResult) is what it is. An error is a
//! result, too (`isError`), with its text: write it for whoever called. See
//! [`IntoToolResult`]. A panic is not caught here, but by a composite that called the
//! function, and by whoever [serves](crate::adapter::ServeService) the stack.
//!
//! # Functions that call tools
//!
//! A function may call the stack that it is a part of, as an agent does. It makes its
//! requests [within](crate::message::Request::within) the one that it answers, whose
//! context it is given. Then they are made for the same caller, charged to the same run,
//! and given up with it. A function that leads back to itself for ever is refused after
//! eight calls within each other, also where requests are not made so, as long as it calls
//! from its own task; a composite's branches are no way around it.
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
