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
    engine::limits::{HEARTBEAT, Limits},
    mermaid::Flowchart,
    message::{Context, ContextKey},
    observe::{Observer, Observers},
    store::{SignedStore, Store},
    suggest::nearest,
    warnings::Warnings,
};

/// Adds composite tools to the service it wraps.
///
/// See the [module docs](crate::composite) for a description and an example. Without composites it
/// changes nothing.
///
/// # Panics
///
/// A call of a composite panics on a Tokio runtime without time enabled. Without any runtime it
/// returns an internal error.
#[derive(Clone)]
pub struct CompositeLayer {
    pub(super) program: Arc<Program>,
    pub(super) warnings: Warnings,
    pub(super) remarks: Warnings,
    pub(super) limits: Limits,
    pub(super) heartbeat: Duration,
    pub(crate) catalogs: CatalogSettings,
    pub(super) state: Arc<dyn Store>,
    pub(super) caller: Option<ContextKey>,
    pub(crate) observers: Observers,
}

// === impl CompositeLayer ===

impl CompositeLayer {
    /// Compiles composites to a layer.
    ///
    /// It does not check that the tools of the composites exist, because tools come and go. A
    /// composite whose tools are missing is not listed, and a log message names them.
    ///
    /// # Errors
    ///
    /// Returns all errors in the definitions: an illegal, blank or duplicate name, no targets or
    /// too many, a reference that does not parse, a quorum that cannot be met, a key that has no
    /// effect, an invalid schema, composites that call each other in a cycle or are nested too
    /// deep.
    pub fn new(
        composites: impl IntoIterator<Item = CompositeTool>,
    ) -> Result<Self, DefinitionErrors> {
        Self::build(composites, None)
    }

    /// Like [`new`](Self::new), but the names of composites may also contain the characters of
    /// `separator`, for a router that puts a `/` between the name of a server and that of its tool.
    ///
    /// If the separator contains a character that tool names cannot have otherwise, no part of a
    /// name may be empty: `all/` and `all//search` are illegal.
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
    /// Returns all errors as [`new`](Self::new) does, and rejects a separator that is not 1 to 8
    /// visible ASCII characters.
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

    /// Returns the names of the composites, in order of definition.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.program.composites.iter().map(|composite| &*composite.name)
    }

    /// Sets the limits of one call of a composite.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the interval after which a client with a progress token receives a heartbeat if nothing
    /// has changed. Defaults to 15 seconds; zero disables heartbeats.
    ///
    /// Clients that reset their timeout on progress then keep waiting for a long call.
    #[must_use]
    pub const fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    /// Returns the warnings about composites and the current tools: missing tools, and annotations
    /// that claim more safety than the tools have.
    ///
    /// Warnings are found when tools are listed. Each is logged once and kept even if the tools
    /// appear later. At most 1000 are kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// Returns remarks on definitions that are valid but probably not intended: a loop that may
    /// take longer than its run, output properties without a description, questions for secrets,
    /// references to answers that may not exist.
    ///
    /// Once tools have been listed, it also includes states that may become too large: a step that
    /// is not read-only precedes a question, the output of that step, or of one that does not
    /// finish before it, is kept until the answer, and the [store](Self::state) accepts less than
    /// the tools may return together (`max_result_bytes`). Such a run fails after a step that
    /// changed something; a run whose state is too large before that step is rejected before it.
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
    /// Returns an error with the closest known name if no composite has this name.
    pub fn flowchart(&self, composite: &str) -> Result<Flowchart, UnknownComposite> {
        let Some(at) = self.program.find(composite) else {
            let near = nearest(composite, &self.names().collect::<Vec<_>>());
            return Err(UnknownComposite::new(composite, near));
        };
        Ok(flowchart::flowchart(&self.program, at))
    }

    /// Sets the store of suspended runs. Defaults to sending them to their clients,
    /// [signed](SignedStore::ephemeral) with a key of this process.
    ///
    /// An `Arc` of a store is a store too, so that layers can share one.
    #[must_use]
    pub fn state(mut self, store: impl Store + 'static) -> Self {
        self.state = Arc::new(store);
        self
    }

    /// Sets the function that returns the caller of a request. Only the caller that started a run
    /// can resume it after a question.
    ///
    /// A suspended run also counts toward its caller's share of the [store](Self::state).
    ///
    /// By default all requests have the same caller, as do all requests for which the function
    /// returns `None`.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller = Some(Arc::new(caller));
        self
    }

    /// Adds an [observer](crate::observe) of the runs.
    ///
    /// An `Arc` of an observer is an observer too, so that the caller can keep a handle to it.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }
}

catalog_setters! {
    /// Without an epoch, a change of the tools behind the layer is noticed within a minute, or when
    /// a composite is called that could not run before.
    CompositeLayer: catalogs
}

#[cfg(all(test, feature = "config", feature = "redis"))]
impl CompositeLayer {
    /// Returns the compiled definitions, for `Debug` output.
    pub(crate) fn compiled(&self) -> impl fmt::Debug {
        &self.program.composites
    }
}

impl Default for CompositeLayer {
    /// A layer without composites, which changes nothing.
    fn default() -> Self {
        Self {
            program: Arc::default(),
            warnings: Warnings::default(),
            remarks: Warnings::default(),
            limits: Limits::default(),
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
