//! Tools of the [`rig-compose`](::rig_compose) crate as targets, and tools of this crate for its
//! agents.
//!
//! - [`function`] creates a [`Function`](crate::functions::Function) from a `rig-compose` tool, and
//!   [`functions`] from all tools in a registry: composites and clients can call them like any
//!   other tool.
//! - [`tools`] creates `rig-compose` tools from the tools of any service, including a whole stack:
//!   agents call composites through all layers.
//! - [`GuardBudgets`] keeps a [budget](crate::budget) in a `rig-compose` guard.
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
//! let theirs = ToolRegistry::new();
//! for (name, answer) in [("price", "5 €"), ("stock", "12")] {
//!     let schema = ToolSchema {
//!         name: name.into(),
//!         description: "Says it".into(),
//!         args_schema: json!({ "type": "object" }),
//!         result_schema: json!({}),
//!     };
//!     theirs.register(std::sync::Arc::new(LocalTool::new(schema, move |_| async move {
//!         Ok(json!(answer))
//!     })));
//! }
//!
//! let offer = CompositeTool::fan_out("offer", "Price and stock at once", ["price", "stock"]);
//! let stack = CompositeLayer::new([offer])?.layer(ToolSet::new(functions(&theirs))?);
//!
//! let ours = ToolRegistry::new();
//! for tool in tools(stack).await? {
//!     ours.register(tool);
//! }
//! let offer = ours.invoke("offer", json!({})).await?;
//! assert_eq!(offer["branches"]["price"]["output"], "5 €");
//! # Ok(())
//! # }
//! ```
//!
//! # Tools of theirs
//!
//! Schemas are those of the tool: if `args_schema` is not of type `object`, clients see a schema
//! for any object; such a `result_schema` is omitted. The tool's value becomes a result like that
//! of any [function](crate::functions::IntoToolResult). Its errors become results with `isError`
//! and their text; clients cannot distinguish unknown tools from forbidden ones.
//!
//! `rig-compose` tools only receive arguments, not the request that they are called in. While such
//! a tool runs, the [tools] of this crate that it calls are called
//! [within](crate::message::Request::within) that request: for its caller, and with its depth
//! limit. The request is stored in the task; a tool that calls others in a separate task must pass
//! it with [`within`].
//!
//! # Tools of ours
//!
//! The result is the structured content, if there is any. Texts next to it repeat it and are
//! omitted; images and other content are omitted with a warning. If the result was
//! [truncated](crate::truncate::SHORTENED), or a [limit](crate::composite::LIMIT) ended the run,
//! the notices about this, which are texts that are neither JSON nor of a branch, are returned in
//! an additional member, [`NOTES`], which is not part of the tool's schema. If the content is not
//! an object, or already has such a member, a warning is logged instead.
//!
//! Without structured content, the result is the text of all blocks, separated by blank lines, and
//! never parsed as JSON: `42` stays a string. Images, audio and other data are described in a line.
//! A result with `isError` is a `ToolFailed` with its text.
//!
//! An exhausted budget and infinite recursion are `ToolDispatchTerminated`, as if a `rig-compose`
//! hook had stopped the call. `DefaultRetryClassifier` treats every `ToolFailed` as retryable:
//! check first whether the tool can be retried.
//!
//! A tool that requests user input fails, unless it is called within a request whose client accepts
//! such requests during the call. A tool that continues as a task fails, and the task is canceled.

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
    /// The request that a `rig-compose` tool is processing in this task.
    static REQUEST: Context;
}

/// Runs `work`, and makes all its calls of [tools] of this crate within a request, except those in
/// spawned tasks.
///
/// For functions that run a `rig-compose` agent, and for `rig-compose` tools that do so in a
/// separate task.
pub async fn within<F: Future>(context: Context, work: F) -> F::Output {
    REQUEST.scope(context, work).await
}
