//! Tools made of other tools.
//!
//! A [`CompositeLayer`] wraps any `Service<Request, Response = Reply>` and adds
//! composite tools to it. Clients list and call them like any other tool; the
//! service behind sees only calls of its own tools, each exactly as if a client
//! had made it, so filters, limits and timeouts below hold for composites too.
//!
//! # Calling
//!
//! | [`Strategy`] | tools are called | the answer is |
//! |---|---|---|
//! | `Parallel` | all at once | every branch, by [`Success`] |
//! | `Sequential` | one after another, whatever becomes of each | every branch, by [`Success`] |
//! | `Race` | all at once, the rest cancelled after the first success | that success, unchanged |
//! | `Fallback` | one after another, until one succeeds | that success, unchanged |
//! | `Pipeline` | step by step, each with what those before gave | the last result, or an [`Output`] |
//! | `Workflow` | each step as soon as what it needs has finished | the same |
//!
//! Branches that run at the same time are tasks of the call, in a `JoinSet`: a
//! panic in one is a failed branch of that one, and dropping the call aborts all.
//! One that runs alone, and on a runtime of one thread each until it first waits,
//! runs in the task of the call, which is cheaper and no different otherwise. So
//! a target finds what belongs to its call in the extensions of its
//! [`Context`](crate::message::Context), and must not count on task-locals. A
//! tool that blocks its thread cannot be timed out there, but no further one is
//! started.
//!
//! A target may take 60 seconds, an attempt of a step 5 minutes and a run 30
//! minutes, unless they say otherwise; a run that ends early gives what
//! it has. The arguments are checked against the composite's input schema, with
//! its defaults put in, before anything is called.
//!
//! # The answer of a fan-out
//!
//! Of all branches, or if none of a race has won:
//!
//! - `content` has the content of each branch, in declared order. Each block
//!   says in its `_meta` which branch ([`BRANCH`]) it is of, and which tool
//!   ([`TOOL`]) if the branch is not named after it. A branch that did not
//!   complete has a text that says why.
//! - `structuredContent` is the report, which the advertised `outputSchema`
//!   describes: `{ "branches": { id: { "status", "output"?, "error"? } } }`.
//!   `status` is `completed`, `failed`, `timed_out`, `skipped` or `cancelled`;
//!   `output` is the branch's own structured content, or its text; `error` is
//!   `{ kind, message, code?, data? }` with `kind` one of `tool`, `protocol`,
//!   `service`, `panic`, `timeout`, `limit` and `definition`.
//! - `_meta` has the trace ([`TRACE`]): tools, times, attempts, errors.
//! - `isError` says whether the run has succeeded, by its rule.
//!
//! Without a [`report`](CompositeTool::report), content and `isError` are all.
//!
//! The same outcomes give the same bytes, but for the times in the trace.
//!
//! # Listing
//!
//! Composites stand at the end of the first page, in the order they were given;
//! a tool of the same name disappears. What a definition leaves open is derived
//! from the targets: the input schema is the union of theirs, and annotations
//! say what any of them might do, where unknown counts as yes. A composite whose
//! tools are not there is not listed, and the log names them; one that can do
//! without is listed, and lacks a branch.
//!
//! # Names
//!
//! A target may be another composite, up to 8 deep; its run counts in the
//! [`Limits`] and the time of the call it is part of. A composite that calls a
//! tool of its own name means the tool behind it, and so does
//! [`Target::behind`] whatever composites there are.
//!
//! # What targets see
//!
//! A target gets the context of the call, but for what belongs to the client
//! alone: the progress token, its connection and its capabilities. So a target
//! cannot report progress, log to the client or ask it anything; one that tries
//! to ask, or to go on as a task, is a failed branch.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, Success},
//!     message::{Reply, Request},
//! };
//! use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ListToolsResult, Tool};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     Ok(match request.tool_call() {
//!         None => ListToolsResult::with_all_items(vec![
//!             Tool::new("near", "Looks here", JsonObject::new()),
//!             Tool::new("far", "Looks there", JsonObject::new()),
//!         ])
//!         .into(),
//!         Some(call) if call.name == "near" => {
//!             CallToolResult::success(vec![ContentBlock::text("found")]).into()
//!         }
//!         Some(_) => CallToolResult::error(vec![ContentBlock::text("no ship")]).into(),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let look = CompositeTool::fan_out("look", "Looks everywhere", ["near", "far"]).success(Success::Any);
//! let service = CompositeLayer::new([look])?.layer(service_fn(server));
//!
//! let reply = service.oneshot(Request::call_tool("look")).await?;
//!
//! let result = reply.tool_result().unwrap();
//! assert_eq!(result.is_error, Some(false));
//! let texts: Vec<_> = result.content.iter().map(|block| &*block.as_text().unwrap().text).collect();
//! assert_eq!(texts, ["found", "branch `far` (tool `far`) failed: no ship"]);
//! # Ok(())
//! # }
//! ```

#![doc = include_str!("../docs/steps.md")]

mod answer;
mod compile;
mod definition;
mod error;
mod input;
mod layer;
mod listing;
mod output;
mod plan;
mod preview;
mod resolve;
mod run;
mod schema;
mod service;
mod step;

#[cfg(feature = "config")]
pub(crate) use self::error::DisplayPath;
pub use self::{
    answer::{BRANCH, TOOL, TRACE},
    definition::{CompositeTool, Order, Strategy, Success, Target},
    error::{DefinitionError, DefinitionErrorKind, DefinitionErrors, Segment},
    layer::CompositeLayer,
    output::{Output, OutputProperty, OutputType},
    plan::Plan,
    preview::{CallPreview, ConditionPreview, LoopPreview, Preview, StepPreview, Wave},
    service::{Composite, ResponseFuture},
    step::{Case, OnError, Otherwise, Retry, Step, StepKind, Then, ToolCall},
};
pub use crate::engine::limits::Limits;
