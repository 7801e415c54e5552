//! Serve several backends as one.
//!
//! A [`Router`] is a Tower service over other Tower services: remote servers,
//! handlers of this process, or stacks of layers over either. Clients see one
//! server that has what all of them have.
//!
//! # Names
//!
//! | [`Conflicts`] | tools and prompts | what two backends have |
//! |---|---|---|
//! | `Prefix` | have the prefix of their backend | is left out of tools and prompts; the first backend has the resource |
//! | `Priority` | keep their names | is the first backend's |
//! | `Manual` | keep their names | is left out, until somebody renames it |
//!
//! With `Priority`, a backend counts once it has listed what it has: until then
//! the next one that offers a name has it. Who needs it otherwise uses prefixes.
//!
//! A prefix is the name of the backend and the separator, unless the backend
//! has [its own](Backend::prefix). URIs are never rewritten. What is left out,
//! or has a name that clients do not take, is logged once and told by
//! [`Router::problems`].
//!
//! # Lists
//!
//! Every list asks all backends at once, in all pages, and puts together what
//! they have in the order of the backends. No backend can spoil it for the
//! others:
//!
//! - One that fails keeps what was last known of it.
//! - So does one that takes longer than the router's
//!   [patience](RouterBuilder::patience), or than the client waits, if that is a
//!   second at least. It is waited for in the background, and further lists do
//!   not wait for it until it has told what it has: to fail is no answer. If it
//!   has something else than what was listed meanwhile, the router tells its
//!   [`Changes`]: at once the first time, then at most once a second, and ever
//!   less often, down to once a minute, as long as it has something else again
//!   and again. What it was asked for before a change is asked for again.
//! - One that [says](Backend::description) that it has no prompts is not asked
//!   for them. One that does not know the method has none, and is asked again
//!   when the [`Changes`] tell that something has changed, or when it begins to
//!   say what it has. A reply of that code says so, and so does a
//!   [`BackendError`] of the kind [`Unsupported`], by itself or as the source of
//!   another error.
//!
//! What is remembered of a backend is remembered for all clients. Let backends
//! that show different tools to different clients have routers of their own.
//!
//! A list has pages of 1000 items. The last four lists of several pages are
//! kept, so that whoever began one can read it to its end. The cursor of any
//! other is refused, unless the list has the same names in the same order now.
//!
//! # Calls
//!
//! A call goes where its name was listed, else to the backend with the longest
//! prefix that it begins with, so that calls work before anything was listed.
//! Where names have no prefix, an unknown one is looked for, at most once a
//! second.
//!
//! A resource is read at the first backend, in the order in which they were added, that
//! lists it or a template of that beginning, so that a later backend takes no resource of
//! an earlier one: not by its exact URI, and not by a longer template. So a backend with the
//! template `file:///{+path}` owns all files, and backends with files of their own come before
//! it. A template that begins with an expression, such as `{+uri}`, owns nothing. Else the
//! resource is read at the first backend that handed it out in the result of a tool or a prompt,
//! else at the only backend that has resources.
//!
//! A backend owns nothing before it was listed: as long as the list of an earlier backend is not
//! known, because it is not connected or fails, a later one that lists the same resource has it.
//! The lists of a backend that goes away later are remembered.
//!
//! Completions of a resource template are those of the first backend that lists exactly that
//! template.
//!
//! A backend that cannot answer fails its own calls with a [`BackendError`] that
//! names it. One that does not know the method refuses what it was asked for as
//! unknown, and completes to nothing. The router itself is always ready, and a
//! call waits until its backend is.
//!
//! Skills, and the directories of resources that belong to them, are those of the only
//! backend that declares the extension, or of the only backend. A log level is set at the
//! only backend that declares `logging`. Tasks and custom requests are method not found.
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
/// Clones share what is known of the backends. See the [module docs](self) for
/// what clients see and for an example.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

// === impl Router ===

impl Router {
    /// Begins to make a router.
    pub fn builder() -> RouterBuilder {
        RouterBuilder::default()
    }

    /// Adds to a server's description what its backends say of themselves: what
    /// any of them has, and the instructions of each, under its name.
    ///
    /// As long as one has not said anything, all that a router can do is declared:
    /// tools, prompts, resources that can be subscribed to, and completions.
    /// Logging and skills are declared if exactly one backend declares them; tasks and other
    /// extensions of backends never are.
    ///
    /// What a client of 2025-11-25 was told at `initialize` holds for its
    /// connection, whatever is known of the backends later. Instructions of a
    /// backend that was not known then never reach it.
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        describe::describe(&self.shared, base)
    }

    /// The name under which clients see a tool or prompt of a backend, if there
    /// is such a backend.
    #[must_use]
    pub fn exposed_name(&self, backend: &str, tool: &str) -> Option<String> {
        let names = &self.shared.names;
        let place = names.backends.iter().position(|names| &*names.name == backend)?;
        Some(names.expose(place, tool))
    }

    /// What is wrong with the backends, as far as it is known: those that do not
    /// answer, and what is left out of lists and why.
    ///
    /// Of each kind of item, at most 1000 that are left out are told.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        self.shared.problems()
    }

    /// Who is told when more is known of a slow backend.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.shared.changes
    }

    /// The names of the backends, in their order.
    #[must_use]
    pub fn backends(&self) -> impl ExactSizeIterator<Item = &str> {
        self.shared.names.backends.iter().map(|names| &*names.name)
    }

    /// What stands between the name of a backend and that of its tool.
    #[must_use]
    pub fn separator(&self) -> &str {
        &self.shared.names.separator
    }

    /// What happens when two backends offer something under one name.
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
