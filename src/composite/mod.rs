//! Tools made of other tools.
//!
//! A [`CompositeLayer`] wraps any `Service<Request, Response = Reply>` and adds composite tools to
//! it. Clients list and call composites like any other tool. The service behind the layer receives
//! only calls of its own tools, each as if a client had made it. Therefore, filters, limits and
//! timeouts behind the layer also apply to the calls that composites make.
//!
//! # Calling
//!
//! | [`Strategy`] | tools are called | the answer is |
//! |---|---|---|
//! | [`FanOut`] | all at once, or [one after another](FanOut::sequential), even if some fail | every branch, by [`Success`] |
//! | [`Race`] | all at once, the rest cancelled after the first success | that success, unchanged |
//! | [`Fallback`] | one after another, until one succeeds | that success, unchanged |
//! | [`Pipeline`] | step by step, each with the outputs of earlier steps | the last result, or an [`Output`] |
//! | [`Workflow`] | each step as soon as the steps that it needs have finished | the last result, or an [`Output`] |
//!
//! A branch is one target or step while it runs. Branches that run at the same time are each polled
//! once in the task of the call. A branch that is pending after this poll becomes a task in a
//! `JoinSet` of the call. A branch that runs alone stays in the task of the call. A panic fails
//! only its own branch, and dropping the call aborts all branches. A target finds the data of its
//! call in the extensions of its [`Context`](crate::message::Context), and must not rely on
//! task-locals.
//!
//! A target that computes for a long time without yielding delays the branches after it. On a
//! multi-threaded runtime, it does so only at its first call. If the first poll of a branch takes
//! more than 50 µs, the branches after it become tasks at once, and so do the next calls of the
//! same target. On a current-thread runtime, a target that never yields cannot time out before it
//! returns, and no further branch starts after the deadline.
//!
//! Timeouts default to 60 seconds for a target, 5 minutes for an attempt of a step, and 30 minutes
//! for a run. The time that a user takes to [answer a question](#asking-a-person) does not count. A
//! run that ends early returns its partial result. The arguments of a call, including defaults, are
//! checked against the composite's input schema before any tool is called.
//!
//! # The answer of a fan-out
//!
//! The result of a fan-out has the fields below. If no target of a race or fallback succeeds, its
//! result has the same fields, but neither labels nor a report.
//!
//! - `content` contains the content of each branch, in the order of declaration. A label precedes
//!   the content of a branch. It is a text with the name of the branch and, if the branch is not
//!   named after its tool, the tool: ``price (tool `get_price`):``. A branch without content has no
//!   label. The branches of a nested fan-out are labeled with their path: `shop/price:`. The
//!   `_meta` of each block names the branch under [`BRANCH`] and, if the branch is not named after
//!   its tool, the tool under [`TOOL`]. The `_meta` of a label also has the mark [`LABEL`]. A
//!   branch that did not complete has a text with the reason. [`Labels::Meta`] omits the labels.
//! - `structuredContent` is the report, which the advertised `outputSchema` describes:
//!   `{ "branches": { id: { "status", "output"?, "error"? } } }`. `status` is `completed`,
//!   `failed`, `timed_out`, `skipped` or `cancelled`; `output` is the structured content that the
//!   tool returned or, if it returned none, its text; `error` is `{ kind, message, code?, data? }`
//!   with `kind` one of `tool`, `protocol`, `service`, `panic`, `timeout`, `limit`, `definition`,
//!   `declined` and `dismissed`.
//! - `_meta` contains the trace of the run under [`TRACE`]: tools, times, attempts and errors. The
//!   trace is included if the run failed, if the request asks for the trace, or with
//!   [`Trace::Always`].
//! - `isError` is `false` if the run has succeeded according to its [`Success`] rule.
//!
//! If the [`report`](FanOut::report) of a fan-out is disabled, its result has no structured
//! content, and contains the trace only on request or with [`Trace::Always`].
//!
//! With [`BranchOrder::Declared`], two runs whose branches have equal outcomes return the same
//! bytes, except for the times in the trace.
//!
//! # The answer of a pipeline or workflow
//!
//! A run that succeeds returns the output of its [`Output`] block or, without such a block, the
//! unchanged result of the last step. A run fails if a step fails, unless its
//! [`on_error`](Step::on_error) setting continues the run. It also fails if no step completed and
//! at least one failed, unless an output block can be built from the default results of all failed
//! steps. A [`Stop`] ends the run early, with a result of its own. The result of a failed run has
//! `isError` and the following fields:
//!
//! - `content` begins with a text that names the failed step, its tool and the cause. For each
//!   completed step, a text with the step's output follows. The `_meta` of this text names the step
//!   under [`BRANCH`] and the tool under [`TOOL`], as in fan-outs. For a loop that failed or timed
//!   out, the text contains the elements that have ended.
//! - `structuredContent` is `{ "steps": { id: { "status", "output"?, "truncated"?, "error"? } } }`.
//!   If the composite advertises an `outputSchema`, which this object would not match, `_meta`
//!   contains the steps under [`STEPS`] instead.
//!
//! The reported outputs have at most 64 KiB in total. If the output of a loop is too large, the
//! `output` of each element is removed first, then the `item`, then the `error`. An output that is
//! still too large is truncated to the first 1 KiB of its text. The text mentions the truncation,
//! and `truncated` is `true`. Images, audio and resources are only named. While a run is suspended
//! for a question, the outputs of earlier steps may use at most a quarter of the size that the
//! [store](CompositeLayer::state) allows for a run. Answers of a person are not reported. With
//! [`report(false)`](Workflow::report), the completed steps are named without their outputs.
//!
//! A result that does not match the advertised output schema becomes an error. It keeps its content
//! and loses its structured content, and its last text names the mismatch. The advertised schema is
//! the declared [`output_schema`](CompositeTool::output_schema), or that of the tool whose result
//! is passed on.
//!
//! # What a run may use
//!
//! [`CallLimits`] bound the resources of each call of a composite. Work that would exceed these
//! limits fails, and everything else continues. A composite can also have limits of its own, which
//! are part of its definition:
//!
//! | setting | bounds |
//! |---|---|
//! | [`max_calls`](CompositeTool::max_calls) | number of tool calls: each attempt, each element of a loop, and each further call of a tool that asked a question |
//! | [`max_result_bytes`](CompositeTool::max_result_bytes) | total size of the tool results, without outputs that are built from the results |
//! | [`max_cost`](CompositeTool::max_cost) | total cost of the calls, as charged by a [budget](crate::budget) layer behind the composites |
//!
//! Reaching a limit of the composite ends the run:
//!
//! - No further call begins once the limit is used up.
//! - A call or a result that would exceed the limit is refused. The branch that made the call fails
//!   with an error of the kind `limit`.
//! - Running calls finish, but the run no longer waits for retries or for answers of a person. A
//!   step or loop element that waits for an answer is `cancelled`, and its loop continues without
//!   the element.
//! - Branches and steps that have not begun are `skipped`, with an error of the kind `limit` that
//!   names the limit.
//!
//! A run that needs exactly as much as its limit allows has not ended early. Neither has a race or
//! fallback that has a winner.
//!
//! A run that ended early returns its partial result, unless [`on_limit`](CompositeTool::on_limit)
//! is set otherwise. The partial result of a fan-out contains all branches. The partial result of a
//! pipeline or workflow is its output, with defaults if necessary, or without an output block the
//! result of the last completed step. The last text of the result says that the run ended early. It
//! names the limit, its value, and the refused and skipped steps. `_meta` contains the same data
//! under [`LIMIT`].
//!
//! The result of a run that ended early is an error (`isError`) in these cases:
//!
//! - Nothing has completed.
//! - The output cannot be built.
//! - The partial result does not match an [`output_schema`](CompositeTool::output_schema) of the
//!   definition.
//! - A required branch or step has failed for a reason other than the limit.
//! - The definition sets [`OnLimit::Fail`].
//!
//! The calls, results and costs of a nested run also count toward the limits of all runs around it.
//! If the nested run reaches a limit of its own, only the nested run ends. It returns its partial
//! result to the branch that called it. If the nested run reaches a limit of an outer run, both
//! runs end. The text in the result then names the outer run. The counts are kept while a run waits
//! for the user's answers.
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
//! Composites are appended to the first page of the list of tools, in the order of their
//! definition. A composite replaces a tool of the same name. Properties of the tool that a
//! definition does not set are derived from the targets:
//!
//! - The input schema is the union of the input schemas of the targets.
//! - The annotations combine the effects of all targets. If a target does not declare whether it
//!   has an effect, it is assumed to have the effect.
//! - The output schema is that of the last step, unless a successful run may end with an earlier
//!   step, for example because of a condition or a limit.
//!
//! If a required tool is missing, the composite is not listed, and a log message names the tool. If
//! an optional tool is missing, the composite is listed, and calls of the tool fail.
//!
//! # Names
//!
//! A target may be another composite. Composites can be nested up to 8 deep. A nested run counts
//! toward the [`CallLimits`] and the timeout of the call that it is part of. A composite that calls
//! a tool of its own name calls the tool behind the layer. [`Target::behind`] always calls the tool
//! behind the layer.
//!
//! # What targets see
//!
//! A target receives the context of the call without the parts that concern only the client: the
//! progress token, the connection, and all client capabilities except those for answering
//! questions. Therefore, a target cannot send log messages to the client. If a target asks for
//! input (an `InputRequired` result), the composite asks the client on behalf of the target. Then
//! it calls the target again with the answers and the state that the target returned. The branch
//! fails if the client does not support the request, or if the target continues as a task.
//!
//! # Asking the client
//!
//! [Steps](#asking-a-person) and targets may ask the client questions. A run continues as far as it
//! can without answers, and then sends all open questions at once. In one call, a client receives
//! at most 1000 questions. Unanswered questions are repeated, in up to [`CallLimits::max_rounds`]
//! rounds.
//!
//! - A client that speaks protocol version 2026-07-28 receives an `InputRequired` result. The key
//!   of a step's question is the id of the step, and the key of a target's question is
//!   `branch:key`. The client calls again with the answers and the `requestState`, which contains
//!   or identifies the suspended run; see [`store`](crate::store).
//! - A client that speaks an older version receives requests while its call continues, at most 32
//!   at a time.
//!
//! The time to answer does not count toward the time of the run, except if a target that speaks an
//! older version asks in the middle of its call.
//!
//! A client that can ask a user declares the capability `elicitation`, in the `_meta` of each
//! request or when it initializes. A caller in code declares the capability in `_meta`, or is not
//! asked. If the capability is missing and a later question is certain, the run is rejected before
//! it first calls a tool that is not read-only. A question is certain if its step has no condition,
//! or one that is known to be true. In a fan-out, all targets must also be required to succeed. A
//! question whose condition is not known yet fails when the run reaches it.
//!
//! If the state of a run is certain to be larger at a later question than the
//! [store](CompositeLayer::state) accepts, the run is also rejected before it first calls a tool
//! that is not read-only.
//!
//! # Progress
//!
//! A client that sends a progress token receives a progress notification whenever a step of a
//! pipeline or workflow, or a branch of a fan-out, begins or ends: `step 2/5 fetch_logs`. A target
//! can report its own progress under the token in its own `_meta`. This progress is forwarded to
//! the client as part of the step's progress: `step 2/5 fetch_logs: 40 of 100 lines`. The elements
//! of loops and the steps of nested composites are reported in the same way:
//! `step 2/5 deploy: step 1/3 build`.
//!
//! The client receives at most one notification every 20 milliseconds, with the latest progress.
//! The first notification follows 20 milliseconds after the request, so a composite that ends
//! sooner sends only its answer. While nothing changes, a heartbeat names the running steps every
//! 15 seconds; see [`CompositeLayer::heartbeat`]. No notification follows the answer, and a run
//! does not wait for a client that reads slowly.
//!
//! Each finished step adds one to the progress value, and a running step adds its completed
//! fraction, if known. The protocol requires each value to be greater than the one before. An event
//! that completes nothing, such as the start of a step, therefore increases the value by a
//! millionth of a step. These increments never add up to a whole step, so no unfinished step seems
//! finished.
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
        CallPreview, ConditionPreview, ElicitationPreview, LoopPreview, Preview, StepPreview,
        StopPreview, Wave,
    },
    service::{Composite, ResponseFuture},
    step::{
        Action, Case, ComputedValue, Elicitation, ForEach, OnError, Otherwise, Retry, Step, Stop,
        Switch, Then, ToolCall,
    },
    strategy::{
        BranchOrder, Fallback, FanOut, Labels, Pipeline, Race, Strategy, Success, Target, Workflow,
    },
};
pub use crate::{
    engine::{limits::CallLimits, plan::OnRefusal},
    message::branch::{BRANCH, LABEL, TOOL},
};
