//! The layer that adds composite tools to a service.

use std::{fmt, sync::Arc, time::Duration};

use super::{
    compile::Program,
    definition::CompositeTool,
    error::DefinitionErrors,
    flowchart::{self, UnknownComposite},
};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    engine::limits::{CallLimits, HEARTBEAT},
    mermaid::Flowchart,
    message::{Context, ContextKey},
    observe::{Observer, Observers},
    store::{SignedStore, Store},
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
/// Calling a composite panics if the Tokio runtime has no time driver enabled. Outside a Tokio
/// runtime, the call returns an internal error instead.
#[derive(Clone)]
pub struct CompositeLayer {
    pub(super) program: Arc<Program>,
    pub(super) warnings: Warnings,
    pub(super) remarks: Warnings,
    pub(super) limits: CallLimits,
    pub(super) heartbeat: Duration,
    pub(crate) catalogs: CatalogSettings,
    pub(super) state: Arc<dyn Store>,
    pub(super) caller: Option<ContextKey>,
    pub(crate) observers: Observers,
}

// === impl CompositeLayer ===

impl CompositeLayer {
    /// Creates a layer from the definitions of composites.
    ///
    /// Does not check whether the tools that the composites call exist, because the available tools
    /// can change. While a required tool of a composite is missing, the composite is not listed,
    /// and a log message names the missing tool.
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
    /// If the separator contains a character that tool names otherwise cannot contain, the name
    /// parts that it separates must not be empty: `all/` and `all//search` are illegal.
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

    /// Sets the resource limits of each composite call. The calls that nested composites make count
    /// toward the limits of the outermost call.
    #[must_use]
    pub const fn limits(mut self, limits: CallLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the heartbeat interval. A heartbeat is a progress notification that names the running
    /// steps. It is sent whenever this time has passed without other progress. Only clients that
    /// sent a progress token receive heartbeats. Defaults to 15 seconds. Zero disables heartbeats.
    ///
    /// Heartbeats prevent timeouts during long calls, if the client resets its timeout on each
    /// progress notification.
    #[must_use]
    pub const fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    /// Returns warnings about composites that do not match the current tools. The causes are
    /// missing tools, arguments that do not match the input schema of their tool, and annotations
    /// that claim more safety than the called tools provide.
    ///
    /// Composites are checked whenever tools are listed. Each warning is logged once. A warning
    /// about a missing tool remains in the list even if the tool appears later. At most 1000
    /// warnings are kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// Returns remarks on parts of definitions that are valid but probably not intended. Examples
    /// are a loop that may take longer than its run, an output property without a description, a
    /// question for a secret, and a reference to an answer that may not exist.
    ///
    /// Once tools have been listed, the remarks also name composites whose runs may become too
    /// large to be suspended for a question. Such a run fails at the question, although an earlier
    /// step may have changed something. A composite is named if it meets all of these conditions:
    ///
    /// - A step that is not read-only precedes a question.
    /// - The output of this step, or of a step that may finish later, is kept until the question is
    ///   answered.
    /// - The maximum size of a state in the [store](Self::state) is smaller than the maximum total
    ///   size of the tool results (`max_result_bytes`).
    ///
    /// If the state of a run is known to be too large before the first step that may change
    /// something, the run is rejected before this step instead.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let composites = self.program.composites.iter();
        let definitions = composites.flat_map(|composite| composite.remarks.iter().cloned());
        definitions.chain(self.remarks.list()).collect()
    }

    /// Returns the flowchart of a composite and all composites that it calls; see
    /// [`mermaid`](crate::mermaid).
    ///
    /// # Errors
    ///
    /// Returns an error with the closest known name if no composite has the name `composite`.
    pub fn flowchart(&self, composite: &str) -> Result<Flowchart, UnknownComposite> {
        let Some(at) = self.program.find(composite) else {
            let near = nearest(composite, &self.names().collect::<Vec<_>>());
            return Err(UnknownComposite::new(composite, near));
        };
        Ok(flowchart::flowchart(&self.program, at))
    }

    /// Sets the store of suspended runs, which wait for the answers of a user. By default, a
    /// suspended run is not stored on the server: its state is sent to its client,
    /// [signed](SignedStore::ephemeral) with a key of this process.
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
    /// The store may limit the share of its space that one caller can use. The size of a suspended
    /// run counts toward the share of its caller in the [store](Self::state).
    ///
    /// By default, all requests have the same caller. If the function returns `None` for several
    /// requests, these requests also have the same caller.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller = Some(Arc::new(caller));
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
    /// Without an epoch, the layer notices changed tools behind it within a minute. It notices them
    /// earlier if a client calls a composite whose tools were missing.
    CompositeLayer: catalogs
}

#[cfg(all(test, feature = "config", feature = "redis"))]
impl CompositeLayer {
    /// Returns the compiled definitions for use in `Debug` output.
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
            limits: CallLimits::default(),
            heartbeat: HEARTBEAT,
            catalogs: CatalogSettings::default(),
            state: Arc::new(SignedStore::ephemeral()),
            caller: None,
            observers: Observers::default(),
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
