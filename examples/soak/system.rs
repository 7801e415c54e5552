//! The system under load: backends of three kinds, a gateway, a stack, and its clients.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    adapter::{
        Router, ServeService,
        router::{Backend, RouterError},
    },
    config::{Config, Gateway},
    functions::{ToolSet, tool_fn},
    intercept,
    message::{Reply, Request},
    reload::{Reload, Reloader},
    stack::Stack,
    testing::{Answer, Fault, Faults, Server},
};
use rmcp::{
    ServiceExt,
    model::{JsonObject, ServerCapabilities, ServerConfig, Tool},
};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};
use tower::{BoxError, Layer, ServiceExt as _, timeout::Timeout};

use crate::{
    invariants::{Invariants, Runs},
    process::misbehaving,
    web::Web,
    wire::Wire,
};

/// Makes services that are replaced together.
pub(crate) type Services = Reloader<Stack<Router>>;
pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// The deadline of a run, without the time of a person.
pub(crate) const DEADLINE: Duration = Duration::from_secs(6);
/// The timeout of a call of the service in memory; the gateway has its own.
const TIMEOUT: Duration = Duration::from_secs(4);
/// The number of connections of clients.
const CONNECTIONS: usize = 16;

const STACK: &str = include_str!("soak.toml");
const FAR: &str = include_str!("far.toml");

/// The faults in memory, and their share of the calls.
const FAULTS: [(Fault, f64); 13] = [
    (Fault::Slow(Duration::from_millis(300)), 0.03),
    (Fault::Slow(DEADLINE), 0.002),
    (Fault::Late(Duration::from_millis(300)), 0.03),
    (Fault::Late(DEADLINE), 0.002),
    (Fault::Deaf, 0.02),
    (Fault::Lost, 0.02),
    (Fault::Unavailable, 0.02),
    (Fault::Failure, 0.02),
    (Fault::Error, 0.02),
    (Fault::Malformed, 0.01),
    (Fault::Huge(40_000), 0.01),
    (Fault::Asks, 0.005),
    (Fault::Never, 0.002),
];
/// Each panic prints to standard error.
const PANICS: f64 = 0.0002;

pub(crate) struct World {
    gateway: Gateway,
    pub(crate) web: Web,
    pub(crate) faults: Faults,
    /// The number of calls that the service in memory is executing.
    pub(crate) working: Arc<AtomicUsize>,
    runs: Arc<Runs>,
    router: Router,
    pub(crate) services: Services,
    pub(crate) wires: Vec<Arc<Wire>>,
    _serving: JoinSet<()>,
}

// === impl World ===

impl World {
    pub(crate) async fn new(
        seed: u64,
        invariants: &Arc<Invariants>,
        runs: &Arc<Runs>,
    ) -> Result<Self, Error> {
        let web = Web::start().await?;
        let gateway = Gateway::connect(&far(&web, "2s")?)?;
        for remote in gateway.backends().remotes() {
            remote.connected().await?;
        }
        let faults = FAULTS
            .into_iter()
            .fold(Faults::seeded(seed), |faults, (fault, share)| faults.inject(fault, share));
        let faults = faults.inject(Fault::Panic, PANICS);
        let working = Arc::<AtomicUsize>::default();
        let router = router(&gateway, &faults, &working)?;
        let (service, services) = Reload::new(stack(&gateway, &router, runs, 0)?);
        let mut serving = JoinSet::new();
        let mut wires = Vec::new();
        for _ in 0..CONNECTIONS {
            let config = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
            let server = ServeService::new(service.clone(), config).changes(gateway.changes());
            let (near, there) = tokio::io::duplex(1 << 16);
            serving.spawn(async move {
                if let Ok(running) = server.serve(there).await {
                    drop(running.waiting().await);
                }
            });
            wires.push(Wire::connect(near, invariants.clone()).await?);
        }
        let runs = runs.clone();
        let world = Self {
            gateway,
            web,
            faults,
            working,
            runs,
            router,
            services,
            wires,
            _serving: serving,
        };
        world.reload(0).await?;
        Ok(world)
    }

    /// Replaces the running files of the gateway and of the stack.
    pub(crate) async fn reload(&self, round: usize) -> Result<(), Error> {
        // A backend with another timeout keeps its process.
        self.gateway.reload(&far(&self.web, ["2s", "2100ms"][round % 2])?).await?;
        let stack = stack(&self.gateway, &self.router, &self.runs, round)?;
        stack.warm().await?;
        self.services.replace(stack);
        self.gateway.changes().tools().bump();
        Ok(())
    }

    /// Shuts everything down.
    pub(crate) async fn end(self) {
        let Self { gateway, web, wires, mut _serving, .. } = self;
        for wire in wires {
            wire.close().await;
        }
        while _serving.join_next().await.is_some() {}
        gateway.close().await;
        web.stop().await;
    }
}

/// Returns the file of the gateway.
fn far(web: &Web, timeout: &str) -> Result<Config, Error> {
    let variable = |name: &str| match name {
        "MISBEHAVING" => Some(misbehaving().display().to_string()),
        "WEB" => Some(web.url.clone()),
        _ => None,
    };
    let text = FAR.replace("${TIMEOUT}", timeout);
    Ok(Config::from_toml_str_with_env(&text, variable)?)
}

/// Returns the stack, with a composite that only one of two files has.
fn stack(
    gateway: &Gateway,
    router: &Router,
    runs: &Arc<Runs>,
    round: usize,
) -> Result<Stack<Router>, Error> {
    let more = format!(
        "\n[[composite_tools]]\nname = \"round_{}\"\ndescription = \"Comes and goes\"\n\
         tools = [\"memory_fault\"]\n",
        round % 2
    );
    let text = STACK.replace("${DEADLINE}", &format!("{DEADLINE:?}")) + &more;
    let config = Config::from_toml_str(&text)?.observer(runs.clone());
    Ok(config.stack_layer().changes(&gateway.changes()).layer(router.clone()))
}

fn router(
    gateway: &Gateway,
    faults: &Faults,
    working: &Arc<AtomicUsize>,
) -> Result<Router, RouterError> {
    Router::builder()
        .backend(Backend::new("memory", Timeout::new(faults.layer(memory(working)), TIMEOUT)))
        .backend(Backend::new("far", gateway.service()))
        .changes(gateway.changes())
        .build()
}

/// Returns a server in memory with a tool that returns its arguments, and one that asks first.
fn memory(
    working: &Arc<AtomicUsize>,
) -> impl tower::Service<Request, Response = Reply, Error = BoxError, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let any = |name: &'static str| {
        let object = JsonObject::from_iter([("type".to_owned(), "object".into())]);
        Tool::new(name, "Gives back what it was given", object)
    };
    let tools = ["fault", "ask"].map(|name| {
        let working = working.clone();
        tool_fn(any(name), move |arguments: JsonObject, _| {
            let working = Working::begin(&working);
            async move {
                let ms = arguments.get("ms").and_then(Value::as_u64).unwrap_or_default();
                sleep(Duration::from_millis(ms)).await;
                drop(working);
                let mut echo = Value::Object(arguments);
                echo["pid"] = std::process::id().into();
                echo["secret"] = "hush".into();
                echo
            }
        })
    });
    let tools = match ToolSet::new(tools) {
        Ok(tools) => tools,
        Err(error) => unreachable!("{error}"),
    };
    intercept::from_fn(ask).layer(tools)
}

/// Asks first, if the tool does so and has no answer yet.
async fn ask(request: Request, next: intercept::Next) -> Result<Reply, BoxError> {
    let Some(call) = request.tool_call() else { return next.run(request).await };
    if call.name != "ask" || call.request_state.is_some() {
        return next.run(request).await;
    }
    let marker = call.arguments.as_ref().and_then(|arguments| arguments.get("marker"));
    let message = format!("Sure about {}?", marker.and_then(Value::as_str).unwrap_or_default());
    // The test kit implements the question.
    Server::new().tool("ask", Answer::asks("sure", message)).oneshot(request).await
}

/// A guard that counts one running call until it is dropped.
struct Working(Arc<AtomicUsize>);

impl Working {
    fn begin(working: &Arc<AtomicUsize>) -> Self {
        working.fetch_add(1, Ordering::SeqCst);
        Self(working.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the faults injected in memory, with their counts.
pub(crate) fn injected(faults: &Faults) -> Vec<(String, usize)> {
    let mut kinds: Vec<_> = FAULTS.iter().map(|(fault, _)| *fault).chain([Fault::Panic]).collect();
    kinds.dedup_by_key(|fault| fault.name());
    kinds.iter().map(|fault| (fault.name().to_owned(), faults.injected(*fault))).collect()
}

/// Returns the arguments of a call that carries a marker.
pub(crate) fn arguments(marker: &str, pipe: &str, web: &str, ms: u64, deep: bool) -> Value {
    json!({
        "marker": marker,
        "pipe": pipe,
        "web": web,
        "ms": ms,
        "deep": deep,
        "items": [marker, marker, marker, marker],
    })
}
