//! The layer that labels the results of tools, and decides whether egress tools may be called.

use std::{fmt, sync::Arc, time::Duration};

use super::{SessionMode, rule::Settings, sessions::Sessions};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    composite::{CompositeLayer, FlowPolicy},
    log_pause::LogPause,
    message::Context,
};

/// The default time after which the labels of a session expire.
pub(crate) const EXPIRES_AFTER: Duration = Duration::from_secs(60 * 60);

/// A layer that adds labels to the results of tools, and can deny calls of egress tools in sessions
/// that have received private and untrusted data.
///
/// By default, the layer has no labels and changes nothing. All clones of the layer, and all
/// services created by them, share the labels of the sessions.
///
/// See the [module docs](super) for details and an example.
#[derive(Clone)]
pub struct FlowLayer {
    pub(super) settings: Settings,
    pub(crate) catalogs: CatalogSettings,
}

// === impl FlowLayer ===

impl FlowLayer {
    /// Creates a layer that labels the results of tools.
    ///
    /// The names in the policy are those that clients use, as in
    /// [`CompositeLayer::flow`](crate::composite::CompositeLayer::flow).
    #[must_use]
    pub fn new(policy: FlowPolicy) -> Self {
        let mut layer = Self::default();
        layer.settings.policy = policy;
        layer
    }

    /// Sets how calls of egress tools are handled in a session that has received private and
    /// untrusted data. Defaults to [`SessionMode::Off`].
    #[must_use]
    pub const fn mode(mut self, mode: SessionMode) -> Self {
        self.settings.mode = mode;
        self
    }

    /// Sets the time after which a session no longer has its labels. The time starts again with
    /// each labeled result. Defaults to 1 hour.
    #[must_use]
    pub const fn expires_after(mut self, time: Duration) -> Self {
        self.settings.expires_after = time;
        self
    }

    /// Sets the function that identifies the session of a request. It returns a key, such as the
    /// name of the caller. Requests for which it returns `None` belong to one session.
    ///
    /// By default, all requests belong to one session. Use this default only if the service has a
    /// single client. Use a key that clients cannot choose. Otherwise, a client can begin a new
    /// session with each request.
    #[must_use]
    pub fn session<F>(mut self, key: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.settings.session = Some(Arc::new(key));
        self
    }

    /// Sets the [`CompositeLayer`] behind this layer. The labels of a composite then follow from
    /// its steps. Without this setting, a composite has the labels that the policy assigns to its
    /// name.
    ///
    /// A [`StackLayer`](crate::stack::StackLayer) sets its own composites.
    #[must_use]
    pub fn composites(mut self, composites: &CompositeLayer) -> Self {
        self.settings.composites = composites.clone();
        self
    }

    /// Sets the function that converts the name of a tool to its name in the policy.
    #[cfg(feature = "config")]
    pub(crate) fn original<F>(mut self, original: F) -> Self
    where
        F: Fn(&str) -> String + Send + Sync + 'static,
    {
        self.settings.original = Some(Arc::new(original));
        self
    }

    /// Returns `true` if the layer has no labels, so that it changes nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.settings.policy.is_empty()
    }

    /// Shares the session labels of `before`, so that sessions keep their labels when this layer
    /// replaces `before`.
    #[cfg(feature = "config")]
    pub(crate) fn take_over(&mut self, before: &Self) {
        self.settings.sessions = before.settings.sessions.clone();
    }
}

catalog_setters! {
    /// The layer needs the tools only if the policy [trusts their
    /// annotations](crate::composite::FlowPolicy::trust_annotations). If no epoch is set, it lists
    /// them again after a minute.
    FlowLayer: catalogs
}

impl Default for FlowLayer {
    /// Creates a layer without labels, which changes nothing.
    fn default() -> Self {
        let settings = Settings {
            policy: FlowPolicy::new(),
            mode: SessionMode::Off,
            expires_after: EXPIRES_AFTER,
            session: None,
            sessions: Arc::new(Sessions::default()),
            composites: CompositeLayer::default(),
            original: None,
            log: Arc::new(LogPause::default()),
        };
        Self { settings, catalogs: CatalogSettings::default() }
    }
}

impl fmt::Debug for FlowLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.fmt(f)
    }
}
