//! Runs the backends and layers of a configuration file, and replaces them when the file is
//! reloaded.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::future::join_all;
use rmcp::model::{ErrorData, JsonObject, ServerConfig};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{
    Backends, BudgetState, Config, ConnectError, Reloaded,
    running::{Running, View, Views},
};
#[cfg(feature = "http")]
use crate::adapter::ConnectionLimit;
use crate::{
    adapter::{RemoteService, Router, ServeService, remote::Ending},
    changes::Changes,
    composite::Preview,
    mutex::lock,
    reload::Reload,
    stack::Stack,
    tasks::TaskRegistry,
};

/// Maximum time that [`Gateway::close`] waits until the budget stores have saved the usage of all
/// calls.
const FLUSHING: Duration = Duration::from_secs(5);

/// The running backends and layers of a configuration file. The configuration can be replaced while
/// clients are connected. Clones of a `Gateway` share the backends and layers.
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
/// // A file with mistakes is an error, and changes nothing.
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
    /// The main view, which is configured at the top level of the file. It is usually served at
    /// `/mcp`.
    main: View,
    /// A mutex that is locked during a reload, so that reloads run one after another.
    reloading: tokio::sync::Mutex<()>,
    /// Handles that stop the running backends. They include backends of previous configurations
    /// that still process requests.
    endings: Mutex<Vec<Ending>>,
    closed: CancellationToken,
}

// === impl Gateway ===

impl Gateway {
    /// Starts connecting to the backends of a file, and wraps them in the layers of the file.
    ///
    /// `connect` returns immediately. If a backend cannot be reached, the gateway logs the reason
    /// and retries the connection in the background. To add observers or tracing, call
    /// [`Config::observer`] or [`Config::trace`] on `config` first.
    ///
    /// # Errors
    ///
    /// Returns an error in four cases: the file has no backends; this build of the crate does not
    /// support the transport of a backend; the `[auth]` section was not [taken](Config::take_auth);
    /// or the lock file of the `[lock]` section cannot be read.
    ///
    /// # Panics
    ///
    /// Panics if called outside a Tokio runtime with time and I/O enabled.
    pub fn connect(config: &Config) -> Result<Self, ConnectError> {
        let running = Running::new(config, config.connect()?, None);
        let shared = Shared {
            main: Views::start(running),
            endings: Mutex::default(),
            reloading: tokio::sync::Mutex::default(),
            closed: CancellationToken::new(),
        };
        shared.note(&shared.main.views().lock().backends);
        Ok(Self(Arc::new(shared)))
    }

    /// Returns the view of the file at the given path, such as `/team-a`. A view offers the same
    /// backends with its own layers and composites. Returns `None` if the running configuration has
    /// no such view.
    #[must_use]
    pub fn view(&self, path: &str) -> Option<View> {
        self.0.main.views().get(path)
    }

    /// Returns the main view, which is configured at the top level of the file and is usually
    /// served at `/mcp`.
    #[must_use]
    pub fn main(&self) -> View {
        self.0.main.clone()
    }

    /// Returns a service that processes client requests with the configured layers and backends.
    /// After a reload, the same service uses the new layers and backends.
    #[must_use]
    pub fn service(&self) -> Reload<Stack<Router>> {
        self.main().service()
    }

    /// Returns an rmcp server for clients, with the server description `base`. See [`View::serve`].
    #[must_use]
    pub fn serve(&self, base: ServerConfig) -> ServeService<Reload<Stack<Router>>> {
        self.main().serve(base)
    }

    /// Returns a limit on the number of concurrent HTTP sessions and requests. If the configuration
    /// has an `[auth]` or `[caller]` section, each caller has its own limit as well.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn connection_limit(&self) -> ConnectionLimit {
        let views = self.0.main.views().clone();
        ConnectionLimit::new()
            .caller_of(move |parts| views.lock().stores().caller.account_in(parts))
    }

    /// Adds the capabilities and instructions of the backends to the server description `base`. See
    /// [`View::describe`].
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        self.main().describe(base)
    }

    /// Returns the backends of the running configuration.
    #[must_use]
    pub fn backends(&self) -> Backends {
        self.0.main.views().lock().backends.clone()
    }

    /// Returns the state of each budget of the running configuration, such as the amount that is
    /// left. A budget that several views share is included once.
    pub async fn budgets(&self) -> Vec<BudgetState> {
        let running = self.0.main.views().running();
        running.budgets().await
    }

    /// Returns the channel through which clients are notified of changes. See [`View::changes`].
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.main().changes()
    }

    /// Returns the tool calls that a composite would make with the given arguments, without making
    /// them. See [`View::preview`].
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
        self.main().preview(composite, arguments).await
    }

    /// Returns warnings for operators about settings that do not match the backends' current lists,
    /// such as an alias of a missing tool. The warnings are about the layers of the main view and
    /// of each backend. For the warnings of another [view](Self::view), see [`View::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        [self.main().warnings(), self.backends().warnings()].concat()
    }

    /// Replaces the running configuration with `config`, for example after the file has changed.
    ///
    /// - *Backends.* A backend keeps its process or connection if its name, transport settings,
    ///   `connect_timeout` and `elicitation` are unchanged. Its timeout, prefix, aliases, filter,
    ///   validation and lock become those of the new file. Other backends are connected before the
    ///   switch to the new file.
    /// - *Requests.* The switch to the new file is atomic: all requests that arrive after it go to
    ///   the new layers. Requests in flight finish on the old layers and their backends. A removed
    ///   backend stops after its last request.
    /// - *Lists.* The tools, prompts and resources of all backends are listed before the switch to
    ///   the new file. If a backend is unavailable or not yet connected, the reload uses the last
    ///   lists that a backend of this name returned. So its tools, and the composites that call
    ///   them, do not disappear temporarily. The reload takes at most six seconds. Slower backends
    ///   are connected in the background.
    /// - *Views.* All views are replaced at the same time. A view that is missing in `config` no
    ///   longer offers tools, prompts and resources.
    /// - *Stores.* Runs that wait for user input, budgets and stored results are kept, unless the
    ///   settings of their store have changed. The labels of sessions are always kept.
    /// - *Tasks* are kept. A running task continues with the old layers and their backends.
    /// - *Observers* and tracing become those of `config`. A file cannot define them, so
    ///   [add](Config::observer) both to `config` before the reload.
    /// - *Clients* are notified that tools, prompts and resources have changed. They stay
    ///   subscribed to the resources of each backend whose name is in the new file, even if the
    ///   backend is connected again. They are no longer notified about resources that the new file
    ///   hides. A client must subscribe again to resources of other backends, and to resources
    ///   whose URIs have changed.
    ///
    /// Concurrent calls of `reload` run one after another. If the returned future is dropped before
    /// it completes, the running configuration stays in place.
    ///
    /// # Errors
    ///
    /// Returns an error if [`connect`](Self::connect) would fail for `config`, or if the gateway
    /// was closed. After an error, the running configuration stays in place.
    pub async fn reload(&self, config: &Config) -> Result<Reloaded, ConnectError> {
        let Self(shared) = self;
        let _reloading = shared.reloading.lock().await;
        if shared.closed.is_cancelled() {
            return Err(ConnectError::closed());
        }
        let before = self.backends();
        let (backends, reloaded) = before.reconnect(config)?;
        shared.note(&backends);
        let running = Running::new(config, backends, Some(&shared.main.views().running()));
        let stacks = running.stacks();
        // If the gateway is closed in the meantime, stops waiting for the new backends.
        let ready = shared.closed.run_until_cancelled(running.warm(&stacks));
        ready.await.ok_or_else(ConnectError::closed)?;

        running.backends.take_over(&before);
        shared.main.views().replace(running, stacks);
        // Clients are notified after the switch, because they request the new lists immediately.
        let changes = shared.main.views().changes();
        for epoch in [changes.tools(), changes.prompts(), changes.resources()] {
            epoch.bump();
        }
        Ok(reloaded)
    }

    /// Starts to look for [tasks](crate::tasks) of other processes that have ended, and continues
    /// these tasks with this gateway. If this method is not called, the first request about a task
    /// starts the search. Does nothing unless the file stores tasks in Redis.
    ///
    /// # Panics
    ///
    /// Panics outside a Tokio runtime if the file stores tasks in Redis.
    pub fn watch_tasks(&self) {
        self.0.main.views().watch_tasks();
    }

    /// Cancels a [task](crate::tasks), also while it waits for the user. `name` is the name of the
    /// task in the [events](crate::observe::Event) of its run. Does nothing if the task has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such task, or if the store of the tasks is unavailable.
    pub async fn cancel_task(&self, name: &str) -> Result<(), ErrorData> {
        self.tasks().cancel_by_name(name).await
    }

    /// Waits until all [tasks](crate::tasks) have ended, without a time limit; see
    /// [`TaskRegistry::finished`](crate::tasks::TaskRegistry::finished). Call this before
    /// [`close`](Self::close), which cancels the remaining tasks.
    pub async fn tasks_finished(&self) {
        self.tasks().finished().await;
    }

    fn tasks(&self) -> TaskRegistry {
        self.0.main.views().lock().stores().tasks.clone()
    }

    /// Closes the gateway in four steps. First, cancels all [tasks](crate::tasks), or gives them up
    /// if a store shares them with other processes. Then waits until
    /// the [finally steps](crate::composite::Finally::on_cancel) of cancelled calls have ended, at
    /// most for their grace period. Then stops all backends and their child processes concurrently,
    /// including backends of previous configurations that still process requests. At the end, waits
    /// up to five seconds until the budget stores have saved the usage of all calls.
    pub async fn close(&self) {
        let Self(shared) = self;
        shared.closed.cancel();
        let _reloading = shared.reloading.lock().await;
        let running = shared.main.views().running();
        // All views share the tasks and the cancelled runs.
        let stores = running.stores();
        stores.tasks.close().await;
        stores.cancelled_runs.finished().await;
        let endings = lock(&shared.endings).clone();
        join_all(endings.iter().map(Ending::end)).await;
        let flushed = join_all(running.views().map(|view| view.stores.budget.store.flush()));
        if timeout(FLUSHING, flushed).await.is_err() {
            tracing::warn!(
                "timed out saving the usage of budgets; the budget stores may count too little"
            );
        }
    }
}

// === impl Shared ===

impl Shared {
    /// Registers backends, so that they are stopped when the gateway is closed.
    fn note(&self, backends: &Backends) {
        let mut endings = lock(&self.endings);
        endings.retain(|ending| !ending.has_ended());
        for ending in backends.remotes().iter().map(RemoteService::ending) {
            if !endings.iter().any(|noted| noted.is_same(&ending)) {
                endings.push(ending);
            }
        }
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
        budget::{Budget, BudgetPermit, BudgetStore, ReserveReply},
        config::stores::Stores,
        message::Request,
        observe::{Event, Observer},
    };

    fn file(state: &str) -> Config {
        // Nothing listens on this port.
        let backend = "[[backends]]\nname = 'away'\nurl = 'http://127.0.0.1:1'\n";
        Config::from_toml_str(&format!("{backend}{state}")).expect("it has no mistakes")
    }

    fn stores(gateway: &Gateway) -> Stores {
        gateway.0.main.views().running().stores().clone()
    }

    #[tokio::test(start_paused = true)]
    async fn states_in_memory_survive_a_reload_with_the_same_settings() {
        let gateway = Gateway::connect(&file("[state]\nstore = 'memory'")).unwrap();
        let store = stores(&gateway).state.store();
        let put = store.put(b"state".to_vec(), b"", None).now_or_never();
        let kept = || {
            format!("{:?}", gateway.0.main.views().running().views().next().map(|view| &view.layer))
                .contains("items: 1")
        };
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

    /// An observer that counts all events.
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
        let events = counted();
        assert!(events > 0);
        gateway.reload(&config).await.unwrap();
        call().await;
        assert_eq!(counted(), events, "each event is reported once");
        gateway.reload(&file(composite)).await.unwrap();
        call().await;
        assert_eq!(counted(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn budgets_and_stored_results_survive_a_reload() {
        let budget = "[[budget.limits]]\nname = 'calls'\nlimit = 9\n";
        let truncate = "[truncate]\nmax_result_bytes = 100\n[results]\n";
        let gateway = Gateway::connect(&file(&format!("{budget}{truncate}"))).unwrap();
        let before = stores(&gateway);
        for (file_after, budgets_stay, results_stay) in [
            (format!("{budget}refill = {{ every = '1m' }}\n{truncate}"), true, true),
            (format!("{budget}{truncate}ttl = '1h'"), true, false),
        ] {
            gateway.reload(&file(&file_after)).await.unwrap();
            let after = stores(&gateway);
            let [before, after] =
                [&before, &after].map(|stores| (&stores.budget.store, stores.truncate.store()));
            assert_eq!(Arc::ptr_eq(before.0, after.0), budgets_stay, "{file_after}");
            let (Some(before), Some(after)) = (before.1, after.1) else { panic!("{file_after}") };
            assert_eq!(Arc::ptr_eq(before, after), results_stay, "{file_after}");
        }
    }

    /// A budget store that counts how often it is flushed. If the store is away, a flush never
    /// completes.
    #[derive(Debug, Default)]
    struct Far {
        flushed: AtomicUsize,
        is_away: bool,
    }

    impl BudgetStore for Far {
        fn reserve(&self, _: &Budget, _: Option<&str>, _: u64) -> ReserveReply {
            ReserveReply::Ready(Ok(BudgetPermit::free()))
        }

        fn flush(&self) -> BoxFuture<'_, ()> {
            self.flushed.fetch_add(1, Ordering::SeqCst);
            if self.is_away { Box::pin(future::pending()) } else { Box::pin(future::ready(())) }
        }
    }

    /// Closes a gateway that uses the given budget store. Returns how long closing takes, and how
    /// often the store was flushed.
    async fn close(store: Far) -> (Duration, usize) {
        let mut config = file("");
        let store = Arc::new(store);
        config.layers.stores.budget.store = store.clone();
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
