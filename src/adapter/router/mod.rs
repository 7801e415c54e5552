//! Serves several backends as one server.
//!
//! A [`Router`] is a Tower service over other Tower services: remote servers, handlers of this
//! process, or stacks of layers over either. Clients see one server with the items of all of them.
//!
//! # Names
//!
//! | [`Conflicts`] | tools and prompts | an item in two backends |
//! |---|---|---|
//! | `Prefix` | have the prefix of their backend | is left out if it is a tool or prompt; a resource belongs to the first backend |
//! | `Priority` | keep their names | belongs to the first backend |
//! | `Manual` | keep their names | is left out until it is renamed |
//!
//! With `Priority`, a backend counts once it has been listed: until then the next one that offers a
//! name owns it. Use prefixes if this is not acceptable.
//!
//! A prefix is the name of the backend and the separator, unless the backend has
//! [its own](Backend::prefix). URIs are never rewritten. Items that are left out, and names that
//! clients do not accept, are logged once and reported by [`Router::problems`].
//!
//! # Lists
//!
//! Every list requests all pages of all backends concurrently, and merges the items in the order of
//! the backends. A failing or slow backend does not affect the others:
//!
//! - If a backend fails, its last known items are used.
//! - If a backend takes longer than the router's [patience](RouterBuilder::patience), or than the
//!   client waits if that is at least a second, its last known items are used as well. The router
//!   waits for it in the background, and further lists do not wait for it until it has answered; an
//!   error does not count. If its items then differ from those that were listed meanwhile, the
//!   router notifies its [`Changes`]: at once the first time, then at most once a second, and less
//!   and less often, down to once a minute, if the backend changes continuously. Requests that were
//!   sent before a change are repeated.
//! - A backend that [declares](Backend::description) no prompts is not asked for them. A backend
//!   that does not know the method has no items, and is asked again when the [`Changes`] report a
//!   change or when its description becomes known. It reports this with a reply of that code, or
//!   with a [`BackendError`] of the kind [`Unsupported`], by itself or as the source of another
//!   error.
//!
//! The known items of a backend are shared by all clients. Use separate routers for backends that
//! show different tools to different clients.
//!
//! A list has pages of 1000 items. The last four lists with several pages are kept, so that clients
//! can read them to the end. Cursors of other lists are rejected, unless the list has the same
//! names in the same order now.
//!
//! # Calls
//!
//! A call goes to the backend that listed its name. If none did, it goes to the backend with the
//! longest prefix that the name begins with, so that calls work before anything was listed. If
//! names have no prefix, the backends are listed for an unknown name, at most once a second.
//!
//! A resource is read at the first backend, in the order in which they were added, that lists it or
//! a template with a matching literal beginning. So a later backend takes over no resource of an
//! earlier one, neither by its exact URI nor by a longer template. For example, a backend with the
//! template `file:///{+path}` owns all files; add backends with files of their own before it. A
//! template that begins with an expression, such as `{+uri}`, owns nothing. Otherwise the resource
//! is read at the first backend that returned it in the result of a tool or a prompt, or else at
//! the only backend that has resources.
//!
//! A backend owns nothing before it was listed: while the list of an earlier backend is unknown,
//! because it is not connected or fails, a later one that lists the same resource owns it. The
//! lists of a backend that disconnects later are kept.
//!
//! Completions of a resource template come from the first backend that lists exactly that template.
//!
//! If a backend cannot answer, its calls fail with a [`BackendError`] that names it. If it does not
//! know the method, the requested item is rejected as unknown, and completions are empty. The
//! router itself is always ready; a call waits until its backend is ready.
//!
//! Requests for skills, and for the resource directories of skills, go to the only backend that
//! declares the extension, or to the only backend. A log level is set at the only backend that
//! declares `logging`. Tasks and custom requests are method not found.
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

/// Several backends as one service.
///
/// Clones share the known state of the backends. See the [module docs](self) for the behavior that
/// clients see and for an example.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

// === impl Router ===

impl Router {
    /// Adds the descriptions of the backends to a server's description: the capabilities of any of
    /// them, and the instructions of each, under its name.
    ///
    /// While the description of a backend is unknown, everything that a router supports is
    /// declared: tools, prompts, resources with subscriptions, and completions. Logging and skills
    /// are declared if exactly one backend declares them; tasks and other extensions of backends
    /// never are.
    ///
    /// The description that a client of 2025-11-25 receives at `initialize` holds for its
    /// connection, even if the backends change later. Instructions of a backend that was unknown
    /// then never reach it.
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        describe::describe(&self.shared, base)
    }

    /// Returns the name under which clients see a tool or prompt of a backend, or `None` if there
    /// is no such backend.
    #[must_use]
    pub fn exposed_name(&self, backend: &str, tool: &str) -> Option<String> {
        let names = &self.shared.names;
        let place = names.backends.iter().position(|names| &*names.name == backend)?;
        Some(names.expose(place, tool))
    }

    /// Returns the known problems of the backends: those that do not answer, and the items that are
    /// left out of lists, with the reasons.
    ///
    /// At most 1000 left-out items of each kind are reported.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.shared.problems()
    }

    /// Returns the changes that are notified when a slow backend lists something new.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.shared.changes
    }

    /// Returns the names of the backends, in their order.
    #[must_use]
    pub fn backends(&self) -> impl ExactSizeIterator<Item = &str> {
        self.shared.names.backends.iter().map(|names| &*names.name)
    }

    /// Returns the separator between the name of a backend and that of its tool.
    #[must_use]
    pub fn separator(&self) -> &str {
        &self.shared.names.separator
    }

    /// Returns the rule for names that several backends offer.
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
