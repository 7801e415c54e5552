//! The layer that runs calls as tasks.

use std::{fmt, sync::Arc};

use rmcp::model::ServerCapabilities;

use super::{
    registry::TaskRegistry,
    shared::Owner,
    tool::{TaskTool, TaskTools},
};
use crate::{
    composite::{CompositeLayer, TaskMode},
    message::{Context, ContextKey, identified_by, tasks::declare_tasks},
};

/// Layer that runs calls of composites as MCP tasks.
///
/// See the [module docs](crate::tasks) for a description and an example. If no composites are set,
/// or none of them can run as tasks, the layer changes nothing.
#[derive(Clone, Debug, Default)]
pub struct TaskLayer {
    pub(super) settings: Settings,
}

#[derive(Clone, Default)]
pub(super) struct Settings {
    /// The composites whose calls can become tasks.
    pub(super) composites: Arc<TaskTools>,
    pub(super) registry: TaskRegistry,
    caller: Option<ContextKey>,
}

// === impl TaskLayer ===

impl TaskLayer {
    /// Creates a layer in which no calls become tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the composites that clients can call as tasks. The [`TaskMode`] of a composite
    /// determines which of its calls become tasks. `layer` is the composite layer below this layer.
    /// A [`StackLayer`](crate::stack::StackLayer) calls this method itself.
    #[must_use]
    pub fn composites(mut self, layer: &CompositeLayer) -> Self {
        let composites = layer.task_modes().filter_map(|(name, mode, timeout)| {
            let is_immediate = match mode {
                TaskMode::Never => return None,
                TaskMode::Optional => false,
                TaskMode::Always => true,
            };
            let tool = TaskTool {
                is_immediate,
                timeout,
                #[cfg(feature = "restate")]
                definition: layer.definition(name)?,
            };
            Some((name.to_owned(), tool))
        });
        self.settings.composites = Arc::new(composites.collect());
        self
    }

    /// Sets the registry of the tasks. By default, each layer has its own registry, which its
    /// clones share.
    ///
    /// Use the same registry for a layer that replaces this one, so that clients can still access
    /// their tasks.
    #[must_use]
    pub fn registry(mut self, registry: TaskRegistry) -> Self {
        self.settings.registry = registry;
        self
    }

    /// Sets the function that identifies the caller of a request, such as a user. Only the caller
    /// that started a task can access it.
    ///
    /// By default, all requests are treated as if they came from a single caller. This also applies
    /// to all requests for which the function returns `None`.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.settings.caller = Some(identified_by(caller));
        self
    }

    /// Adds the tasks extension to `capabilities`, the declared capabilities of a server, if calls
    /// can become tasks.
    pub fn declare(&self, capabilities: &mut ServerCapabilities) {
        if !self.settings.are_idle() {
            declare_tasks(capabilities);
        }
    }
}

// === impl Settings ===

impl Settings {
    /// Returns `true` if no calls become tasks.
    pub(super) fn are_idle(&self) -> bool {
        self.composites.is_empty()
    }

    pub(super) fn tool(&self, name: &str) -> Option<TaskTool> {
        self.composites.get(name).copied()
    }

    /// Returns the owner of the tasks that a request starts: the caller, and the view (a URL path
    /// of the gateway) that received the request.
    pub(super) fn owner(&self, context: &Context) -> Owner {
        let caller = self.caller.as_ref().and_then(|caller| caller(context));
        Owner { view: context.view().map(|view| view.to_string()), caller }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("composites", &self.composites)
            .field("registry", &self.registry)
            .finish_non_exhaustive()
    }
}
