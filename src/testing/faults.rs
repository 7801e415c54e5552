use std::{
    collections::HashMap,
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use fastrand::Rng;
use futures::future::BoxFuture;
use tower::BoxError;
use tower_layer::Layer;
use tower_service::Service;

use super::{Fault, answer::Given};
use crate::message::{Reply, Request};

/// Makes some calls of a service go wrong, by chance that can be repeated.
///
/// It is a layer for any service: a scripted [`Server`](super::Server), a server of
/// yours, a whole stack. Each call of a tool meets at most one [`Fault`]; which, if any,
/// depends on the seed, the tool, and how often that tool was called before, and not on
/// what else goes on at the same time. So a test that has failed fails again with its
/// seed. All services that one
/// `Faults` is put around count together.
///
/// Requests that call no tool pass. The service is ready when the one behind it is;
/// faults that take time need a Tokio runtime with its time enabled, and
/// [`Deaf`](Fault::Deaf) needs a runtime.
///
/// # Examples
///
/// What a fan-out makes of a server of which every third answer is lost:
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use mcp_composite::{
///     composite::{CompositeLayer, CompositeTool, Success},
///     testing::{self, Fault, Faults, Server},
/// };
/// use serde_json::json;
/// use tower::Layer;
///
/// let faults = Faults::seeded(7).inject(Fault::Lost, 1.0 / 3.0);
/// let server = Server::new().says("near", "a ship").says("far", "a port");
/// let both = CompositeTool::fan_out("both", "Both", ["near", "far"]).success(Success::Any);
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

/// Which share of the calls meets a fault.
#[derive(Clone)]
struct Rule {
    /// Of which tool, if not of all.
    tool: Option<String>,
    fault: Fault,
    share: f64,
}

/// What has happened so far.
#[derive(Default)]
struct Met {
    /// Chance, for each tool its own.
    chance: HashMap<String, Rng>,
    /// How often each rule was followed, by its place.
    counts: Vec<usize>,
}

/// A service of which some calls go wrong, put there by [`Faults`].
///
/// It is ready when the service is.
#[derive(Clone)]
pub struct Faulty<S> {
    faults: Faults,
    inner: S,
}

// === impl Faults ===

impl Faults {
    /// Lets all pass, until faults are added.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Shared { seed, rules: Vec::new(), met: Arc::default() }))
    }

    /// Makes this share of all calls meet a fault, besides those that meet others.
    ///
    /// # Panics
    ///
    /// Panics if the share is not between 0 and 1, or if those of a tool are more than 1
    /// together.
    #[track_caller]
    pub fn inject(self, fault: Fault, share: f64) -> Self {
        self.with(Rule { tool: None, fault, share })
    }

    /// Makes this share of the calls of one tool meet a fault, besides those that meet
    /// others.
    ///
    /// # Panics
    ///
    /// As [`inject`](Self::inject) does.
    #[track_caller]
    pub fn inject_into(self, tool: &str, fault: Fault, share: f64) -> Self {
        self.with(Rule { tool: Some(tool.to_owned()), fault, share })
    }

    #[track_caller]
    fn with(mut self, rule: Rule) -> Self {
        assert!((0.0..=1.0).contains(&rule.share), "a share of {} of all calls", rule.share);
        let shared = Arc::make_mut(&mut self.0);
        shared.rules.push(rule);
        // Clones from before count by rules of their own.
        shared.met = Arc::default();
        let tools = shared.rules.iter().map(|rule| rule.tool.as_deref());
        for tool in tools {
            let share: f64 = shared.rules_of(tool).map(|(_, rule)| rule.share).sum();
            // What is one by its decimals is not always one by its bits.
            assert!(share < 1.0 + 1e-9, "faults in {share} of all calls");
        }
        self
    }

    /// How many calls have met this fault; its time or size does not matter.
    #[must_use]
    pub fn injected(&self, fault: Fault) -> usize {
        let counts = self.0.met().counts.clone();
        let rules = self.0.rules.iter().zip(counts);
        rules.filter(|(rule, _)| rule.fault.name() == fault.name()).map(|(_, count)| count).sum()
    }

    /// The fault of the next call of a tool, if it meets one.
    fn next(&self, tool: &str) -> Option<Fault> {
        let shared = &*self.0;
        let mut met = shared.met();
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
    /// The rules for a tool and their places; without one, those for all tools.
    fn rules_of(&self, tool: Option<&str>) -> impl Iterator<Item = (usize, &Rule)> {
        let is_meant = move |rule: &Rule| rule.tool.is_none() || rule.tool.as_deref() == tool;
        self.rules.iter().enumerate().filter(move |(_, rule)| is_meant(rule))
    }

    /// The same for the same seed and tool, in every process.
    fn chance_of(&self, tool: &str) -> Rng {
        let mix = |seed, byte| Rng::with_seed(seed ^ u64::from(byte)).u64(..);
        Rng::with_seed(tool.bytes().fold(self.seed, mix))
    }

    fn met(&self) -> MutexGuard<'_, Met> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Faulty ===

impl<S> Service<Request> for Faulty<S>
where
    S: Service<Request, Response = Reply, Error: Into<BoxError>, Future: Send>
        + Clone
        + Send
        + 'static,
{
    type Response = Reply;
    type Error = BoxError;
    type Future = BoxFuture<'static, Given>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // The one that was ready goes with the call, so that one which is not made gives
        // back what it was promised; its clone is not ready.
        let later = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, later);
        match request.tool_call().and_then(|call| self.faults.next(&call.name)) {
            Some(fault) => fault.happen(ready, request),
            None => {
                let answer = ready.call(request);
                Box::pin(async move { answer.await.map_err(Into::into) })
            }
        }
    }
}

impl<S: fmt::Debug> fmt::Debug for Faulty<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("faults", &self.faults).field("inner", &self.inner).finish()
    }
}
