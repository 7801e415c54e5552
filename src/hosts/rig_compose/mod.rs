//! Tools of the [`rig-compose`](::rig_compose) crate, as targets, and ours as its tools.
//!
//! - [`function`] makes a [`Function`](crate::functions::Function) of one of its tools, and
//!   [`functions`] of all in a registry: composites call them like any other tool, and
//!   clients may.
//! - [`tools`] makes tools of it out of those of any service here, a whole stack
//!   included: its agents call composites, through all layers.
//! - [`GuardBudgets`] keeps a [budget](crate::budget) in one of its guards.
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
//! Schemas are those that the tool tells: an `args_schema` that is none of an object is told
//! to clients as any object, a `result_schema` that is none of an object not at all. What
//! the tool gives is a result as of any [function](crate::functions::IntoToolResult).
//! Its errors are results that are errors, with their text; that a tool is not found, and
//! that it is not allowed, is one and the same to a client.
//!
//! Their tools are given arguments and nothing else, so they do not know in which request
//! they are called. While one runs, the [tools] of ours that it calls are called
//! within that request: for its caller, and never deeper than
//! [anything](crate::message::Request::within). That is known to the task in which it
//! runs; a tool that calls others in a task of its own says it with [`within`].
//!
//! # Tools of ours
//!
//! The result is the structured content, if there is any: texts beside it only say it
//! again, and are left out, as are, with a warning, images and the like. If it was
//! [shortened](crate::bound::SHORTENED), or a [limit](crate::composite::LIMIT) has ended the
//! run, the texts that are no JSON and of no branch say so: they stand under one more
//! member, [`NOTES`], which the schema of the tool does not know. Where there is no place
//! for that, since the content is no object or has such a member, a warning is logged.
//!
//! Without structured content, the result is the text of all blocks, one to a paragraph, and
//! never read as JSON: `42` stays a text. Images, sounds and other data are described in a
//! line. A result that is an error is a `ToolFailed` with its text.
//!
//! A budget that is used up, and calls that have no end, are `ToolDispatchTerminated`, as
//! where one of their own hooks stops a call. Their `DefaultRetryClassifier` takes every
//! `ToolFailed` for something that may be tried again: look at what the tool does first.
//!
//! A tool that has to ask a person fails, unless it is called within a request whose client
//! can be asked meanwhile. One that goes on as a task fails, and the task is cancelled.

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
    /// The request that is answered by a tool of theirs at the moment.
    static REQUEST: Context;
}

/// Makes all calls of our [tools] that the work makes calls within a request, until it
/// spawns a task.
///
/// It is for functions that run an agent of theirs, and for their tools that do so in a
/// task of its own.
pub async fn within<F: Future>(context: Context, work: F) -> F::Output {
    REQUEST.scope(context, work).await
}
