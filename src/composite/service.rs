//! The Tower service that adds composite tools to an inner service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use futures::future::{BoxFuture, Either, FutureExt, Ready, ready};
use rmcp::model::{ErrorData, JsonObject};
use tokio::time::Instant;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{
    CompositeLayer, Preview,
    compile::Program,
    listing::{Concern, Listing},
    resolve::Resolved,
    rounds,
    run::Runner,
};
use crate::{
    catalog::{Known, ListError, Lookup, Needs},
    intercept::Informed,
    message::{ItemKind, Refusal, Reply, Request, ToolService},
    response_future::ResponseFuture,
};

/// Middleware that adds composite tools to an inner service. Created by [`CompositeLayer`].
///
/// The `Composite` middleware is ready when the inner service is ready.
#[derive(Clone)]
pub struct Composite<S> {
    listing: Informed<Listing, S>,
}

// === impl CompositeLayer ===

impl<S> Layer<S> for CompositeLayer {
    type Service = Composite<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let listing = Listing { layer: Arc::new(self.clone()) };
        Composite { listing: Informed::with_catalogs(listing, inner, self.catalogs.clone()) }
    }
}

// === impl Composite ===

impl<S> Composite<S> {
    /// Returns the inner service, to which composites send their tool calls.
    pub const fn get_ref(&self) -> &S {
        self.listing.get_ref()
    }
}

impl<S> Composite<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>> + Clone,
{
    /// Lists the tools of the inner service in advance, so that later requests do not have to wait
    /// for the list. Does nothing if the tools are already known, or if there are no composites.
    ///
    /// # Errors
    ///
    /// Returns an error if the inner service cannot list its tools now. In this case, the tools are
    /// listed at the first request that needs them.
    pub async fn warm(&self) -> Result<(), ListError> {
        self.listing.warm().await
    }
}

impl<S> Composite<S>
where
    S: ToolService,
{
    /// Returns a preview of the tool calls that a composite tool would make with these arguments.
    /// No tool is called, so values that depend on the outputs of tools remain unknown.
    ///
    /// The preview lists the steps of the composite in the order in which they may start, each with
    /// its tool calls. The arguments of each call are converted to the types that the tool's input
    /// schema declares.
    ///
    /// If the tools of the inner service are not known yet, `preview` lists them first.
    ///
    /// # Errors
    ///
    /// Returns a JSON-RPC error if the composite does not exist, if its tools are missing, or if
    /// the arguments do not match its input schema. A call of the composite would return the same
    /// error.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        let rule = self.listing.rule();
        let program = &rule.layer.program;
        let refused = |refusal: Refusal| refusal.to_error();
        let name = || composite.to_owned().into();
        let Some(at) = program.find(composite) else {
            return Err(refused(Refusal::Unknown { kind: ItemKind::Tool, name: name() }));
        };
        let lookup = self.listing.catalogs().lookup(&crate::message::Context::default());
        let known = known(lookup, at, rule, self.get_ref(), Instant::now()).await;
        let Some(available) = known.as_ref().and_then(|(known, _)| known.derived().available(at))
        else {
            return Err(refused(Refusal::Unavailable { kind: ItemKind::Tool, name: name() }));
        };
        let checked = available.check(composite, Some(arguments)).map_err(refused)?;
        let given = checked.given.as_deref();
        let prepare = |site: usize, arguments| available.targets[site].prepare(arguments, given);
        let waves = program.composites[at].plan.preview(&checked.arguments, &prepare);
        Ok(Preview { composite: composite.to_owned(), waves })
    }
}

impl<S> Service<Request> for Composite<S>
where
    S: ToolService,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.listing.poll_ready(cx)
    }

    #[inline]
    fn call(&mut self, request: Request) -> Self::Future {
        let program = &self.listing.rule().layer.program;
        if !program.is_empty() {
            if Concern::of(&request) != Concern::Nothing {
                return ResponseFuture::boxed(Box::pin(self.listing.call(request)));
            }
            let composite = request.tool_call().and_then(|call| program.find(&call.name));
            if let Some(composite) = composite {
                return ResponseFuture::boxed(self.run(composite, request));
            }
        }
        ResponseFuture::forwarded(self.listing.inner_mut().call(request))
    }
}

impl<S> Composite<S>
where
    S: ToolService,
{
    pub(super) fn run(
        &mut self,
        composite: usize,
        mut request: Request,
    ) -> BoxFuture<'static, Result<Reply, S::Error>> {
        // The readiness that this call reserved is released, because each branch acquires readiness
        // itself. Otherwise, a service that admits one request at a time would deadlock.
        let inner = Box::new(self.listing.give_back_readiness());
        // The branches run in their own tasks, and need the data of the request that they belong
        // to.
        if let Err(refusal) = request.enter() {
            return Box::pin(ready(Ok(refusal.into())));
        }
        let rule = self.listing.rule();
        let layer = rule.layer.clone();
        let lookup = self.listing.catalogs().lookup(request.context());
        let now = Instant::now();
        match known(lookup, composite, rule, &*inner, now) {
            // The future is not nested in another one, which would move it once more.
            Either::Left(found) => match found.into_inner() {
                Some((known, started)) => {
                    let runner = Runner { layer, known, inner };
                    Box::pin(rounds::answer(runner, composite, request, started))
                }
                None => Box::pin(ready(Ok(unavailable(&layer.program, composite)))),
            },
            Either::Right(listed) => Box::pin(async move {
                if let Err(error) = rounds::check_runtime() {
                    return Ok(error);
                }
                let Some((known, started)) = listed.await else {
                    return Ok(unavailable(&layer.program, composite));
                };
                let runner = Runner { layer, known, inner };
                rounds::answer(runner, composite, request, started).await
            }),
        }
    }
}

/// Returns the error reply to a call of a composite if the tools of the inner service cannot be
/// listed.
fn unavailable(program: &Program, composite: usize) -> Reply {
    let name = program.composites[composite].name.to_string();
    Refusal::Unavailable { kind: ItemKind::Tool, name: name.into() }.into()
}

/// The tools of the inner service, and the start time of the call. If the call had to wait for the
/// tool list, the start time is the end of this wait.
type Listed = (Arc<Known<Resolved>>, Instant);

/// Returns the tools of the inner service and the start time of the call of `composite`. If the
/// known tools include those that the composite needs, returns them with the time `now`. Otherwise,
/// lists the tools again. Returns `None` if the tools cannot be listed.
fn known<S>(
    mut lookup: Lookup<Resolved>,
    composite: usize,
    rule: &Listing,
    inner: &S,
    now: Instant,
) -> Either<Ready<Option<Listed>>, BoxFuture<'static, Option<Listed>>>
where
    S: ToolService,
{
    let name = &rule.layer.program.composites[composite].name;
    let can_run = move |known: &Known<Resolved>| known.derived().available(composite).is_some();
    let load = |context| crate::intercept::load(rule.clone(), inner.clone(), context);
    if let Some(known) = lookup.find(Needs::Tool(name), now, can_run, load) {
        return Either::Left(ready(known.ok().map(|known| (known, now))));
    }
    let (name, rule, inner) = (name.clone(), rule.clone(), inner.clone());
    // Boxed because the future is large and rarely needed.
    let listed = async move {
        let load = |context| crate::intercept::load(rule, inner, context);
        let known = lookup.wait(Needs::Tool(&name), can_run, load).await.ok()?;
        Some((known, Instant::now()))
    };
    Either::Right(listed.boxed())
}

impl<S: fmt::Debug> fmt::Debug for Composite<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Composite").field("listing", &self.listing).finish_non_exhaustive()
    }
}
