//! The layer that adds composite tools to a service.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    approval::ApprovedTools,
    cancelled_runs::CancelledRuns,
    compile::Program,
    definition::CompositeTool,
    error::DefinitionErrors,
    flow::{self, FlowPolicy, FlowReport, FlowViolation, ListedFlows},
    flowchart::{self, UnknownComposite},
};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    engine::limits::{CallLimits, HEARTBEAT},
    mermaid::Flowchart,
    message::{Context, ContextKey},
    observe::{Observer, Observers},
    store::{DefaultStore, Store},
    suggest::nearest,
    warnings::Warnings,
};

/// Layer that adds composite tools to a service.
///
/// See the [module docs](crate::composite) for a description and an example. A layer without
/// composites does not change the service.
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
    /// The layer does not check in advance whether the tools that composites call exist, because
    /// the available tools may change later. While a required tool of a composite does not exist,
    /// the composite is not listed, and a log message names the missing tool.
    ///
    /// # Errors
    ///
    /// Returns all errors in the definitions at once. Examples are an illegal or duplicate name, a
    /// composite with too many targets, a reference that cannot be parsed, a quorum that cannot be
    /// reached, a key that has no effect, an invalid schema, and composites that call each other in
    /// a cycle or are nested too deep.
    pub fn new(
        composites: impl IntoIterator<Item = CompositeTool>,
    ) -> Result<Self, DefinitionErrors> {
        Self::build(composites, None)
    }

    /// Creates a layer like [`new`](Self::new), but also allows the characters of `separator` in
    /// the names of composites. An example is the `/` that a router puts between the name of a
    /// server and the name of its tool.
    ///
    /// A separator may contain a character that MCP does not allow in tool names, such as `/`. In
    /// this case, the parts of a name before and after the separator must begin and end with an
    /// allowed character: `all/` and `all//search` are illegal.
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

    /// Sets the resource limits of a single composite call. If a composite calls other composites,
    /// their tool calls count toward the limits of the outermost call.
    #[must_use]
    pub const fn limits(mut self, limits: CallLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the heartbeat interval. A heartbeat is a progress notification that names the running
    /// steps. It is sent if the run has reported no other progress during this interval. Only
    /// clients that sent a progress token receive heartbeats. Defaults to 15 seconds. Zero disables
    /// heartbeats.
    ///
    /// Heartbeats prevent a client from timing out during a long call, if it restarts its timeout
    /// whenever it receives a progress notification.
    #[must_use]
    pub const fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    /// Returns warnings about composites that do not match the current tools. A warning is added if
    /// a tool is missing, if arguments do not match the input schema of their tool, or if a
    /// composite's annotations claim more safety than the called tools provide.
    ///
    /// Composites are checked whenever tools are listed. Each warning is logged once. A warning
    /// about a missing tool remains in the list even if the tool appears later. At most 1000
    /// warnings are kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// Returns remarks on definitions that are valid but probably not intended. Examples are a loop
    /// that may take longer than the timeout of its run, an output property without a description,
    /// a question that asks for a secret, and a reference to an answer that the user may not give.
    ///
    /// After the tools have been listed, there are also remarks about runs that may be too large to
    /// be suspended. A run is suspended while it waits for the answer to a question. If its state
    /// is too large to be stored, the run fails at the question, although an earlier step may
    /// already have changed something. There is a remark about a composite if it meets all of these
    /// conditions:
    ///
    /// - A step that is not read-only runs before a question.
    /// - The output of this step, or of a step that may finish later, must be stored until the
    ///   question is answered.
    /// - The maximum state size of the [store](Self::state) is smaller than `max_result_bytes`, the
    ///   maximum total size of the tool results.
    ///
    /// If a run is already known to be too large before its first step that is not read-only, the
    /// run is rejected at this point, so that nothing is changed.
    ///
    /// There is also a remark about each step that may call a destructive tool before the user has
    /// answered a question, although other steps wait for this answer. A tool is destructive if its
    /// annotations say so. A tool without such annotations is treated as destructive only if
    /// another step calls the same tool after a question whose form is empty or contains only
    /// booleans.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let composites = self.program.composites.iter();
        let definitions = composites.flat_map(|composite| composite.remarks.iter().cloned());
        definitions.chain(self.remarks.list()).collect()
    }

    /// Returns a remark for each tool that a composite calls only after the user has answered a
    /// question, if `is_callable` returns `true` for the name of the tool.
    pub(crate) fn remarks_on_callable(&self, is_callable: impl Fn(&str) -> bool) -> Vec<String> {
        self.approved_tools.remarks(is_callable)
    }

    /// Checks that the composites use labeled data only as the policy allows, before they run.
    /// Returns all violations. If there are none, then in each run that completes:
    ///
    /// - The arguments of [egress](super::FlowLabel::Egress) tools, and whether they are called, do
    ///   not depend on the results of [private](super::FlowLabel::Private) tools or on secret
    ///   variables.
    /// - The arguments of [destructive](super::FlowLabel::Destructive) tools, conditions, switches
    ///   and the collections of loops do not depend on the results of
    ///   [untrusted](super::FlowLabel::Untrusted) tools.
    ///
    /// A step can use such data if its definition [allows](super::Step::allow_flow) it, or if a
    /// person has approved the value: the step waits for a question whose message contains the
    /// value unchanged, that is always asked, and that ends the run if it is not accepted. The
    /// outputs of such a step keep their labels.
    ///
    /// The arguments of a composite are not labeled, unless another composite calls it. See the
    /// [guide](crate::guide::flow) for the exact rules and their limits.
    #[must_use]
    pub fn check_flow(&self, policy: &FlowPolicy) -> Vec<FlowViolation> {
        self.check_flow_of(policy, |tool| tool.to_owned()).violations
    }

    /// Checks flows like [`check_flow`](Self::check_flow). The policy uses other names for tools
    /// than composites: `original` converts a name.
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

    /// Sets the policy for the flow of data through composites. Whenever tools are listed, the
    /// composites are [checked](Self::check_flow). A composite that violates the policy is not
    /// listed and cannot run, and there is a [warning](Self::warnings). By default, all flows are
    /// allowed.
    #[must_use]
    pub fn flow(self, policy: FlowPolicy) -> Self {
        self.flow_of(policy, |tool| tool.to_owned())
    }

    /// Adds remarks on definitions; see [`remarks`](Self::remarks).
    #[cfg(feature = "config")]
    pub(crate) fn remark(&self, remarks: impl IntoIterator<Item = String>) {
        for remark in remarks {
            self.remarks.warn(format_args!("{remark}"));
        }
    }

    /// Sets the policy like [`flow`](Self::flow). The policy uses other names for tools than
    /// composites: `original` converts a name.
    pub(crate) fn flow_of(
        mut self,
        policy: FlowPolicy,
        original: impl Fn(&str) -> String + Send + Sync + 'static,
    ) -> Self {
        self.flow = Some(Arc::new(ListedFlows::new(policy, original)));
        self
    }

    /// Returns a flowchart of a composite, including all composites that it calls; see
    /// [`mermaid`](crate::mermaid).
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

    /// Sets the store in which runs are suspended while they wait for a user's answers. By default,
    /// nothing is stored on the server: the state of a suspended run is sent to its client,
    /// [encrypted](crate::store::SealedStore::ephemeral) with the random key of this process, or
    /// [signed](crate::store::SignedStore::ephemeral) without the feature `sealed`.
    ///
    /// Several layers can share one store, because an `Arc` of a store is also a store.
    #[must_use]
    pub fn state(mut self, store: impl Store + 'static) -> Self {
        self.state = Arc::new(store);
        self
    }

    /// Sets the function that identifies the caller of a request, such as a user. If a run is
    /// suspended for a question, only the caller that started the run can resume it.
    ///
    /// The [store](Self::state) may limit the total size of the suspended runs of each caller, as
    /// identified by this function.
    ///
    /// By default, all requests are treated as if they came from a single caller. This also applies
    /// to all requests for which the function returns `None`.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller = Some(Arc::new(caller));
        self
    }

    /// Sets the value that knows the runs whose finally steps run even if their call is cancelled.
    /// With a clone of it, your program can wait for these runs before it ends.
    #[must_use]
    pub fn cancelled_runs(mut self, runs: CancelledRuns) -> Self {
        self.cancelled_runs = runs;
        self
    }

    /// Adds an [observer](crate::observe), which receives the events of all runs.
    ///
    /// An `Arc` of an observer is also an observer. You can therefore keep a clone of the `Arc`,
    /// and read through it what the observer has recorded.
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
    /// Returns the compiled definitions, for the `Debug` output of other types.
    pub(crate) fn compiled(&self) -> impl fmt::Debug {
        &self.program.composites
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
