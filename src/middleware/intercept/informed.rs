//! Rules that depend on the tools of the service behind them, and the service [`Informed`], which
//! applies such a rule.

use std::{
    fmt,
    future::poll_fn,
    mem,
    ops::ControlFlow,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::BoxFuture;
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use super::{
    Intercept,
    intercepted::{Awaiting, ResponseFuture as InterceptedFuture},
};
use crate::{
    catalog::{self, CatalogSettings, Catalogs, Known, ListError, Lookup, Needs, Tools},
    changes::Epoch,
    message::{Context as RequestContext, Reply, Request, ToolService},
    readiness::take_ready,
};

/// The duration after which a rule counts as slow. After a slow rule, the response future yields to
/// other tasks once before it forwards the request.
const LONG: Duration = Duration::from_millis(1);

/// A rule that inspects or rewrites requests and replies, and that depends on the tools of the
/// service behind it. For example, a rule can depend on the annotations of the called tool.
///
/// For each request, the method [`needs`](Self::needs) returns the tools that the rule must know.
/// If a request needs no tools, an `InterceptInformed` works like an [`Intercept`].
///
/// # Examples
///
/// ```
/// use std::{convert::Infallible, ops::ControlFlow, sync::Arc};
///
/// use mcp_composite::{
///     catalog::{Known, Needs, Tools},
///     intercept::{Informed, InterceptInformed},
///     message::{Reply, Request},
/// };
/// use rmcp::model::{CallToolResult, ListToolsResult, Tool, ToolAnnotations};
/// use tower::ServiceExt;
///
/// /// Refuses calls to tools that are not known to be read-only.
/// #[derive(Clone)]
/// struct ReadOnly;
///
/// impl InterceptInformed for ReadOnly {
///     type Derived = ();
///     type Memo = ();
///
///     fn derive(&self, _: &Tools) {}
///
///     fn needs<'r>(&self, request: &'r Request) -> Needs<'r> {
///         request.tool_call().map_or(Needs::Nothing, |call| Needs::CurrentTool(&call.name))
///     }
///
///     fn on_request(
///         &self,
///         request: &mut Request,
///         known: Option<&Arc<Known<()>>>,
///     ) -> ControlFlow<Reply> {
///         let Some(call) = request.tool_call() else {
///             return ControlFlow::Continue(());
///         };
///         let annotations = known
///             .and_then(|known| known.tools().get(&call.name))
///             .and_then(|tool| tool.annotations.as_ref());
///         if annotations.and_then(|it| it.read_only_hint) == Some(true) {
///             ControlFlow::Continue(())
///         } else {
///             ControlFlow::Break(Reply::unknown_tool(call.name.clone()))
///         }
///     }
///
///     fn awaits_reply(&self, (): &()) -> bool {
///         false
///     }
/// }
///
/// async fn server(request: Request) -> Result<Reply, Infallible> {
///     Ok(match request.lists_tools() {
///         true => ListToolsResult::with_all_items(vec![
///             Tool::new("look", "Looks",
///             Arc::default()).with_annotations(ToolAnnotations::new().read_only(true)),
///         Tool::new("wipe", "Wipes", Arc::default()), ])
///         .into(),
///         false => CallToolResult::success(vec![]).into(),
///     })
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Infallible> {
/// let service = Informed::new(ReadOnly, tower::service_fn(server));
/// let reply = service.clone().oneshot(Request::call_tool("look")).await?;
/// assert!(reply.error().is_none());
/// let reply = service.oneshot(Request::call_tool("wipe")).await?;
/// assert!(reply.error().is_some());
/// # Ok(())
/// # }
/// ```
pub trait InterceptInformed: Clone {
    /// The data that the rule derives from the list of tools, each time the tools have been listed.
    type Derived;
    /// State that [`on_request`](Self::on_request) returns for a request, and that
    /// [`on_reply`](Self::on_reply) receives together with the reply, for example the name of the
    /// called tool.
    type Memo;

    /// Derives data from the list of tools, so that the rule can decide about requests faster.
    fn derive(&self, tools: &Tools) -> Self::Derived;

    /// Returns `true` if the rule may need tools, so that it is useful to list them [in
    /// advance](Informed::warm). Defaults to `true`.
    fn needs_tools(&self) -> bool {
        true
    }

    /// Returns which tools the rule must know before it can decide about this request.
    ///
    /// The service calls `needs` before [`on_request`](Self::on_request). The result should depend
    /// only on state that does not change between these two calls.
    fn needs<'r>(&self, request: &'r Request) -> Needs<'r>;

    /// Inspects or rewrites a request before it is forwarded. To reply without forwarding the
    /// request, return `Break` with the reply.
    ///
    /// `known` contains the tools of the service behind the rule, as last listed. It is `None` if
    /// the rule [needs](Self::needs) no tools for the request, or if the tools could not be listed.
    /// In the latter case, a security rule must reject the request. It must also reject calls to
    /// tools that are not in `known`, because a server may accept calls to tools that it does not
    /// list.
    fn on_request(
        &self,
        request: &mut Request,
        known: Option<&Arc<Known<Self::Derived>>>,
    ) -> ControlFlow<Reply, Self::Memo>;

    /// Returns `true` if [`on_reply`](Self::on_reply) must be called with the reply to a request.
    /// `memo` is the state that [`on_request`](Self::on_request) returned for the request. Defaults
    /// to `true`.
    ///
    /// Return `false` from `awaits_reply` if `on_reply` would do nothing. The service then stores
    /// no state while the request is processed.
    fn awaits_reply(&self, memo: &Self::Memo) -> bool {
        let _ = memo;
        true
    }

    /// Inspects or rewrites the reply to a request that was forwarded, before the client receives
    /// it.
    fn on_reply(
        &self,
        memo: Self::Memo,
        known: Option<&Arc<Known<Self::Derived>>>,
        reply: &mut Reply,
    ) {
        let _ = (memo, known, reply);
    }
}

/// A service that applies the rule `I` to the requests and replies of the inner service `S`. It
/// lists the tools of `S` for the rule, and caches them.
///
/// An `Informed` is ready when `S` is ready.
///
/// If the rule needs tools that are not cached, an `Informed` first lists the tools of `S`. In the
/// meantime, the request occupies no capacity of `S`, such as a slot of a concurrency limit. After
/// that, the request waits until `S` is ready again.
///
/// An `Informed` replies with an error to a [malformed](Request::is_malformed) request, whose
/// parameters rmcp cannot parse. The rule does not see the request.
///
/// If the rule takes longer than 1 ms, the response future yields to other tasks once before it
/// calls `S`. This works in any async runtime.
pub struct Informed<I: InterceptInformed, S> {
    rule: I,
    inner: S,
    catalogs: Catalogs<I::Derived>,
}

pin_project! {
    /// Response future of [`Informed`].
    pub struct ResponseFuture<I: InterceptInformed, F, E> {
        #[pin]
        state: State<I, F, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<I: InterceptInformed, F, E> {
        AtHand {
            #[pin]
            reply: InterceptedFuture<Knowing<I>, F>,
        },
        Boxed { reply: BoxFuture<'static, Result<Reply, E>> },
    }
}

/// A rule, together with the tools that were looked up for one request. Adapts an
/// [`InterceptInformed`] to the trait [`Intercept`].
pub(crate) struct Knowing<I: InterceptInformed> {
    rule: I,
    known: Option<Arc<Known<I::Derived>>>,
}

// === impl Informed ===

impl<I: InterceptInformed, S> Informed<I, S> {
    /// Wraps `inner` with `rule`.
    pub fn new(rule: I, inner: S) -> Self {
        Self::with_catalogs(rule, inner, CatalogSettings::default())
    }

    /// Sets the [`Epoch`] of the tools, a counter of their changes. When you bump the epoch, the
    /// service discards its cached tools.
    #[must_use]
    pub fn epoch(self, epoch: Epoch) -> Self {
        let settings = CatalogSettings { epoch, ..self.catalogs.settings() };
        Self::with_catalogs(self.rule, self.inner, settings)
    }

    /// Caches the tools of the inner service separately for each key. The function `key` derives
    /// the key from the context of a request, for example from the name of the caller. Use this if
    /// the inner service offers different tools to different callers. Requests for which `key`
    /// returns `None` share one list.
    ///
    /// By default, all requests share one list of tools, which the service requests in an empty
    /// context.
    #[must_use]
    pub fn vary_by<F>(self, key: F) -> Self
    where
        F: Fn(&RequestContext) -> Option<String> + Send + Sync + 'static,
    {
        let settings = CatalogSettings { vary_by: Some(Arc::new(key)), ..self.catalogs.settings() };
        Self::with_catalogs(self.rule, self.inner, settings)
    }

    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    pub(crate) fn with_catalogs(rule: I, inner: S, settings: CatalogSettings) -> Self {
        Self { rule, inner, catalogs: Catalogs::new(settings) }
    }

    pub(crate) const fn rule(&self) -> &I {
        &self.rule
    }

    /// Returns a mutable reference to the inner service. Used to forward requests that bypass the
    /// rule.
    pub(crate) const fn inner_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    pub(crate) const fn catalogs(&self) -> &Catalogs<I::Derived> {
        &self.catalogs
    }
}

impl<I, S: Clone> Informed<I, S>
where
    I: InterceptInformed,
{
    /// Replaces the inner service with a clone that is not ready. This releases resources of the
    /// ready service, such as a slot of a concurrency limit. Returns another clone of the inner
    /// service.
    pub(crate) fn give_back_readiness(&mut self) -> S {
        drop(take_ready(&mut self.inner));
        self.inner.clone()
    }
}

impl<I, S> Informed<I, S>
where
    I: InterceptInformed,
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    /// Lists the tools in advance, so that the first request does not have to wait for the list.
    /// Does nothing if the tools are already cached, or if the rule never needs tools.
    ///
    /// # Errors
    ///
    /// Returns an error if the tools cannot be listed. The service then lists them again when a
    /// request needs them.
    pub async fn warm(&self) -> Result<(), ListError> {
        if !self.rule.needs_tools() {
            return Ok(());
        }
        let lookup = self.catalogs.lookup(&RequestContext::default());
        let (rule, inner) = (self.rule.clone(), self.inner.clone());
        let load = |context| load(rule, inner, context);
        lookup.wait(Needs::AllTools, |_| true, load).await.map(drop)
    }
}

/// Lists all tools of `inner`, and calls [`InterceptInformed::derive`] of the rule with them.
/// Returns the tools and the derived data.
pub(crate) async fn load<I, S>(
    rule: I,
    inner: S,
    context: RequestContext,
) -> Result<(Tools, I::Derived), ListError>
where
    I: InterceptInformed,
    S: Service<Request, Response = Reply> + Clone,
    S::Error: Into<BoxError>,
{
    catalog::load(inner, context, |tools| rule.derive(tools)).await
}

/// Returns `true` if the tool that `needs` names is in the cached list. Also returns `true` if
/// `needs` names no tool.
fn suffices<D>(needs: Needs<'_>, known: &Known<D>) -> bool {
    match needs {
        Needs::Nothing | Needs::AllTools => true,
        Needs::Tool(name) | Needs::CurrentTool(name) => known.tools().get(name).is_some(),
    }
}

impl<I, S> Service<Request> for Informed<I, S>
where
    I: InterceptInformed<Derived: Send + Sync + 'static, Memo: Send> + Send + Sync + 'static,
    S: ToolService,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<I, S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        let needs = match self.rule.needs(&request) {
            Needs::Nothing => return self.uninformed(request),
            needs => needs,
        };
        let now = Instant::now();
        let mut lookup = self.catalogs.lookup(request.context());
        let load = |context| load(self.rule.clone(), self.inner.clone(), context);
        match lookup.find(needs, now, |known| suffices(needs, known), load) {
            Some(known) => self.informed(known.ok(), now, request),
            None => {
                let reply = self.listing(lookup, request);
                ResponseFuture { state: State::Boxed { reply } }
            }
        }
    }
}

impl<I, S> Informed<I, S>
where
    I: InterceptInformed<Derived: Send + Sync + 'static, Memo: Send> + Send + Sync + 'static,
    S: ToolService,
{
    /// Applies the rule to a request for which it needs no tools, and forwards the request.
    #[inline]
    fn uninformed(&mut self, mut request: Request) -> ResponseFuture<I, S::Future, S::Error> {
        match decide(&self.rule, None, &mut request) {
            ControlFlow::Continue(memo) => self.forward(None, memo, request),
            ControlFlow::Break(reply) => self.answer(reply),
        }
    }

    /// Applies the rule to a request, with the cached tools, and forwards the request. `known` is
    /// `None` if the tools could not be listed. If more than a millisecond has passed since
    /// `begun`, the future yields once before it forwards the request.
    #[inline]
    fn informed(
        &mut self,
        known: Option<Arc<Known<I::Derived>>>,
        begun: Instant,
        mut request: Request,
    ) -> ResponseFuture<I, S::Future, S::Error> {
        let memo = match decide(&self.rule, known.as_ref(), &mut request) {
            ControlFlow::Continue(memo) => memo,
            ControlFlow::Break(reply) => return self.answer(reply),
        };
        if begun.elapsed() <= LONG {
            return self.forward(known, memo, request);
        }
        let awaiting = awaiting(&self.rule, known, memo);
        let mut inner = take_ready(&mut self.inner);
        let reply = Box::pin(async move {
            yield_now().await;
            InterceptedFuture::forwarded(awaiting, inner.call(request)).await
        });
        ResponseFuture { state: State::Boxed { reply } }
    }

    /// Forwards a request. Clones the rule only if the rule must also see the reply.
    #[inline]
    fn forward(
        &mut self,
        known: Option<Arc<Known<I::Derived>>>,
        memo: I::Memo,
        request: Request,
    ) -> ResponseFuture<I, S::Future, S::Error> {
        if !self.rule.awaits_reply(&memo) {
            drop((known, memo));
            let reply = InterceptedFuture::passed(self.inner.call(request));
            return ResponseFuture { state: State::AtHand { reply } };
        }
        let awaiting = awaiting(&self.rule, known, memo);
        let reply = InterceptedFuture::forwarded(awaiting, self.inner.call(request));
        ResponseFuture { state: State::AtHand { reply } }
    }

    fn answer(&mut self, reply: Reply) -> ResponseFuture<I, S::Future, S::Error> {
        self.give_back_readiness();
        ResponseFuture { state: State::AtHand { reply: InterceptedFuture::answered(reply) } }
    }

    /// Lists the tools that the rule needs for a request. Then applies the rule and forwards the
    /// request.
    fn listing(
        &mut self,
        lookup: Lookup<I::Derived>,
        mut request: Request,
    ) -> BoxFuture<'static, Result<Reply, S::Error>> {
        let mut inner = self.give_back_readiness();
        let rule = self.rule.clone();
        Box::pin(async move {
            let known = {
                let needs = rule.needs(&request);
                let (rule, inner) = (rule.clone(), inner.clone());
                let load = move |context| load(rule, inner, context);
                lookup.wait(needs, |known| suffices(needs, known), load).await.ok()
            };
            let inner = inner.ready().await?;
            let begun = Instant::now();
            match decide(&rule, known.as_ref(), &mut request) {
                ControlFlow::Continue(memo) => {
                    if begun.elapsed() > LONG {
                        yield_now().await;
                    }
                    let awaiting = awaiting(&rule, known, memo);
                    InterceptedFuture::forwarded(awaiting, inner.call(request)).await
                }
                ControlFlow::Break(reply) => Ok(reply),
            }
        })
    }
}

/// Calls the rule with a request. `known` contains the cached tools, or `None` if the rule needs no
/// tools or they could not be listed. Rejects malformed requests without calling the rule.
#[inline]
fn decide<I: InterceptInformed>(
    rule: &I,
    known: Option<&Arc<Known<I::Derived>>>,
    request: &mut Request,
) -> ControlFlow<Reply, I::Memo> {
    // Services behind this service might interpret a malformed request differently than the rule.
    if request.is_malformed() {
        return ControlFlow::Break(Reply::malformed(request.method()));
    }
    rule.on_request(request, known)
}

/// Returns a clone of the rule, with the memo that it returned for the request, to process the
/// reply later. Returns `None` if the rule does not need the reply.
#[inline]
fn awaiting<I: InterceptInformed>(
    rule: &I,
    known: Option<Arc<Known<I::Derived>>>,
    memo: I::Memo,
) -> Option<Awaiting<Knowing<I>>> {
    let rule = rule.awaits_reply(&memo).then(|| rule.clone())?;
    Some(Awaiting { rule: Knowing { rule, known }, memo })
}

/// Yields to other tasks once. Works with any executor.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<I: InterceptInformed, S: Clone> Clone for Informed<I, S> {
    fn clone(&self) -> Self {
        Self { rule: self.rule.clone(), inner: self.inner.clone(), catalogs: self.catalogs.clone() }
    }
}

impl<I: InterceptInformed + fmt::Debug, S: fmt::Debug> fmt::Debug for Informed<I, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informed")
            .field("rule", &self.rule)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

// === impl Knowing ===

impl<I: InterceptInformed> Intercept for Knowing<I> {
    type Memo = I::Memo;

    fn on_request(&self, request: &mut Request) -> ControlFlow<Reply, Self::Memo> {
        self.rule.on_request(request, self.known.as_ref())
    }

    fn on_reply(&self, memo: Self::Memo, reply: &mut Reply) {
        self.rule.on_reply(memo, self.known.as_ref(), reply);
    }
}

impl<I: InterceptInformed> Clone for Knowing<I> {
    fn clone(&self) -> Self {
        Self { rule: self.rule.clone(), known: self.known.clone() }
    }
}

// === impl ResponseFuture ===

impl<I, F, E> Future for ResponseFuture<I, F, E>
where
    I: InterceptInformed,
    F: Future<Output = Result<Reply, E>>,
{
    type Output = Result<Reply, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::AtHand { reply } => reply.poll(cx),
            StateProj::Boxed { reply } => reply.as_mut().poll(cx),
        }
    }
}

impl<I: InterceptInformed, F, E> fmt::Debug for ResponseFuture<I, F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
