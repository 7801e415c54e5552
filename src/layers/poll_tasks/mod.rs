//! Waits for the tasks of a server.
//!
//! A server may answer a tool call with a task instead of a result, if the caller supports the MCP
//! extension `io.modelcontextprotocol/tasks` ([SEP-2663]). A [`PollTasksLayer`] declares the
//! extension to the server and waits for its tasks, so that the layers above always receive the
//! result. They need not know about tasks: a composite runs its next step, a
//! [`RedactLayer`](crate::redact::RedactLayer) redacts the result, and a client receives it as the
//! reply to its call, even if the client does not support tasks.
//!
//! Place the layer directly around a [`RemoteService`](crate::adapter::RemoteService), above
//! timeouts of single requests. A gateway of a [configuration file](crate::config) does so for each
//! backend. To run calls of composites as tasks for clients, use the [`tasks`](crate::tasks) layer.
//!
//! # Polling
//!
//! The layer requests the state of a task with `tasks/get`. It waits between two requests for the
//! poll interval that the server recommends, but at least 100 ms and at most 30 s. The interval
//! defaults to a second.
//!
//! | status of the task | reply to the call |
//! |---|---|
//! | `completed` | the result |
//! | `failed` | the JSON-RPC error of the task |
//! | `cancelled` | an error |
//! | `input_required` | the questions, as a request for input |
//!
//! If a request fails because the server is unreachable, overloaded or too slow, the layer repeats
//! it up to four times, and then replies with an error that contains the last known status. If the
//! server rejects a request, for example because it does not know the task, the call fails
//! immediately. It also fails if a reply contradicts an earlier one.
//!
//! The layer sets no time limit. A composite limits its calls with timeouts.
//!
//! # Questions
//!
//! The layer returns the questions of a task as a request for input. The `requestState` of this
//! request names the task. When the caller repeats the call with the answers and this state, the
//! layer sends the answers to the server with `tasks/update`, and continues to wait. If a task asks
//! questions that the caller cannot answer, the layer cancels the task.
//!
//! The [`state`](PollTasksLayer::state) store protects the `requestState`. Each state belongs to
//! one server, tool and [caller](PollTasksLayer::caller). A `requestState` of the server itself is
//! forwarded unchanged, unless it has the form of such a state.
//!
//! # Cancellation
//!
//! If the future of a call is dropped, the layer sends `tasks/cancel`. It cannot do so outside a
//! Tokio runtime. If the user never answers the questions of a task, the task ends when the server
//! lets it expire.
//!
//! # Examples
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), tower::BoxError> {
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     message::{Reply, Request},
//!     poll_tasks::PollTasksLayer,
//! };
//! use rmcp::model::{
//!     CallToolResult, ClientRequest, ContentBlock, CreateTaskResult, DetailedTask, GetTaskResult,
//!     ServerResult, Task, TaskPayload, TaskStatus,
//! };
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! /// A server that answers each call with a task, which is completed immediately.
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     let task = Task::new("7", TaskStatus::Working, "2026-07-28T00:00:00Z", "2026-07-28T00:00:00Z");
//!     let result = match request.message() {
//!         ClientRequest::GetTaskRequest(_) => {
//!             let result = CallToolResult::success(vec![ContentBlock::text("done")]);
//!             let result = serde_json::to_value(result).unwrap().as_object().unwrap().clone();
//!             let task = DetailedTask::new(task, TaskPayload::Completed { result });
//!             ServerResult::GetTaskResult(GetTaskResult::new(task))
//!         }
//!         _ => ServerResult::CreateTaskResult(CreateTaskResult::new(task)),
//!     };
//!     Ok(result.into())
//! }
//!
//! let service = PollTasksLayer::new("reports").layer(service_fn(server));
//! let reply = service.oneshot(Request::call_tool("write")).await?;
//! assert_eq!(reply.tool_result().unwrap().content[0].as_text().unwrap().text, "done");
//! # Ok(())
//! # }
//! ```
//!
//! [SEP-2663]: https://modelcontextprotocol.io/seps/2663-tasks-extension

mod cancel_guard;
mod layer;
mod poll;
mod service;
mod state;

pub use self::{layer::PollTasksLayer, service::PollTasks};
pub use crate::response_future::ResponseFuture;
