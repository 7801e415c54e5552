//! A layer that wraps a service in all layers of this crate, in a fixed order.
//!
//! Use a [`StackLayer`] for a server or for a router that combines several backends. In addition,
//! wrap each backend of a router in a [`BackendLayer`], which contains only the layers for aliases,
//! filtering, argument validation and locking. A layer that is not configured forwards everything
//! unchanged, and has almost no overhead.
//!
#![doc = include_str!("guide/links.md")]
#![doc = include_str!("guide/layer_order.md")]
//!
//! # Examples
//!
//! In this example, clients see a composite, but cannot call the tools that it consists of:
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

#[cfg(feature = "cache")]
use crate::cache::{Cache, CacheLayer};
use crate::{
    advertise::{Advertise, AdvertiseLayer},
    alias::{Alias, AliasLayer},
    budget::{BudgetLayer, Budgeted},
    catalog::{CatalogSettings, ListError},
    changes::Changes,
    composite::{Composite, CompositeLayer, Preview},
    filter::{Filter, FilterLayer},
    flow::{Flow, FlowLayer},
    limit::{Limit, LimitLayer},
    lock::{LockLayer, Locked},
    message::{Context as RequestContext, ContextKey, Reply, Request, ToolService},
    observe::{Observer, Observers},
    pattern::Patterns,
    redact::{Redact, RedactLayer},
    tasks::{TaskLayer, Tasks},
    trace::{Trace, TraceLayer},
    truncate::{Truncate, TruncateLayer},
    validate::{Validate, ValidateLayer},
};

/// All layers of a stack, from the outermost to the innermost. This type defines their order.
type Layers<S> = Trace<Limit<AdvertiseAndBelow<S>>>;

/// The layers from [`Advertise`] to the innermost layer.
type AdvertiseAndBelow<S> = Advertise<Tasks<Truncate<Flow<CompositeAndBelow<S>>>>>;

/// The layers from [`Composite`] to the innermost layer.
type CompositeAndBelow<S> = Composite<BackendLayers<CacheAndBelow<S>>>;

/// The layers from [`Cache`] to the innermost layer.
#[cfg(feature = "cache")]
type CacheAndBelow<S> = Cache<Redact<Budgeted<S>>>;

#[cfg(not(feature = "cache"))]
type CacheAndBelow<S> = Redact<Budgeted<S>>;

/// The layers that a [`Stack`] and a [`BackendStack`] have in common, from the outermost to the
/// innermost.
type BackendLayers<S> = Alias<Filter<Validate<S>>>;

/// A layer that wraps a service in all layers of this crate, in a fixed order. Methods such as
/// [`filter`](Self::filter) configure the individual layers. See the [module docs](self) for the
/// order and for an example.
#[derive(Clone, Default)]
pub struct StackLayer {
    trace: TraceLayer,
    limit: LimitLayer,
    advertise: AdvertiseLayer,
    tasks: TaskLayer,
    truncate: TruncateLayer,
    flow: FlowLayer,
    composite: CompositeLayer,
    #[cfg(feature = "cache")]
    cache: CacheLayer,
    redact: RedactLayer,
    budget: BudgetLayer,
    /// Additional observers of composite runs. They are added to the observers of the composite
    /// layer when the stack is built.
    observers: Observers,
    /// The layers for aliases, filtering and validation, and the settings that apply to all layers
    /// of the stack.
    backend: BackendLayer,
}

/// A layer that wraps a single backend of a router in four layers: for aliases, filtering, argument
/// validation and locking. All of them use the backend's own tool names, without the prefix that
/// the router adds. See the [module docs](self) for the order of the layers.
#[derive(Clone, Default)]
pub struct BackendLayer {
    alias: AliasLayer,
    filter: FilterLayer,
    validate: ValidateLayer,
    lock: LockLayer,
    common: Common,
}

/// Settings that apply to all layers that cache the tool list.
#[derive(Clone, Default)]
struct Common {
    changes: Option<Changes>,
    vary_by: Option<ContextKey>,
}

/// A service that is wrapped in all layers of a [`StackLayer`]. A `Stack` is ready when the inner
/// service `S` is ready.
#[derive(Clone, Debug)]
pub struct Stack<S>(Layers<S>);

/// A backend that is wrapped in the layers of a [`BackendLayer`]. A `BackendStack` is ready when
/// the inner service `S` is ready.
#[derive(Clone, Debug)]
pub struct BackendStack<S>(BackendLayers<Locked<S>>);

// === impl StackLayer ===

impl StackLayer {
    /// Creates a `StackLayer` in which no layer is configured, so that it does not change the
    /// wrapped service.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the layer that traces requests.
    #[must_use]
    pub fn trace(mut self, trace: TraceLayer) -> Self {
        self.trace = trace;
        self
    }

    /// Sets the layer that limits the size and the nesting depth of requests.
    #[must_use]
    pub fn limit(mut self, limit: LimitLayer) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the layer that determines which tools clients can see and call. The composites of the
    /// stack stay visible unless a pattern denies their exact names.
    #[must_use]
    pub fn advertise(mut self, advertise: AdvertiseLayer) -> Self {
        self.advertise = advertise;
        self
    }

    /// Sets the layer that adds composite tools.
    #[must_use]
    pub fn composite(mut self, composite: CompositeLayer) -> Self {
        self.composite = composite;
        self
    }

    /// Adds an [observer](crate::observe), which receives the events of composite runs.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }

    /// Sets the layer that runs calls of composites as tasks. The layer applies to the composites
    /// of this stack.
    ///
    /// The [`TaskMode`] of each composite determines which of its calls become tasks, even if this
    /// method is not called.
    ///
    /// [`TaskMode`]: crate::composite::TaskMode
    #[must_use]
    pub fn tasks(mut self, tasks: TaskLayer) -> Self {
        self.tasks = tasks;
        self
    }

    /// Sets the layer that truncates large results.
    #[must_use]
    pub fn truncate(mut self, truncate: TruncateLayer) -> Self {
        self.truncate = truncate;
        self
    }

    /// Sets the layer that labels results, and that can deny calls of tools which publish data. The
    /// layer uses the composites of this stack.
    #[must_use]
    pub fn flow(mut self, flow: FlowLayer) -> Self {
        self.flow = flow;
        self
    }

    /// Sets the layer that caches the results of read-only tools.
    #[cfg(feature = "cache")]
    #[must_use]
    pub fn cache(mut self, cache: CacheLayer) -> Self {
        self.cache = cache;
        self
    }

    /// Sets the layer that removes sensitive parts of results, such as secrets.
    #[must_use]
    pub fn redact(mut self, redact: RedactLayer) -> Self {
        self.redact = redact;
        self
    }

    /// Sets the layer that limits tool calls with budgets, which bound their number or their total
    /// cost.
    #[must_use]
    pub fn budget(mut self, budget: BudgetLayer) -> Self {
        self.budget = budget;
        self
    }

    /// Sets the layer that renames tools, prompts and resources.
    #[must_use]
    pub fn alias(mut self, alias: AliasLayer) -> Self {
        self.backend = self.backend.alias(alias);
        self
    }

    /// Sets the layer that hides tools, prompts and resources that are not allowed, and rejects
    /// requests for them.
    #[must_use]
    pub fn filter(mut self, filter: FilterLayer) -> Self {
        self.backend = self.backend.filter(filter);
        self
    }

    /// Sets the layer that validates the arguments of tool calls.
    #[must_use]
    pub fn validate(mut self, validate: ValidateLayer) -> Self {
        self.backend = self.backend.validate(validate);
        self
    }

    /// Sets the [`Changes`] channel that notifies the layers when tools have changed. Each layer
    /// that caches the tool list then requests it again. By default, each layer uses the
    /// [`Epoch`](crate::changes::Epoch) (change counter) of its own settings.
    #[must_use]
    pub fn changes(mut self, changes: &Changes) -> Self {
        self.backend = self.backend.changes(changes);
        self
    }

    /// Makes all layers cache a separate tool list for each key. The function `key` computes the
    /// key from the context of a request, for example the name of the caller. Use this for servers
    /// that offer different tools to different callers. By default, each layer uses its own
    /// `vary_by` setting.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&RequestContext) -> Option<String> + Send + Sync + 'static,
    {
        self.backend = self.backend.vary_by(key);
        self
    }

    /// Returns the configured layer that renames tools, prompts and resources.
    #[must_use]
    pub const fn aliases(&self) -> &AliasLayer {
        self.backend.aliases()
    }

    /// Maps the URI of a resource in the inner service to the URIs with which clients can read the
    /// resource. Returns an empty vector if the resource is hidden from clients.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn uris_of(&self, uri: &Arc<str>) -> Vec<Arc<str>> {
        self.backend.uris_of(uri)
    }

    /// Adds the capabilities that layers of the stack provide to `capabilities`: the resources
    /// capability if the stack stores truncated results, and the tasks extension if calls can
    /// become tasks. See [`TruncateLayer::declare`] and [`TaskLayer::declare`].
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        self.tasks.clone().composites(&self.composite).declare(capabilities);
        self.truncate.declare(capabilities);
    }

    /// Returns warnings for the operator about settings that do not match the listed tools, for
    /// example patterns without a match. Warnings of outer layers come before those of inner
    /// layers. See the `warnings` method of each layer for the possible warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        [self.advertise.warnings(), self.composite.warnings(), self.backend.warnings()].concat()
    }

    /// Returns remarks: advice about definitions of composites that are valid but probably not
    /// intended. They include the remarks of [`CompositeLayer::remarks`]. After the tools have been
    /// listed, there is also a remark about each destructive tool that a composite calls only after
    /// the user's approval, but that clients can also call directly. To hide such a tool from
    /// clients, use the [layer for advertising](Self::advertise).
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let advertise = self.advertise.clone().composites(self.composite.names());
        let callable = self.composite.remarks_on_callable(|tool| advertise.admits(tool));
        [self.composite.remarks(), callable].concat()
    }
}

impl<S> Layer<S> for StackLayer {
    type Service = Stack<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let (mut advertise, mut composite) = (self.advertise.clone(), self.composite.clone());
        composite.observers.add(&self.observers);
        let (mut truncate, mut flow) = (self.truncate.clone(), self.flow.clone());
        for catalogs in [
            &mut advertise.catalogs,
            &mut truncate.0.catalogs,
            &mut flow.catalogs,
            &mut composite.catalogs,
        ] {
            self.backend.common.apply(catalogs);
        }
        let flow = flow.composites(&composite);
        let advertise = advertise.composites(composite.names());
        let trace = self.trace.clone().tools(composite.names());
        let inner = self.redact.layer(self.budget.layer(inner));
        // The layers for redaction, budgets and caching use the same tool names as the filter, but
        // do not check whether their patterns match. The filter checks these patterns instead.
        let mentioned = self.redact.patterns().chain(self.budget.patterns());
        #[cfg(feature = "cache")]
        let mentioned = mentioned.chain(self.cache.patterns());
        #[cfg(feature = "cache")]
        let inner = self.cached(inner);
        let backend = self.backend.clone().mentioned(mentioned);
        let tasks = self.tasks.clone().composites(&composite);
        let inner = flow.layer(composite.layer(backend.common_layers(inner)));
        let inner = advertise.layer(tasks.layer(truncate.layer(inner)));
        Stack(trace.layer(self.limit.layer(inner)))
    }
}

#[cfg(feature = "cache")]
impl StackLayer {
    fn cached<S>(&self, inner: S) -> Cache<S> {
        let mut cache = self.cache.clone();
        self.backend.common.apply(&mut cache.catalogs);
        cache.layer(inner)
    }
}

// === impl BackendLayer ===

impl BackendLayer {
    /// Creates a `BackendLayer` in which no layer is configured, so that it does not change the
    /// wrapped backend.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the layer that renames tools, prompts and resources.
    #[must_use]
    pub fn alias(mut self, alias: AliasLayer) -> Self {
        self.alias = alias;
        self
    }

    /// Sets the layer that hides tools, prompts and resources that are not allowed, and rejects
    /// requests for them.
    #[must_use]
    pub fn filter(mut self, filter: FilterLayer) -> Self {
        self.filter = filter;
        self
    }

    /// Sets the layer that validates the arguments of tool calls.
    #[must_use]
    pub fn validate(mut self, validate: ValidateLayer) -> Self {
        self.validate = validate;
        self
    }

    /// Sets the layer that hides tools whose definitions differ from the approved ones. It is the
    /// innermost layer, so the layers for aliases and filtering do not see hidden tools.
    #[must_use]
    pub fn lock(mut self, lock: LockLayer) -> Self {
        self.lock = lock;
        self
    }

    /// Returns the configured layer that renames tools, prompts and resources.
    #[must_use]
    pub const fn aliases(&self) -> &AliasLayer {
        &self.alias
    }

    /// Maps the backend's URI of a resource to the URIs that outer layers use for the resource.
    /// Returns an empty vector if the filter hides the resource.
    #[cfg(all(feature = "config", any(feature = "stdio", feature = "http")))]
    pub(crate) fn uris_of(&self, uri: &Arc<str>) -> Vec<Arc<str>> {
        if self.filter.hides_resource(uri) { Vec::new() } else { self.alias.uris_of(uri) }
    }

    /// Sets the [`Changes`] channel that notifies the layers when tools have changed. Each layer
    /// that caches the tool list then requests it again. By default, each layer uses the
    /// [`Epoch`](crate::changes::Epoch) (change counter) of its own settings.
    #[must_use]
    pub fn changes(mut self, changes: &Changes) -> Self {
        self.common.changes = Some(changes.clone());
        self
    }

    /// Makes all layers cache a separate tool list for each key. The function `key` computes the
    /// key from the context of a request, for example the name of the caller. Use this for servers
    /// that offer different tools to different callers. By default, each layer uses its own
    /// `vary_by` setting.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&RequestContext) -> Option<String> + Send + Sync + 'static,
    {
        self.common.vary_by = Some(Arc::new(key));
        self
    }

    /// Adds the patterns that inner layers use to match tool names. The filter checks these
    /// patterns too, and logs a warning about each pattern that matches no listed item.
    fn mentioned(mut self, patterns: impl IntoIterator<Item = (&'static str, Patterns)>) -> Self {
        self.filter = self.filter.mentioned(patterns);
        self
    }

    /// Returns warnings for the operator about settings that do not match the listed tools, for
    /// example patterns without a match. Warnings of outer layers come before those of inner
    /// layers.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let warnings = [self.alias.warnings(), self.filter.warnings(), self.validate.warnings()];
        [warnings.concat(), self.lock.warnings()].concat()
    }

    /// Wraps a service in the layers that a [`Stack`] and a [`BackendStack`] have in common.
    fn common_layers<S>(&self, inner: S) -> BackendLayers<S> {
        let (mut filter, mut validate) = (self.filter.clone(), self.validate.clone());
        self.common.apply(&mut filter.catalogs);
        self.common.apply(&mut validate.catalogs);
        self.alias.layer(filter.layer(validate.layer(inner)))
    }
}

impl<S> Layer<S> for BackendLayer {
    type Service = BackendStack<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let mut lock = self.lock.clone();
        self.common.apply(&mut lock.catalogs);
        BackendStack(self.common_layers(lock.layer(inner)))
    }
}

// === impl Common ===

impl Common {
    /// Copies the common settings to the settings of one layer, except for those that are `None`.
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
        let mut layers = f.debug_struct("StackLayer");
        #[cfg(feature = "cache")]
        if !self.cache.is_idle() {
            layers.field("cache", &self.cache);
        }
        if !self.flow.is_idle() {
            layers.field("flow", &self.flow);
        }
        layers
            .field("trace", &self.trace)
            .field("limit", &self.limit)
            .field("advertise", &self.advertise)
            .field("tasks", &self.tasks)
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
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

// === impl Stack ===

impl<S> Stack<S>
where
    S: ToolService,
{
    /// Lists the tools in advance for all layers that need the tool list, so that no request has to
    /// wait for it.
    ///
    /// # Errors
    ///
    /// Returns an error if the tools cannot be listed now. The first request that needs the tools
    /// then lists them.
    pub async fn warm(&self) -> Result<(), ListError> {
        let advertise = self.advertise();
        let flow = advertise.get_ref().get_ref().get_ref();
        let composite = self.composite();
        let filter = composite.get_ref().get_ref();
        let validate = filter.get_ref();
        #[cfg(feature = "cache")]
        validate.get_ref().warm().await?;
        validate.warm().await?;
        filter.warm().await?;
        composite.warm().await?;
        flow.warm().await?;
        advertise.warm().await
    }

    /// Returns a preview of the tool calls that a composite would make with the given arguments,
    /// without calling any tool. See [`Composite::preview`](crate::composite::Composite::preview).
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error with which an actual call of the composite would fail.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        self.composite().preview(composite, arguments).await
    }

    /// Starts to look for [tasks](crate::tasks) of other replicas whose process has ended, and
    /// continues these tasks with this stack. If this method is not called, the first request about
    /// a task starts the search. Does nothing unless the registry of the tasks has a [shared
    /// store](crate::tasks::TaskRegistry::with_store).
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime if the registry has a shared store.
    pub fn watch_tasks(&self) {
        self.advertise().get_ref().watch(self.0.tracing());
    }

    const fn advertise(&self) -> &AdvertiseAndBelow<S> {
        self.0.get_ref().get_ref()
    }

    const fn composite(&self) -> &CompositeAndBelow<S> {
        self.advertise().get_ref().get_ref().get_ref().get_ref()
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
    type Future = <BackendLayers<Locked<S>> as Service<Request>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        self.0.call(request)
    }
}
