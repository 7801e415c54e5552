//! The layer that controls which tools clients see.

use std::{collections::HashSet, fmt, sync::Arc};

use tower_layer::Layer;

use super::rule::{AdvertiseRule, Calls, Mode, Policy, pattern_watch};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    intercept::Informed,
    pattern::Selection,
    warnings::Warnings,
};

/// Middleware that hides tools of the wrapped service from clients, or replaces the list of tools
/// by a search tool. Created by [`AdvertiseLayer`]. `Advertise` is ready when the wrapped service
/// is ready.
pub type Advertise<S> = Informed<AdvertiseRule, S>;

/// A layer that selects the tools that clients see. Clients see the tools in the list of tools, or
/// find them with a search tool.
///
/// A new `AdvertiseLayer` changes nothing: clients see all tools in the list of tools. The [module
/// docs](crate::advertise) describe the search tool, and contain an example.
#[derive(Clone)]
pub struct AdvertiseLayer {
    policy: Arc<Policy>,
    pub(crate) catalogs: CatalogSettings,
}

// === impl AdvertiseLayer ===

impl AdvertiseLayer {
    /// Creates a layer that advertises all tools.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which tools are advertised, that is, which tools clients see. The patterns match the
    /// names by which the wrapped service lists the tools. Defaults to all tools.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        let policy = Arc::make_mut(&mut self.policy);
        policy.pattern_watch = Arc::new(pattern_watch(&tools));
        policy.tools = tools;
        self
    }

    /// Adds the names of composite tools. A composite tool is advertised even if the
    /// [patterns](Self::tools) do not select it, unless a pattern denies its exact name. Defaults
    /// to no names.
    #[must_use]
    pub fn composites<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        Arc::make_mut(&mut self.policy).composites.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets whether a client can call a tool that is not advertised. Defaults to [`Calls::Refuse`]:
    /// the layer rejects the call as if the tool did not exist.
    #[must_use]
    pub fn calls(mut self, calls: Calls) -> Self {
        Arc::make_mut(&mut self.policy).calls = calls;
        self
    }

    /// Sets whether clients receive a list of all advertised tools, or a tool that searches them.
    /// Defaults to [`Mode::List`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.policy).mode = mode;
        self
    }

    /// Returns warnings for the operator about patterns that match no tool. In search mode, also
    /// returns warnings about tools that clients cannot call because they are named `search_tools`
    /// or `call_tool`.
    ///
    /// An `AdvertiseLayer` checks the patterns once, when it has first received a complete list of
    /// tools that is not empty. In search mode, it checks the names of the tools whenever it lists
    /// them. The method returns at most 1000 warnings, including warnings whose cause has been
    /// resolved. Each warning is also logged once.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.policy.warnings.list()
    }

    /// Returns `true` if clients can call the tool with this name.
    pub(crate) fn admits(&self, tool: &str) -> bool {
        self.policy.admits(tool)
    }
}

catalog_setters! {
    /// If no epoch is set, a search may use a cached list of tools that is up to about a minute
    /// old. Tool lists and tool calls do not use the cached list.
    AdvertiseLayer: catalogs
}

impl Default for AdvertiseLayer {
    fn default() -> Self {
        let tools = Selection::default();
        let policy = Policy {
            pattern_watch: Arc::new(pattern_watch(&tools)),
            tools,
            composites: HashSet::new(),
            calls: Calls::default(),
            mode: Mode::default(),
            warnings: Warnings::default(),
        };
        Self { policy: Arc::new(policy), catalogs: CatalogSettings::default() }
    }
}

impl<S> Layer<S> for AdvertiseLayer {
    type Service = Advertise<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let rule = AdvertiseRule(self.policy.clone());
        Informed::with_catalogs(rule, inner, self.catalogs.clone())
    }
}

impl fmt::Debug for AdvertiseLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvertiseLayer")
            .field("tools", &self.policy.tools)
            .field("composites", &self.policy.composites)
            .field("calls", &self.policy.calls)
            .field("mode", &self.policy.mode)
            .finish_non_exhaustive()
    }
}
