use std::{fmt, sync::Arc};

use tower_layer::Layer;

use super::{Composite, compile::Program, definition::CompositeTool, error::DefinitionErrors};
use crate::{
    catalog::VaryBy, changes::Epoch, complaints::Complaints, engine::limits::Limits,
    message::Context,
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
    pub(super) complaints: Complaints,
    pub(super) limits: Limits,
    pub(super) epoch: Epoch,
    pub(super) vary_by: Option<VaryBy>,
}

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
    pub fn complaints(&self) -> Vec<String> {
        self.complaints.told()
    }

    /// What is no mistake in the definitions, but hardly what was meant, in words for
    /// whoever writes them: a loop that may take longer than its run, members of
    /// outputs without a description.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        let composites = self.program.composites.iter();
        composites.flat_map(|composite| composite.remarks.iter().map(String::as_str))
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
}

impl Default for CompositeLayer {
    /// No composites: nothing changes.
    fn default() -> Self {
        Self {
            program: Arc::default(),
            complaints: Complaints::default(),
            limits: Limits::default(),
            epoch: Epoch::default(),
            vary_by: None,
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
            .finish_non_exhaustive()
    }
}
