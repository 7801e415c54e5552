//! Runs the configuration of a file, and replaces it on reload.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use rmcp::model::{ErrorData, JsonObject, ServerConfig};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::{Backends, Config, ConnectError, Reloaded, stores::Stores};
#[cfg(feature = "http")]
use crate::adapter::ConnectionLimit;
use crate::{
    adapter::{RemoteService, Router, ServeService, remote::Ending},
    changes::Changes,
    composite::Preview,
    reload::{Reload, Reloader},
    stack::{Stack, StackLayer},
};

/// How long a reload waits for new backends to connect and list their items.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a reload then waits for the layers to process these lists.
const WARMTH: Duration = Duration::from_secs(1);

/// How long closing the gateway waits for the budget store to save what calls have used.
const FLUSHING: Duration = Duration::from_secs(5);

/// The backends of a file with the stack over them, reloadable while it serves.
///
/// Clones refer to the same gateway.
///
/// # Examples
///
/// ```
/// # #[cfg(feature = "stdio")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use mcp_composite::config::{Config, Gateway};
/// use rmcp::{ServiceExt, model::ServerConfig};
///
/// let file = "[[backends]]\nname = 'docs'\ncommand = 'no-such-server'";
/// let gateway = Gateway::connect(&Config::from_toml_str(file)?)?;
///
/// // Any transport will do; this one is a pipe in memory.
/// let (near, far) = tokio::io::duplex(4096);
/// let server = gateway.serve(ServerConfig::default());
/// let (server, client) = tokio::join!(server.serve(near), ().serve(far));
/// let (_server, _client) = (server?, client?);
///
/// // … later, when the file has changed:
/// let changed = format!("{file}\n[filter]\nread_only_only = true");
/// let reloaded = gateway.reload(&Config::from_toml_str(&changed)?).await?;
/// assert_eq!(reloaded.kept, ["docs"]);
///
/// // A broken file is told, and changes nothing.
/// assert!(Config::from_toml_str("[filtr]").is_err());
/// gateway.close().await;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "stdio"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug)]
pub struct Gateway(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    reloader: Reloader<Stack<Router>>,
    running: Mutex<Running>,
    changes: Changes,
    /// Held during a reload.
    reloading: tokio::sync::Mutex<()>,
    /// All backends that have not stopped, including those of previous files.
    endings: Mutex<Vec<Ending>>,
    closed: CancellationToken,
}

/// The current backends, layers and stores.
#[derive(Clone, Debug)]
struct Running {
    backends: Backends,
    layer: StackLayer,
    stores: Stores,
}

// === impl Gateway ===

impl Gateway {
    /// Starts to connect the backends of a file, and puts its stack over them. Add observers with
    /// [`Config::observer`], and tracing with [`Config::trace`], before.
    ///
    /// Returns at once. Backends that cannot be reached are retried in the background, and the
    /// reason is logged.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no backend, or if one needs a transport that is not enabled in
    /// this build of the crate.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime with its time and I/O enabled.
    pub fn connect(config: &Config) -> Result<Self, ConnectError> {
        let running = Running::new(config, config.connect()?, config.stores.clone());
        let changes = running.backends.changes().clone();
        let (_, reloader) = Reload::new(running.stack());
        let shared = Shared {
            reloader,
            endings: Mutex::default(),
            changes,
            reloading: tokio::sync::Mutex::default(),
            closed: CancellationToken::new(),
            running: Mutex::new(running),
        };
        shared.note(&shared.running().backends);
        Ok(Self(Arc::new(shared)))
    }

    /// Returns the service for clients.
    #[must_use]
    pub fn service(&self) -> Reload<Stack<Router>> {
        self.0.reloader.service()
    }

    /// Returns the service as an rmcp server that extends `base` with the capabilities and
    /// instructions of the backends, and notifies clients of changes. The subscriptions of each
    /// caller, as identified by `[caller]` of the file, are limited.
    #[must_use]
    pub fn serve(&self, base: ServerConfig) -> ServeService<Reload<Stack<Router>>> {
        let (gateway, shared) = (self.clone(), self.0.clone());
        ServeService::new(self.service(), move || gateway.describe(base.clone()))
            .changes(self.changes())
            .caller_of(move |context| shared.lock().stores.caller.account(context))
    }

    /// Returns a limit on HTTP connections per caller, as identified by `[caller]` of the file.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn connection_limit(&self) -> ConnectionLimit {
        let shared = self.0.clone();
        ConnectionLimit::new().caller_of(move |parts| shared.lock().stores.caller.account_in(parts))
    }

    /// Extends a server description with the capabilities and instructions of the backends, and
    /// with the resources capability if results are stored; see [`Router::describe`].
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        let Running { backends, layer, .. } = self.0.running();
        let mut description = backends.router().describe(base);
        layer.declare(&mut description.capabilities);
        description
    }

    /// Returns the current backends.
    #[must_use]
    pub fn backends(&self) -> Backends {
        self.0.running().backends
    }

    /// Returns the changes, including those of reloads, as clients may see them: without hidden
    /// resources.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let shared = self.0.clone();
        let known = move |uri: &Arc<str>| shared.lock().layer.uris_of(uri);
        self.0.changes.for_listeners(Arc::new(known))
    }

    /// Returns the plan of a composite for these arguments without running it; see
    /// [`Composite::preview`](crate::composite::Composite::preview).
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error that a call would return.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        self.0.running().stack().preview(composite, arguments).await
    }

    /// Returns problems found while warming the layers with the current lists; see
    /// [`StackLayer::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Running { backends, layer, .. } = self.0.running();
        [layer.warnings(), backends.warnings()].concat()
    }

    /// Replaces the running file with another one.
    ///
    /// - *Backends.* A backend with the same name and transport settings, `connect_timeout` and
    ///   `elicitation` is kept with its process or connection; its timeout, prefix, aliases, filter
    ///   and validation are those of the new file. Others are connected first.
    /// - *Requests.* Requests that have not been sent yet go to the new stack, all at the same
    ///   moment. Requests in flight finish on the old stack and its backends, and a removed backend
    ///   stops after its last request.
    /// - *Lists.* The items of all backends are listed before the switch. For a backend that is
    ///   unavailable or not yet connected, the last lists of the backend of the same name are used,
    ///   so its tools, and composites that call them, do not disappear temporarily. The reload
    ///   takes at most six seconds; slower backends are connected in the background.
    /// - *Runs* that wait for a user, *budgets*, and stored *results* are kept, unless the settings
    ///   of their store have changed.
    /// - *Observers* and tracing are those of the new configuration: neither is part of the file,
    ///   so [add](Config::observer) them to it as well.
    /// - *Clients* are notified that tools, prompts and resources have changed. They stay
    ///   subscribed to resources of backends whose names are in the new file; a reconnected backend
    ///   is subscribed to again. They receive no more notifications for resources that are hidden
    ///   now. To resources of other backends, or with changed URIs, a client must subscribe again.
    ///
    /// Reloads are serialized. If the future is dropped, nothing changes.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`connect`](Self::connect), or an error if the gateway was closed; the
    /// running file stays in place.
    pub async fn reload(&self, config: &Config) -> Result<Reloaded, ConnectError> {
        let Self(shared) = self;
        let _reloading = shared.reloading.lock().await;
        if shared.closed.is_cancelled() {
            return Err(ConnectError::closed());
        }
        let before = self.backends();
        let (backends, reloaded) = before.reconnect(config)?;
        shared.note(&backends);
        let mut stores = config.stores.clone();
        stores.take_over(&shared.lock().stores);
        let running = Running::new(config, backends, stores);
        let stack = running.stack();
        // Closing the gateway does not wait for new backends.
        let ready = shared.closed.run_until_cancelled(running.warm(&stack));
        ready.await.ok_or_else(ConnectError::closed)?;

        running.backends.take_over(&before);
        *shared.lock() = running;
        shared.reloader.replace(stack);
        // Only after the switch, since notified clients list at once.
        let changes = &shared.changes;
        for epoch in [changes.tools(), changes.prompts(), changes.resources()] {
            epoch.bump();
        }
        Ok(reloaded)
    }

    /// Stops all backends concurrently, including child processes and backends of previous files
    /// that still serve requests; then waits up to five seconds until the budget store has saved
    /// what calls have used.
    pub async fn close(&self) {
        let Self(shared) = self;
        shared.closed.cancel();
        let _reloading = shared.reloading.lock().await;
        let endings = shared.endings().clone();
        join_all(endings.iter().map(Ending::end)).await;
        let store = shared.running().stores.budget.store.clone();
        if timeout(FLUSHING, store.flush()).await.is_err() {
            tracing::warn!("what calls have used of budgets is not all known where it is kept");
        }
    }
}

// === impl Shared ===

impl Shared {
    fn running(&self) -> Running {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers backends, to stop them when the gateway is closed.
    fn note(&self, backends: &Backends) {
        let mut endings = self.endings();
        endings.retain(|ending| !ending.has_ended());
        for ending in backends.remotes().iter().map(RemoteService::ending) {
            if !endings.iter().any(|noted| noted.is_same(&ending)) {
                endings.push(ending);
            }
        }
    }

    fn endings(&self) -> MutexGuard<'_, Vec<Ending>> {
        self.endings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Running ===

impl Running {
    fn new(config: &Config, backends: Backends, stores: Stores) -> Self {
        let layer = stores.apply(config.stack_layer(), config.composite_layer());
        let layer = layer.changes(backends.changes());
        Self { backends, layer, stores }
    }

    fn stack(&self) -> Stack<Router> {
        self.layer.layer(self.backends.router().clone())
    }

    /// Fills the lists of the router and the layers, within time limits.
    async fn warm(&self, stack: &Stack<Router>) {
        self.backends.recall().await;
        // Missing lists are fetched when they are needed.
        let _ = timeout(PATIENCE, self.backends.list()).await;
        let _ = timeout(WARMTH, stack.warm()).await;
    }
}

#[cfg(all(test, feature = "http"))]
mod tests {
    use std::{
        future,
        sync::atomic::{AtomicUsize, Ordering},
    };

    use futures::{FutureExt, future::BoxFuture};
    use tokio::time::Instant;
    use tower::ServiceExt;

    use super::*;
    use crate::{
        budget::{Budget, BudgetStore, Permit, Reserving},
        message::Request,
        observe::{Event, Observer},
    };

    fn file(state: &str) -> Config {
        // Nothing listens on this port.
        let backend = "[[backends]]\nname = 'away'\nurl = 'http://127.0.0.1:1'\n";
        Config::from_toml_str(&format!("{backend}{state}")).expect("it has no mistakes")
    }

    #[tokio::test(start_paused = true)]
    async fn states_in_memory_survive_a_reload_with_the_same_settings() {
        let gateway = Gateway::connect(&file("[state]\nstore = 'memory'")).unwrap();
        let store = gateway.0.running().stores.state.store();
        let put = store.put(b"state".to_vec(), b"", None).now_or_never();
        let kept = || format!("{:?}", gateway.0.running().layer).contains("items: 1");
        assert!(matches!(put, Some(Ok(_))) && kept());

        gateway
            .reload(&file("[state]\nstore = 'memory'\n[caller]\nheader = 'x-user'"))
            .await
            .unwrap();
        assert!(kept());
        gateway.reload(&file("[state]\nstore = 'memory'")).await.unwrap();
        assert!(kept());

        gateway.reload(&file("[state]\nstore = 'memory'\nttl = '2h'")).await.unwrap();
        assert!(!kept());
    }

    /// Counts the events.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Observer for Count {
        fn on_event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn observer_receives_only_the_runs_of_its_own_config() {
        let composite = "[[composite_tools]]\nname = 'ask'\ndescription = 'Asks'\n\
            strategy = 'pipeline'\n[[composite_tools.steps]]\nid = 'sure'\n\
            type = 'elicitation'\nmessage = 'Sure?'\nschema = {}\n";
        let count = Arc::new(Count::default());
        let counted = || count.0.swap(0, Ordering::Relaxed);
        let config = file(composite).observer(count.clone());
        let gateway = Gateway::connect(&config).unwrap();
        let call = async || {
            let reply = gateway.service().oneshot(Request::call_tool("ask")).await.unwrap();
            assert!(reply.tool_result().is_some(), "{reply:?}");
        };
        call().await;
        let told = counted();
        assert!(told > 0);
        gateway.reload(&config).await.unwrap();
        call().await;
        assert_eq!(counted(), told, "each is told once");
        gateway.reload(&file(composite)).await.unwrap();
        call().await;
        assert_eq!(counted(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn budgets_and_stored_results_survive_a_reload() {
        let budget = "[[budget.limits]]\nname = 'calls'\nlimit = 9\n";
        let truncate = "[truncate]\nmax_result_bytes = 100\n[results]\n";
        let gateway = Gateway::connect(&file(&format!("{budget}{truncate}"))).unwrap();
        let before = gateway.0.running().stores;
        for (file_after, budgets_stay, results_stay) in [
            (format!("{budget}refill = {{ every = '1m' }}\n{truncate}"), true, true),
            (format!("{budget}{truncate}ttl = '1h'"), true, false),
        ] {
            gateway.reload(&file(&file_after)).await.unwrap();
            let after = gateway.0.running().stores;
            let [before, after] =
                [&before, &after].map(|stores| (&stores.budget.store, stores.truncate.store()));
            assert_eq!(Arc::ptr_eq(before.0, after.0), budgets_stay, "{file_after}");
            let (Some(before), Some(after)) = (before.1, after.1) else { panic!("{file_after}") };
            assert_eq!(Arc::ptr_eq(before, after), results_stay, "{file_after}");
        }
    }

    /// Counts flushes; a flush never completes if the store is away.
    #[derive(Debug, Default)]
    struct Far {
        flushed: AtomicUsize,
        is_away: bool,
    }

    impl BudgetStore for Far {
        fn reserve(&self, _: &Budget, _: Option<&str>, _: u64) -> Reserving {
            Reserving::Now(Ok(Permit::free()))
        }

        fn flush(&self) -> BoxFuture<'_, ()> {
            self.flushed.fetch_add(1, Ordering::SeqCst);
            if self.is_away { Box::pin(future::pending()) } else { Box::pin(future::ready(())) }
        }
    }

    /// Returns how long closing a gateway over such a store takes, and the number of flushes.
    async fn close(store: Far) -> (Duration, usize) {
        let mut config = file("");
        let store = Arc::new(store);
        config.stores.budget.store = store.clone();
        let gateway = Gateway::connect(&config).expect("there is a backend");
        let start = Instant::now();
        gateway.close().await;
        (start.elapsed(), store.flushed.load(Ordering::SeqCst))
    }

    #[tokio::test(start_paused = true)]
    async fn closing_waits_until_usage_is_settled() {
        assert_eq!(close(Far::default()).await, (Duration::ZERO, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn unreachable_store_delays_closing_briefly() {
        assert_eq!(close(Far { is_away: true, ..Far::default() }).await, (FLUSHING, 1));
    }
}
