//! All layers in their fixed order.
//!
//! A [`StackLayer`] puts all layers of this crate around a service, and a
//! [`BackendLayer`] those that make sense for one of several backends. Layers
//! that were not set change nothing, and cost next to nothing.
#![doc = include_str!("guide/order.md")]
//!
//! # Examples
//!
//! "Hide the parts, show the whole":
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     advertise::AdvertiseLayer,
//!     composite::{CompositeLayer, CompositeTool},
//!     message::{Reply, Request},
//!     pattern::Selection,
//!     stack::StackLayer,
//! };
//! use rmcp::model::{CallToolResult, JsonObject, ListToolsResult, Tool};
//! use tower::{Layer, ServiceExt, service_fn};
//!
//! async fn server(request: Request) -> Result<Reply, Infallible> {
//!     let tool = |name| Tool::new(name, "Searches", JsonObject::new());
//!     Ok(match request.lists_tools() {
//!         true => ListToolsResult::with_all_items(vec![tool("docs"), tool("code")]).into(),
//!         false => CallToolResult::success(vec![]).into(),
//!     })
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let search = CompositeTool::fan_out("search", "Searches everywhere", ["docs", "code"]);
//! let stack = StackLayer::new()
//!     .composite(CompositeLayer::new([search])?)
//!     .advertise(AdvertiseLayer::new().tools(Selection::default().deny(["*"])?))
//!     .layer(service_fn(server));
//!
//! let reply = stack.clone().oneshot(Request::list_tools()).await?;
//! let names: Vec<_> = reply.tools().unwrap().tools.iter().map(|tool| &*tool.name).collect();
//! assert_eq!(names, ["search"]);
//! assert!(stack.clone().oneshot(Request::call_tool("search")).await?.error().is_none());
//! assert!(stack.oneshot(Request::call_tool("docs")).await?.error().is_some());
//! # Ok(())
//! # }
//! ```

#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use rmcp::model::{ErrorData, JsonObject, ServerCapabilities};
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    advertise::{Advertise, AdvertiseLayer},
    alias::{Alias, AliasLayer},
    bound::{Bound, BoundLayer},
    budget::{BudgetLayer, Budgeted},
    catalog::{ListError, VaryBy},
    changes::Changes,
    composite::{Composite, CompositeLayer, Preview},
    filter::{Filter, FilterLayer},
    limit::{Limit, LimitLayer},
    message::{Context as RequestContext, Reply, Request},
    observe::{Observer, Observers},
    pattern::Patterns,
    redact::{Redact, RedactLayer},
    trace::{Trace, TraceLayer},
    validate::{Validate, ValidateLayer},
};

/// The order above a router, or a single server. It is told nowhere else.
type Layers<S> = Trace<Limit<Advertise<Bound<Composite<BackendLayers<Redact<Budgeted<S>>>>>>>>;

/// The order below a router.
type BackendLayers<S> = Alias<Filter<Validate<S>>>;

/// Puts all layers around a service, in their fixed order.
///
/// See the [module docs](self) for the order and for an example.
#[derive(Clone, Default)]
pub struct StackLayer {
    trace: TraceLayer,
    limit: LimitLayer,
    advertise: AdvertiseLayer,
    bound: BoundLayer,
    composite: CompositeLayer,
    redact: RedactLayer,
    budget: BudgetLayer,
    /// Who watches runs, besides those that the composite layer knows.
    observers: Observers,
    /// With what all layers are told, its own and those above.
    backend: BackendLayer,
}

/// Puts around one of several backends the layers that speak of its own names.
///
/// See the [module docs](self) for their order.
#[derive(Clone, Default)]
pub struct BackendLayer {
    alias: AliasLayer,
    filter: FilterLayer,
    validate: ValidateLayer,
    common: Common,
}

/// What all layers are told that know tools.
#[derive(Clone, Default)]
struct Common {
    changes: Option<Changes>,
    vary_by: Option<VaryBy>,
}

/// A service with all layers around it, put there by a [`StackLayer`].
///
/// It is ready when the service is.
#[derive(Clone, Debug)]
pub struct Stack<S>(Layers<S>);

/// A backend with its own layers around it, put there by a [`BackendLayer`].
///
/// It is ready when the backend is.
#[derive(Clone, Debug)]
pub struct BackendStack<S>(BackendLayers<S>);

// === impl StackLayer ===

impl StackLayer {
    /// Changes nothing, until layers are set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what others are told of spans, and what spans have.
    #[must_use]
    pub fn trace(mut self, trace: TraceLayer) -> Self {
        self.trace = trace;
        self
    }

    /// Sets how large a request may be.
    #[must_use]
    pub fn limit(mut self, limit: LimitLayer) -> Self {
        self.limit = limit;
        self
    }

    /// Sets which tools clients are shown. It need not be told which of them are
    /// composites.
    #[must_use]
    pub fn advertise(mut self, advertise: AdvertiseLayer) -> Self {
        self.advertise = advertise;
        self
    }

    /// Sets which tools are made of others.
    #[must_use]
    pub fn composite(mut self, composite: CompositeLayer) -> Self {
        self.composite = composite;
        self
    }

    /// Lets somebody [watch](crate::observe) the runs of composites, besides those that
    /// watch them already.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }

    /// Sets how large results may be.
    #[must_use]
    pub fn bound(mut self, bound: BoundLayer) -> Self {
        self.bound = bound;
        self
    }

    /// Sets what of results nobody sees.
    #[must_use]
    pub fn redact(mut self, redact: RedactLayer) -> Self {
        self.redact = redact;
        self
    }

    /// Sets what calls may use together.
    #[must_use]
    pub fn budget(mut self, budget: BudgetLayer) -> Self {
        self.budget = budget;
        self
    }

    /// Sets what tools, prompts and resources are called.
    #[must_use]
    pub fn alias(mut self, alias: AliasLayer) -> Self {
        self.backend = self.backend.alias(alias);
        self
    }

    /// Sets what may be used at all.
    #[must_use]
    pub fn filter(mut self, filter: FilterLayer) -> Self {
        self.backend = self.backend.filter(filter);
        self
    }

    /// Sets what arguments must be like.
    #[must_use]
    pub fn validate(mut self, validate: ValidateLayer) -> Self {
        self.backend = self.backend.validate(validate);
        self
    }

    /// Makes what the layers know of tools outdated whenever these changes tell
    /// that tools have changed.
    ///
    /// Without them each layer keeps the epoch that it was given.
    #[must_use]
    pub fn changes(mut self, changes: &Changes) -> Self {
        self.backend = self.backend.changes(changes);
        self
    }

    /// Keeps what the layers know of tools apart by a key of the request's
    /// context, for servers that show different tools to different callers.
    ///
    /// Without it each layer keeps the key that it was given.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&RequestContext) -> Option<String> + Send + Sync + 'static,
    {
        self.backend = self.backend.vary_by(key);
        self
    }

    /// What tools, prompts and resources are called.
    #[must_use]
    pub const fn aliases(&self) -> &AliasLayer {
        self.backend.aliases()
    }

    /// All URIs by which clients may know a resource of the service.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn uris_of(&self, uri: &Arc<str>) -> Vec<Arc<str>> {
        self.backend.uris_of(uri)
    }

    /// Adds to what a server says that it can do what the layers can; see
    /// [`BoundLayer::declare`].
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        self.bound.declare(capabilities);
    }

    /// What was in the way of the layers with what there was, in words for whoever
    /// runs the server, from the top to the bottom.
    ///
    /// See the method of the same name of each layer.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        [self.advertise.warnings(), self.composite.warnings(), self.backend.warnings()].concat()
    }
}

impl<S> Layer<S> for StackLayer {
    type Service = Stack<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let Common { changes, vary_by } = &self.backend.common;
        let (mut advertise, mut composite) = (self.advertise.clone(), self.composite.clone());
        composite.observers.add(&self.observers);
        let mut bound = self.bound.clone();
        if let Some(changes) = changes {
            advertise = advertise.epoch(changes.tools().clone());
            bound = bound.epoch(changes.tools().clone());
            composite = composite.epoch(changes.tools().clone());
        }
        if let Some(key) = vary_by {
            advertise = advertise.vary_by(shared(key));
            bound = bound.vary_by(shared(key));
            composite = composite.vary_by(shared(key));
        }
        let advertise = advertise.composites(composite.names());
        let trace = self.trace.clone().tools(composite.names());
        let inner = self.redact.layer(self.budget.layer(inner));
        // They know tools by the same names, and do not list any.
        let mentioned = self.redact.patterns().chain(self.budget.patterns());
        let backend = self.backend.clone().mentioned(mentioned);
        let inner = composite.layer(backend.layer(inner).0);
        Stack(trace.layer(self.limit.layer(advertise.layer(bound.layer(inner)))))
    }
}

// === impl BackendLayer ===

impl BackendLayer {
    /// Changes nothing, until layers are set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what tools, prompts and resources are called.
    #[must_use]
    pub fn alias(mut self, alias: AliasLayer) -> Self {
        self.alias = alias;
        self
    }

    /// Sets what may be used at all.
    #[must_use]
    pub fn filter(mut self, filter: FilterLayer) -> Self {
        self.filter = filter;
        self
    }

    /// Sets what arguments must be like.
    #[must_use]
    pub fn validate(mut self, validate: ValidateLayer) -> Self {
        self.validate = validate;
        self
    }

    /// What tools, prompts and resources are called.
    #[must_use]
    pub const fn aliases(&self) -> &AliasLayer {
        &self.alias
    }

    /// All URIs by which whoever is above may know a resource of the backend: none if it
    /// is hidden.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn uris_of(&self, uri: &Arc<str>) -> Vec<Arc<str>> {
        if self.filter.hides_resource(uri) { Vec::new() } else { self.alias.uris_of(uri) }
    }

    /// Makes what the layers know of tools outdated whenever these changes tell
    /// that tools have changed.
    ///
    /// Without them each layer keeps the epoch that it was given.
    #[must_use]
    pub fn changes(mut self, changes: &Changes) -> Self {
        self.common.changes = Some(changes.clone());
        self
    }

    /// Keeps what the layers know of tools apart by a key of the request's
    /// context, for servers that show different tools to different callers.
    ///
    /// Without it each layer keeps the key that it was given.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&RequestContext) -> Option<String> + Send + Sync + 'static,
    {
        self.common.vary_by = Some(Arc::new(key));
        self
    }

    /// Looks as well for what patterns of layers below match.
    fn mentioned(mut self, patterns: impl IntoIterator<Item = (&'static str, Patterns)>) -> Self {
        self.filter = self.filter.mentioned(patterns);
        self
    }

    /// What was in the way of the layers, from the top to the bottom.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        [self.alias.warnings(), self.filter.warnings(), self.validate.warnings()].concat()
    }
}

impl<S> Layer<S> for BackendLayer {
    type Service = BackendStack<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let Common { changes, vary_by } = &self.common;
        let (mut filter, mut validate) = (self.filter.clone(), self.validate.clone());
        if let Some(changes) = changes {
            filter = filter.epoch(changes.tools().clone());
            validate = validate.epoch(changes.tools().clone());
        }
        if let Some(key) = vary_by {
            filter = filter.vary_by(shared(key));
            validate = validate.vary_by(shared(key));
        }
        BackendStack(self.alias.layer(filter.layer(validate.layer(inner))))
    }
}

/// A closure that several layers have.
fn shared(key: &VaryBy) -> impl Fn(&RequestContext) -> Option<String> + Send + Sync + 'static {
    let key = key.clone();
    move |context| key(context)
}

impl fmt::Debug for StackLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackLayer")
            .field("trace", &self.trace)
            .field("limit", &self.limit)
            .field("advertise", &self.advertise)
            .field("bound", &self.bound)
            .field("composite", &self.composite)
            .field("alias", &self.backend.alias)
            .field("filter", &self.backend.filter)
            .field("validate", &self.backend.validate)
            .field("redact", &self.redact)
            .field("budget", &self.budget)
            .field("observers", &self.observers)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for BackendLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BackendLayer")
            .field("alias", &self.alias)
            .field("filter", &self.filter)
            .field("validate", &self.validate)
            .finish_non_exhaustive()
    }
}

// === impl Stack ===

impl<S> Stack<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    /// Lists tools now for all layers that must know them, so that no request
    /// waits for that.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be listed. They are listed again when they
    /// are needed.
    pub async fn warm(&self) -> Result<(), ListError> {
        let advertise = self.0.get_ref().get_ref();
        let composite = advertise.get_ref().get_ref();
        let filter = composite.get_ref().get_ref();
        filter.get_ref().warm().await?;
        filter.warm().await?;
        composite.warm().await?;
        advertise.warm().await
    }
}

impl<S> Stack<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    /// What a composite would do with these arguments; see
    /// [`Composite::preview`](crate::composite::Composite::preview).
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error that a call would be answered with.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        self.0.get_ref().get_ref().get_ref().get_ref().preview(composite, arguments).await
    }
}

impl<S> Service<Request> for Stack<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = <Layers<S> as Service<Request>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.0.call(request)
    }
}

// === impl BackendStack ===

impl<S> Service<Request> for BackendStack<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = Reply;
    type Error = S::Error;
    type Future = <BackendLayers<S> as Service<Request>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.0.call(request)
    }
}
