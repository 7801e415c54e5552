//! The layer that adds composite tools to a service.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    approval::ApprovedTools,
    cancelled_runs::CancelledRuns,
    compile::Program,
    definition::CompositeTool,
    error::DefinitionErrors,
    flow::{self, CallFlow, FlowLabel, FlowPolicy, FlowReport, FlowViolation, ListedFlows},
    flowchart::{self, UnknownComposite},
    task_mode::TaskMode,
};
#[cfg(feature = "restate")]
use crate::fingerprint::Fingerprint;
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    engine::limits::{CallLimits, HEARTBEAT},
    mermaid::Flowchart,
    message::{Context, ContextKey, identified_by},
    observe::{Observer, Observers},
    store::{DefaultStore, Store},
    suggest::nearest,
    warnings::Warnings,
};

/// A Tower layer that adds composite tools, which are tools that call other tools, to a service
/// that answers MCP requests.
///
/// The [module docs](crate::composite) describe composites and have an example. A `CompositeLayer`
/// without composites does not change the behavior of the service.
///
/// # Panics
///
/// A call of a composite panics if the current Tokio runtime has no time driver. If there is no
/// Tokio runtime, the call returns an internal error instead.
#[derive(Clone)]
pub struct CompositeLayer {
    pub(super) program: Arc<Program>,
    pub(super) warnings: Warnings,
    pub(super) remarks: Warnings,
    pub(super) approved_tools: ApprovedTools,
    pub(super) limits: CallLimits,
    pub(super) heartbeat: Duration,
    pub(crate) catalogs: CatalogSettings,
    pub(super) state: Arc<dyn Store>,
    pub(super) caller: Option<ContextKey>,
    pub(crate) observers: Observers,
    pub(super) cancelled_runs: CancelledRuns,
    pub(super) flow: Option<Arc<ListedFlows>>,
}

// === impl CompositeLayer ===

impl CompositeLayer {
    /// Creates a layer from the definitions of composites.
    ///
    /// Tools may appear or disappear later, so `new` does not check whether the called tools exist.
    /// If a tool that a composite requires does not exist, the composite is not listed, and a log
    /// message names the missing tool.
    ///
    /// # Errors
    ///
    /// Returns all errors in the composite definitions at once. Examples are an illegal or
    /// duplicate name, a composite with too many targets, a reference that cannot be parsed, an
    /// invalid schema, and composites that call each other in a cycle or are nested too deep.
    pub fn new(
        composites: impl IntoIterator<Item = CompositeTool>,
    ) -> Result<Self, DefinitionErrors> {
        Self::build(composites, None)
    }

    /// Creates a layer like [`new`](Self::new), but also allows the characters of `separator` in
    /// the names of composites. An example is the `/` that a router puts between the name of a
    /// server and the name of its tool.
    ///
    /// A separator that MCP does not allow in tool names, such as `/`, can only be between two
    /// non-empty parts of a name. For example, `all/search` is legal, but `all/` and `all//search`
    /// are illegal.
    ///
    /// ```
    /// use mcp_composite::composite::{CompositeLayer, CompositeTool};
    ///
    /// let tool = CompositeTool::fan_out("all/search", "Search everywhere", ["docs/search"]);
    /// assert!(CompositeLayer::with_separator([tool.clone()], "/").is_ok());
    /// assert!(CompositeLayer::new([tool]).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`new`](Self::new). Also returns an error if the separator does
    /// not consist of 1 to 8 visible ASCII characters.
    pub fn with_separator(
        composites: impl IntoIterator<Item = CompositeTool>,
        separator: &str,
    ) -> Result<Self, DefinitionErrors> {
        Self::build(composites, Some(separator))
    }

    fn build(
        composites: impl IntoIterator<Item = CompositeTool>,
        separator: Option<&str>,
    ) -> Result<Self, DefinitionErrors> {
        let program = Program::compile(composites.into_iter().collect(), separator)?;
        Ok(Self { program: Arc::new(program), ..Self::default() })
    }

    /// Returns the names of the composites, in the order of their definitions.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.program.composites.iter().map(|composite| &*composite.name)
    }

    /// Returns the name, the task mode and the timeout of each composite.
    pub(crate) fn task_modes(&self) -> impl Iterator<Item = (&str, TaskMode, Duration)> {
        let composites = self.program.composites.iter();
        composites.map(|composite| (&*composite.name, composite.task, composite.definition.timeout))
    }

    /// Returns the fingerprint of the definition of a composite, and of those of the composites
    /// that it calls. Returns `None` if there is no such composite.
    #[cfg(feature = "restate")]
    pub(crate) fn definition(&self, name: &str) -> Option<Fingerprint> {
        self.program.find(name).map(|composite| self.program.fingerprint(composite))
    }

    /// Sets the resource limits of a single call of a composite, such as the maximum number of tool
    /// calls. If a composite calls other composites, their tool calls count toward the limits of
    /// the outermost call.
    #[must_use]
    pub const fn limits(mut self, limits: CallLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the heartbeat interval. A heartbeat is a progress notification that names the running
    /// steps of a composite. It is sent if the run has reported no other progress during this
    /// interval, and if the client sent a progress token. Defaults to 15 seconds. Zero disables
    /// heartbeats.
    ///
    /// Heartbeats prevent timeouts during a long call of a composite if the client restarts its
    /// timeout whenever it receives a progress notification.
    #[must_use]
    pub const fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    /// Returns warnings about composites that do not match the current tools of the inner service.
    /// Reasons for a warning are a missing tool, arguments that do not match the input schema of
    /// their tool, and annotations of a composite that claim more safety than its tools provide.
    ///
    /// The layer checks its composites whenever tools are listed, and logs each warning once. A
    /// warning about a missing tool remains in the list even if the tool appears later. The layer
    /// keeps at most 1000 warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// Returns remarks: texts about composite definitions that are valid but probably not intended.
    /// Examples are a loop that may take longer than the timeout of its run, an output property
    /// without a description, a question that asks for a secret, and a reference to an answer that
    /// the user may not give.
    ///
    /// After the tools have been listed, there is also a remark about each composite whose run may
    /// fail because its state is too large. A run stores its state while it waits for the answer to
    /// a question. There is a remark if all of these conditions hold:
    /// - A step that is not read-only runs before a question.
    /// - The output of this step, or of a step that may finish later, must be stored until the
    ///   question is answered.
    /// - The maximum state size of the [store](Self::state) is smaller than `max_result_bytes`, the
    ///   maximum total size of the tool results.
    ///
    /// If the state of a run is certain to become too large, the layer rejects the run before its
    /// first step that is not read-only.
    ///
    /// There is also a remark about each step that may call a destructive tool without waiting for
    /// the answer to a question, although other steps wait for this answer. A tool is destructive
    /// if its annotations say so. A tool without annotations also counts as destructive if another
    /// step calls it only after a question whose form is empty or contains only booleans.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let composites = self.program.composites.iter();
        let definitions = composites.flat_map(|composite| composite.remarks.iter().cloned());
        definitions.chain(self.remarks.list()).collect()
    }

    /// Returns a remark for each tool that clients can call directly, although a composite calls it
    /// only after the user has answered a question. `is_callable` returns `true` if clients can
    /// call the tool with the given name.
    pub(crate) fn remarks_on_callable(&self, is_callable: impl Fn(&str) -> bool) -> Vec<String> {
        self.approved_tools.remarks(is_callable)
    }

    /// Checks, before any run, that composites use private and untrusted data only as `policy`
    /// allows. The policy labels tools; see [`FlowPolicy`](super::FlowPolicy). Returns all
    /// violations. If there are none, then each run that completes has these properties:
    /// - The arguments of [egress](super::FlowLabel::Egress) tools, and whether they are called, do
    ///   not depend on the results of [private](super::FlowLabel::Private) tools or on secret
    ///   variables.
    /// - The arguments of [destructive](super::FlowLabel::Destructive) tools, conditions, switches
    ///   and the collections of loops do not depend on the results of
    ///   [untrusted](super::FlowLabel::Untrusted) tools.
    ///
    /// A step can use private or untrusted data that the policy forbids in two cases. The outputs
    /// of the step then keep the labels of the data.
    /// - The definition of the step [allows](super::Step::allow_flow) it.
    /// - The user approves the value. For this, the step must wait for a question that is always
    ///   asked and whose message contains the value unchanged. The run must end unless the user
    ///   accepts.
    ///
    /// The arguments with which a client calls a composite have no labels. If another composite
    /// calls this composite, the arguments have the labels of their data. See the
    /// [guide](crate::guide::flow) for the exact rules and their limits.
    #[must_use]
    pub fn check_flow(&self, policy: &FlowPolicy) -> Vec<FlowViolation> {
        self.check_flow_of(policy, |tool| tool.to_owned()).violations
    }

    /// Checks flows like [`check_flow`](Self::check_flow). `original` converts the name by which
    /// composites call a tool to the name by which the policy selects it.
    pub(crate) fn check_flow_of(
        &self,
        policy: &FlowPolicy,
        original: impl Fn(&str) -> String,
    ) -> FlowReport {
        if policy.is_empty() {
            return FlowReport::default();
        }
        flow::check(&self.program, &|tool| policy.labels(&original(tool)))
    }

    /// Returns the labels of the calls of each composite, in the order of the [names](Self::names).
    /// `labels` returns the labels of a tool.
    pub(crate) fn call_flows(&self, labels: &dyn Fn(&str) -> Vec<FlowLabel>) -> Vec<CallFlow> {
        flow::call_flows(&self.program, labels)
    }

    /// Sets the policy that restricts how data flows between the tools that composites call.
    /// Whenever tools are listed, the layer [checks](Self::check_flow) its composites. A composite
    /// that violates the policy is not listed and cannot run, and there is a
    /// [warning](Self::warnings) about it. By default, all flows are allowed.
    #[must_use]
    pub fn flow(self, policy: FlowPolicy) -> Self {
        self.flow_of(policy, |tool| tool.to_owned())
    }

    /// Adds texts to the [`remarks`](Self::remarks) about definitions.
    #[cfg(feature = "config")]
    pub(crate) fn remark(&self, remarks: impl IntoIterator<Item = String>) {
        for remark in remarks {
            self.remarks.warn(format_args!("{remark}"));
        }
    }

    /// Sets the policy like [`flow`](Self::flow). `original` converts the name by which composites
    /// call a tool to the name by which the policy selects it.
    pub(crate) fn flow_of(
        mut self,
        policy: FlowPolicy,
        original: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        self.flow = Some(Arc::new(ListedFlows::new(policy, original)));
        self
    }

    /// Returns a [Mermaid](crate::mermaid) flowchart of the composite with this name, including all
    /// composites that it calls.
    ///
    /// # Errors
    ///
    /// Returns an error if no composite has the name `composite`. The error suggests the most
    /// similar name.
    pub fn flowchart(&self, composite: &str) -> Result<Flowchart, UnknownComposite> {
        let Some(at) = self.program.find(composite) else {
            let near = nearest(composite, &self.names().collect::<Vec<_>>());
            return Err(UnknownComposite::new(composite, near));
        };
        Ok(flowchart::flowchart(&self.program, at))
    }

    /// Sets the store for the states of suspended runs. A run of a composite is suspended while it
    /// waits for a user's answers. By default, the server stores nothing: the client receives the
    /// state and sends it back with the answers. The state is
    /// [encrypted](crate::store::SealedStore::ephemeral) with a random key of this process or,
    /// without the feature `sealed`, [signed](crate::store::SignedStore::ephemeral).
    ///
    /// Several layers can share one [`Store`](crate::store::Store), because an `Arc` of a store is
    /// also a store.
    #[must_use]
    pub fn state(mut self, store: impl Store + 'static) -> Self {
        self.state = Arc::new(store);
        self
    }

    /// Sets the function that identifies the caller of a request, for example by the name of a
    /// user. If a run is suspended for a question, only the caller that started the run can resume
    /// it.
    ///
    /// The [store](Self::state) of suspended runs may also limit the total size of each caller's
    /// runs.
    ///
    /// All requests for which the function returns `None` count as requests of a single caller. By
    /// default, all requests do.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller = Some(identified_by(caller));
        self
    }

    /// Sets the tracker of runs whose finally steps continue after their call was cancelled. With a
    /// clone of the [`CancelledRuns`] value, your program can wait for these runs before it ends.
    #[must_use]
    pub fn cancelled_runs(mut self, runs: CancelledRuns) -> Self {
        self.cancelled_runs = runs;
        self
    }

    /// Adds an [observer](crate::observe), which receives an event whenever a run of a composite,
    /// or one of its steps, starts or ends.
    ///
    /// An `Arc` of an observer is also an observer. You can therefore keep a clone of the `Arc` to
    /// read later what the observer has recorded.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }
}

catalog_setters! {
    /// If no epoch is set, the layer notices within a minute that the tools of the inner service
    /// have changed. It notices the change earlier if a client calls a composite whose tools were
    /// missing.
    CompositeLayer: catalogs
}

#[cfg(all(test, feature = "config", feature = "redis"))]
impl CompositeLayer {
    /// Returns the effective settings, the plan and the targets of each composite.
    pub(crate) fn compiled(&self) -> impl fmt::Debug {
        let composites = self.program.composites.iter().map(|composite| {
            let CompositeTool { timeout, limits, on_limit, trace, .. } = &composite.definition;
            let settings = (timeout, limits, on_limit, trace, composite.task);
            (settings, &composite.plan, composite.answer, &composite.targets)
        });
        composites.collect::<Vec<_>>()
    }
}

impl Default for CompositeLayer {
    /// Creates a layer without composites, which does not change the service.
    fn default() -> Self {
        Self {
            program: Arc::default(),
            warnings: Warnings::default(),
            remarks: Warnings::default(),
            approved_tools: ApprovedTools::default(),
            limits: CallLimits::default(),
            heartbeat: HEARTBEAT,
            catalogs: CatalogSettings::default(),
            state: Arc::new(DefaultStore::ephemeral()),
            caller: None,
            observers: Observers::default(),
            cancelled_runs: CancelledRuns::new(),
            flow: None,
        }
    }
}

impl fmt::Debug for CompositeLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompositeLayer")
            .field("composites", &self.names().collect::<Vec<_>>())
            .field("limits", &self.limits)
            .field("heartbeat", &self.heartbeat)
            .field("state", &self.state)
            .field("observers", &self.observers)
            .finish_non_exhaustive()
    }
}
