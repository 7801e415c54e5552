//! The running views of a gateway. A reload replaces the layers of the views.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
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
    mutex::lock,
    pattern::Selection,
    reload::{Reload, Reloader},
    stack::{Stack, StackLayer},
};

/// Maximum time that a reload waits for new backends to connect, and for all backends to return
/// their lists of tools, prompts and resources.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum time that a reload waits until the layers have processed the lists of the backends. This
/// time starts when the lists have arrived, or after [`PATIENCE`].
const WARMTH: Duration = Duration::from_secs(1);

/// A view of a [`Gateway`](super::Gateway), which clients use at one path. It wraps the gateway's
/// backends in the layers and composites of one `[[views]]` table, or of the file itself.
///
/// A [reload](super::Gateway::reload) of the gateway replaces the layers of all views at the same
/// time. If it removes the view, the `View` and its services stay valid, but offer no tools,
/// prompts and resources until another reload adds the view again. Meanwhile,
/// [`Gateway::view`](super::Gateway::view) returns `None`. Clones share the same view.
#[derive(Clone, Debug)]
pub struct View {
    views: Arc<Views>,
    path: ViewPath,
    reloader: Reloader<Stack<Router>>,
}

/// The URL path of a view, such as `/team-a`. `None` stands for the main view, which is configured
/// at the top level of the file.
pub(super) type ViewPath = Option<Arc<str>>;

type Reloaders = BTreeMap<ViewPath, Reloader<Stack<Router>>>;

/// All running views of a gateway, and the services through which clients use them.
#[derive(Debug)]
pub(super) struct Views {
    running: Mutex<Running>,
    /// The services of all views, by the path of the view. The services of a removed view stay in
    /// this map while clients still use them.
    reloaders: Mutex<Reloaders>,
    changes: Changes,
}

/// The backends and views of the current configuration.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) backends: Backends,
    /// The views, by their URL paths. The key `None` stands for the main view, which is always
    /// there.
    views: BTreeMap<ViewPath, RunningView>,
}

/// The layers and stores of one view in the current configuration.
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

    /// Returns the path at which the view is served, such as `/team-a`. Returns `None` for the main
    /// view, which is configured at the top level of the file.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Returns the scopes that an access token must have to use the view, in addition to those of
    /// [`JwtConfig::scopes`](super::JwtConfig::scopes). The server that serves the view must check
    /// them.
    #[must_use]
    pub fn scopes(&self) -> Arc<[String]> {
        let running = self.views.lock();
        running.views.get(&self.path).map(|view| view.scopes.clone()).unwrap_or_default()
    }

    /// Returns a service that applies the view's layers to client requests. After a
    /// [reload](super::Gateway::reload) of the gateway, the same service uses the new layers and
    /// backends.
    #[must_use]
    pub fn service(&self) -> Reload<Stack<Router>> {
        self.reloader.service()
    }

    /// Returns an rmcp server for clients of the view. The server's description is `base`, extended
    /// with the capabilities and instructions of the backends. The server notifies clients of
    /// changes. If the file has an `[auth]` or `[caller]` section, the server limits the
    /// subscriptions of each caller.
    #[must_use]
    pub fn serve(&self, base: ServerConfig) -> ServeService<Reload<Stack<Router>>> {
        let (this, views) = (self.clone(), self.views.clone());
        ServeService::new(self.service(), move || this.describe(base.clone()))
            .changes(self.changes())
            .caller_of(move |context| views.lock().stores().caller.account(context))
    }

    /// Adds the capabilities and instructions of the backends to the server description `base`. If
    /// the view stores the full versions of shortened results, also adds the resources capability,
    /// which clients need to read them. See [`Router::describe`].
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        let Running { backends, views } = self.views.running();
        let Some(view) = views.get(&self.path) else { return base };
        let mut description = backends.router().describe(base);
        view.layer.declare(&mut description.capabilities);
        description
    }

    /// Returns the channel that notifies clients of the view when tools, prompts or resources
    /// change, for example after a reload. The channel omits updates of resources that the view
    /// hides.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let (views, path) = (self.views.clone(), self.path.clone());
        let known = move |uri: &Arc<str>| {
            let running = views.lock();
            running.views.get(&path).map(|view| view.layer.uris_of(uri)).unwrap_or_default()
        };
        self.views.changes.for_listeners(Arc::new(known))
    }

    /// Returns the tool calls that a composite would make with the given arguments, without making
    /// them. See [`Composite::preview`](crate::composite::Composite::preview).
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error with which a real call of the composite would fail for these
    /// arguments.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        self.views.running().stack(&self.path).preview(composite, arguments).await
    }

    /// Returns warnings for operators about settings of the view that do not match the backends'
    /// current lists. For example, an alias may rename a tool that does not exist. See
    /// [`StackLayer::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Running { views, .. } = self.views.running();
        views.get(&self.path).map(|view| view.layer.warnings()).unwrap_or_default()
    }
}

// === impl Views ===

impl Views {
    /// Creates the services of all views, and returns the main view.
    pub(super) fn start(running: Running) -> View {
        let changes = running.backends.changes().clone();
        let stacks = running.stacks().into_iter();
        let reloaders = stacks.map(|(path, stack)| (path, Reload::new(stack).1));
        let reloaders: Reloaders = reloaders.collect();
        let reloader = reloaders[&None].clone();
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
        lock(&self.running)
    }

    /// Returns the view at the URL path `path`. Returns `None` if the current configuration has no
    /// such view.
    pub(super) fn get(self: &Arc<Self>, path: &str) -> Option<View> {
        let path: ViewPath = Some(path.into());
        // Locks the services first, so that a concurrent reload does not remove the service of this
        // view.
        let reloaders = lock(&self.reloaders);
        self.lock().views.get(&path)?;
        let reloader = reloaders.get(&path)?.clone();
        Some(View { views: self.clone(), path, reloader })
    }

    /// Replaces the configuration and the layers of all views at the same time. `stacks` contains
    /// the new layers of each view with its path.
    pub(super) fn replace(&self, running: Running, stacks: Vec<(ViewPath, Stack<Router>)>) {
        let mut reloaders = lock(&self.reloaders);
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
        let tasks = running.stores().tasks.clone();
        *self.lock() = running;
        Reloader::replace_all(replacements);
        if tasks.is_watched() {
            self.watch_tasks();
        }
    }

    /// Makes all views look for tasks whose process has ended, and continue these tasks in this
    /// process.
    pub(super) fn watch_tasks(&self) {
        let running = self.running();
        running.stacks().iter().for_each(|(_, stack)| stack.watch_tasks());
        let tasks = &running.stores().tasks;
        tasks.retain_views(|view| running.views.contains_key(&view.map(Into::into)));
    }
}

// === impl Running ===

impl Running {
    /// Creates the views of a configuration. `before` contains the views of the previous
    /// configuration. Their stores are reused if the settings of the stores have not changed.
    pub(super) fn new(config: &Config, backends: Backends, before: Option<&Self>) -> Self {
        let views = config.views().iter();
        let views = views.map(|view| (Some(view.path().into()), &view.layers, view.scopes()));
        let views = views.chain([(None, &config.layers, &[][..])]).map(|(path, layers, scopes)| {
            let mut stores = layers.stores.clone();
            // In the previous configuration, the view used either a store of the file or its own
            // store.
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

    /// Returns the stores of the main view, which is configured at the top level of the file.
    pub(super) fn stores(&self) -> &Stores {
        &self.views[&None].stores
    }

    /// Returns the state of each budget of all views. A budget that several views share is included
    /// only once.
    pub(super) async fn budgets(&self) -> Vec<BudgetState> {
        let views = self.views.iter();
        let own =
            views.filter(|(path, view)| path.is_none() || view.stores.budget.view().is_some());
        join_all(own.map(|(_, view)| view.stores.budget.states())).await.concat()
    }

    /// Returns all views, including the main view.
    pub(super) fn views(&self) -> impl Iterator<Item = &RunningView> {
        self.views.values()
    }

    /// Returns a service for each view: the router of the backends, wrapped in the layers of the
    /// view. Each service is paired with the path of its view.
    pub(super) fn stacks(&self) -> Vec<(ViewPath, Stack<Router>)> {
        self.views.keys().map(|path| (path.clone(), self.stack(path))).collect()
    }

    /// Returns the router of the backends, wrapped in the layers of the view at `path`. If the view
    /// was removed, the layers hide all tools, prompts and resources.
    fn stack(&self, path: &ViewPath) -> Stack<Router> {
        let router = self.backends.router().clone();
        match self.views.get(path) {
            Some(view) => view.layer.layer(router),
            None => nothing().layer(router),
        }
    }

    /// Fills the router and the layers in `stacks` with the lists of all backends, so that the
    /// first requests after a reload do not wait for them. Returns after at most six seconds, even
    /// if some lists are missing.
    pub(super) async fn warm(&self, stacks: &[(ViewPath, Stack<Router>)]) {
        self.backends.recall().await;
        // Continues without the missing lists, because they are fetched when they are needed.
        let _ = timeout(PATIENCE, self.backends.list()).await;
        let warm = join_all(stacks.iter().map(|(_, stack)| stack.warm()));
        let _ = timeout(WARMTH, warm).await;
    }
}

/// Returns layers that hide all tools, prompts and resources. They are used for a removed view.
fn nothing() -> StackLayer {
    let none = || Selection::default().allow([""; 0]).expect("an empty list has no mistakes");
    let filter = FilterLayer::new().tools(none()).prompts(none()).resources(none());
    StackLayer::new().filter(filter.resource_templates(none()))
}
