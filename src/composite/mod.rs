//! Tools made of other tools.
//!
//! A [`CompositeLayer`] wraps any `Service<Request, Response = Reply>` and adds composite tools to
//! it. Clients list and call them like any other tool. The service behind the layer sees only calls
//! of its own tools, each exactly as if a client had made it, so filters, limits and timeouts below
//! the layer apply to composites too.
//!
//! # Calling
//!
//! | [`Strategy`] | tools are called | the answer is |
//! |---|---|---|
//! | [`FanOut`] | all at once, or [one after another](FanOut::sequential), even if some fail | every branch, by [`Success`] |
//! | [`Race`] | all at once, the rest cancelled after the first success | that success, unchanged |
//! | [`Fallback`] | one after another, until one succeeds | that success, unchanged |
//! | [`Pipeline`] | step by step, each with the outputs of earlier steps | the last result, or an [`Output`] |
//! | [`Workflow`] | each step as soon as the steps that it needs have finished | the same |
//!
//! Branches that run at the same time are polled once in the task of the call. A branch that is
//! then pending becomes a task in a `JoinSet` of the call; a branch that runs alone stays. A panic
//! fails its own branch, and dropping the call aborts all branches. A target finds the data of its
//! call in the extensions of its [`Context`](crate::message::Context), and must not rely on
//! task-locals.
//!
//! A target that computes for a long time delays those after it. On a multi-threaded runtime it
//! does so at its first call only: if a first poll takes more than 50 µs, the branches after it
//! become tasks at once, and so do the next calls of the same target. On a current-thread runtime
//! such a target cannot be timed out before it returns, and no further branch is started after the
//! deadline.
//!
//! Timeouts default to 60 seconds for a target, 5 minutes for an attempt of a step and 30 minutes
//! for a run; the time to [answer a question](#asking-a-person) does not count. A run that ends
//! early returns its partial result. The arguments, including defaults, are checked against the
//! composite's input schema before anything is called.
//!
//! # The answer of a fan-out
//!
//! The result with all branches, also that of a race without a winner:
//!
//! - `content` has the content of each branch, in declared order. Each is preceded by a label, a
//!   text that names the branch, and its tool if the branch is not named after it:
//!   ``price (tool `get_price`):``. A branch without content has no label; the branches of a nested
//!   fan-out are named by their path: `shop/price:`. Each block has the branch ([`BRANCH`]) in its
//!   `_meta`, the tool ([`TOOL`]) if the branch is not named after it, and a label the mark
//!   [`LABEL`]. A branch that did not complete has a text with the reason. [`Labels::Meta`] omits
//!   the labels.
//! - `structuredContent` is the report, which the advertised `outputSchema`
//!   describes: `{ "branches": { id: { "status", "output"?, "error"? } } }`.
//!   `status` is `completed`, `failed`, `timed_out`, `skipped` or `cancelled`;
//!   `output` is the branch's own structured content, or its text; `error` is
//!   `{ kind, message, code?, data? }` with `kind` one of `tool`, `protocol`,
//!   `service`, `panic`, `timeout`, `limit`, `definition`, `declined` and `dismissed`.
//! - `_meta` has the trace ([`TRACE`]: tools, times, attempts, errors) of a run that failed, and of
//!   any other if the request asks for it or the composite has [`Trace::Always`].
//! - `isError` is `false` if the run has succeeded by its success rule.
//!
//! Without a [`report`](FanOut::report), the result has only content and `isError`.
//!
//! The same outcomes give the same bytes, except for the times in the trace.
//!
//! # The answer of a pipeline or workflow
//!
//! A run that succeeds returns its output block, or else the result of the last step, unchanged. A
//! run in which no step completed and some failed has failed. A failed run returns `isError`:
//!
//! - `content` has a text with the step that failed, its tool and the cause; then, for each
//!   step that has completed, a text with its output, labeled with [`BRANCH`] and [`TOOL`]
//!   as in fan-outs. A loop that failed or timed out reports the elements that have
//!   ended.
//! - `structuredContent` is
//!   `{ "steps": { id: { "status", "output"?, "truncated"?, "error"? } } }`. If the
//!   composite advertises an `outputSchema`, which this does not fit, the steps are in
//!   `_meta` under [`STEPS`].
//!
//! The outputs are at most 64 KiB together. An output that is too large is truncated to the first
//! 1 KiB of its text, and that of a loop to the `index`, `status` and `error` of each element; the
//! text mentions the truncation, and `truncated` is `true`. Images, audio and resources are named.
//! While a run is suspended for a question, the outputs of the steps before it take at most a
//! quarter of the size that the [store](CompositeLayer::state) allows a run. Answers of a person
//! are left out. With [`report(false)`](Workflow::report) the steps are named without their
//! outputs.
//!
//! A result that does not fit the advertised
//! [`output_schema`](CompositeTool::output_schema), declared or of the tool whose result is
//! passed on, is an error: it keeps its content, loses its structured content, and its last
//! text names the mismatch.
//!
//! # What a run may use
//!
//! [`Limits`] bound the resources of each call of a composite. Work that would exceed them fails;
//! everything else continues. A composite can have limits of its own, which are part of its
//! definition:
//!
//! | setting | bounds |
//! |---|---|
//! | [`max_calls`](CompositeTool::max_calls) | number of tool calls: each attempt, each element of a loop, and each further call of a tool that asked a question |
//! | [`max_result_bytes`](CompositeTool::max_result_bytes) | total size of the tool results; outputs built from them do not count |
//! | [`max_cost`](CompositeTool::max_cost) | total cost of the calls, as counted by a [budget](crate::budget) below |
//!
//! Reaching one ends the run. When it is used up, no further call begins. A call that would cost
//! more than is left is refused, and so is a result that is larger: that branch has failed, with an
//! error of the kind `limit`. Running calls finish, but a wait for a retry or for a person ends. A
//! step or element that waits for a person is `cancelled`, and a loop continues without it.
//! Branches and steps that have not begun are `skipped`, with an error of the kind `limit` that
//! names the setting. A run that needs exactly its limit has not ended early, and neither has a
//! race or fallback with a winner.
//!
//! The result is then the partial result, unless [`on_limit`](CompositeTool::on_limit) is set
//! otherwise: the branches of a fan-out, the result of the last step that completed, or the output,
//! if it can be built, with defaults if necessary. Its last text says that the run ended early, by
//! which setting and its value, and what was refused and skipped; `_meta` has the same under
//! [`LIMIT`]. It is an error (`isError`) if nothing has completed, if the output cannot be built,
//! if the partial result does not fit an [`output_schema`](CompositeTool::output_schema) of the
//! definition, if a required branch or step has failed for another reason, and with
//! [`OnLimit::Fail`].
//!
//! The usage of a nested run counts toward all runs around it. A limit of the nested run ends only
//! the nested run, which returns its partial result to the branch that called it; a limit of a run
//! around it ends both, and the text names that run. A run keeps its usage while it waits for a
//! person.
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, FanOut, LIMIT},
//!     testing::{self, Server},
//! };
//! use serde_json::json;
//! use tower::Layer;
//!
//! let targets = FanOut::new(["near", "far", "away"]).sequential();
//! let look = CompositeTool::new("look", "Looks", targets).max_calls(2);
//! let server = Server::new().says("near", "a ship").says("far", "a port").says("away", "a storm");
//! let service = CompositeLayer::new([look]).unwrap().layer(server);
//!
//! let result = testing::call(&service, "look", json!({})).await;
//!
//! assert_eq!(result.is_error, Some(false));
//! let last = &result.content.last().unwrap().as_text().unwrap().text;
//! assert_eq!(last, "the run ended early: `max_calls`, which is 2, was reached; skipped: `away`");
//! let expected = json!({ "setting": "max_calls", "limit": 2, "skipped": ["away"] });
//! assert_eq!(result.meta.unwrap()[LIMIT], expected);
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```
//!
//! # Listing
//!
//! Composites are appended to the first page, in the order of definition, and replace tools of the
//! same name. Properties that a definition does not set are derived from the targets: the input
//! schema is the union of theirs, and annotations combine the effects of all targets, where unknown
//! counts as yes. The output schema is that of the last step, if no other step can be the last,
//! including because of a limit. A composite is not listed if a required tool is missing, and a log
//! message names the tool; if an optional tool is missing, the composite is listed and lacks a
//! branch.
//!
//! # Names
//!
//! A target may be another composite, nested up to 8 deep; its run counts toward the [`Limits`] and
//! the timeout of the call it is part of. If a composite calls a tool of its own name, that is the
//! tool behind the layer. [`Target::behind`] always calls the tool behind the layer.
//!
//! # What targets see
//!
//! A target gets the context of the call without the parts that belong to the client alone: the
//! progress token, its connection, and all of its capabilities except those to be asked. So a
//! target cannot log to the client. If a target asks for input (an `InputRequired` result), the
//! composite asks the client on its behalf, and calls the target again with its own answers and
//! state. If the client does not support the request, or the target continues as a task, the branch
//! fails.
//!
//! # Asking the client
//!
//! [Steps](#asking-a-person) and targets may ask. A run continues as far as it can, and then sends
//! all open questions at once. A client of 2026-07-28 gets an `InputRequired` result, in which the
//! key of a step's question is the id of the step, and that of a target's question is `branch:key`.
//! It calls again with the answers and the `requestState`, which contains the run: see
//! [`store`](crate::store). An older client receives requests while its call continues, at most 32
//! at a time. No client receives more than 1000 questions in one call. Unanswered questions are
//! repeated, up to [`Limits::max_rounds`] times. The time to answer does not count toward the run,
//! except if a target asks in the middle of its call, as older ones do.
//!
//! A client declares the capability `elicitation` if it can ask a user, in the `_meta` of each
//! request or when it initializes. Without it, a run is rejected before the first call of a tool
//! that is not read-only, provided that a later question is certain: it has no condition, or one
//! that is known to be true; in a fan-out, if all targets must succeed. A question whose condition
//! is not known yet fails when the run reaches it. A run is rejected likewise if its state is
//! certain to be larger at a later question than the [store](CompositeLayer::state) accepts. A
//! caller in code declares the capability in `_meta`, or is not asked.
//!
//! # Progress
//!
//! A client that sends a progress token receives a progress notification when a step of a
//! pipeline or workflow, or a branch of a fan-out, begins and ends: `step 2/5 fetch_logs`. The
//! progress that a target reports, under the token in its own `_meta`, is part of that:
//! `step 2/5 fetch_logs: 40 of 100 lines`. So are the elements of loops and the steps of nested
//! composites: `step 2/5 deploy: step 1/3 build`.
//!
//! The client receives at most one notification in 20 milliseconds, with the latest progress,
//! and the first of them 20 milliseconds after its request: a composite that ends sooner sends
//! only its answer. While nothing changes, a notification names the steps that still run every
//! 15 seconds, or as often as [`CompositeLayer::heartbeat`] sets. No notification follows the
//! answer, and a run does not wait for a client that reads slowly.
//!
//! Each step counts for one. The protocol requires each value to be greater than the one
//! before. An event that completes nothing, such as the start of a step, increases the value by
//! a millionth of a step, and never so far that an unfinished step seems finished.
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, FanOut, Success},
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
//! let targets = FanOut::new(["near", "far"]).success(Success::Any);
//! let look = CompositeTool::new("look", "Looks everywhere", targets);
//! let service = CompositeLayer::new([look])?.layer(service_fn(server));
//!
//! let reply = service.oneshot(Request::call_tool("look")).await?;
//!
//! let result = reply.tool_result().unwrap();
//! assert_eq!(result.is_error, Some(false));
//! let texts: Vec<_> = result.content.iter().map(|block| &*block.as_text().unwrap().text).collect();
//! assert_eq!(texts, ["near:", "found", "branch `far` (tool `far`) failed: no ship"]);
//! # Ok(())
//! # }
//! ```

#![doc = include_str!("../guide/links.md")]
#![doc = include_str!("../guide/workflows.md")]

mod answer;
mod compile;
mod definition;
mod error;
mod fingerprint;
mod flowchart;
mod form;
mod form_error;
mod input;
mod layer;
mod limit_end;
mod listing;
mod output;
mod plan;
mod preview;
mod report;
mod resolve;
mod rounds;
mod run;
mod schema;
mod service;
mod step;
mod strategy;
mod target_call;

#[cfg(feature = "config")]
pub(crate) use self::error::DisplayPath;
pub use self::{
    answer::{LIMIT, STEPS, TRACE},
    definition::{CompositeTool, OnLimit, Trace},
    error::{DefinitionError, DefinitionErrorKind, DefinitionErrors, Segment},
    flowchart::UnknownComposite,
    form_error::FormError,
    layer::CompositeLayer,
    output::{JsonType, Output, OutputProperty},
    plan::Plan,
    preview::{
        CallPreview, ConditionPreview, ElicitationPreview, LoopPreview, Preview, StepPreview, Wave,
    },
    service::{Composite, ResponseFuture},
    step::{
        Action, Case, Elicitation, ForEach, OnError, Otherwise, Retry, Step, Switch, Then, ToolCall,
    },
    strategy::{
        Fallback, FanOut, Labels, Order, Pipeline, Race, Strategy, Success, Target, Workflow,
    },
};
pub use crate::{
    engine::{limits::Limits, plan::OnRefusal},
    message::branch::{BRANCH, LABEL, TOOL},
};
