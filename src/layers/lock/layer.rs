//! The layer that compares the tools of a server with a lock.

use std::{collections::HashMap, fmt, sync::Arc};

use tower_layer::Layer;

use super::{
    definition::Definition,
    pins::Lock,
    policy::{OnDrift, OnNew},
    rule::{LockRule, Rule},
};
use crate::{
    catalog::{CatalogSettings, catalog_setters},
    intercept::Informed,
    warnings::Warnings,
};

/// A layer that compares a server's tools with a [`Lock`], which contains the tool definitions that
/// an operator has approved. By default, it hides the tools whose definitions differ.
///
/// `LockLayer::default()` has no lock and changes nothing. See the [module docs](crate::lock) for
/// details and an example.
#[derive(Clone, Default)]
pub struct LockLayer {
    pinned: Option<Pinned>,
    on_drift: OnDrift,
    on_new: OnNew,
    warnings: Warnings,
    pub(crate) catalogs: CatalogSettings,
}

/// The name of a backend, and its approved tools.
#[derive(Clone)]
struct Pinned {
    backend: String,
    tools: Arc<HashMap<String, Definition>>,
}

/// Middleware that compares the tools of the wrapped service with a lock, and hides tools that
/// differ. Created by [`LockLayer`].
pub type Locked<S> = Informed<LockRule, S>;

// === impl LockLayer ===

impl LockLayer {
    /// Creates a layer that compares the tools of a server with those in `lock`. `backend` is the
    /// name of the server in the lock.
    #[must_use]
    pub fn new(lock: &Lock, backend: &str) -> Self {
        let pinned = Pinned { backend: backend.to_owned(), tools: lock.of_backend(backend) };
        Self { pinned: Some(pinned), ..Self::default() }
    }

    /// Sets the policy for tools whose definitions differ from the lock, that is, from the
    /// definitions that an operator has approved. Defaults to [`OnDrift::Hide`].
    #[must_use]
    pub const fn on_drift(mut self, on_drift: OnDrift) -> Self {
        self.on_drift = on_drift;
        self
    }

    /// Sets the policy for tools that are not in the lock, so that no operator has approved them.
    /// Defaults to [`OnNew::Hide`].
    #[must_use]
    pub const fn on_new(mut self, on_new: OnNew) -> Self {
        self.on_new = on_new;
        self
    }

    /// Returns warnings for the operator about tools that are missing from the lock, or whose
    /// definitions differ from it. The layer logs each warning once, and keeps at most 1000
    /// warnings.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.warnings.list()
    }
}

catalog_setters! {
    /// If no epoch is set, the layer lists the tools again when its cached list is a minute old. It
    /// detects a changed definition then, or as soon as a client lists the tools.
    LockLayer: catalogs
}

impl<S> Layer<S> for LockLayer {
    type Service = Locked<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let rule = self.pinned.clone().map(|Pinned { backend, tools }| {
            Rule::new(backend, tools, (self.on_drift, self.on_new), self.warnings.clone())
        });
        Informed::with_catalogs(LockRule::new(rule), inner, self.catalogs.clone())
    }
}

impl fmt::Debug for LockLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer")
            .field("tools", &self.pinned.as_ref().map(|pinned| pinned.tools.len()))
            .field("on_drift", &self.on_drift)
            .field("on_new", &self.on_new)
            .finish_non_exhaustive()
    }
}
