//! Makes tools of the [`rig-compose`](::rig_compose) crate available to composites, and tools of
//! this crate available to `rig-compose` agents.
//!
//! - [`function`] creates a [`Function`](crate::functions::Function) from a `rig-compose` tool, and
//!   [`functions`] creates functions from all tools in a registry. Composites and clients can call
//!   these functions like any other tool.
//! - [`tools`] creates `rig-compose` tools from the tools of any service, such as a whole stack.
//!   This lets agents call composites through all layers.
//! - [`GuardBudgets`] stores a [budget](crate::budget) in a `rig-compose` guard.
//!
//! # Examples
//!
//! ```
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool},
//!     functions::ToolSet,
//!     rig_compose::{functions, tools},
//! };
//! use rig_compose::{LocalTool, ToolRegistry, ToolSchema};
//! use serde_json::json;
//! use tower::Layer;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), tower::BoxError> {
//! let rig_tools = ToolRegistry::new();
//! for (name, answer) in [("price", "5 €"), ("stock", "12")] {
//!     let schema = ToolSchema {
//!         name: name.into(),
//!         description: "Says it".into(),
//!         args_schema: json!({ "type": "object" }),
//!         result_schema: json!({}),
//!     };
//!     rig_tools.register(std::sync::Arc::new(LocalTool::new(schema, move |_| async move {
//!         Ok(json!(answer))
//!     })));
//! }
//!
//! let offer = CompositeTool::fan_out("offer", "Price and stock at once", ["price", "stock"]);
//! let stack = CompositeLayer::new([offer])?.layer(ToolSet::new(functions(&rig_tools))?);
//!
//! let registry = ToolRegistry::new();
//! for tool in tools(stack).await? {
//!     registry.register(tool);
//! }
//! let offer = registry.invoke("offer", json!({})).await?;
//! assert_eq!(offer["branches"]["price"]["output"], "5 €");
//! # Ok(())
//! # }
//! ```
//!
//! # Tools from rig-compose
//!
//! A [`function`] has the schemas of the `rig-compose` tool from which it was created. If
//! `args_schema` is not of type `object`, clients see a schema that accepts any object. If
//! `result_schema` is not of type `object`, it is omitted. The tool's return value is converted
//! like the return value of any [function](crate::functions::IntoToolResult). An error becomes a
//! result with `isError` and the error message. A forbidden tool is rejected like an unknown tool.
//!
//! A `rig-compose` tool receives only its arguments, and not the request in which it is called.
//! Therefore, the context of the request is stored in the current task while the tool runs. If the
//! tool calls [tools] of this crate in the same task, these calls are made
//! [within](crate::message::Request::within) the request: for the same caller, and with the same
//! depth limit. A tool that makes such calls in a separate task must pass the context on with
//! [`within`].
//!
//! # Tools for rig-compose
//!
//! When a `rig-compose` agent calls a tool of this crate, the result is converted. A result with
//! structured content becomes this content. The texts of the result are omitted, because they
//! repeat the structured content. Images and other content are omitted with a warning in the log.
//!
//! The result of a tool of this crate may be incomplete, because it was
//! [truncated](crate::truncate::SHORTENED) or because a [limit](crate::composite::LIMIT) ended the
//! run. The result's notices about this are texts that are neither JSON nor the content of a
//! branch. They are added to the structured content as the member [`NOTES`], which is not part of
//! the tool's schema. If the structured content is not an object, or already has this member, a
//! warning is logged instead.
//!
//! A result without structured content is converted to a string for `rig-compose`: the texts of all
//! blocks, separated by blank lines. The string is never parsed as JSON: `42` stays a string.
//! Images, audio and other data are each described in a line. A result with `isError` becomes a
//! `ToolFailed` error with the text of the result.
//!
//! In calls from `rig-compose`, an exhausted budget and infinite recursion become
//! `ToolDispatchTerminated` errors, as if a `rig-compose` hook had stopped the call.
//! `DefaultRetryClassifier` considers every `ToolFailed` retryable, so check first whether the tool
//! can be retried safely.
//!
//! A call from `rig-compose` fails if the tool requests user input. The only exception is a call
//! within a request whose client answers such questions during the call. A call also fails if the
//! tool continues as a task, which is then canceled.

mod budget;
mod function;
mod tool;

use crate::message::Context;

pub use self::{
    budget::GuardBudgets,
    function::{function, functions},
    tool::{NOTES, tools, tools_as},
};

tokio::task_local! {
    /// The context of the request for which the current task runs a `rig-compose` tool.
    static REQUEST: Context;
}

/// Runs `work` as part of the request that has the context `context`. If `work` calls [tools] of
/// this crate, the calls are made within the request, for example for the same caller. This does
/// not apply to calls in spawned tasks.
///
/// Use `within` in a [`Function`](crate::functions::Function) that runs a `rig-compose` agent. Also
/// use it in a `rig-compose` tool that runs an agent in a separate task.
pub async fn within<F: Future>(context: Context, work: F) -> F::Output {
    REQUEST.scope(context, work).await
}
