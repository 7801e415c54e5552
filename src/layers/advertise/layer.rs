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

/// Middleware that [`AdvertiseLayer`] puts in front of a service.
///
/// Ready when the service is.
pub type Advertise<S> = Informed<AdvertiseRule, S>;

/// A layer that controls which tools clients see, and how they are listed.
///
/// See the [module docs](crate::advertise) for the rules and an example. Without settings, it
/// changes nothing.
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

    /// Sets the advertised tools, by the names that clients see. Defaults to all tools.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        let policy = Arc::make_mut(&mut self.policy);
        policy.pattern_watch = Arc::new(pattern_watch(&tools));
        policy.tools = tools;
        self
    }

    /// Adds names of composites, which patterns do not affect: a composite is hidden only if its
    /// exact name is denied. Defaults to none.
    #[must_use]
    pub fn composites<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        Arc::make_mut(&mut self.policy).composites.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets the behavior of a call to a tool that is not advertised. Defaults to [`Calls::Refuse`].
    #[must_use]
    pub fn calls(mut self, calls: Calls) -> Self {
        Arc::make_mut(&mut self.policy).calls = calls;
        self
    }

    /// Sets how tools are listed. Defaults to [`Mode::List`].
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.policy).mode = mode;
        self
    }

    /// Returns the conflicts between the settings and the tool lists: patterns that match nothing,
    /// and tools that the two tools of search mode hide.
    ///
    /// Conflicts are detected when all tools are listed by a client or for a search, and logged
    /// once. They are kept even after they are resolved. At most 1000 are kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.policy.warnings.list()
    }
}

catalog_setters! {
    /// Without it, a search may miss changes of the tools for up to a minute. Only searches use the
    /// cache.
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
