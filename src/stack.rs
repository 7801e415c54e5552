//! All layers in their fixed order.
//!
//! A [`StackLayer`] puts all layers of this crate around a service, and a [`BackendLayer`] those
//! that apply to one of several backends. Layers that are not set change nothing, and cost next to
//! nothing.
//!
#![doc = include_str!("guide/links.md")]
#![doc = include_str!("guide/layer_order.md")]
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
use tower_layer::Layer;
use tower_service::Service;

use crate::{
    advertise::{Advertise, AdvertiseLayer},
    alias::{Alias, AliasLayer},
    budget::{BudgetLayer, Budgeted},
    catalog::{CatalogSettings, ListError},
    changes::Changes,
    composite::{Composite, CompositeLayer, Preview},
    filter::{Filter, FilterLayer},
    limit::{Limit, LimitLayer},
    message::{Context as RequestContext, ContextKey, Reply, Request, ToolService},
    observe::{Observer, Observers},
    pattern::Patterns,
    redact::{Redact, RedactLayer},
    trace::{Trace, TraceLayer},
    truncate::{Truncate, TruncateLayer},
    validate::{Validate, ValidateLayer},
};

/// The order above a router, or a single server. It is defined only here.
type Layers<S> = Trace<Limit<AdvertiseAndBelow<S>>>;

/// The layers from [`Advertise`] on.
type AdvertiseAndBelow<S> = Advertise<Truncate<Composite<BackendLayers<Redact<Budgeted<S>>>>>>;

/// The order below a router.
type BackendLayers<S> = Alias<Filter<Validate<S>>>;

/// A layer that puts all layers around a service, in their fixed order.
///
/// See the [module docs](self) for the order and for an example.
#[derive(Clone, Default)]
pub struct StackLayer {
    trace: TraceLayer,
    limit: LimitLayer,
    advertise: AdvertiseLayer,
    truncate: TruncateLayer,
    composite: CompositeLayer,
    redact: RedactLayer,
    budget: BudgetLayer,
    /// Observers of runs, in addition to those of the composite layer.
    observers: Observers,
    /// Its common settings apply to all layers, its own and those above.
    backend: BackendLayer,
}

/// A layer that puts around one of several backends the layers that use the backend's own names.
///
/// See the [module docs](self) for their order.
#[derive(Clone, Default)]
pub struct BackendLayer {
    alias: AliasLayer,
    filter: FilterLayer,
    validate: ValidateLayer,
    common: Common,
}

/// The common settings of all layers that cache tools.
#[derive(Clone, Default)]
struct Common {
    changes: Option<Changes>,
    vary_by: Option<ContextKey>,
}

/// A service with all layers of a [`StackLayer`] around it.
///
/// Ready when the service is.
#[derive(Clone, Debug)]
pub struct Stack<S>(Layers<S>);

/// A backend with the layers of a [`BackendLayer`] around it.
///
/// Ready when the backend is.
#[derive(Clone, Debug)]
pub struct BackendStack<S>(BackendLayers<S>);

// === impl StackLayer ===

impl StackLayer {
    /// Creates a layer that changes nothing until layers are set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the tracing of requests.
    #[must_use]
    pub fn trace(mut self, trace: TraceLayer) -> Self {
        self.trace = trace;
        self
    }

    /// Sets the limits on the size and depth of requests.
    #[must_use]
    pub fn limit(mut self, limit: LimitLayer) -> Self {
        self.limit = limit;
        self
    }

    /// Sets which tools clients see. The names of composites are added automatically.
    #[must_use]
    pub fn advertise(mut self, advertise: AdvertiseLayer) -> Self {
        self.advertise = advertise;
        self
    }

    /// Sets the composite tools.
    #[must_use]
    pub fn composite(mut self, composite: CompositeLayer) -> Self {
        self.composite = composite;
        self
    }

    /// Adds an [observer](crate::observe) of the runs of composites.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }

    /// Sets the maximum size of results.
    #[must_use]
    pub fn truncate(mut self, truncate: TruncateLayer) -> Self {
        self.truncate = truncate;
        self
    }

    /// Sets which parts of results are redacted.
    #[must_use]
    pub fn redact(mut self, redact: RedactLayer) -> Self {
        self.redact = redact;
        self
    }

    /// Sets the budgets that calls share.
    #[must_use]
    pub fn budget(mut self, budget: BudgetLayer) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the aliases of tools, prompts and resources.
    #[must_use]
    pub fn alias(mut self, alias: AliasLayer) -> Self {
        self.backend = self.backend.alias(alias);
        self
    }

    /// Sets which tools, prompts and resources are allowed.
    #[must_use]
    pub fn filter(mut self, filter: FilterLayer) -> Self {
        self.backend = self.backend.filter(filter);
        self
    }

    /// Sets the validation of arguments.
    #[must_use]
    pub fn validate(mut self, validate: ValidateLayer) -> Self {
        self.backend = self.backend.validate(validate);
        self
    }

    /// Invalidates the cached tools of the layers when `changes` reports that tools have changed.
    ///
    /// Without it, each layer keeps the epoch that it was given.
    #[must_use]
    pub fn changes(mut self, changes: &Changes) -> Self {
        self.backend = self.backend.changes(changes);
        self
    }

    /// Caches tools separately by a key of the request's context, for servers that show different
    /// tools to different callers.
    ///
    /// Without it, each layer keeps the key that it was given.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&RequestContext) -> Option<String> + Send + Sync + 'static,
    {
        self.backend = self.backend.vary_by(key);
        self
    }

    /// Returns the aliases of tools, prompts and resources.
    #[must_use]
    pub const fn aliases(&self) -> &AliasLayer {
        self.backend.aliases()
    }

    /// Returns all URIs by which clients may know a resource of the service.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn uris_of(&self, uri: &Arc<str>) -> Vec<Arc<str>> {
        self.backend.uris_of(uri)
    }

    /// Adds the capabilities of the layers to those of a server; see [`TruncateLayer::declare`].
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        self.truncate.declare(capabilities);
    }

    /// Returns the conflicts between the layers and the current tool lists, from the top layer to
    /// the bottom.
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
        let (mut advertise, mut composite) = (self.advertise.clone(), self.composite.clone());
        composite.observers.add(&self.observers);
        let mut truncate = self.truncate.clone();
        for catalogs in [&mut advertise.catalogs, &mut truncate.0.catalogs, &mut composite.catalogs]
        {
            self.backend.common.apply(catalogs);
        }
        let advertise = advertise.composites(composite.names());
        let trace = self.trace.clone().tools(composite.names());
        let inner = self.redact.layer(self.budget.layer(inner));
        // Both use the same tool names, and do not list tools themselves.
        let mentioned = self.redact.patterns().chain(self.budget.patterns());
        let backend = self.backend.clone().mentioned(mentioned);
        let inner = composite.layer(backend.layer(inner).0);
        Stack(trace.layer(self.limit.layer(advertise.layer(truncate.layer(inner)))))
    }
}

// === impl BackendLayer ===

impl BackendLayer {
    /// Creates a layer that changes nothing until layers are set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the aliases of tools, prompts and resources.
    #[must_use]
    pub fn alias(mut self, alias: AliasLayer) -> Self {
        self.alias = alias;
        self
    }

    /// Sets which tools, prompts and resources are allowed.
    #[must_use]
    pub fn filter(mut self, filter: FilterLayer) -> Self {
        self.filter = filter;
        self
    }

    /// Sets the validation of arguments.
    #[must_use]
    pub fn validate(mut self, validate: ValidateLayer) -> Self {
        self.validate = validate;
        self
    }

    /// Returns the aliases of tools, prompts and resources.
    #[must_use]
    pub const fn aliases(&self) -> &AliasLayer {
        &self.alias
    }

    /// Returns all URIs by which layers above may know a resource of the backend, or none if it is
    /// hidden.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn uris_of(&self, uri: &Arc<str>) -> Vec<Arc<str>> {
        if self.filter.hides_resource(uri) { Vec::new() } else { self.alias.uris_of(uri) }
    }

    /// Invalidates the cached tools of the layers when `changes` reports that tools have changed.
    ///
    /// Without it, each layer keeps the epoch that it was given.
    #[must_use]
    pub fn changes(mut self, changes: &Changes) -> Self {
        self.common.changes = Some(changes.clone());
        self
    }

    /// Caches tools separately by a key of the request's context, for servers that show different
    /// tools to different callers.
    ///
    /// Without it, each layer keeps the key that it was given.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&RequestContext) -> Option<String> + Send + Sync + 'static,
    {
        self.common.vary_by = Some(Arc::new(key));
        self
    }

    /// Also reports patterns of layers below that match nothing.
    fn mentioned(mut self, patterns: impl IntoIterator<Item = (&'static str, Patterns)>) -> Self {
        self.filter = self.filter.mentioned(patterns);
        self
    }

    /// Returns the conflicts between the layers and the current tool lists, from the top layer to
    /// the bottom.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        [self.alias.warnings(), self.filter.warnings(), self.validate.warnings()].concat()
    }
}

impl<S> Layer<S> for BackendLayer {
    type Service = BackendStack<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let (mut filter, mut validate) = (self.filter.clone(), self.validate.clone());
        self.common.apply(&mut filter.catalogs);
        self.common.apply(&mut validate.catalogs);
        BackendStack(self.alias.layer(filter.layer(validate.layer(inner))))
    }
}

// === impl Common ===

impl Common {
    /// Sets what is common to all layers in the settings of one.
    fn apply(&self, catalogs: &mut CatalogSettings) {
        if let Some(changes) = &self.changes {
            catalogs.epoch = changes.tools().clone();
        }
        if let Some(key) = &self.vary_by {
            catalogs.vary_by = Some(key.clone());
        }
    }
}

impl fmt::Debug for StackLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StackLayer")
            .field("trace", &self.trace)
            .field("limit", &self.limit)
            .field("advertise", &self.advertise)
            .field("truncate", &self.truncate)
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
    S: ToolService,
{
    /// Lists tools in advance for all layers that need them, so that no request waits for it.
    ///
    /// # Errors
    ///
    /// Returns an error if they cannot be listed. They are listed again when they
    /// are needed.
    pub async fn warm(&self) -> Result<(), ListError> {
        let advertise = self.advertise();
        let composite = advertise.get_ref().get_ref();
        let filter = composite.get_ref().get_ref();
        filter.get_ref().warm().await?;
        filter.warm().await?;
        composite.warm().await?;
        advertise.warm().await
    }

    /// Returns the calls that a composite would make with these arguments; see
    /// [`Composite::preview`](crate::composite::Composite::preview).
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error of an actual call.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        self.advertise().get_ref().get_ref().preview(composite, arguments).await
    }

    const fn advertise(&self) -> &AdvertiseAndBelow<S> {
        self.0.get_ref().get_ref()
    }
}

impl<S> Service<Request> for Stack<S>
where
    S: ToolService,
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
    S: ToolService,
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
