//! A layer that runs an async hook around tool calls, for example to wait for an approval.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use pin_project_lite::pin_project;
use tower::{BoxError, ServiceExt, util::BoxService};
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    message::{Reply, Request, ToolService},
    readiness::take_ready,
};

/// Creates a layer that runs an async hook around each tool call (`tools/call`).
///
/// Unlike a [rule](super::Intercept), the hook can wait, for example for an approval. It can
/// forward the call with [`Next::run`], unchanged or rewritten, and then inspect the reply. It can
/// also reply itself, for example to reject the call. Requests other than `tools/call` bypass the
/// hook.
///
/// While the hook waits, the call occupies the capacity that the inner service has reserved for it,
/// such as a slot of a `ConcurrencyLimit`. To release the capacity, drop [`Next`] without running
/// it. Dropping the response future drops the hook and cancels its call.
///
/// The future that `hook` returns cannot borrow from the closure. To use captured values, write a
/// closure that clones them and returns an `async move` block. An async closure works only if it
/// captures nothing.
///
/// # Errors
///
/// If the hook returns an error, the service fails with this error. [`Next::run`] returns the
/// errors of the inner service. To reject a call without failing, return a reply such as
/// `Ok(Reply::unknown_tool(name))`, or any other [`Refusal`](crate::message::Refusal).
///
/// # Examples
///
/// ```
/// use std::convert::Infallible;
///
/// use mcp_composite::{intercept, message::{Reply, Request}};
/// use rmcp::model::CallToolResult;
/// use tower::{BoxError, ServiceBuilder, ServiceExt};
///
/// /// Asks somebody, who may take a while.
/// async fn is_approved(tool: &str) -> bool {
///     tool != "wipe"
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// let service = ServiceBuilder::new()
///     .layer(intercept::from_fn(async |request, next| {
///         let tool = request.tool_call().map(|call| call.name.clone()).unwrap_or_default();
///         if !is_approved(&tool).await {
///             return Ok(Reply::unknown_tool(tool));
///         }
///         next.run(request).await
///     }))
///     .service_fn(async |_: Request| Ok::<Reply, Infallible>(CallToolResult::success(vec![]).into()));
///
/// let reply = service.clone().oneshot(Request::call_tool("look")).await?;
/// assert!(reply.error().is_none());
/// let reply = service.oneshot(Request::call_tool("wipe")).await?;
/// assert_eq!(reply.error().unwrap().message, "unknown tool `wipe`");
/// # Ok(())
/// # }
/// ```
pub const fn from_fn<F, H>(hook: F) -> FromFnLayer<F>
where
    F: Fn(Request, Next) -> H,
    H: Future<Output = Result<Reply, BoxError>>,
{
    FromFnLayer { hook }
}

/// Layer returned by [`from_fn`].
#[derive(Clone, Copy)]
#[must_use]
pub struct FromFnLayer<F> {
    hook: F,
}

/// A service that runs a hook around each tool call to the inner service `S`. It is ready when `S`
/// is ready. See [`from_fn`].
#[derive(Clone)]
pub struct FromFn<F, S> {
    hook: F,
    inner: S,
}

/// The inner service of [`FromFn`], to which the hook can forward its call with [`run`](Self::run).
pub struct Next(BoxService<Request, Reply, BoxError>);

pin_project! {
    /// Response future of [`FromFn`].
    pub struct ResponseFuture<H, F> {
        #[pin]
        state: State<H, F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<H, F> {
        Hooked {
            #[pin]
            reply: H,
        },
        Passed {
            #[pin]
            reply: F,
        },
        Answered { reply: Option<Reply> },
    }
}

// === impl FromFnLayer ===

impl<F: Clone, S> Layer<S> for FromFnLayer<F> {
    type Service = FromFn<F, S>;

    fn layer(&self, inner: S) -> Self::Service {
        FromFn { hook: self.hook.clone(), inner }
    }
}

impl<F> fmt::Debug for FromFnLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFnLayer").finish_non_exhaustive()
    }
}

// === impl FromFn ===

impl<F, H, S> Service<Request> for FromFn<F, S>
where
    F: Fn(Request, Next) -> H,
    H: Future<Output = Result<Reply, BoxError>>,
    S: ToolService,
{
    type Response = Reply;
    type Error = BoxError;
    type Future = ResponseFuture<H, S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let state = if request.is_malformed() {
            // The inner service is not called, so it must not stay ready.
            drop(take_ready(&mut self.inner));
            State::Answered { reply: Some(Reply::malformed(request.method())) }
        } else if request.tool_call().is_some() {
            let ready = take_ready(&mut self.inner);
            let next = Next(BoxService::new(ready.map_err(Into::into)));
            State::Hooked { reply: (self.hook)(request, next) }
        } else {
            State::Passed { reply: self.inner.call(request) }
        };
        ResponseFuture { state }
    }
}

impl<F, S: fmt::Debug> fmt::Debug for FromFn<F, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromFn").field("inner", &self.inner).finish_non_exhaustive()
    }
}

// === impl Next ===

impl Next {
    /// Forwards the request to the inner service and returns its reply.
    ///
    /// # Errors
    ///
    /// Returns an error if the inner service fails. If the server replies with a JSON-RPC error,
    /// `run` returns it as a reply.
    pub async fn run(self, request: Request) -> Result<Reply, BoxError> {
        let Self(mut ready) = self;
        let reply = ready.call(request);
        drop(ready);
        reply.await
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

// === impl ResponseFuture ===

impl<H, F, E> Future for ResponseFuture<H, F>
where
    H: Future<Output = Result<Reply, BoxError>>,
    F: Future<Output = Result<Reply, E>>,
    E: Into<BoxError>,
{
    type Output = Result<Reply, BoxError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Hooked { reply } => reply.poll(cx),
            StateProj::Passed { reply } => reply.poll(cx).map_err(Into::into),
            StateProj::Answered { reply } => {
                Poll::Ready(Ok(reply.take().expect("polled after completion")))
            }
        }
    }
}

impl<H, F> fmt::Debug for ResponseFuture<H, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
