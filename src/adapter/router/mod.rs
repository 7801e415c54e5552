//! A router that serves several backends as a single MCP server.
//!
//! A [`Router`] is a Tower service that sends each request to one of several Tower services, its
//! *backends*. A backend is a remote server, a handler in this process, or Tower layers around
//! either. Clients see one server with the tools, prompts, resources and resource templates of all
//! backends.
//!
//! # Names
//!
//! | [`Conflicts`] | tools and prompts | an item in two backends |
//! |---|---|---|
//! | `Prefix` | have the prefix of their backend | is left out if it is a tool or prompt; a resource belongs to the first backend |
//! | `Priority` | keep their names | belongs to the first backend |
//! | `Manual` | keep their names | is left out until it is renamed |
//!
//! With `Conflicts::Priority`, a backend owns the name of a tool or prompt only after it has listed
//! the name. Until then, requests for the name are sent to the next backend that lists it. If this
//! is not acceptable, use `Conflicts::Prefix`.
//!
//! The prefix of a backend is its name followed by the separator, such as `github_`, unless
//! [`Backend::prefix`] sets a different prefix. URIs are never rewritten. If an item is left out,
//! or clients do not accept its name, the problem is logged once and reported by
//! [`Router::problems`].
//!
//! # Lists
//!
//! For each list request of a client, the router requests all pages from all backends concurrently.
//! It merges the items in the order of the backends. A failing or slow backend does not affect the
//! others:
//! - If a backend fails, its last known items are listed.
//! - If a backend does not answer within the router's [patience](RouterBuilder::patience), it is
//!   considered slow, and its last known items are listed. A backend is also slow if the client
//!   gives up after waiting for a second or more. The router then waits for the slow backend in the
//!   background. Until the backend has answered without an error, further list requests immediately
//!   use its last known items.
//! - If a slow backend finally returns other items than the last known ones, the router notifies
//!   its [`Changes`]: the first time immediately, and again after at least a second. If the backend
//!   changes continuously, the interval doubles up to a minute. If a change is reported after a
//!   background request was sent, the request is repeated.
//! - If a backend's [description](Backend::description) declares no prompts, the router requests no
//!   prompts from the backend. The same applies to tools and resources.
//! - A backend that does not know the list method is treated as having no items. The router
//!   requests its items again when the [`Changes`] report a change, or when its description becomes
//!   known. To signal that it does not know a method, a backend replies with the error "method not
//!   found". It can also fail with a [`BackendError`] of the kind [`Unsupported`], which may be the
//!   source of another error.
//!
//! All clients of a router share the last known items of a backend. If a backend returns different
//! tools to different clients, create a separate router for each group of clients.
//!
//! The router splits each list into pages of 1000 items. For each kind of item, it stores the last
//! four lists that have several pages. Therefore, a client can read a list to its end even if the
//! items change. A cursor of an older list is rejected, unless the current list has the same names
//! in the same order.
//!
//! # Calls
//!
//! The router sends a request for a tool or prompt to the backend that has listed the name. If no
//! backend has listed the name, the backend with the longest matching prefix receives the request,
//! so that calls work before the first listing. If names have no prefixes, a request for an unknown
//! name first lists the items of all backends, at most once a second.
//!
//! A resource belongs to the first backend that lists the resource or a matching template, in the
//! order in which the backends were added. A template matches all URIs that start with the text
//! before its first expression. A template that begins with an expression, such as `{+uri}`,
//! matches nothing.
//!
//! A later backend cannot take over a resource of an earlier backend, neither by listing the exact
//! URI nor by a longer template. For example, a backend with the template `file:///{+path}` owns
//! all files, so other backends with files must be added before it.
//!
//! If no backend lists a resource, the router reads it from the first backend that has returned its
//! URI in the result of a tool or a prompt. If there is no such backend, the router reads the
//! resource from the only backend that has resources.
//!
//! A backend owns a resource only after it has listed the resource. It remains the owner if it
//! disconnects later. While the list of a backend is unknown, because the backend is not connected
//! or fails, its resources belong to the next backend that lists them.
//!
//! The router sends completion requests for a resource template to the first backend that lists
//! exactly this template.
//!
//! If a backend cannot answer a call, the call fails with a [`BackendError`] that names the
//! backend. If a backend does not know the method, the router replies that the item is unknown, and
//! completions are empty. The router itself is always ready, and each call waits until its backend
//! is ready.
//!
//! The router sends requests for skills and for their resource directories to the backend that
//! declares the skills extension. It sends a request to set the log level to the backend that
//! declares `logging`. Unless exactly one backend declares the capability, it rejects such requests
//! with "method not found". If the router has a single backend whose description is unknown, that
//! backend is assumed to declare both. Requests about tasks and custom requests are always rejected
//! with "method not found". If the tools of a backend may continue as tasks, wrap the backend in a
//! [`PollTasksLayer`](crate::poll_tasks::PollTasksLayer).
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     adapter::router::{Backend, Router},
//!     message::{Reply, Request},
//! };
//! use rmcp::model::{CallToolResult, ListToolsResult, Tool};
//! use tower::{ServiceExt, service_fn};
//!
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     Ok(match request.tool_call() {
//!         // Each server is called by the name that it gave.
//!         Some(call) if call.name == "search" => CallToolResult::success(vec![]).into(),
//!         Some(call) => Reply::unknown_tool(call.name.clone()),
//!         None if request.lists_tools() => {
//!             let search = Tool::new("search", "Searches", rmcp::model::JsonObject::new());
//!             ListToolsResult::with_all_items(vec![search]).into()
//!         }
//!         None => Reply::method_not_found(request.method().to_owned()),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let router = Router::builder()
//!     .backend(Backend::new("github", service_fn(server)))
//!     .backend(Backend::new("jira", service_fn(server)))
//!     .build()?;
//!
//! let reply = router.clone().oneshot(Request::list_tools()).await?;
//! let names: Vec<_> = reply.tools().unwrap().tools.iter().map(|tool| &*tool.name).collect();
//! assert_eq!(names, ["github_search", "jira_search"]);
//!
//! let reply = router.clone().oneshot(Request::call_tool("jira_search")).await?;
//! assert!(reply.error().is_none());
//! let reply = router.oneshot(Request::call_tool("jira_delete")).await?;
//! assert_eq!(reply.error().unwrap().message, "unknown tool `jira_delete`");
//! # Ok(())
//! # }
//! ```
//!
//! [`BackendError`]: crate::message::BackendError
//! [`Unsupported`]: crate::message::BackendErrorKind::Unsupported

mod backend;
mod builder;
mod describe;
mod error;
mod fetch;
mod item;
mod list_cache;
mod merged;
mod names;
mod resource_owners;
mod service;
mod shared;
mod warning;

use std::{fmt, sync::Arc};

use rmcp::model::ServerConfig;

use self::shared::Shared;
pub use self::{
    backend::Backend,
    builder::RouterBuilder,
    error::{RouterError, RouterMistake, RouterMistakeKind},
    names::Conflicts,
    service::ResponseFuture,
    warning::Problem,
};
use crate::changes::Changes;

/// A Tower service that serves several backends, such as remote servers, as a single MCP server.
///
/// Clones of a `Router` share the last known lists of the backends. See the [module docs](self) for
/// an example and for the behavior that clients see.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

// === impl Router ===

impl Router {
    /// Adds the capabilities and instructions of all backends to the server description `base`.
    ///
    /// The returned description declares the capabilities of all backends. It contains the
    /// instructions of each backend below a heading with the backend's name, truncated to 8 KiB for
    /// each backend.
    ///
    /// While the description of a backend is unknown, the returned description declares everything
    /// that the backend may support: tools, prompts, resources with subscriptions, and completions.
    /// Logging and skills are declared only if exactly one backend declares them. Tasks and other
    /// extensions are never declared.
    ///
    /// A client with protocol version 2025-11-25 receives the server description only once, at
    /// `initialize`. It never receives the instructions of a backend whose description becomes
    /// known later.
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        describe::describe(&self.shared, base)
    }

    /// Returns the name that clients see for a backend's tool or prompt, such as `github_search`.
    /// Returns `None` if no backend is named `backend`.
    #[must_use]
    pub fn exposed_name(&self, backend: &str, tool: &str) -> Option<String> {
        let names = &self.shared.names;
        let place = names.backends.iter().position(|names| &*names.name == backend)?;
        Some(names.expose(place, tool))
    }

    /// Returns all known problems: backends whose lists are not available, and items that the
    /// router leaves out of lists, each with the reason. At most 1000 problems are returned for the
    /// items of each kind, such as tools.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.shared.problems()
    }

    /// Returns the [`Changes`] channel of the router. See [`RouterBuilder::changes`].
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.shared.changes
    }

    /// Returns the names of the backends in the order in which they were added.
    #[must_use]
    pub fn backends(&self) -> impl ExactSizeIterator<Item = &str> {
        self.shared.names.backends.iter().map(|names| &*names.name)
    }

    /// Returns the separator between the name of a backend and the name of its tool or prompt, for
    /// example `_` in `github_search`.
    #[must_use]
    pub fn separator(&self) -> &str {
        &self.shared.names.separator
    }

    /// Returns the rule for items, such as tools, that have the same name in several backends.
    #[must_use]
    pub fn conflicts(&self) -> Conflicts {
        self.shared.names.conflicts
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Router")
            .field("backends", &self.backends().collect::<Vec<_>>())
            .field("conflicts", &self.conflicts())
            .finish_non_exhaustive()
    }
}
