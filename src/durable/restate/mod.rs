//! Runs of tasks that [Restate](https://restate.dev), a durable execution engine, executes.
//!
//! With a [`RestateServer`], the calls of composites that become [tasks](crate::tasks) are executed
//! by a Restate server. It stores each event of a run: the result of each tool call, each timer and
//! each answer of the user. If the process of a run stops, the server executes the run again, in
//! the same or another process. The run then receives the stored events again, in the same order
//! and with the same times, and therefore makes the same decisions until it reaches the point at
//! which it was interrupted. Any number of processes can execute runs.
//!
//! | part of a run | in Restate |
//! |---|---|
//! | task | an invocation of the workflow `McpCompositeTask` |
//! | attempt of a tool call | an awakeable that receives the result; before it, the step `call TOOL` if the tool may be called at most once |
//! | retry delay, timeout, deadline | a timer |
//! | question to the user | an awakeable that receives the answer |
//! | `tasks/cancel` | the cancellation of the invocation |
//!
//! The version 0.13 of the SDK of Restate cannot wait for the result of a step (`ctx.run`) and for
//! a timer at the same time. A tool call is therefore made in this process, and its result is sent
//! to the server as the value of an awakeable.
//!
//! # Guarantees
//!
//! - A tool call whose result is stored is not made again. If the process stops before that, a tool
//!   annotated `readOnlyHint` or `idempotentHint`, or a step with `retry_lost = true`, is called
//!   again. Any other call fails with an error of the kind `lost`. This is the behavior of
//!   [interrupted runs](crate::composite#interrupted-runs).
//! - If only the connection to the Restate server is lost, the calls of this process go on, and
//!   their results are sent when the server is available again. If the server executes the run in
//!   another process in the meantime, the other process makes the calls that may be repeated, and
//!   waits 5 seconds for the results of the others, which are lost afterwards.
//! - A process that receives the start of a run late, because its connection was interrupted,
//!   cannot know that another process has continued the run. It may make one call that the other
//!   has made, but only of a tool that may be called again.
//! - If the server rejects a result permanently (a 4xx status except 408, 425 and 429), for example
//!   because the result is too large, its call fails with an error of the kind `lost`.
//! - A composite that another composite calls is one tool call.
//! - The clock of a run does not stop while no process executes it, so timeouts include this time.
//! - A run continues only with the definition with which it started. If a process with another
//!   definition receives the run, the task ends with an error. The invocation of the run remains in
//!   Restate until a process with the old definition receives it, or until an operator kills it.
//! - If no process has the composite of a task, the task stays `working`. It expires an hour later
//!   than a task that has [ended](crate::tasks#the-life-of-a-task).
//! - While the Restate server is unavailable, calls that can become tasks return an error.
//! - A process that is shut down begins no further calls, and waits for the current ones until
//!   [`TaskRegistry::close`], which cancels them. Their runs continue in other processes.
//! - If the connection of a process to the server is lost, the calls that it makes for a run go on
//!   until they end or until the deadline of the run, even if the task is cancelled meanwhile.
//! - The number of tasks is not limited. Limit calls with a [budget](crate::budget).
//! - If the client disconnects within the first second of a call with
//!   [`TaskMode::Optional`](crate::composite::TaskMode::Optional), the run continues.
//! - Observers, metrics and traces report the steps of a run again when it is executed again.
//! - A task has neither the headers nor the access token of its request. Calls of backends that
//!   need them fail.
//!
//! # The server
//!
//! The server must be Restate 1.7 or later. It calls the [endpoint](RestateServer::serve) of this
//! process over HTTP/2, so it must reach it at the URL with which the endpoint was
//! [registered](RestateServer::register). For several processes, register the URL of a load
//! balancer in front of them. This process calls the server's ingress.
//!
//! A client of the endpoint can run any composite as any caller, and a client of the server can
//! read arguments and results. Make both reachable only for each other, and set an
//! [identity key](RestateServer::identity_key).
//!
//! The Restate server has the Business Source License 1.1. Its additional grant allows production
//! use, except for offering a managed service through which third parties register and invoke their
//! own services in Restate. Each version becomes available under the Apache License 2.0 four years
//! after its release. This crate contains only the SDK, which has the MIT License.
//!
//! # Examples
//!
//! ```no_run
//! use mcp_composite::{
//!     composite::{CompositeLayer, CompositeTool, TaskMode},
//!     restate::RestateServer,
//!     stack::StackLayer,
//!     tasks::TaskLayer,
//! };
//! use tokio::net::TcpListener;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let restate = RestateServer::new("http://127.0.0.1:8080")?;
//! let report = CompositeTool::fan_out("report", "Writes a report", ["count"]);
//! let layer = StackLayer::new()
//!     .composite(CompositeLayer::new([report.task(TaskMode::Always)])?)
//!     .tasks(TaskLayer::new().registry(restate.tasks()));
//! // … apply the layer to a service, and call `Stack::watch_tasks`, so that it runs tasks of other
//! // processes.
//!
//! let listener = TcpListener::bind("127.0.0.1:9080").await?;
//! let serve = restate.serve(listener, std::future::pending())?;
//! let register = restate.register("http://127.0.0.1:9070", "http://127.0.0.1:9080");
//! let ((), registered) = tokio::join!(serve, register);
//! registered?;
//! # let _ = layer;
//! # Ok(())
//! # }
//! ```

mod calls;
mod client;
mod drive;
mod endpoint;
mod engine;
mod error;
mod journal;
mod status;

use std::{fmt, sync::Arc};

use restate_sdk::http_server::HttpServer;
use tokio::net::TcpListener;

pub use self::error::RestateError;
use self::{calls::Calls, client::Client, endpoint::Tasks, engine::Engine};
use crate::tasks::{TaskRegistry, TaskRuns};

/// A Restate server that executes tasks. See the [module docs](self) for an example.
///
/// Clones share the same tasks and services.
#[derive(Clone)]
pub struct RestateServer {
    client: Client,
    runs: TaskRuns,
    calls: Arc<Calls>,
    identity_key: Option<String>,
}

// === impl RestateServer ===

impl RestateServer {
    /// Creates the settings for the Restate server whose ingress has this URL, such as
    /// `http://127.0.0.1:8080`. Does not connect to the server yet.
    ///
    /// # Errors
    ///
    /// Returns an error if the URL is invalid.
    pub fn new(ingress: &str) -> Result<Self, RestateError> {
        let client = Client::new(ingress)?;
        let calls = Arc::new(Calls::new(client.clone()));
        Ok(Self { client, runs: TaskRuns::default(), calls, identity_key: None })
    }

    /// Sets the public key of the Restate server, such as `publickeyv1_…`. The endpoint then
    /// rejects requests that are not signed with this key. By default, it accepts all requests.
    #[must_use]
    pub fn identity_key(mut self, key: impl Into<String>) -> Self {
        self.identity_key = Some(key.into());
        self
    }

    /// Returns a registry whose tasks the server executes. Layers with this registry run the tasks
    /// for which the server calls the [endpoint](Self::serve).
    #[must_use]
    pub fn tasks(&self) -> TaskRegistry {
        let (client, calls) = (self.client.clone(), self.calls.clone());
        TaskRegistry::with_engine(Arc::new(Engine { client, calls }), self.runs.clone())
    }

    /// Serves the endpoint that the server calls, until `stop` completes. Runs that have not ended
    /// then continue in another process. Before the process ends, wait for
    /// [`TaskRegistry::finished`], and then call [`TaskRegistry::close`].
    ///
    /// # Errors
    ///
    /// Returns an error if the [identity key](Self::identity_key) is invalid.
    pub fn serve<S>(
        &self,
        listener: TcpListener,
        stop: S,
    ) -> Result<impl Future<Output = ()> + Send + use<S>, RestateError>
    where
        S: Future<Output = ()> + Send,
    {
        let key = self.identity_key.as_deref();
        let (runs, calls, client) = (self.runs.clone(), self.calls.clone(), self.client.clone());
        let endpoint = endpoint::endpoint(Tasks { runs, calls, client }, key)?;
        Ok(HttpServer::new(endpoint).serve_with_cancel(listener, stop))
    }

    /// Registers the endpoint at the URL `endpoint` with the server, whose admin interface has the
    /// URL `admin`, such as `http://127.0.0.1:9070`. The endpoint must be served in the meantime.
    ///
    /// # Errors
    ///
    /// Returns an error if the server is unavailable, or cannot reach the endpoint.
    pub async fn register(&self, admin: &str, endpoint: &str) -> Result<(), RestateError> {
        self.client.register(admin, endpoint).await
    }
}

impl fmt::Debug for RestateServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestateServer").field("runs", &self.runs).finish_non_exhaustive()
    }
}
