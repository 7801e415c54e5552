use std::{collections::HashSet, fmt, sync::Arc};

use tower_layer::Layer;

use super::rule::{AdvertiseRule, Policy, lookout};
use crate::{
    catalog::VaryBy, changes::Epoch, intercept::Informed, message::Context, pattern::Selection,
    warnings::Warnings,
};

/// Middleware that [`AdvertiseLayer`] puts in front of a service.
///
/// It is ready when the service is.
pub type Advertise<S> = Informed<AdvertiseRule, S>;

/// Says which tools clients are shown, and how.
///
/// See the [module docs](crate::advertise) for what that means and for an
/// example. Without settings it changes nothing.
#[derive(Clone)]
pub struct AdvertiseLayer {
    policy: Arc<Policy>,
    epoch: Epoch,
    vary_by: Option<VaryBy>,
}

/// What becomes of a call of a tool that is not advertised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Calls {
    /// It is answered as if there were no such tool.
    #[default]
    Refuse,
    /// It is forwarded: the tool is hidden, and that is all.
    Allow,
}

/// How tools are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// All that are advertised are listed.
    #[default]
    List,
    /// Two tools are listed, one to search those that are advertised and one to
    /// call them.
    Search,
}

// === impl AdvertiseLayer ===

impl AdvertiseLayer {
    /// A layer that advertises everything.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets which tools are advertised, by the names that clients see; all by
    /// default.
    #[must_use]
    pub fn tools(mut self, tools: Selection) -> Self {
        let policy = Arc::make_mut(&mut self.policy);
        policy.lookout = Arc::new(lookout(&tools));
        policy.tools = tools;
        self
    }

    /// Adds names that patterns leave alone: those of composites, which are
    /// hidden only if their exact text is denied; none by default.
    #[must_use]
    pub fn composites<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        Arc::make_mut(&mut self.policy).composites.extend(names.into_iter().map(Into::into));
        self
    }

    /// Sets what becomes of a call of a tool that is not advertised; it is refused
    /// by default.
    #[must_use]
    pub fn calls(mut self, calls: Calls) -> Self {
        Arc::make_mut(&mut self.policy).calls = calls;
        self
    }

    /// Sets how tools are shown; as a list by default.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        Arc::make_mut(&mut self.policy).mode = mode;
        self
    }

    /// Makes what the layer knows of tools outdated whenever `epoch` is bumped.
    ///
    /// Without it, a search may miss a change of the tools for a minute. Only a
    /// search needs to know tools.
    #[must_use]
    pub fn epoch(mut self, epoch: Epoch) -> Self {
        self.epoch = epoch;
        self
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

    /// What is wrong with the settings, given the tools that there were, in words
    /// for whoever runs the server: patterns that match nothing, and tools that
    /// the two of search mode hide.
    ///
    /// It is found out when all tools are listed by a client, or for a search;
    /// logged once, and kept although it may be true no longer. At most 1000 are
    /// kept.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.policy.warnings.list()
    }
}

impl Default for AdvertiseLayer {
    fn default() -> Self {
        let tools = Selection::default();
        let policy = Policy {
            lookout: Arc::new(lookout(&tools)),
            tools,
            composites: HashSet::new(),
            calls: Calls::default(),
            mode: Mode::default(),
            warnings: Warnings::default(),
        };
        Self { policy: Arc::new(policy), epoch: Epoch::default(), vary_by: None }
    }
}

impl<S> Layer<S> for AdvertiseLayer {
    type Service = Advertise<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let rule = AdvertiseRule(self.policy.clone());
        Informed::with_catalogs(rule, inner, self.epoch.clone(), self.vary_by.clone())
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
