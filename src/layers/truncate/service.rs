//! The service that shortens tool results.

use std::{
    collections::HashMap,
    fmt::{self, Write},
    mem,
    sync::Arc,
    task::{Context, Poll},
};

use rmcp::model::{ContentBlock, MetaObject};
use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    SHORTENED, Settings, TruncateLayer,
    shorten::shorten,
    stored_results::{declare, keep, read, read_handle},
};
use crate::{
    catalog::{Catalogs, Known, Lookup, Needs, Tools, load},
    json_size::BoundedCounter,
    message::{Reply, Request, ToolService},
    readiness::take_ready,
    response_future::ResponseFuture,
    schema::InputSchema,
};

/// Middleware that shortens the tool results of the wrapped service. Created by
/// [`TruncateLayer`](super::TruncateLayer).
///
/// `Truncate` is ready when the wrapped service is ready. If a request reads the stored full
/// version of a shortened result, `Truncate` replies without calling the wrapped service. It then
/// releases the capacity that the wrapped service has reserved, such as a slot of a concurrency
/// limit.
pub struct Truncate<S> {
    settings: Arc<Settings>,
    inner: S,
    catalogs: Catalogs<Outputs>,
}

/// The output schemas of the listed tools, by tool name. Tools without an output schema have no
/// entry.
type Outputs = HashMap<String, Arc<InputSchema>>;

// === impl TruncateLayer ===

impl<S> Layer<S> for TruncateLayer {
    type Service = Truncate<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Truncate::new(Arc::new(self.0.clone()), inner)
    }
}

// === impl Truncate ===

impl<S> Truncate<S> {
    pub(super) fn new(settings: Arc<Settings>, inner: S) -> Self {
        let catalogs = Catalogs::new(settings.catalogs.clone());
        Self { settings, inner, catalogs }
    }

    /// Returns a reference to the inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S> Service<Request> for Truncate<S>
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
        if self.settings.are_idle() && !request.is_malformed() {
            return ResponseFuture::forwarded(self.inner.call(request));
        }
        self.work(request)
    }
}

impl<S> Truncate<S>
where
    S: ToolService,
{
    fn work(&mut self, request: Request) -> ResponseFuture<S::Future, S::Error> {
        if request.is_malformed() {
            drop(take_ready(&mut self.inner));
            return ResponseFuture::answered(Reply::malformed(request.method()));
        }
        if let Some(limit) = self.settings.max_result_bytes
            && request.tool_call().is_some()
        {
            return ResponseFuture::boxed(Box::pin(self.bounded(request, limit)));
        }
        if let Some(store) = &self.settings.store {
            if let Some(handle) = read_handle(&request) {
                let (store, handle) = (store.clone(), handle.to_owned());
                let owner = self.settings.owner(request.context());
                drop(take_ready(&mut self.inner));
                let reply = async move { Ok(read(&store, &handle, &owner).await) };
                return ResponseFuture::boxed(Box::pin(reply));
            }
            if request.asks_for_capabilities() {
                let reply = self.inner.call(request);
                return ResponseFuture::boxed(Box::pin(declared(reply)));
            }
        }
        ResponseFuture::forwarded(self.inner.call(request))
    }

    /// Forwards a tool call. The returned future waits for the tool result, and shortens a result
    /// that is larger than `limit` bytes.
    fn bounded(
        &mut self,
        request: Request,
        limit: usize,
    ) -> impl Future<Output = Result<Reply, S::Error>> + Send + use<S> {
        let tool = request.tool_call().map(|call| call.name.clone()).unwrap_or_default();
        let lookup = self.catalogs.lookup(request.context());
        let settings = self.settings.clone();
        let view = request.context().view().cloned();
        let owner = settings.store.as_ref().map(|_| settings.owner(request.context()));
        let reply = self.inner.call(request);
        // The clone has not been polled for readiness. So it reserves no capacity that other
        // requests wait for.
        let inner = self.inner.clone();
        async move {
            let mut reply = reply.await?;
            // Only borrow the result. `tool_result_mut` would copy a shared result even if it is
            // not shortened.
            if reply.tool_result().is_none_or(|result| BoundedCounter::new(limit).holds(result)) {
                return Ok(reply);
            }
            let Some(result) = reply.tool_result_mut() else { return Ok(reply) };
            // Only structured content is checked against the schema.
            let schema = match &result.structured_content {
                Some(_) => output_schema(&tool, lookup, inner).await,
                None => {
                    drop((lookup, inner));
                    None
                }
            };
            let shortened = shorten(result, limit, schema.as_deref());
            let whole = mem::replace(result, shortened.result);
            // If nothing was omitted, texts were only rendered again without spaces.
            if shortened.omissions.is_empty() {
                return Ok(reply);
            }
            crate::metrics::shortened(&whole, result, view.as_deref());
            let link = match (&settings.store, owner) {
                (Some(store), Some(owner)) => keep(store, &whole, &owner).await,
                _ => None,
            };
            let mut note = shortened.omissions.note();
            if let Some(link) = &link {
                // Writing to a string never fails.
                let _ = write!(note, "; the full result is the resource {}", link.uri);
            }
            result.content.push(ContentBlock::text(note));
            result.content.extend(link.map(ContentBlock::ResourceLink));
            let meta = result.meta.get_or_insert_with(MetaObject::default);
            meta.insert(SHORTENED.to_owned(), shortened.omissions.value());
            Ok(reply)
        }
    }
}

impl<S: Clone> Clone for Truncate<S> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            inner: self.inner.clone(),
            catalogs: self.catalogs.clone(),
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Truncate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Truncate")
            .field("settings", &self.settings)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Waits for the reply to a request for the server's capabilities, and adds the `resources`
/// capability to it. Clients need this capability to read stored results.
async fn declared<E>(reply: impl Future<Output = Result<Reply, E>>) -> Result<Reply, E> {
    let mut reply = reply.await?;
    if let Some(capabilities) = reply.capabilities_mut() {
        declare(capabilities);
    }
    Ok(reply)
}

/// Returns the output schema of a tool. Returns `None` if the tool has no output schema, or if
/// listing the tools fails.
///
/// Drops `inner` as soon as the list of tools is available. A call that stores its result
/// afterwards then does not occupy the service.
async fn output_schema<S: ToolService>(
    tool: &str,
    mut lookup: Lookup<Outputs>,
    inner: S,
) -> Option<Arc<InputSchema>> {
    let needs = Needs::Tool(tool);
    let knows = |known: &Known<Outputs>| known.tools().get(tool).is_some();
    let found =
        lookup.find(needs, Instant::now(), knows, |context| load(inner.clone(), context, outputs));
    let known = match found {
        Some(known) => {
            drop((lookup, inner));
            known
        }
        None => lookup.wait(needs, knows, |context| load(inner, context, outputs)).await,
    };
    known.ok()?.derived().get(tool).cloned()
}

fn outputs(tools: &Tools) -> Outputs {
    let schemas = tools.iter().filter_map(|tool| {
        let schema = InputSchema::new(tool.output_schema.clone()?);
        Some((tool.name.to_string(), Arc::new(schema)))
    });
    schemas.collect()
}
