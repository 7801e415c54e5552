//! Runs long calls of composites as MCP tasks.
//!
//! A client that supports the MCP extension `io.modelcontextprotocol/tasks` ([SEP-2663]) need not
//! wait for the result of a long call. Instead, a [`TaskLayer`] returns the ID of a task. The run
//! continues in the background, even if the client disconnects. The client requests the state of
//! the task with `tasks/get`, answers its questions with `tasks/update`, and cancels it with
//! `tasks/cancel`.
//!
//! [`CompositeTool::task`] determines which calls become tasks:
//!
//! | [`TaskMode`] | reply to a call of a client that supports tasks |
//! |---|---|
//! | [`Never`](crate::composite::TaskMode::Never) | the result |
//! | [`Optional`](crate::composite::TaskMode::Optional) | the result or the first questions if they are available within a second, otherwise a task |
//! | [`Always`](crate::composite::TaskMode::Always) | a task |
//!
//! In a [configuration file](crate::config), the key `task` of a composite sets the mode:
//!
//! ```toml
//! [[composite_tools]]
//! name = "report"
//! description = "Writes a report"
//! strategy = "workflow"
//! task = "always"
//!
//! [[composite_tools.steps]]
//! id = "count"
//! tool = "count"
//! ```
//!
//! Before protocol version 2026-07-28, the reply to a tool call cannot contain questions for the
//! user. If such a client calls a composite with [`TaskMode::Optional`], the call becomes a task
//! when the composite asks a question.
//!
//! A client supports tasks if it declares the extension: since protocol version 2026-07-28 in each
//! request, and before that in `initialize`. All other clients always receive the result.
//!
//! # The life of a task
//!
//! - A running task has the status `working`, or `input_required` while it waits for the user. A
//!   task ends as `completed`, `failed` or `cancelled`. A result with `isError` is also
//!   `completed`. The state of an ended task contains the result or the JSON-RPC error, and does
//!   not change any more.
//! - If a run asks the user questions, the status of its task becomes `input_required`. The keys of
//!   the questions begin with the number of the round, such as `1:approve`. Answers to other keys
//!   are ignored. The run continues after all open questions are answered.
//! - `tasks/cancel` drops the run, and thereby cancels the calls that it makes.
//! - The run of a task sends no progress notifications, log messages and questions over the
//!   connection of the client, because the request of the client has ended. A client that polls
//!   `tasks/get` should wait a second between its requests.
//! - The run of a task keeps the headers and the access token of the request that started it. If
//!   the token expires, later calls of backends that need it fail.
//! - A task expires an hour after its last change, or after the timeout of its composite if this is
//!   longer. Its `ttlMs` is the time from its creation until then.
//! - By default, tasks are stored in the memory of the process. They are lost when the process
//!   ends, and other replicas cannot access them. Set a [shared store](#shared-stores) to avoid
//!   this. Without one, if any replica must be able to continue the runs of a composite that asks
//!   questions, set the mode of the composite to `never`.
//!
//! This module does not handle tasks that a server starts. For those, see
//! [`poll_tasks`](crate::poll_tasks).
//!
//! There is no notification when the state of a task changes, because rmcp does not support
//! subscriptions to tasks.
//!
//! # Access
//!
//! The ID of a task consists of 192 random bits. Only the [caller](TaskLayer::caller) that started
//! a task can access it. Unknown and expired tasks and those of other callers are rejected with the
//! same error. Tasks cannot be listed.
//!
//! # Limits
//!
//! A layer has at most 10 000 tasks, of which at most 1000 have not ended. Their arguments,
//! questions, answers and results have at most 64 MiB of JSON in total. If there is no room for a
//! task, a call with [`TaskMode::Always`] is rejected before any tool is called, and a call with
//! [`TaskMode::Optional`] returns its result directly. If there is no room for a result, the task
//! fails.
//!
//! # Shared stores
//!
//! A [`TaskStore`] is shared by several replicas. Each of them answers requests about all tasks,
//! and continues the tasks of a replica whose process has ended. With [`TaskRegistry::with_store`],
//! the tasks of a registry are in a store. [`RedisTasks`] is a store in Redis; in a configuration
//! file, `[state] store = "redis"` selects it. [`MemoryTaskStore`] is a store for tests.
//!
//! - *Records.* The record of a task contains the call, its progress, and the state of its run,
//!   which is stored after each step. It contains neither the headers nor the access token of the
//!   request. Records are not encrypted.
//! - *Leases.* The replica that runs a task holds a [lease](TaskStore::lease) of 15 seconds, which
//!   it renews every 5 seconds. If the process ends, another replica continues the task within 20
//!   seconds. If the process is shut down, it [releases](TaskRegistry::close) its tasks, and
//!   another replica continues them within 5 seconds. A replica that has lost a lease drops its
//!   run, and can no longer change the task. [Interrupted runs](crate::composite#interrupted-runs)
//!   describes which steps are called again.
//! - *Questions.* A task that waits for input has no lease and no run. The replica that receives
//!   the last answer continues the task, with the headers and the access token of the request that
//!   contained this answer. A call with [`TaskMode::Optional`] becomes a task when it asks a
//!   question.
//! - *Callers.* A task that a replica takes over has no headers and no access token. Layers
//!   identify its caller from the record, instead of their `caller` functions. Calls of backends
//!   that need the access token of the caller fail.
//! - *Cancellation.* `tasks/cancel` ends the task at once. If another replica runs it, that replica
//!   drops the run at its next write, or within 5 seconds. While it cannot reach the store, its run
//!   cannot start another call, but running calls continue.
//! - *Definitions.* A replica without the composite of a task does not continue it. If no replica
//!   has the composite, the task stays `working` until it expires.
//! - *Failures.* While the store is unavailable, requests about tasks fail, a call with
//!   [`TaskMode::Always`] is rejected, and a call with [`TaskMode::Optional`] returns its result. A
//!   run that cannot store its state for 5 seconds ends with an error. If the store or the replica
//!   stops while it creates a task, the client may get an error or no reply although the task
//!   exists. The task then runs to its end, or waits for its first question until it expires.
//!
//! A store has at most 10 000 tasks, of which at most 1000 have not ended, and at most 250 of them
//! belong to one identified caller. A task has at most 8 MiB. Each replica runs at most 1000 tasks.
//!
//! A service starts looking for tasks to take over when it receives the first request about a task,
//! or when [`Stack::watch_tasks`] is called.
//!
//! ```
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, TaskMode},
//!     stack::StackLayer,
//!     tasks::{MemoryTaskStore, TaskLayer, TaskRegistry},
//! };
//!
//! # fn main() -> Result<(), tower::BoxError> {
//! // With the feature `redis`: `RedisServer::new("redis://cache:6379")?.tasks()`
//! let store = MemoryTaskStore::new();
//! let replica = || -> Result<StackLayer, tower::BoxError> {
//!     let report = CompositeTool::fan_out("report", "Writes a report", ["count"]);
//!     let tasks = TaskLayer::new().registry(TaskRegistry::with_store(store.clone()));
//!     let composites = CompositeLayer::new([report.task(TaskMode::Always)])?;
//!     Ok(StackLayer::new().composite(composites).tasks(tasks))
//! };
//! let (one, other) = (replica()?, replica()?);
//! # let _ = (one, other);
//! # Ok(())
//! # }
//! ```
//!
//! # Examples
//!
//! ```
//! # #[cfg(feature = "testing")]
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tower::BoxError> {
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, TaskMode},
//!     message::{Context, Request, ToolAnswer},
//!     stack::StackLayer,
//!     testing::{self, Server},
//! };
//! use rmcp::model::{GetTaskParams, GetTaskRequest, ServerResult, TaskStatus};
//! use serde_json::json;
//! use tower::{Layer, ServiceExt};
//!
//! let report = CompositeTool::fan_out("report", "Writes a report", ["count"]);
//! let composites = CompositeLayer::new([report.task(TaskMode::Always)])?;
//! let stack = StackLayer::new().composite(composites);
//! let service = stack.layer(Server::new().says("count", "12"));
//!
//! // The client declares that it supports tasks.
//! let mut call = testing::request("report", json!({}));
//! let capabilities = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
//! let meta = call.context_mut().meta_mut();
//! meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), capabilities);
//! let answer = service.clone().oneshot(call).await?.into_tool_answer();
//! let ToolAnswer::Task(id) = answer else { panic!("not a task: {answer:?}") };
//!
//! tokio::task::yield_now().await;
//! let get = Request::new(GetTaskRequest::new(GetTaskParams::new(id)), Context::default());
//! let reply = service.oneshot(get).await?;
//! let Some(ServerResult::GetTaskResult(task)) = reply.result() else { panic!("{reply:?}") };
//! assert_eq!(task.task.status(), TaskStatus::Completed);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "testing"))]
//! # fn main() {}
//! ```
//!
//! [`CompositeTool::task`]: crate::composite::CompositeTool::task
//! [`RedisTasks`]: crate::redis::RedisTasks
//! [`Stack::watch_tasks`]: crate::stack::Stack::watch_tasks
//! [`TaskMode`]: crate::composite::TaskMode
//! [`TaskMode::Always`]: crate::composite::TaskMode::Always
//! [`TaskMode::Optional`]: crate::composite::TaskMode::Optional
//! [SEP-2663]: https://modelcontextprotocol.io/seps/2663-tasks-extension

mod description;
mod error;
mod id;
mod layer;
pub(crate) mod limits;
mod registry;
mod run;
mod service;
mod shared;
mod state;
#[cfg(test)]
mod tests;
mod tool;

#[cfg(feature = "restate")]
pub(crate) use self::shared::durable::{
    EngineStatus, EngineTask, Found, TaskEngine, TaskRun, TaskRuns,
};
#[cfg(feature = "redis")]
pub(crate) use self::shared::store::{StoreFuture, new_token};
pub use self::{
    layer::TaskLayer,
    registry::TaskRegistry,
    service::Tasks,
    shared::{MemoryTaskStore, StoredTask, TaskPhase, TaskStore, TaskStoreError, TaskWrite},
};
pub use crate::response_future::ResponseFuture;
