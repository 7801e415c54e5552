//! The service that answers tool calls from the cache.

use std::{
    fmt,
    panic::resume_unwind,
    pin::Pin,
    sync::{Arc, Mutex, atomic::Ordering},
    task::{Context, Poll, ready},
};

use foldhash::quality::RandomState;
use futures::FutureExt;
use pin_project_lite::pin_project;
use serde_json::Value;
use tokio::time::Instant;
use tower::{BoxError, ServiceExt};
use tower_service::Service;

use super::{
    arguments,
    entries::Entries,
    flights::{Boarding, Flight, Landed, Own, Results, WhenRunning},
    key::{Key, KeyRef},
    rule::{CacheRule, NO_CACHE, Per},
    store::{CacheKey, StoredEntry},
    tools::{CachedTool, CachedTools, Definitions},
};
use crate::{
    catalog::{CatalogSettings, Catalogs, Known, ListError, Lookup, Needs, Tools, load},
    message::{Context as RequestContext, ContextKey, Questions, Reply, Request, ToolService},
    metrics,
    mutex::lock,
    readiness::take_ready,
    response_future::ResponseFuture as ForwardingFuture,
    spans,
};

/// Middleware that answers calls to read-only tools from a cache, and forwards all other requests
/// to the wrapped service. Created by [`CacheLayer`](super::CacheLayer).
///
/// `Cache` is ready when the wrapped service is ready. If the cache answers a call, it drops the
/// ready service, which releases the capacity that the service had reserved.
#[derive(Clone)]
pub struct Cache<S> {
    /// `None` if the layer has no rules.
    shared: Option<Arc<Shared>>,
    inner: S,
}

/// The state that all clones of a [`Cache`] share.
pub(super) struct Shared {
    rules: Box<[CacheRule]>,
    /// The cached results and running calls of each rule, in the order of `rules`.
    results: Box<[Arc<Results>]>,
    caller: Option<ContextKey>,
    catalogs: Catalogs<CachedTools>,
    definitions: Definitions,
    hashes: RandomState,
}

pin_project! {
    /// Response future of [`Cache`].
    pub struct ResponseFuture<F, E> {
        #[pin]
        state: State<F, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, E> {
        // A running tool call, held by the caller that started it. Other callers may have joined
        // the call.
        Started {
            flight: Flight,
            // Withdraws the pending questions of servers when the first caller is dropped, because
            // only the client of this caller could answer them.
            questions: Option<EndQuestions>,
        },
        Other {
            #[pin]
            reply: ForwardingFuture<F, E>,
        },
    }
}

/// Withdraws the pending questions of servers to the client when it is dropped.
struct EndQuestions(Questions);

/// How the cache handled a tool call. Recorded in spans and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// The cache contained the result.
    Hit,
    /// The call joined a running call and received its result.
    Joined,
    /// The cache did not contain the result, so the tool was called.
    Miss,
    /// The client bypassed the cache, so the tool was called.
    Bypass,
}

// === impl Shared ===

impl Shared {
    pub(super) fn new(
        rules: &[CacheRule],
        caller: Option<ContextKey>,
        catalogs: CatalogSettings,
    ) -> Self {
        let results =
            rules.iter().map(|rule| Arc::new(Results::new(Entries::new(rule.ttl, rule.max_bytes))));
        Self {
            rules: rules.into(),
            results: results.collect(),
            caller,
            catalogs: Catalogs::new(catalogs),
            definitions: Definitions::default(),
            hashes: RandomState::default(),
        }
    }

    /// Returns the identity of the caller whose cached results may answer the request. Returns
    /// `None` if all callers share results, or if the caller is unidentified.
    fn caller(&self, tool: CachedTool, context: &RequestContext) -> Option<String> {
        match self.rules[tool.rule].per {
            Per::All => None,
            Per::Caller => self.caller.as_ref().and_then(|caller| caller(context)),
        }
    }

    /// Returns the entry for a tool call in the [`CacheRule`]'s store. Returns `None` if the rule
    /// has no store, or if the definition of the tool has just changed.
    fn stored(
        &self,
        tool: CachedTool,
        key: &KeyRef<'_>,
        when_running: WhenRunning,
        request: &Request,
    ) -> Option<StoredEntry> {
        let rule = &self.rules[tool.rule];
        let store = rule.store.clone()?;
        let name = &request.tool_call()?.name;
        let definition = self.definitions.fingerprint(name, tool.definition)?;
        let context = request.context();
        let (is_measured, cached) = (context.is_measured(), context.cached.clone());
        let on_read = move |found: bool| {
            let how = if found { Use::Hit } else { Use::of_call(when_running) };
            how.record(is_measured);
            if let Some(cached) = cached.as_ref().filter(|_| found) {
                cached.store(true, Ordering::Relaxed);
            }
        };
        Some(StoredEntry {
            store,
            key: CacheKey::new(&definition, key.caller, key.arguments),
            ttl: rule.ttl,
            reads: when_running != WhenRunning::Replace,
            on_read: Box::new(on_read),
        })
    }

    /// Lists all tools of `inner`, and determines which of them are cached.
    async fn load<S>(
        self: Arc<Self>,
        inner: S,
        context: RequestContext,
    ) -> Result<(Tools, CachedTools), ListError>
    where
        S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
    {
        let derive = |tools: &Tools| CachedTools::new(&self.rules, &self.definitions, tools);
        load(inner, context, derive).await
    }

    #[cfg(test)]
    pub(super) fn results(&self) -> &[Arc<Results>] {
        &self.results
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("rules", &self.rules).finish_non_exhaustive()
    }
}

// === impl Cache ===

impl<S> Cache<S> {
    pub(super) const fn new(shared: Option<Arc<Shared>>, inner: S) -> Self {
        Self { shared, inner }
    }

    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }

    #[cfg(test)]
    pub(super) const fn shared(&self) -> Option<&Arc<Shared>> {
        self.shared.as_ref()
    }
}

impl<S> Cache<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    /// Lists the tools of the wrapped service in advance, so that the first tool call does not have
    /// to wait for the list. Does nothing if there are no rules.
    ///
    /// # Errors
    ///
    /// Returns an error if listing the tools fails. The next tool call then tries again.
    pub async fn warm(&self) -> Result<(), ListError> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let lookup = shared.catalogs.lookup(&RequestContext::default());
        let load = |context| shared.clone().load(self.inner.clone(), context);
        lookup.wait(Needs::AllTools, |_| true, load).await.map(drop)
    }
}

impl<S> Service<Request> for Cache<S>
where
    S: ToolService,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        if self.shared.is_none() && !request.is_malformed() {
            return ResponseFuture { state: self.forward(request) };
        }
        ResponseFuture { state: self.process(request) }
    }
}

impl<S: ToolService> Cache<S> {
    fn process(&mut self, request: Request) -> State<S::Future, S::Error> {
        if request.is_malformed() {
            drop(take_ready(&mut self.inner));
            return ForwardingFuture::answered(Reply::malformed(request.method())).into();
        }
        let Some(shared) = &self.shared else { return self.forward(request) };
        if request.lists_tools() {
            let lookup = shared.catalogs.lookup(request.context());
            let reply = inspect_list(shared.clone(), lookup, self.inner.call(request));
            return ForwardingFuture::boxed(Box::pin(reply)).into();
        }
        let Some(call) = request.tool_call() else { return self.forward(request) };
        if call.input_responses.is_some() || call.request_state.is_some() {
            // Forward the call, because it contains the answers to the questions of an earlier
            // call.
            return self.forward(request);
        }
        let now = Instant::now();
        let mut lookup = shared.catalogs.lookup(request.context());
        let load = |context| shared.clone().load(self.inner.clone(), context);
        let needs = Needs::CurrentTool(&call.name);
        match lookup.find(needs, now, |known| knows(known, &call.name), load) {
            Some(known) => {
                let tool = known.ok().and_then(|known| known.derived().get(&call.name));
                self.answer(tool, request, now)
            }
            None => {
                let reply = self.listing(shared.clone(), lookup, request);
                ForwardingFuture::boxed(Box::pin(reply)).into()
            }
        }
    }

    fn forward(&mut self, request: Request) -> State<S::Future, S::Error> {
        ForwardingFuture::forwarded(self.inner.call(request)).into()
    }

    /// Lists the tools of the wrapped service, and then answers the tool call.
    fn listing(
        &mut self,
        shared: Arc<Shared>,
        lookup: Lookup<CachedTools>,
        request: Request,
    ) -> impl Future<Output = Result<Reply, S::Error>> + Send + use<S> {
        // Do not keep the service ready while listing the tools, because listing calls the service,
        // too.
        let mut this = self.clone();
        drop(take_ready(&mut self.inner));
        async move {
            let name = request.tool_call().map(|call| call.name.clone()).unwrap_or_default();
            let inner = this.inner.clone();
            let load = |context| shared.load(inner, context);
            let known = lookup.wait(Needs::CurrentTool(&name), |known| knows(known, &name), load);
            let tool = known.await.ok().and_then(|known| known.derived().get(&name));
            let state = this.ready().await?.answer(tool, request, Instant::now());
            drop(this);
            ResponseFuture { state }.await
        }
    }

    /// Answers a tool call from the cache if possible. Otherwise, forwards the call.
    fn answer(
        &mut self,
        tool: Option<CachedTool>,
        request: Request,
        now: Instant,
    ) -> State<S::Future, S::Error> {
        let (Some(shared), Some(tool)) = (&self.shared, tool) else { return self.forward(request) };
        let context = request.context();
        let results = &shared.results[tool.rule];
        let arguments = request.tool_call().and_then(|call| call.arguments.as_ref());
        let caller = shared.caller(tool, context);
        let key = KeyRef {
            hash: arguments::hash(&shared.hashes, arguments),
            definition: tool.definition,
            caller: caller.as_deref(),
            arguments,
        };
        let bypasses = context.meta().get(NO_CACHE).and_then(Value::as_bool);
        let when_running = match bypasses {
            Some(true) => WhenRunning::Replace,
            // A tool that calls itself with the same arguments must not wait for its own running
            // call.
            _ if context.is_nested() => WhenRunning::Separate,
            _ => WhenRunning::Join,
        };
        if when_running != WhenRunning::Replace
            && let Some(reply) = results.entries.get(&key, now)
        {
            Use::Hit.record(context.is_measured());
            context.note_cached();
            drop(take_ready(&mut self.inner));
            return ForwardingFuture::answered(reply).into();
        }
        let stored = shared.stored(tool, &key, when_running, &request);
        let (results, key) = (results.clone(), key.to_key());
        self.board(&results, key, when_running, stored, request)
    }

    /// Calls the tool, or joins a running call with the same key.
    fn board(
        &mut self,
        results: &Arc<Results>,
        key: Key,
        when_running: WhenRunning,
        stored: Option<StoredEntry>,
        request: Request,
    ) -> State<S::Future, S::Error> {
        let is_measured = request.context().is_measured();
        let is_stored = stored.is_some();
        let mut request = Some(request);
        let mut questions = None;
        let boarding = results.board(key, when_running, || {
            let mut request = request.take().expect("called at most once");
            questions = request.context_mut().detach();
            let mut inner = take_ready(&mut self.inner);
            (async move { inner.call(request).await }, questions.clone(), stored)
        });
        match (boarding, request) {
            (Boarding::Joined(flight), Some(request)) => {
                Use::Joined.record(is_measured);
                let inner = self.inner.clone();
                drop(take_ready(&mut self.inner));
                ForwardingFuture::boxed(Box::pin(joined(flight, inner, request))).into()
            }
            (Boarding::Separate, Some(request)) => {
                Use::Miss.record(is_measured);
                self.forward(request)
            }
            (Boarding::Started(flight), _) => {
                // If there is a store, it is not known yet whether it has the result.
                if !is_stored {
                    Use::of_call(when_running).record(is_measured);
                }
                State::Started { flight, questions: questions.map(EndQuestions) }
            }
            (_, None) => unreachable!("only a started call takes the request"),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Cache<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("shared", &self.shared).field("inner", &self.inner).finish()
    }
}

/// Returns `true` if the known list of tools contains the tool.
fn knows(known: &Known<CachedTools>, tool: &str) -> bool {
    // Look in the map of cached tools first, because its hash function is faster.
    known.derived().get(tool).is_some() || known.tools().get(tool).is_some()
}

/// Waits for the running call of another caller. If the outcome of this call cannot be shared,
/// calls the tool separately.
async fn joined<S: ToolService>(
    flight: Flight,
    mut inner: S,
    request: Request,
) -> Result<Reply, S::Error> {
    match flight.await {
        Landed::Result(reply) => {
            request.context().note_cached();
            Ok(reply)
        }
        Landed::Own(_) => inner.ready().await?.call(request).await,
    }
}

/// Waits for the reply to `tools/list`. If the definition of a cached tool has changed, discards
/// the cached list of tools. Results for the earlier definition are then no longer used.
async fn inspect_list<E>(
    shared: Arc<Shared>,
    lookup: Lookup<CachedTools>,
    reply: impl Future<Output = Result<Reply, E>>,
) -> Result<Reply, E> {
    let reply = reply.await?;
    if let Some(page) = reply.tools() {
        let definitions = &shared.definitions;
        lookup.discard_if(|known| CachedTools::differ(known, &page.tools, definitions));
    }
    Ok(reply)
}

// === impl ResponseFuture ===

impl<F, E> From<ForwardingFuture<F, E>> for State<F, E> {
    fn from(reply: ForwardingFuture<F, E>) -> Self {
        Self::Other { reply }
    }
}

impl<F, E> Future for ResponseFuture<F, E>
where
    F: Future<Output = Result<Reply, E>>,
    E: 'static,
{
    type Output = Result<Reply, E>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProj::Started { flight, .. } => match ready!(flight.poll_unpin(cx)) {
                Landed::Result(reply) => Poll::Ready(Ok(reply)),
                Landed::Own(own) => Poll::Ready(take(&own)),
            },
            StateProj::Other { reply } => reply.poll(cx),
        }
    }
}

impl<F, E> fmt::Debug for ResponseFuture<F, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// Takes the outcome of a call that must not be shared. If the call panicked, resumes the panic in
/// the caller that started the call.
fn take<E: 'static>(own: &Mutex<Option<Own>>) -> Result<Reply, E> {
    let own = lock(own).take();
    match own {
        Some(Own::Answer(answer)) => match answer.downcast() {
            Ok(answer) => *answer,
            Err(_) => unreachable!("it is the answer of the same service"),
        },
        Some(Own::Panic(panic)) => resume_unwind(panic),
        None => unreachable!("only one caller takes it"),
    }
}

// === impl EndQuestions ===

impl Drop for EndQuestions {
    fn drop(&mut self) {
        self.0.end();
    }
}

// === impl Use ===

impl Use {
    /// Returns the value to record for a call that reaches the tool: [`Bypass`](Self::Bypass) if
    /// the client bypassed the cache, and [`Miss`](Self::Miss) otherwise.
    fn of_call(when_running: WhenRunning) -> Self {
        if when_running == WhenRunning::Replace { Self::Bypass } else { Self::Miss }
    }

    /// Records how the call was handled. Always records it in the current span, and in the metrics
    /// if `is_measured` is `true`.
    fn record(self, is_measured: bool) {
        let name = self.name();
        spans::record_cache(name);
        if is_measured {
            metrics::cached(name);
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Joined => "joined",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
        }
    }
}
