//! The running views of a gateway.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use rmcp::model::{ErrorData, JsonObject, ServerConfig};
use tokio::time::timeout;
use tower_layer::Layer;

use super::{Backends, BudgetState, Config, stores::Stores};
use crate::{
    adapter::{Router, ServeService},
    changes::Changes,
    composite::Preview,
    filter::FilterLayer,
    pattern::Selection,
    reload::{Reload, Reloader},
    stack::{Stack, StackLayer},
};

/// The maximum time that a reload waits for new backends to connect and list their items.
const PATIENCE: Duration = Duration::from_secs(5);
/// The maximum additional time that a reload waits for the layers to process the backends' lists.
const WARMTH: Duration = Duration::from_secs(1);

/// A view of a [`Gateway`](super::Gateway), which clients use at one path: its backends with the
/// layers and composites of a view of the file, or of the file itself.
///
/// A reload replaces the layers of all views at the same time. If a reload removes the view from
/// the file, this handle and its services remain, but have no tools, prompts and resources until
/// another reload adds the view again. Meanwhile,
/// [`Gateway::view`](super::Gateway::view) returns `None`.
///
/// Clones refer to the same view.
#[derive(Clone, Debug)]
pub struct View {
    views: Arc<Views>,
    path: ViewPath,
    reloader: Reloader<Stack<Router>>,
}

/// The path of a view. `None` for the file itself.
pub(super) type ViewPath = Option<Arc<str>>;

type Reloaders = BTreeMap<ViewPath, Reloader<Stack<Router>>>;

/// The running views of a gateway, with a service for each.
#[derive(Debug)]
pub(super) struct Views {
    running: Mutex<Running>,
    /// The services of the views, and those of removed views that are still in use.
    reloaders: Mutex<Reloaders>,
    changes: Changes,
}

/// The backends of the current configuration, and its views.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) backends: Backends,
    /// The views by their paths, and the file itself.
    views: BTreeMap<ViewPath, RunningView>,
}

/// The layers and stores of a view.
#[derive(Clone, Debug)]
pub(super) struct RunningView {
    pub(super) layer: StackLayer,
    pub(super) stores: Stores,
    scopes: Arc<[String]>,
}

// === impl View ===

impl View {
    pub(super) const fn views(&self) -> &Arc<Views> {
        &self.views
    }

    /// Returns the path at which the view is served. `None` for the file itself.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the scopes that an access token must have to use the view, in addition to those of
    /// [`JwtConfig::scopes`](super::JwtConfig::scopes). A server that serves the view checks them.
    #[must_use]
    pub fn scopes(&self) -> Arc<[String]> {
        let running = self.views.lock();
        running.views.get(&self.path).map(|view| view.scopes.clone()).unwrap_or_default()
    }

    /// Returns the service that handles client requests with the layers of the view. After the
    /// configuration is reloaded, the same service uses the new layers and backends.
    #[must_use]
    pub fn service(&self) -> Reload<Stack<Router>> {
        self.reloader.service()
    }

    /// Returns an rmcp server for clients. Its description is `base`, extended with the
    /// capabilities and instructions of the backends. The server notifies clients of changes. If
    /// the file identifies callers, the server limits the subscriptions of each caller.
    #[must_use]
    pub fn serve(&self, base: ServerConfig) -> ServeService<Reload<Stack<Router>>> {
        let (this, views) = (self.clone(), self.views.clone());
        ServeService::new(self.service(), move || this.describe(base.clone()))
            .changes(self.changes())
            .caller_of(move |context| views.lock().stores()?.caller.account(context))
    }

    /// Adds the capabilities and instructions of the backends to a server description. If full
    /// results are stored, adds the resources capability, too, since clients read these results as
    /// resources. See [`Router::describe`].
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        let Running { backends, views } = self.views.running();
        let Some(view) = views.get(&self.path) else { return base };
        let mut description = backends.router().describe(base);
        view.layer.declare(&mut description.capabilities);
        description
    }

    /// Returns the channel of changes for notifying clients. Backends report these changes, or
    /// reloads cause them. Updates of resources that the view hides are left out.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let (views, path) = (self.views.clone(), self.path.clone());
        let known = move |uri: &Arc<str>| {
            let running = views.lock();
            running.views.get(&path).map(|view| view.layer.uris_of(uri)).unwrap_or_default()
        };
        self.views.changes.for_listeners(Arc::new(known))
    }

    /// Returns the calls that a composite would make with these arguments, without making them. See
    /// [`Composite::preview`](crate::composite::Composite::preview).
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error that a call of the composite with these arguments would return.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        self.views.running().stack(&self.path).preview(composite, arguments).await
    }

    /// Returns warnings for operators about conflicts between the layers of the view and the
    /// current lists of the backends, such as an alias of a missing tool. See
    /// [`StackLayer::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Running { views, .. } = self.views.running();
        views.get(&self.path).map(|view| view.layer.warnings()).unwrap_or_default()
    }
}

// === impl Views ===

impl Views {
    /// Creates the services of all views, and returns the file itself as a view.
    pub(super) fn start(running: Running) -> View {
        let changes = running.backends.changes().clone();
        let stacks = running.stacks().into_iter();
        let reloaders = stacks.map(|(path, stack)| (path, Reload::new(stack).1));
        let mut reloaders: BTreeMap<_, _> = reloaders.collect();
        let main = reloaders.entry(None).or_insert_with(|| Reload::new(running.stack(&None)).1);
        let reloader = main.clone();
        let running = Mutex::new(running);
        let views = Arc::new(Self { running, reloaders: Mutex::new(reloaders), changes });
        View { views, path: None, reloader }
    }

    pub(super) const fn changes(&self) -> &Changes {
        &self.changes
    }

    pub(super) fn running(&self) -> Running {
        self.lock().clone()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reloaders(&self) -> MutexGuard<'_, Reloaders> {
        self.reloaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a view of the current configuration.
    pub(super) fn get(self: &Arc<Self>, path: &str) -> Option<View> {
        let path: ViewPath = Some(path.into());
        // Locked during the look-up, so that a concurrent reload does not remove the service.
        let reloaders = self.reloaders();
        self.lock().views.get(&path)?;
        let reloader = reloaders.get(&path)?.clone();
        Some(View { views: self.clone(), path, reloader })
    }

    /// Replaces the layers of all views at the same time. `stacks` are those of the new
    /// configuration.
    pub(super) fn replace(&self, running: Running, stacks: Vec<(ViewPath, Stack<Router>)>) {
        let mut reloaders = self.reloaders();
        let is_removed = |path: &ViewPath| !running.views.contains_key(path);
        reloaders.retain(|path, reloader| !is_removed(path) || reloader.is_used());
        let removed = reloaders.keys().filter(|path| is_removed(path));
        let removed = removed.map(|path| (path.clone(), running.stack(path)));
        let stacks: Vec<_> = removed.collect::<Vec<_>>().into_iter().chain(stacks).collect();
        let mut replacements = Vec::with_capacity(stacks.len());
        for (path, stack) in stacks {
            match reloaders.get(&path) {
                Some(reloader) => replacements.push((reloader.clone(), stack)),
                None => {
                    reloaders.insert(path, Reload::new(stack).1);
                }
            }
        }
        *self.lock() = running;
        Reloader::replace_all(replacements);
    }
}

// === impl Running ===

impl Running {
    /// Creates the views of a configuration. Each view takes over the stores of `before` whose
    /// settings are unchanged.
    pub(super) fn new(config: &Config, backends: Backends, before: Option<&Self>) -> Self {
        let views = config.views().iter();
        let views = views.map(|view| (Some(view.path().into()), &view.layers, view.scopes()));
        let views = views.chain([(None, &config.layers, &[][..])]).map(|(path, layers, scopes)| {
            let mut stores = layers.stores.clone();
            // The view may have inherited a store, or may have had its own.
            for path in [&None, &path] {
                if let Some(before) = before.and_then(|before| before.views.get(path)) {
                    stores.take_over(&before.stores);
                }
            }
            let layer = stores.apply(layers.stack_layer.clone(), layers.composite_layer.clone());
            let layer = layer.changes(backends.changes());
            (path, RunningView { layer, stores, scopes: scopes.into() })
        });
        let views = views.collect();
        Self { backends, views }
    }

    /// Returns the stores of the file itself.
    pub(super) fn stores(&self) -> Option<&Stores> {
        self.views.get(&None).map(|view| &view.stores)
    }

    /// Returns the budgets of all views. Those that views share are included once.
    pub(super) async fn budgets(&self) -> Vec<BudgetState> {
        let views = self.views.iter();
        let own =
            views.filter(|(path, view)| path.is_none() || view.stores.budget.view().is_some());
        join_all(own.map(|(_, view)| view.stores.budget.states())).await.concat()
    }

    /// Returns the views, and the file itself.
    pub(super) fn views(&self) -> impl Iterator<Item = &RunningView> {
        self.views.values()
    }

    /// Returns the backends with the layers of each view around them.
    pub(super) fn stacks(&self) -> Vec<(ViewPath, Stack<Router>)> {
        self.views.keys().map(|path| (path.clone(), self.stack(path))).collect()
    }

    /// Returns the backends with the layers of a view around them. If there is no such view,
    /// everything is hidden.
    fn stack(&self, path: &ViewPath) -> Stack<Router> {
        let router = self.backends.router().clone();
        match self.views.get(path) {
            Some(view) => view.layer.layer(router),
            None => nothing().layer(router),
        }
    }

    /// Fills the router and the layers with the lists of all backends. Returns after six seconds at
    /// the latest, even if some lists are missing.
    pub(super) async fn warm(&self, stacks: &[(ViewPath, Stack<Router>)]) {
        self.backends.recall().await;
        // Missing lists are fetched when they are needed.
        let _ = timeout(PATIENCE, self.backends.list()).await;
        let warm = join_all(stacks.iter().map(|(_, stack)| stack.warm()));
        let _ = timeout(WARMTH, warm).await;
    }
}

/// Returns the layers of a removed view, which hide everything.
fn nothing() -> StackLayer {
    let none = || Selection::default().allow([""; 0]).expect("an empty list has no mistakes");
    let filter = FilterLayer::new().tools(none()).prompts(none()).resources(none());
    StackLayer::new().filter(filter.resource_templates(none()))
}
