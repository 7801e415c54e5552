//! What a file configures, running, until another file takes its place.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::future::join_all;
use rmcp::model::{ErrorData, JsonObject, ServerConfig};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower_layer::Layer;

use super::{Backends, Config, ConnectError, stores::Stores};
#[cfg(feature = "http")]
use crate::adapter::ConnectionLimit;
use crate::{
    adapter::{RemoteService, Router, ServeService, remote::Ending},
    changes::Changes,
    composite::Preview,
    reload::{Reload, Reloader},
    stack::{Stack, StackLayer},
};

/// How long a reload waits for backends that are new, and for what they have.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits until each layer knows that, too.
const WARMTH: Duration = Duration::from_secs(1);

/// How long whoever closes the gateway waits until it is known elsewhere what calls have
/// used of budgets.
const FLUSHING: Duration = Duration::from_secs(5);

/// The backends of a file with the stack over them, which another file can take
/// the place of while it serves.
///
/// Clones are the same gateway.
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
    /// Held while a file takes the place of another.
    reloading: tokio::sync::Mutex<()>,
    /// All backends that have not ended, those of files before included.
    endings: Mutex<Vec<Ending>>,
    closed: CancellationToken,
}

/// What is running at a time.
#[derive(Clone, Debug)]
struct Running {
    backends: Backends,
    layer: StackLayer,
    stores: Stores,
}

/// What a reload did to the backends, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reloaded {
    /// Those that go on as they were.
    pub kept: Vec<String>,
    /// Those that are new, or are connected in another way than before.
    pub connected: Vec<String>,
    /// Those that are gone.
    pub removed: Vec<String>,
}

// === impl Gateway ===

impl Gateway {
    /// Starts to connect the backends of a file, and puts its stack over them. Who is to
    /// watch runs is given to [`Config::observer`] before, and how requests are traced to
    /// [`Config::trace`].
    ///
    /// Returns at once. A backend that cannot be reached is tried again and again
    /// in the background, and the log says what is in its way.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no backend, or one needs a transport that this
    /// build of the crate does not have.
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

    /// The service that clients talk to.
    #[must_use]
    pub fn service(&self) -> Reload<Stack<Router>> {
        self.0.reloader.service()
    }

    /// The service as an rmcp server, that adds to this description what the
    /// backends say of themselves, and tells clients of changes. The subscriptions of each
    /// caller are limited, as `[caller]` of the file says.
    #[must_use]
    pub fn serve(&self, base: ServerConfig) -> ServeService<Reload<Stack<Router>>> {
        let (gateway, shared) = (self.clone(), self.0.clone());
        ServeService::new(self.service(), move || gateway.describe(base.clone()))
            .changes(self.changes())
            .caller_of(move |context| shared.lock().stores.caller.account(context))
    }

    /// Limits the connections of clients over HTTP, per caller as `[caller]` of the file
    /// says.
    #[cfg(feature = "http")]
    #[must_use]
    pub fn connection_limit(&self) -> ConnectionLimit {
        let shared = self.0.clone();
        ConnectionLimit::new().caller_of(move |parts| shared.lock().stores.caller.account_in(parts))
    }

    /// Adds to a server's description what the backends say of themselves, and that
    /// there are resources if results are kept; see [`Router::describe`].
    #[must_use]
    pub fn describe(&self, base: ServerConfig) -> ServerConfig {
        let Running { backends, layer, .. } = self.0.running();
        let mut description = backends.router().describe(base);
        layer.declare(&mut description.capabilities);
        description
    }

    /// The backends as they are now.
    #[must_use]
    pub fn backends(&self) -> Backends {
        self.0.running().backends
    }

    /// Who is told when something changes, a reload included; as clients are to be
    /// told it: of no resource that is hidden.
    #[must_use]
    pub fn changes(&self) -> Changes {
        let shared = self.0.clone();
        let known = move |uri: &Arc<str>| shared.lock().layer.uris_of(uri);
        self.0.changes.heard_as(Arc::new(known))
    }

    /// What a composite would do with these arguments; see
    /// [`Composite::preview`](crate::composite::Composite::preview).
    ///
    /// # Errors
    ///
    /// Returns the JSON-RPC error that a call would be answered with.
    pub async fn preview(
        &self,
        composite: &str,
        arguments: JsonObject,
    ) -> Result<Preview, ErrorData> {
        self.0.running().stack().preview(composite, arguments).await
    }

    /// What was in the way of the layers with what there was; see
    /// [`StackLayer::warnings`].
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let Running { backends, layer, .. } = self.0.running();
        [layer.warnings(), backends.warnings()].concat()
    }

    /// Puts another file in the place of the one that is running.
    ///
    /// - *Backends.* One of the same name that is reached in the same way, with the
    ///   same `connect_timeout` and `elicitation`, is kept with its process or
    ///   connection; its timeout, prefix, aliases, filter and checks are those of the
    ///   new file.
    ///   Others are connected first.
    /// - *Requests.* Those that are not sent yet go to the new stack, all at the
    ///   same moment. Those that were sent end on the old one, with its backends,
    ///   and a backend that is gone ends after its last request.
    /// - *Lists.* What there is is listed before clients come to the new stack. A
    ///   backend that cannot be asked, since it is away or is not connected yet,
    ///   has what the one of its name listed last, so that its tools, and the
    ///   composites that are made of them, do not come and go. All of this takes
    ///   no longer than six seconds; later backends are connected in the
    ///   background.
    /// - *Runs* that wait for a person, what is left of *budgets*, and whole *results*
    ///   are kept where they were, unless the file says otherwise now.
    /// - *Observers* of runs are those of the new one, and requests are traced as that
    ///   says: neither is of the file, so it is [given](Config::observer) them as the one
    ///   before was.
    /// - *Clients* are told that tools, prompts and resources have changed. They
    ///   stay subscribed to resources of backends whose names are in the new file;
    ///   one that was connected again is asked to tell of them. Of what is hidden now
    ///   they are told no more. To resources of other backends, or under other URIs than
    ///   before, a client must subscribe again.
    ///
    /// Reloads come one after another. One that is dropped changes nothing.
    ///
    /// # Errors
    ///
    /// Returns an error as [`connect`](Self::connect) does, and if the gateway was
    /// closed; all stays as it was.
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
        // Whoever closes the gateway does not wait for new backends.
        let ready = shared.closed.run_until_cancelled(running.warm(&stack));
        ready.await.ok_or_else(ConnectError::closed)?;

        running.backends.take_over(&before);
        *shared.lock() = running;
        shared.reloader.replace(stack);
        // Only now, since whoever is told asks at once.
        let changes = &shared.changes;
        for epoch in [changes.tools(), changes.prompts(), changes.resources()] {
            epoch.bump();
        }
        Ok(reloaded)
    }

    /// Ends all backends at the same time, child processes included, also those
    /// of files before that requests are still at; then waits until it is known, where
    /// budgets are kept, what calls have used, for five seconds at most.
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

    /// Remembers backends, so that they end when the gateway is closed.
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

    /// Finds out what there is, as far as that takes no time.
    async fn warm(&self, stack: &Stack<Router>) {
        self.backends.recall().await;
        // What is not found out now is found out when it is needed.
        let _ = timeout(PATIENCE, self.backends.list()).await;
        let _ = timeout(WARMTH, stack.warm()).await;
    }
}

// === impl Reloaded ===

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts =
            [("kept", &self.kept), ("connected", &self.connected), ("removed", &self.removed)];
        let told = parts.into_iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| {
            let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("{what} {}", names.join(", "))
        });
        f.write_str(&told.collect::<Vec<_>>().join("; "))
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
        // Nobody listens there.
        let backend = "[[backends]]\nname = 'away'\nurl = 'http://127.0.0.1:1'\n";
        Config::from_toml_str(&format!("{backend}{state}")).expect("it has no mistakes")
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_in_memory_survives_a_reload() {
        let gateway = Gateway::connect(&file("[state]\nstore = 'memory'")).unwrap();
        let store = gateway.0.running().stores.state.store();
        let put = store.put(b"state".to_vec(), b"").now_or_never();
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

    /// Counts what it is told.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Observer for Count {
        fn on_event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_watches_is_told_of_the_runs_of_the_files_that_were_given_it() {
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
    async fn what_is_left_of_budgets_and_whole_results_survive_a_reload() {
        let budget = "[[budget.limits]]\nname = 'calls'\nlimit = 9\n";
        let bound = "[bound]\nmax_result_bytes = 100\n[results]\n";
        let gateway = Gateway::connect(&file(&format!("{budget}{bound}"))).unwrap();
        let before = gateway.0.running().stores;
        for (file_after, budgets_stay, results_stay) in [
            (format!("{budget}refill = {{ every = '1m' }}\n{bound}"), true, true),
            (format!("{budget}{bound}ttl = '1h'"), true, false),
        ] {
            gateway.reload(&file(&file_after)).await.unwrap();
            let after = gateway.0.running().stores;
            let [before, after] =
                [&before, &after].map(|stores| (&stores.budget.store, stores.bound.store()));
            assert_eq!(Arc::ptr_eq(before.0, after.0), budgets_stay, "{file_after}");
            let (Some(before), Some(after)) = (before.1, after.1) else { panic!("{file_after}") };
            assert_eq!(Arc::ptr_eq(before, after), results_stay, "{file_after}");
        }
    }

    /// Notes how often somebody waits until it knows all, which may be for ever.
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

    /// How long it takes to close a gateway over such a store.
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
    async fn who_is_closed_waits_until_it_is_known_what_calls_have_used() {
        assert_eq!(close(Far::default()).await, (Duration::ZERO, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_long_for_a_store_that_is_away() {
        assert_eq!(close(Far { is_away: true, ..Far::default() }).await, (FLUSHING, 1));
    }
}
