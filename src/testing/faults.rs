//! Reproducible fault injection for tests.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use fastrand::Rng;
use futures::future::BoxFuture;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{Fault, answer::Given};
use crate::{
    message::{Reply, Request, ToolService},
    mutex::lock,
    readiness::take_ready,
};

/// A layer that injects faults into some of the calls of a service. The affected calls are chosen
/// pseudo-randomly, with a seed that makes the choice reproducible.
///
/// `Faults` can wrap any service: a scripted [`Server`](super::Server), your own server, or a whole
/// stack. It injects at most one [`Fault`] into a tool call. The seed, the tool, and the number of
/// earlier calls of the tool determine the fault. Concurrent calls of other tools do not change it,
/// so a failed test fails again with the same seed. If one `Faults` wraps several services, it
/// counts their calls together.
///
/// `Faults` forwards all requests except tool calls unchanged. The created service is ready when
/// the inner service is ready. [`Slow`](Fault::Slow) and [`Late`](Fault::Late) require a Tokio
/// runtime whose time driver is enabled. [`Deaf`](Fault::Deaf) requires a Tokio runtime.
///
/// # Examples
///
/// In this example, a fan-out calls a server of which every third answer is lost:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use mcp_composite::{
///     composite::{CompositeLayer, CompositeTool, FanOut, Success},
///     testing::{self, Fault, Faults, Server},
/// };
/// use serde_json::json;
/// use tower::Layer;
///
/// let faults = Faults::seeded(7).inject(Fault::Lost, 1.0 / 3.0);
/// let server = Server::new().says("near", "a ship").says("far", "a port");
/// let targets = FanOut::new(["near", "far"]).success(Success::Any);
/// let both = CompositeTool::new("both", "Both", targets);
/// let service = CompositeLayer::new([both]).unwrap().layer(faults.layer(server.clone()));
///
/// for _ in 0..300 {
///     let result = testing::call(&service, "both", json!({})).await;
///     let report = result.structured_content.unwrap();
///     for branch in ["near", "far"] {
///         let status = &report["branches"][branch]["status"];
///         assert!(status == "completed" || status == "failed", "{report}");
///     }
/// }
/// let lost = faults.injected(Fault::Lost);
/// assert!((150..250).contains(&lost), "{lost} of 600");
/// assert_eq!(server.calls().len(), 600);
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct Faults(Arc<Shared>);

#[derive(Clone)]
struct Shared {
    seed: u64,
    rules: Vec<Rule>,
    met: Arc<Mutex<Met>>,
}

/// A fault, and the fraction of calls into which it is injected.
#[derive(Clone)]
struct Rule {
    /// The name of the tool into whose calls the fault is injected. `None` if the fault is injected
    /// into the calls of all tools.
    tool: Option<String>,
    fault: Fault,
    share: f64,
}

/// The state of a [`Faults`] layer that changes with each call. All clones of the layer share it.
#[derive(Default)]
struct Met {
    /// The random number generator of each tool that was called, by the name of the tool.
    chance: HashMap<String, Rng>,
    /// The number of injected faults for each rule, in the order of the rules. Empty until the
    /// first fault is injected.
    counts: Vec<usize>,
}

/// Middleware that injects faults into some tool calls of the wrapped service. Created by
/// [`Faults`]. `Faulty` is ready when the wrapped service is ready.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    faults: Faults,
    inner: S,
}

// === impl Faults ===

impl Faults {
    /// Creates a layer without faults. Add faults with [`inject`](Self::inject). `seed` determines
    /// the calls into which they are injected.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Shared { seed, rules: Vec::new(), met: Arc::default() }))
    }

    /// Adds a fault that the layer injects into calls of all tools. `share` is the fraction of
    /// calls that have the fault: `0.1` stands for 10 percent. Faults that were added earlier
    /// remain.
    ///
    /// # Panics
    ///
    /// Panics if `share` is not between 0 and 1, or if all shares that apply to a tool add up to
    /// more than 1.
    #[track_caller]
    pub fn inject(self, fault: Fault, share: f64) -> Self {
        self.with(Rule { tool: None, fault, share })
    }

    /// Adds a fault that the layer injects into calls of the tool `tool`. `share` is the fraction
    /// of these calls that have the fault: `0.1` stands for 10 percent. Faults that were added
    /// earlier remain.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`inject`](Self::inject).
    #[track_caller]
    pub fn inject_into(self, tool: &str, fault: Fault, share: f64) -> Self {
        self.with(Rule { tool: Some(tool.to_owned()), fault, share })
    }

    #[track_caller]
    fn with(mut self, rule: Rule) -> Self {
        assert!((0.0..=1.0).contains(&rule.share), "a share of {} of all calls", rule.share);
        let shared = Arc::make_mut(&mut self.0);
        shared.rules.push(rule);
        // Existing clones keep their own rules and counts, so only this value is changed.
        shared.met = Arc::default();
        let tools = shared.rules.iter().map(|rule| rule.tool.as_deref());
        for tool in tools {
            let share: f64 = shared.rules_of(tool).map(|(_, rule)| rule.share).sum();
            // A sum that is 1 in decimal can be slightly greater than 1 in binary.
            assert!(share < 1.0 + 1e-9, "faults in {share} of all calls");
        }
        self
    }

    /// Returns the number of faults of one kind, such as `Fault::Slow(_)`, that the layer has
    /// injected so far. The duration or size of `fault` is ignored.
    #[must_use]
    pub fn injected(&self, fault: Fault) -> usize {
        let counts = lock(&self.0.met).counts.clone();
        let rules = self.0.rules.iter().zip(counts);
        rules.filter(|(rule, _)| rule.fault.name() == fault.name()).map(|(_, count)| count).sum()
    }

    /// Chooses the fault for the next call of a tool, and counts it. Returns `None` if no fault is
    /// injected into this call.
    fn next(&self, tool: &str) -> Option<Fault> {
        let shared = &*self.0;
        let mut met = lock(&shared.met);
        let chance = match met.chance.get_mut(tool) {
            Some(chance) => chance.f64(),
            None => {
                let mut chance = shared.chance_of(tool);
                let first = chance.f64();
                met.chance.insert(tool.to_owned(), chance);
                first
            }
        };
        let mut share = 0.0;
        let (place, rule) = shared.rules_of(Some(tool)).find(|(_, rule)| {
            share += rule.share;
            chance < share
        })?;
        met.counts.resize(shared.rules.len(), 0);
        met.counts[place] += 1;
        Some(rule.fault)
    }
}

impl<S> Layer<S> for Faults {
    type Service = Faulty<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Faulty { faults: self.clone(), inner }
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.0.rules.iter().map(|Rule { tool, fault, share }| {
            let tool = tool.as_deref().unwrap_or("*");
            (tool, format!("{fault}: {share}"))
        });
        f.debug_map().entries(rules).finish()
    }
}

// === impl Shared ===

impl Shared {
    /// Returns the rules that apply to the calls of `tool`, each with its index. If `tool` is
    /// `None`, returns the rules that apply to all tools.
    fn rules_of(&self, tool: Option<&str>) -> impl Iterator<Item = (usize, &Rule)> {
        let is_meant = move |rule: &Rule| rule.tool.is_none() || rule.tool.as_deref() == tool;
        self.rules.iter().enumerate().filter(move |(_, rule)| is_meant(rule))
    }

    /// Creates the random number generator for the calls of a tool. It depends only on the seed and
    /// the name of the tool, so that tests are reproducible.
    fn chance_of(&self, tool: &str) -> Rng {
        let mix = |seed, byte| Rng::with_seed(seed ^ u64::from(byte)).u64(..);
        Rng::with_seed(tool.bytes().fold(self.seed, mix))
    }
}

// === impl Faulty ===

impl<S> Service<Request> for Faulty<S>
where
    S: ToolService,
{
    type Response = Reply;
    type Error = BoxError;
    type Future = BoxFuture<'static, Given>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The service is taken out, so that dropping it releases its readiness if the fault does
        // not call it.
        let mut ready = take_ready(&mut self.inner);
        match request.tool_call().and_then(|call| self.faults.next(&call.name)) {
            Some(fault) => fault.happen(ready, request),
            None => {
                let answer = ready.call(request);
                Box::pin(async move { answer.await.map_err(Into::into) })
            }
        }
    }
}
