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
//! Branches that run at the same time are polled once in the task of the call. A branch
//! that waits then becomes a task in a `JoinSet` of the call; one that runs alone stays. A
//! panic fails its own branch, and dropping the call aborts all branches. A target finds the
//! data of its call in the extensions of its [`Context`](crate::message::Context), and must
//! not count on task-locals.
//!
//! A target that computes for a long time delays those after it. On a runtime of several
//! threads it does so at its first call only: if a first poll takes more than 50 µs, the
//! branches after it become tasks at once, and so do the next calls of the same target. On
//! one thread it cannot be timed out before it returns, and no further branch is started
//! after the deadline.
//!
//! A target may take 60 seconds, an attempt of a step 5 minutes and a run 30
//! minutes, unless they say otherwise; how long a [person](#asking-a-person) takes
//! does not count. A run that ends early gives what it has. The arguments are checked
//! against the composite's input schema, with its defaults put in, before anything
//! is called.
//!
//! # The answer of a fan-out
//!
//! Of all branches, or if none of a race has won:
//!
//! - `content` has the content of each branch, in declared order. Before it stands a text
//!   that names the branch, and its tool if the branch is not named after it:
//!   ``price (tool `get_price`):``. A branch without content has no such label; the
//!   branches of a fan-out within are named by their path: `shop/price:`. Each block has
//!   the branch ([`BRANCH`]) in its `_meta`, the tool ([`TOOL`]) if the branch is not named
//!   after it, and a label the mark [`LABEL`]. A branch that did not complete has a text
//!   that says why. [`Labels::Meta`] leaves out the labels.
//! - `structuredContent` is the report, which the advertised `outputSchema`
//!   describes: `{ "branches": { id: { "status", "output"?, "error"? } } }`.
//!   `status` is `completed`, `failed`, `timed_out`, `skipped` or `cancelled`;
//!   `output` is the branch's own structured content, or its text; `error` is
//!   `{ kind, message, code?, data? }` with `kind` one of `tool`, `protocol`,
//!   `service`, `panic`, `timeout`, `limit`, `definition`, `declined` and `dismissed`.
//! - `_meta` has the trace ([`TRACE`]: tools, times, attempts, errors) of a run that failed,
//!   and of any other if the request asks for it or the composite has [`Trace::Always`].
//! - `isError` says whether the run has succeeded, by its rule.
//!
//! Without a [`report`](CompositeTool::report), content and `isError` are all.
//!
//! The same outcomes give the same bytes, but for the times in the trace.
//!
//! # The answer of a pipeline or workflow
//!
//! A run that succeeds answers with its output block, or else with the result of the last
//! step, unchanged. A run in which no step completed and some failed has failed. A run that
//! fails answers with `isError`:
//!
//! - `content` has a text with the step that failed, its tool and the cause; then, for each
//!   step that has completed, a text with its output, labelled with [`BRANCH`] and [`TOOL`]
//!   as in fan-outs. A loop that failed or was too late reports the elements that have
//!   ended.
//! - `structuredContent` is
//!   `{ "steps": { id: { "status", "output"?, "truncated"?, "error"? } } }`. If the
//!   composite advertises an `outputSchema`, which this does not fit, the steps are in
//!   `_meta` under [`STEPS`].
//!
//! The outputs are at most 64 KiB together. Of one that is too large the first 1 KiB of its
//! text is reported, and of a loop the `index`, `status` and `error` of each element; the
//! text says so, and `truncated` is `true`. Images, audio and resources are named. While a
//! run is suspended for a question, the outputs of the steps before it take at most a
//! quarter of the size that the [store](CompositeLayer::state) allows a run. Answers of a person
//! are left out. With [`report(false)`](CompositeTool::report) the steps are named without
//! their outputs.
//!
//! A result that does not fit the advertised
//! [`output_schema`](CompositeTool::output_schema), declared or of the tool whose result is
//! passed on, is an error: it keeps its content, loses its structured content, and its last
//! text names the mismatch.
//!
//! # What a run may use
//!
//! [`Limits`] bound what any call of a composite uses, so that none takes a server down:
//! what would go beyond fails, and nothing else. A composite can have limits of its own,
//! which are part of what it does:
//!
//! | setting | bounds |
//! |---|---|
//! | [`max_calls`](CompositeTool::max_calls) | how many tools are called: each attempt, each element of a loop, and a tool that has asked once more |
//! | [`max_result_bytes`](CompositeTool::max_result_bytes) | how large the answers of tools are together; what an output makes of them does not count |
//! | [`max_cost`](CompositeTool::max_cost) | what the calls cost, as a [budget](crate::budget) below counts it |
//!
//! Reaching one ends the run. No further call begins once all is used up; a call that
//! would cost more than is left is refused, and so is an answer that is larger: that
//! branch has failed, with an error of the kind `limit`. What runs goes on to its end, but
//! for what waits: for another attempt, or for a person. A step or element that waits for
//! a person is `cancelled`, and a loop goes without it. What has not begun is `skipped`,
//! with an error of the kind `limit` that names the setting. A run that needs no more than
//! it may has not ended early, and neither has a race or fallback that has its winner.
//!
//! What there is by then is the answer, unless [`on_limit`](CompositeTool::on_limit) says
//! otherwise: the branches of a fan-out, the result of the last step that completed, or the
//! output, if it can be made, for which defaults count. Its last text says that the run
//! ended early, at which setting and its value, and what was refused and skipped; the same
//! is in `_meta` under [`LIMIT`]. It is an error (`isError`) if nothing has completed, if an
//! output cannot be made, if what there is does not fit an
//! [`output_schema`](CompositeTool::output_schema) of the definition, if something has
//! failed without the limit that must not, and with [`OnLimit::Fail`].
//!
//! What a nested run uses counts in all runs around it. A limit of its own ends only the
//! nested run, which gives its partial answer to the branch that called it; one of a run
//! around it ends both, and the text says whose it was. What a run has used it keeps while
//! it waits for a person.
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! use mcp_composite::{composite::{CompositeLayer, CompositeTool, LIMIT, Strategy}, testing::{self, Server}};
//! use serde_json::json;
//! use tower::Layer;
//!
//! let look = CompositeTool::fan_out("look", "Looks", ["near", "far", "away"])
//!     .strategy(Strategy::Sequential)
//!     .max_calls(2);
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
//! Composites stand at the end of the first page, in the order they were given;
//! a tool of the same name disappears. What a definition leaves open is derived
//! from the targets: the input schema is the union of theirs, and annotations
//! say what any of them might do, where unknown counts as yes. The output schema is that
//! of the last step, if no other can be the last, because of a limit neither. A
//! composite whose tools are not there is not listed, and the log names them; one that
//! can do without is listed, and lacks a branch.
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
//! alone: the progress token, its connection, and of its capabilities all but what
//! it can be asked for. So a target cannot log to the client. What it asks (an
//! `InputRequired` result) the composite asks in its name, and calls it again with its
//! own answers and state; if the client cannot be asked that, or the target wants to
//! go on as a task, it is a failed branch.
//!
//! # Asking the client
//!
//! [Steps](#asking-a-person) and targets may ask. A run goes on as far as it can, and
//! then all that is asked is asked at once. A client of 2026-07-28 gets an
//! `InputRequired` result, in which a question of a step has the step's id for a key, and
//! one of a target `branch:key`; it calls again with the answers and the `requestState`,
//! in which the run is: see [`state`](crate::state). An older client is asked by requests
//! of its own while its call goes on, of which 32 are open at a time. Neither is asked
//! more than 1000 questions in one call. Questions that are not answered are asked again,
//! up to [`Limits::max_rounds`] times. A person takes no time of the run, but that of a
//! target that asks in the middle of its call, as older ones do.
//!
//! A client says by the capability `elicitation` that it has a person to ask, in the
//! `_meta` of each request or when it introduced itself. If it does not, a run is
//! refused before the first call of a tool that does not say that it only reads, provided
//! that a later question is certain: it has no condition, or one that is known to hold; of
//! a fan-out, where all targets must succeed. A question whose condition is not known yet
//! fails when the run comes to asking it. A run is refused likewise if its state is certain
//! to be larger at a later question than the [store](CompositeLayer::state) takes. Who
//! calls in code says so in `_meta`, or is not asked.
//!
//! # Progress
//!
//! A client that sends a progress token receives a progress notification when a step of a
//! pipeline or workflow, or a branch of a fan-out, begins and ends: `step 2/5 fetch_logs`. The
//! progress that a target reports, under the token in its own `_meta`, is part of that:
//! `step 2/5 fetch_logs: 40 of 100 lines`. So are the elements of loops and the steps of nested
//! composites: `step 2/5 deploy: step 1/3 build`.
//!
//! The client receives at most one notification in 50 milliseconds, with the latest progress,
//! and the first of them 50 milliseconds after its request: a composite that ends sooner sends
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
//! assert_eq!(texts, ["near:", "found", "branch `far` (tool `far`) failed: no ship"]);
//! # Ok(())
//! # }
//! ```

#![doc = include_str!("../guide/steps.md")]

mod answer;
mod compile;
mod definition;
mod error;
mod fingerprint;
mod flowchart;
mod form;
mod input;
mod layer;
mod listing;
mod output;
mod plan;
mod preview;
mod resolve;
mod rounds;
mod run;
mod schema;
mod service;
mod step;
mod target_call;

#[cfg(feature = "config")]
pub(crate) use self::error::DisplayPath;
pub use self::{
    answer::{LIMIT, STEPS, TRACE},
    definition::{CompositeTool, Labels, OnLimit, Order, Strategy, Success, Target, Trace},
    error::{DefinitionError, DefinitionErrorKind, DefinitionErrors, Segment},
    flowchart::UnknownComposite,
    form::FormError,
    layer::CompositeLayer,
    output::{Output, OutputProperty, OutputType},
    plan::Plan,
    preview::{
        CallPreview, ConditionPreview, ElicitationPreview, LoopPreview, Preview, StepPreview, Wave,
    },
    service::{Composite, ResponseFuture},
    step::{Case, OnError, Otherwise, Retry, Step, StepKind, Then, ToolCall},
};
pub use crate::{
    engine::{limits::Limits, plan::OnRefusal},
    message::branch::{BRANCH, LABEL, TOOL},
};
