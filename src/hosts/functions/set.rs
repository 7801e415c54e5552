//! An MCP server whose tools are functions.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, Either, FutureExt, Ready, ready};
use rmcp::model::{ClientRequest, ErrorData, ListToolsResult, Tool};
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use super::{Function, FunctionCall};
use crate::message::{ItemKind, Reply, Request, Subject};

/// An MCP server whose tools are functions.
///
/// A `ToolSet` lists all functions on one page, in order, and calls them. It rejects unknown tools,
/// and all methods that do not concern tools. The [adapter](crate::adapter::ServeService::new) that
/// serves the `ToolSet` implements the rest of the protocol.
///
/// A `ToolSet` is always ready, and its clones share the functions. If the
/// [service](super::tool_service) that implements a function fails, the response future fails with
/// the same error. See the [module docs](super) for an example.
#[derive(Clone, Default)]
pub struct ToolSet(Arc<Shared>);

#[derive(Default)]
struct Shared {
    functions: Vec<Function>,
    indices: HashMap<String, usize>,
}

/// The error returned if several functions have the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more than one tool is called {}", .0.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))]
pub struct DuplicateTools(Vec<String>);

/// Response future of [`ToolSet`].
#[must_use = "futures do nothing unless polled"]
pub struct ResponseFuture(Either<Ready<Result<Reply, BoxError>>, Running>);

/// A future that resolves to the reply to a call of a function.
pub(super) type Running = BoxFuture<'static, Result<Reply, BoxError>>;

// === impl ToolSet ===

impl ToolSet {
    /// Creates a server whose tools are the given functions.
    ///
    /// # Errors
    ///
    /// Returns an error that contains the duplicate names if several functions have the same name.
    pub fn new(functions: impl IntoIterator<Item = Function>) -> Result<Self, DuplicateTools> {
        let mut shared = Shared::default();
        let mut twice = Vec::new();
        for function in functions {
            let name = function.tool.name.to_string();
            if shared.indices.contains_key(&name) {
                twice.push(name);
                continue;
            }
            shared.indices.insert(name, shared.functions.len());
            shared.functions.push(function);
        }
        twice.sort_unstable();
        twice.dedup();
        if twice.is_empty() { Ok(Self(Arc::new(shared))) } else { Err(DuplicateTools(twice)) }
    }

    /// Returns the definitions of all tools, in the order in which the functions were passed to
    /// [`new`](Self::new).
    pub fn tools(&self) -> impl ExactSizeIterator<Item = &Tool> {
        self.0.functions.iter().map(Function::tool)
    }

    /// Returns `true` if a function has the name `tool`.
    #[must_use]
    pub fn has(&self, tool: &str) -> bool {
        self.0.indices.contains_key(tool)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.functions.is_empty()
    }

    /// Starts the function that the request calls, and returns its future. If the request does not
    /// call any of the functions, returns the request as `Err`, so that the caller can forward it.
    pub(super) fn begin(&self, mut request: Request) -> Result<Running, Request> {
        let index = request.tool_call().and_then(|call| self.0.indices.get(&*call.name));
        let Some(&index) = index else { return Err(request) };
        if let Err(refusal) = request.enter() {
            return Ok(ready(Ok(refusal.into())).boxed());
        }
        let (message, mut context) = request.into_parts();
        let ClientRequest::CallToolRequest(message) = message else {
            unreachable!("it is a call, or would have no place")
        };
        let delegation = context.delegation();
        let arguments = message.params.arguments.unwrap_or_default();
        let call = FunctionCall { tool: message.params.name, arguments, context };
        let service = self.0.functions[index].service.clone();
        Ok(delegation.answer(service.oneshot(call)).boxed())
    }
}

impl Service<Request> for ToolSet {
    type Response = Reply;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> ResponseFuture {
        let request = match self.begin(request) {
            Ok(running) => return ResponseFuture(Either::Right(running)),
            Err(request) => request,
        };
        let reply = match request.subject() {
            _ if request.is_malformed() => Reply::malformed(request.method()),
            Subject::List(ItemKind::Tool, None) => {
                ListToolsResult::with_all_items(self.tools().cloned().collect()).into()
            }
            Subject::List(ItemKind::Tool, Some(_)) => {
                ErrorData::invalid_params("unknown cursor", None).into()
            }
            Subject::Item(ItemKind::Tool, name) => Reply::unknown_tool(name.to_owned()),
            _ => Reply::method_not_found(request.method().to_owned()),
        };
        ResponseFuture(Either::Left(ready(Ok(reply))))
    }
}

impl fmt::Debug for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.tools().map(|tool| &*tool.name).collect();
        f.debug_tuple("ToolSet").field(&names).finish()
    }
}

// === impl DuplicateTools ===

impl DuplicateTools {
    /// Returns the duplicate names, in alphabetical order.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.0
    }
}

// === impl ResponseFuture ===

impl Future for ResponseFuture {
    type Output = Result<Reply, BoxError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_unpin(cx)
    }
}

impl fmt::Debug for ResponseFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
