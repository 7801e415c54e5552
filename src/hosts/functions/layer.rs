//! A layer that adds functions to the tools of a service.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures::{FutureExt, future};
use pin_project_lite::pin_project;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{ToolSet, set::Running};
use crate::{
    message::{ItemKind, Reply, Request},
    readiness::take_ready,
};

/// A layer that adds [functions](super), tools that are implemented in this process, to the tools
/// of a service.
///
/// A `FunctionsLayer` lists its functions once, in order, at the end of the first page of tools. If
/// the service has a tool with the same name as a function, the function replaces it: the service's
/// tool is neither listed nor called. Calls of other tools reach the service unchanged.
///
/// The service does not need to have tools. If it rejects `tools/list` as an unknown method, the
/// layer lists only the functions. The layer also adds the tools capability to the service's
/// replies to `initialize` and `server/discover`.
///
/// # Examples
///
/// ```
/// use mcp_composite::{functions::{FunctionsLayer, ToolSet, tool_fn}, message::Request};
/// use rmcp::model::{JsonObject, Tool};
/// use tower::{BoxError, Layer, ServiceExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let tool = |name| Tool::new(name, "A tool", JsonObject::new());
/// let server = ToolSet::new([
///     tool_fn(tool("now"), async |_: JsonObject, _| "of the server"),
///     tool_fn(tool("search"), async |_: JsonObject, _| "of the server"),
/// ])?; // or any other service
/// let now = tool_fn(tool("now"), async |_: JsonObject, _| "half past nine");
/// let service = FunctionsLayer::new(ToolSet::new([now])?).layer(server);
///
/// let reply = service.clone().oneshot(Request::list_tools()).await?;
/// let tools = &reply.tools().unwrap().tools;
/// assert_eq!(tools.iter().map(|tool| &*tool.name).collect::<Vec<_>>(), ["search", "now"]);
/// let reply = service.oneshot(Request::call_tool("now")).await?;
/// assert_eq!(reply.tool_result().unwrap().content[0].as_text().unwrap().text, "half past nine");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct FunctionsLayer {
    functions: ToolSet,
}

/// Middleware that adds functions to the tools of the wrapped service. Created by
/// [`FunctionsLayer`].
///
/// `Functions` is ready when the wrapped service is ready. The call of a function does not reach
/// the wrapped service. Before the function runs, `Functions` releases the capacity that the
/// wrapped service has reserved, such as a slot of a concurrency limit.
#[derive(Clone, Debug)]
pub struct Functions<S> {
    functions: ToolSet,
    inner: S,
}

pin_project! {
    /// Response future of [`Functions`].
    pub struct ResponseFuture<F> {
        #[pin]
        state: State<F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Forwarded {
            edit: Edit,
            #[pin]
            reply: F,
        },
        Running { reply: Running },
    }
}

/// The change of a reply of the wrapped service.
enum Edit {
    None,
    /// Adds the functions to a tool list.
    List {
        functions: ToolSet,
        is_first: bool,
    },
    /// Adds the tools capability.
    Declare,
}

// === impl FunctionsLayer ===

impl FunctionsLayer {
    /// Creates a layer that adds the tools in `functions` to the tools of the service that it
    /// wraps.
    #[must_use]
    pub const fn new(functions: ToolSet) -> Self {
        Self { functions }
    }
}

impl<S> Layer<S> for FunctionsLayer {
    type Service = Functions<S>;

    fn layer(&self, inner: S) -> Functions<S> {
        Functions { functions: self.functions.clone(), inner }
    }
}

// === impl Functions ===

impl<S> Functions<S> {
    /// Returns the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S> Service<Request> for Functions<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    type Response = Reply;
    type Error = BoxError;
    type Future = ResponseFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        if request.is_malformed() {
            drop(take_ready(&mut self.inner));
            let reply = future::ready(Ok(Reply::malformed(request.method()))).boxed();
            return ResponseFuture { state: State::Running { reply } };
        }
        let request = match self.functions.begin(request) {
            Ok(reply) => {
                drop(take_ready(&mut self.inner));
                return ResponseFuture { state: State::Running { reply } };
            }
            Err(request) => request,
        };
        let edit = if request.lists_tools() {
            let functions = self.functions.clone();
            Edit::List { functions, is_first: request.lists_first_tools() }
        } else if request.asks_for_capabilities() && !self.functions.is_empty() {
            Edit::Declare
        } else {
            Edit::None
        };
        ResponseFuture { state: State::Forwarded { edit, reply: self.inner.call(request) } }
    }
}

/// Adds the functions to a `tools/list` reply of the service. The functions are added only to the
/// first page, and the service's tools with the same names are removed from every page. If the
/// service has no tools, creates the first page.
fn list(functions: &ToolSet, is_first: bool, reply: &mut Reply) {
    if functions.is_empty() {
        return;
    }
    if is_first {
        reply.list_missing_tools();
    }
    if reply.refuse_other_than_list(ItemKind::Tool) {
        return;
    }
    let Some(page) = reply.tools_mut() else { return };
    page.tools.retain(|tool| !functions.has(&tool.name));
    if is_first {
        page.tools.extend(functions.tools().cloned());
    }
}

// === impl ResponseFuture ===

impl<F, E> Future for ResponseFuture<F>
where
    F: Future<Output = Result<Reply, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Reply, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Forwarded { edit, reply } => {
                let mut reply = ready!(reply.poll(cx)).map_err(Into::into)?;
                match edit {
                    Edit::None => (),
                    Edit::List { functions, is_first } => list(functions, *is_first, &mut reply),
                    Edit::Declare => reply.declare_tools(),
                }
                Poll::Ready(Ok(reply))
            }
            StateProj::Running { reply } => reply.as_mut().poll(cx),
        }
    }
}

impl<F> fmt::Debug for ResponseFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
