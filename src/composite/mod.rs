//! Composite tools: MCP tools that call other tools and combine their results.
//!
//! A [`CompositeLayer`] wraps any `Service<Request, Response = Reply>` and adds composite tools to
//! it. A composite tool, or *composite*, calls other tools and combines their results. Clients list
//! and call it like any other tool. The inner service receives the calls that a composite makes as
//! ordinary tool calls, as if a client had made them. Filters, limits and timeouts that wrap the
//! inner service therefore also apply to these calls.
//!
//! # Calling
//!
//! | [`Strategy`] | when tools are called | result |
//! |---|---|---|
//! | [`FanOut`] | all at once, or [one after another](FanOut::sequential), even if some fail | the content of every branch; [`Success`] decides whether it is an error |
//! | [`Race`] | all at once, the rest cancelled after the first success | the first successful result, unchanged |
//! | [`Fallback`] | one after another, until one succeeds | the first successful result, unchanged |
//! | [`Pipeline`] | step by step, each with the outputs of earlier steps | the last result, or an [`Output`] |
//! | [`Workflow`] | each step as soon as the steps that it needs have finished | the last result, or an [`Output`] |
//!
//! A *run* is one call of a composite. A *branch* is one part of a run: a target of a fan-out, race
//! or fallback, or a step of a pipeline or workflow. If a branch panics, only this branch fails. If
//! the call of the composite is dropped, all of its branches are aborted.
//!
//! When several branches of a run start at the same time, each is first polled once in the task of
//! the composite call. A branch that is still pending after this poll is moved to a separate task
//! in a `JoinSet`. A branch that runs alone remains in the task of the composite call. Because a
//! tool may be called in another task, it must not rely on task-local values. The data of the call
//! is in the extensions of its [`Context`](crate::message::Context).
//!
//! A tool that computes for a long time without yielding delays the other branches of the run that
//! start at the same time. On a multi-threaded runtime, this happens only in the first call of the
//! tool: if the first poll of a branch takes longer than 50 µs, the other branches start in
//! separate tasks. Later calls of the same tool start in a separate task too. On a current-thread
//! runtime, a timeout cannot interrupt a tool that never yields. No further branch starts after the
//! deadline of the run.
//!
//! The timeouts of a composite default to 60 seconds for a target, 5 minutes for an attempt of a
//! step, and 30 minutes for the whole run. The time that a user takes to [answer a
//! question](#asking-a-person) does not count toward the timeout of the run. If a run times out,
//! its result still contains the completed branches.
//!
//! The arguments of a composite call are checked against the composite's input schema before any
//! tool is called. Defaults of the schema are added before the check.
//!
//! # The answer of a fan-out
//!
//! The result of a fan-out has the following fields. A branch is one target of the fan-out.
//! - `content` contains the content of each branch, in the order of declaration. A label precedes
//!   the content of each branch. The label is a text with the name of the branch and, if the branch
//!   is not named after its tool, the name of the tool: ``price (tool `get_price`):``. A branch
//!   without content has no label. The branches of a nested fan-out are labeled with their path:
//!   `shop/price:`. For a branch that did not complete, the content is a text with the reason.
//!   [`Labels::Meta`] omits the labels.
//! - `structuredContent` is the report, which the advertised `outputSchema` describes: `{
//!   "branches": { id: { "status", "output"?, "error"? } } }`. `status` is `completed`, `failed`,
//!   `timed_out`, `skipped` or `cancelled`. `output` is the structured content of the tool result
//!   or, if it has none, its text. `error` is `{ kind, message, code?, data? }`, where `kind` is
//!   one of `tool`, `protocol`, `service`, `panic`, `timeout`, `limit`, `definition`, `declined`
//!   and `dismissed`.
//! - `_meta` contains the trace of the run under [`TRACE`]: tools, times, attempts and errors. The
//!   trace is included if the run failed, if the request asks for the trace, or with
//!   [`Trace::Always`].
//! - `isError` is `false` if the run succeeded according to its [`Success`] rule.
//!
//! For programs, the `_meta` of each content block in the result of a fan-out names the branch
//! under [`BRANCH`] and, if the branch is not named after its tool, the tool under [`TOOL`]. The
//! `_meta` of a label contains the mark [`LABEL`].
//!
//! If no target of a race or fallback succeeds, its result has the same fields as the result of a
//! fan-out, but no labels and no report.
//!
//! If the [`report`](FanOut::report) of a fan-out is disabled, the result of the fan-out has no
//! structured content, and contains the trace only on request or with [`Trace::Always`].
//!
//! With [`BranchOrder::Declared`], the results of a fan-out are deterministic: two runs whose
//! branches have equal outcomes return the same bytes, except for the times in the trace.
//!
//! # The answer of a pipeline or workflow
//!
//! A successful run of a pipeline or workflow returns the object that its [`Output`] block builds
//! or, without an output block, the unchanged result of the last step. A [`Stop`] step ends the run
//! early and supplies the result itself.
//!
//! A run of a pipeline or workflow fails if a step fails, unless the step's
//! [`on_error`](Step::on_error) setting continues the run. A run also fails if at least one step
//! failed and no step completed. The exception is a run with an output block in which all failed
//! steps have default results.
//!
//! The result of a failed pipeline or workflow has `isError` and the following fields:
//! - `content` begins with a text that names the failed step, its tool and the cause. For each
//!   completed step, a text with the output of the step follows. The `_meta` of this text names the
//!   step under [`BRANCH`] and the tool under [`TOOL`], as in fan-outs. For a loop that failed or
//!   timed out, the text contains the elements that have ended.
//! - `structuredContent` is `{ "steps": { id: { "status", "output"?, "truncated"?, "error"? } } }`.
//!   This object would not match an `outputSchema`, so if the composite advertises one, the steps
//!   are reported in `_meta` under [`STEPS`] instead.
//!
//! The step outputs in the result of a failed pipeline or workflow have at most 64 KiB in total. If
//! the output of a loop is too large, members are removed from its elements: first the `output`,
//! then the `item`, then the `error`. An output that is still too large is truncated to the first 1
//! KiB of its text. In this case, the text mentions the truncation, and `truncated` is `true`.
//! Images, audio and resources are named but not included.
//!
//! Outputs of completed steps are omitted from the result of a failed run in three cases. With
//! [`report(false)`](Workflow::report), the completed steps are named without their outputs. A
//! person's answers are never reported. While a run is suspended for a question, the outputs of
//! earlier steps are kept for the result only up to a quarter of the size that the
//! [store](CompositeLayer::state) allows for a run.
//!
//! If the result of a composite does not match the advertised output schema, the client receives an
//! error instead. The error keeps the content, has no structured content, and ends with a text that
//! describes the mismatch. The advertised schema is the declared
//! [`output_schema`](CompositeTool::output_schema) or, if the composite returns the result of a
//! tool unchanged, the output schema of this tool.
//!
//! # What a run may use
//!
//! [`CallLimits`] bound the resources that each call of a composite may use. If a branch (a target
//! or step of the composite) would exceed these limits, it fails, and the rest of the run
//! continues. The definition of a composite can set further limits:
//!
//! | setting | bounds |
//! |---|---|
//! | [`max_calls`](CompositeTool::max_calls) | number of tool calls: each attempt, each element of a loop, and each further call of a tool that asked a question |
//! | [`max_result_bytes`](CompositeTool::max_result_bytes) | total size of the tool results, without outputs that are built from the results |
//! | [`max_cost`](CompositeTool::max_cost) | total cost of the calls, as charged by a [budget](crate::budget) layer behind the composites |
//!
//! If a run reaches a limit that the definition of its composite sets, such as `max_calls`, the run
//! ends early:
//! - No further call starts after the limit is used up.
//! - A call or result that would exceed the limit is refused. The branch (target or step) that made
//!   the call fails with an error of the kind `limit`.
//! - Calls that are already running finish. The run no longer waits for retries or for a user's
//!   answers. A step or loop element that waits for an answer is `cancelled`, and the other
//!   elements of its loop continue.
//! - Branches that have not started are `skipped`. Their error has the kind `limit` and names the
//!   limit.
//!
//! A run that uses exactly its limit, for example 100 of 100 calls, is complete, and does not count
//! as ended early. The same applies to a race or fallback in which a target has already succeeded.
//!
//! A run that ended early because of a limit returns its partial result, unless
//! [`on_limit`](CompositeTool::on_limit) is set otherwise. The partial result of a fan-out contains
//! all branches, including those that did not complete. The partial result of a pipeline or
//! workflow is its output block, with defaults for missing values. Without an output block, it is
//! the result of the last completed step. The last text of the result says that the run ended
//! early, and names the limit, its value, and the refused and skipped steps. `_meta` contains the
//! same data under [`LIMIT`].
//!
//! The result of a run that ended early because of a limit is an error (`isError`) in these cases:
//! - No branch or step has completed.
//! - The output block cannot be built.
//! - The partial result does not match an [`output_schema`](CompositeTool::output_schema) of the
//!   definition.
//! - A required branch or step has failed for a reason other than the limit.
//! - The definition sets [`OnLimit::Fail`].
//!
//! If a composite calls another composite, the calls, results and costs of the inner run also count
//! toward the limits of all outer runs. If the inner run reaches its own limit, only the inner run
//! ends, and its partial result becomes the result of the outer run's call. If the inner run
//! reaches a limit of an outer run, both runs end, and the text in the result names the outer run.
//! If a run is suspended until a user answers a question, the amounts that it has used are stored
//! with it.
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
//! A [`CompositeLayer`] appends its composites to the first page of the tool list, in the order of
//! their definition. A composite replaces a tool of the same name. Properties of a composite that
//! its definition does not set are derived from the tools that it calls:
//! - The input schema is the union of the input schemas of the called tools.
//! - The annotations cover the effects of all called tools. If a tool does not declare an
//!   annotation, the composite is annotated as if the tool had the effect.
//! - The output schema is the output schema of the last step. It is omitted if a successful run may
//!   end with an earlier step, for example because of a condition or a limit.
//!
//! If a tool that a composite requires does not exist, the composite is not listed, and a log
//! message names the tool. If a tool that is optional for the composite does not exist, the
//! composite is listed. Its calls of this tool are still sent to the inner service, and fail like
//! calls of a client: the tool is unknown, or its backend is not connected.
//!
//! # Names
//!
//! A composite may call another composite. Composites can be nested up to 8 deep. The resources and
//! the time of a nested run count toward the [`CallLimits`] and the timeout of the outermost call.
//! If a composite calls a tool that has the same name as the composite, the tool of the inner
//! service is called. A target that is created with [`Target::behind`] always calls the tool of the
//! inner service.
//!
//! # What targets see
//!
//! The inner service receives each tool call of a composite with the context of the composite call,
//! except for the parts that concern only the client: the progress token, the connection, and all
//! client capabilities except those for answering questions. A called tool therefore cannot send
//! log messages to the client.
//!
//! If a tool that a composite calls returns an `InputRequired` result, the composite forwards the
//! questions in the result to the client. It then calls the tool again, with the client's answers
//! and the state that the tool returned. The branch of the composite that calls the tool fails if
//! the client does not support the questions. It also fails if the tool continues as a task. To
//! wait for tasks, wrap the inner service in a
//! [`PollTasksLayer`](crate::poll_tasks::PollTasksLayer).
//!
//! # Asking the client
//!
//! The [steps](#asking-a-person) of a composite and the tools that it calls can ask the client
//! questions. A run first continues as far as it can without answers, and then sends all open
//! questions at once. Questions that remain unanswered are repeated, in up to
//! [`CallLimits::max_rounds`] rounds. A client receives at most 1000 questions per call. The
//! protocol version of the client determines how the client receives the questions:
//! - A client that uses protocol version 2026-07-28 receives an `InputRequired` result. The key of
//!   a step's question is the id of the step. The key of a tool's question is `branch:key`. The
//!   client repeats its call with the answers and the `requestState`, which contains or identifies
//!   the suspended run; see [`store`](crate::store).
//! - A client that uses an older version receives requests while its call continues, at most 32 at
//!   a time.
//!
//! The time that a user takes to answer the questions of a composite does not count toward the time
//! of the run. The exception is a tool that uses an older protocol version and asks a question
//! while its call is running.
//!
//! A client declares with the capability `elicitation` that it can ask a user, either in the
//! `_meta` of each request or when it initializes. Rust code that calls a composite directly must
//! declare the capability in `_meta`.
//!
//! If a client without the capability `elicitation` calls a composite that is certain to ask a
//! question, the run is rejected before it calls a tool that is not read-only. A question is
//! certain if its step has no condition, or a condition that is known to be true. A question of a
//! fan-out's target is certain only if all targets must succeed. If it is not known yet whether a
//! question is asked, the run continues, and the question fails when the run reaches it.
//!
//! A run must also be able to store its state while it waits for an answer. If a later question is
//! certain to be asked, and the state is then certain to be too large for the
//! [store](CompositeLayer::state), the run is rejected before it calls a tool that is not
//! read-only.
//!
//! # Progress
//!
//! A client that calls a composite with a progress token receives a progress notification whenever
//! a step of a pipeline or workflow, or a target of a fan-out, starts or ends: `step 2/5
//! fetch_logs`. A called tool can also report progress with the token in the `_meta` of its
//! request. The client then receives this progress with the name of the step: `step 2/5 fetch_logs:
//! 40 of 100 lines`. The elements of loops and the steps of nested composites are reported in the
//! same way: `step 2/5 deploy: step 1/3 build`.
//!
//! The client receives at most one progress notification of a composite every 20 milliseconds, with
//! the latest progress. The first notification is sent 20 milliseconds after the request, so a
//! composite that ends sooner sends only its result. While nothing changes, a heartbeat names the
//! running steps every 15 seconds; see [`CompositeLayer::heartbeat`]. A client that reads
//! notifications slowly does not delay the run. After the result, no notification is sent.
//!
//! The progress value in a notification of a composite is the number of finished steps plus the
//! completed fraction of each running step, if known. The protocol requires each value to be
//! greater than the previous one. An event that completes nothing, such as the start of a step,
//! therefore increases the value by a millionth of a step. The sum of these increments is always
//! less than a whole step, so the value never counts an unfinished step as finished.
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
//! let texts: Vec<_> =
//!     result.content.iter().map(|block| &*block.as_text().unwrap().text).collect();
//! assert_eq!(texts, ["near:", "found", "branch `far` (tool `far`) failed: no ship"]);
//! # Ok(())
//! # }
//! ```

#![doc = include_str!("../guide/links.md")]
#![doc = include_str!("../guide/workflows.md")]

mod annotations;
mod answer;
mod approval;
mod cancelled_runs;
mod checkpoints;
mod compile;
mod definition;
mod effect;
mod encoding;
mod error;
mod fingerprint;
mod flow;
mod flowchart;
mod form;
mod form_error;
mod input;
mod journaled;
mod layer;
mod limit_end;
mod listing;
mod output;
mod output_schemas;
mod plan;
mod preview;
mod repeat;
mod report;
mod resolve;
mod rounds;
mod run;
mod schema;
mod service;
mod step;
mod strategy;
mod suspended_run;
mod target_call;
mod task_mode;
mod tool_call;

#[cfg(feature = "config")]
pub(crate) use self::error::DisplayPath;
pub(crate) use self::flow::{CallFlow, DataLabels};
pub use self::{
    answer::{LIMIT, STEPS, TRACE},
    cancelled_runs::CancelledRuns,
    definition::{CompositeTool, OnLimit, Trace},
    error::{DefinitionError, DefinitionErrorKind, DefinitionErrors, Segment},
    flow::{FlowLabel, FlowPolicy, FlowViolation},
    flowchart::UnknownComposite,
    form_error::FormError,
    layer::CompositeLayer,
    output::{JsonType, Output, OutputProperty},
    plan::Plan,
    preview::{
        CallPreview, ConditionPreview, ElicitationPreview, LoopPreview, Preview, RepeatPreview,
        StepPreview, StopPreview, Wave,
    },
    repeat::Repeat,
    service::Composite,
    step::{
        Action, Case, ComputedValue, Elicitation, ForEach, OnError, Otherwise, Retry, Step, Stop,
        Switch, Then,
    },
    strategy::{
        BranchOrder, Fallback, FanOut, Labels, Pipeline, Race, Strategy, Success, Target, Workflow,
    },
    task_mode::TaskMode,
    tool_call::ToolCall,
};
pub use crate::response_future::ResponseFuture;
pub use crate::{
    engine::{
        limits::CallLimits,
        plan::{Finally, OnRefusal},
    },
    message::branch::{BRANCH, LABEL, TOOL},
};
