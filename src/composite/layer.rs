use std::{fmt, sync::Arc, time::Duration};

use tower_layer::Layer;

use super::{
    Composite,
    compile::Program,
    definition::CompositeTool,
    error::DefinitionErrors,
    flowchart::{self, UnknownComposite},
};
use crate::{
    catalog::VaryBy,
    changes::Epoch,
    engine::limits::{HEARTBEAT, Limits},
    mermaid::Flowchart,
    message::Context,
    observe::{Observer, Observers},
    state::{SignedState, StateStore},
    suggest::nearest,
    warnings::Warnings,
};

/// Adds composite tools to the service it wraps.
///
/// See the [module docs](crate::composite) for what that means and for an
/// example. Without composites it changes nothing.
///
/// # Panics
///
/// A call of a composite panics on a Tokio runtime whose time is not enabled.
/// Without any runtime it is answered with an internal error.
#[derive(Clone)]
pub struct CompositeLayer {
    pub(super) program: Arc<Program>,
    pub(super) warnings: Warnings,
    pub(super) remarks: Warnings,
    pub(super) limits: Limits,
    pub(super) heartbeat: Duration,
    pub(super) epoch: Epoch,
    pub(super) vary_by: Option<VaryBy>,
    pub(super) state: Arc<dyn StateStore>,
    pub(super) caller: Option<Caller>,
    pub(crate) observers: Observers,
}

/// Says who calls.
pub(crate) type Caller = Arc<dyn Fn(&Context) -> Option<String> + Send + Sync>;

// === impl CompositeLayer ===

impl CompositeLayer {
    /// Checks composites, alone and against each other, and makes a layer of them.
    ///
    /// Whether the tools they call exist is not checked here, since tools come
    /// and go: a composite whose tools are missing is not listed, and the log
    /// names them.
    ///
    /// # Errors
    ///
    /// Returns every mistake in the definitions: an illegal, blank or duplicate
    /// name, no targets or too many, a reference that does not parse, a quorum
    /// that cannot be met, a key that would do nothing, a schema that is none,
    /// composites that call each other in a circle or are nested too deep.
    pub fn new(
        composites: impl IntoIterator<Item = CompositeTool>,
    ) -> Result<Self, DefinitionErrors> {
        Self::build(composites, None)
    }

    /// Like [`new`](Self::new), but the names of composites may also have the
    /// characters of `separator` in them, for a router that puts a `/` between
    /// the name of a server and that of its tool.
    ///
    /// With one that tools' names cannot have otherwise, no part of a name is
    /// empty: `all/` and `all//search` are illegal.
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
    /// Returns every mistake as [`new`](Self::new) does, and a separator that is
    /// not 1 to 8 visible ASCII characters.
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

    /// The names of the composites, in their order.
    #[must_use]
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.program.composites.iter().map(|composite| &*composite.name)
    }

    /// Sets what one call of a composite may use.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how long nothing moves before a client that wants to know of progress is
    /// told that its call still goes on; 15 seconds by default, and never if it is
    /// zero.
    ///
    /// Clients that wait longer for an answer as long as they are told something
    /// stay with a call that takes its time.
    #[must_use]
    pub const fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    /// Makes what the layer knows of tools outdated whenever `epoch` is bumped.
    ///
    /// Without it, a change of the tools behind the layer is noticed within a
    /// minute, or when a composite is called that could not run before.
    #[must_use]
    pub fn epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
    }

    /// What was in the way of composites with the tools that there were, in words
    /// for whoever runs the server: tools that are missing, and annotations that
    /// claim more safety than the tools have.
    ///
    /// It is found out when tools are listed, logged once, and kept although the
    /// tools may be there by now. At most 1000 are kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }

    /// What is no mistake in the definitions, but hardly what was meant, in words for
    /// whoever writes them: a loop that may take longer than its run, members of
    /// outputs without a description, questions for secrets, references to answers that
    /// there may not be.
    ///
    /// Once tools have been listed, also states that may turn out too large: a step that is
    /// not read-only precedes a question, the output of that step, or of one that does not
    /// finish before it, is kept until the answer, and the [store](Self::state) keeps less
    /// than the tools may return together (`max_result_bytes`). Such a run fails after a
    /// step that changed something; a run whose state is too large before that step is
    /// refused without it.
    #[must_use]
    pub fn remarks(&self) -> Vec<String> {
        let composites = self.program.composites.iter();
        let definitions = composites.flat_map(|composite| composite.remarks.iter().cloned());
        definitions.chain(self.remarks.list()).collect()
    }

    /// A composite, with all composites that it calls, as a picture; see
    /// [`mermaid`](crate::mermaid).
    ///
    /// # Errors
    ///
    /// Returns an error if there is no composite of this name. It tells the nearest.
    pub fn flowchart(&self, composite: &str) -> Result<Flowchart, UnknownComposite> {
        let Some(at) = self.program.find(composite) else {
            let near = nearest(composite, &self.names().collect::<Vec<_>>());
            return Err(UnknownComposite::new(composite, near));
        };
        Ok(flowchart::flowchart(&self.program, at))
    }

    /// Keeps what the layer knows of tools apart by a key of the request's
    /// context, for servers that show different tools to different callers.
    ///
    /// Tools are then listed in the context of the first caller of each key;
    /// without a key they are listed without any. The catalogs of the last
    /// 1000 keys are kept.
    #[must_use]
    pub fn vary_by<F>(mut self, key: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.vary_by = Some(Arc::new(key));
        self
    }

    /// Sets where runs are kept that wait for a person. By default their clients keep
    /// them, [signed](SignedState::ephemeral) with a key that only this process has.
    ///
    /// An `Arc` of a store is a store too, for layers that share one.
    #[must_use]
    pub fn state(mut self, store: impl StateStore + 'static) -> Self {
        self.state = Arc::new(store);
        self
    }

    /// Sets who calls, by the request's context: a run that waits for a person is gone
    /// on with only by the caller that began it.
    ///
    /// It also names the caller whose share of the [store](Self::state) a suspended run counts
    /// against.
    ///
    /// By default everybody is the same caller, and so are all of whom it is not known.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.caller = Some(Arc::new(caller));
        self
    }

    /// Lets somebody [watch](crate::observe) the runs, besides those that watch them
    /// already.
    ///
    /// An `Arc` of an observer is an observer too, for those that are asked later what
    /// they have seen.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observers.push(observer);
        self
    }
}

#[cfg(all(test, feature = "config", feature = "redis"))]
impl CompositeLayer {
    /// What the definitions came to, with all that they leave open.
    pub(crate) fn compiled(&self) -> impl fmt::Debug {
        &self.program.composites
    }
}

impl Default for CompositeLayer {
    /// No composites: nothing changes.
    fn default() -> Self {
        Self {
            program: Arc::default(),
            warnings: Warnings::default(),
            remarks: Warnings::default(),
            limits: Limits::default(),
            heartbeat: HEARTBEAT,
            epoch: Epoch::default(),
            vary_by: None,
            state: Arc::new(SignedState::ephemeral()),
            caller: None,
            observers: Observers::default(),
        }
    }
}

impl<S> Layer<S> for CompositeLayer {
    type Service = Composite<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Composite::new(self, inner)
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
