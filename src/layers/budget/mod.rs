//! What calls may use together.
//!
//! A [`Budget`] is an amount of calls, of bytes or of [cost](Cost) that calls of some
//! tools share: all of them, those of each caller, or those that one call of a client
//! leads to. A [`BudgetLayer`] charges every `tools/call` that passes to each budget
//! that selects its tool, and refuses calls for which not enough is left. It is below
//! a [`CompositeLayer`](crate::composite::CompositeLayer), so that what a composite
//! calls is charged as a direct call is, call by call.
//!
//! A budget is something that is used up. What limits how many calls are under way
//! at a time is Tower's `ConcurrencyLimit`.
//!
//! # What is charged, and when
//!
//! An amount is *reserved* before the call: one call, the estimate of the cost, and of
//! bytes nothing, but some must be left. So calls at the same time never pass a budget
//! of calls together. When the call was answered, what it really was is *settled*,
//! also if it is more than is left; then nothing is left until the budget has come
//! back from below. One call is charged no more than the limit of the budget, or what
//! [`max_per_call`](Budget::max_per_call) says. Of a budget with a refill, all calls together
//! spend no more than [that](Budget::most_spent) either: whatever servers report and however
//! many calls run at the same time, the budget is full again after one complete refill.
//!
//! | the call ends with | it is |
//! |---|---|
//! | a result, also of a tool that failed | charged |
//! | a JSON-RPC error of the server | charged, with the estimate of its cost |
//! | a task that goes on | charged, with the estimate of its cost; its result is fetched otherwise and not charged |
//! | a question to the client | given back: the tool has not run, and is called again with the answer |
//! | a refusal of a layer or router below | given back: the tool was not reached |
//! | an error of the service that proves that the call was not sent: a backend is [not connected](crate::message::BackendErrorKind::NotConnected) or [overloaded](crate::message::BackendErrorKind::Overloaded) | given back |
//! | another error of the service, such as a timeout or a lost connection | charged, with the estimate of its cost and no bytes |
//! | a panic, or dropped: cancelled, timed out above, its branch stopped | charged, with the estimate of its cost and no bytes |
//! | dropped before it was forwarded | given back |
//!
//! A forwarded call is charged even if the caller abandons it or a timeout ends it, since the
//! tool may have run: otherwise a client would pay nothing for calls that it cancels just before
//! their answers, and nothing for a tool that is slower than the timeout of its backend. An error
//! is looked for in a [`BoxError`](tower::BoxError) and its sources, or must be a
//! [`BackendError`](crate::message::BackendError); one of another type is charged. Budgets of runs are reserved of first, then those of
//! callers, then global ones; a refusal gives back what was reserved before it.
//!
//! Who is refused is told the name of the budget, and when to come again if that is
//! known: as far as it is if nobody else comes first, and if the calls under way use
//! what they have reserved. A store that cannot say what is left, and lets nothing
//! pass then, leaves the tool unavailable at the moment; the log says why, at most once in ten
//! seconds as a warning.
//!
//! # What a run may cost
//!
//! Every call is charged to the run that it is of, with its cost, also if no budget
//! counts cost: that is how a composite's `max_cost` works.
//!
#![doc = include_str!("../../guide/meters.md")]
//!
//! # Examples
//!
//! ```
//! use std::convert::Infallible;
//!
//! use mcp_composite::{
//!     budget::{Budget, BudgetLayer, Unit},
//!     message::{Reply, Request},
//! };
//! use rmcp::model::{CallToolResult, ContentBlock};
//! use tower::{ServiceBuilder, ServiceExt};
//!
//! async fn server(_: Request) -> Result<Reply, Infallible> {
//!     Ok(CallToolResult::success(vec![ContentBlock::text("found")]).into())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Infallible> {
//! let service = ServiceBuilder::new()
//!     .layer(BudgetLayer::new().budget(Budget::new("searches", Unit::Calls, 1)))
//!     .service_fn(server);
//!
//! let reply = service.clone().oneshot(Request::call_tool("search")).await?;
//! assert!(reply.error().is_none());
//! let reply = service.oneshot(Request::call_tool("search")).await?;
//! assert_eq!(reply.error().unwrap().message, "the budget `searches` is used up");
//! # Ok(())
//! # }
//! ```

mod balance;
mod cost;
mod definition;
mod memory;
mod metering;
mod outage_log;
mod service;
mod store;
#[cfg(test)]
mod tests;

use std::{fmt, sync::Arc};

use tower_layer::Layer;

pub use self::{
    cost::Cost,
    definition::{Budget, BudgetError, Per, Refill, Unit},
    memory::MemoryBudgets,
    service::Budgeted,
    store::{BudgetStore, Denied, Held, OpenBudget, Permit, Reserving},
};
use self::{metering::Charged, outage_log::Outage};
use crate::{message::Context, pattern::Patterns};

/// What the setting is called that limits what a run may cost.
const MAX_COST: &str = "max_cost";

/// Futures of the service in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// Charges calls to budgets.
///
/// By default there are none, and calls that are not of a run that may only cost so
/// much pass as if the layer were not there.
///
/// Its clones, and all services that it is put in front of, share what is left.
///
/// See the [module docs](crate::budget) for what is charged and for an example.
#[derive(Clone, Default)]
pub struct BudgetLayer {
    /// None if there is nothing to charge.
    rules: Option<Arc<Rules>>,
}

#[derive(Clone, Default)]
struct Rules {
    /// In the order in which they are charged.
    budgets: Vec<Budget>,
    costs: Vec<Cost>,
    store: Store,
    caller: Option<Caller>,
    outage: Arc<Outage>,
}

#[derive(Clone)]
struct Store(Arc<dyn BudgetStore>);

type Caller = Arc<dyn Fn(&Context) -> Option<String> + Send + Sync>;

// === impl BudgetLayer ===

impl BudgetLayer {
    /// Charges nothing, until budgets are added.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a budget, in the place of one of the same name.
    ///
    /// It should not be called `max_cost`, by which composites know that a run has cost
    /// all that it [may](crate::composite::CompositeTool::max_cost) and ends:
    /// [`try_budget`](Self::try_budget) refuses that name.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        let budgets = &mut self.rules().budgets;
        budgets.retain(|other| other.name() != budget.name());
        let place = budgets.partition_point(|other| other.shared_per() <= budget.shared_per());
        budgets.insert(place, budget);
        self
    }

    /// Adds a budget, unless it cannot be meant as it is.
    ///
    /// # Errors
    ///
    /// Returns an error if there is one of the same name, the name is blank or
    /// `max_cost`, or nothing would ever come back, or always.
    pub fn try_budget(self, budget: Budget) -> Result<Self, BudgetError> {
        budget.check()?;
        let mut budgets = self.rules.iter().flat_map(|rules| &rules.budgets);
        if budgets.any(|other| other.name() == budget.name()) {
            return Err(BudgetError::Duplicate(budget.name().to_owned()));
        }
        Ok(self.budget(budget))
    }

    /// Adds what calls of some tools cost; the first that selects a tool counts, and a
    /// tool that none selects costs one unit.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.rules().costs.push(cost);
        self
    }

    /// Sets who keeps the budgets; by default this process, in
    /// [memory](MemoryBudgets) of the layer's own.
    #[must_use]
    pub fn store(mut self, store: impl BudgetStore + 'static) -> Self {
        self.rules().store = Store(Arc::new(store));
        self
    }

    /// Sets who calls, for budgets [per caller](Per::Caller). All of whom it is not
    /// known share one.
    ///
    /// It should be something that callers cannot make up, such as a subject that was
    /// authenticated: whoever can be another caller has another budget.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.rules().caller = Some(Arc::new(caller));
        self
    }

    /// Which tools are spoken of, each with the setting that does.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&'static str, Patterns)> {
        self.rules.iter().flat_map(|rules| {
            let budgets =
                rules.budgets.iter().map(|budget| ("budget.limits.tools", budget.tools_of()));
            let costs = rules.costs.iter().map(|cost| ("budget.costs.tools", cost.tools_of()));
            let selections = budgets.chain(costs);
            selections.flat_map(|(setting, tools)| tools.parts().map(move |part| (setting, part)))
        })
    }

    fn rules(&mut self) -> &mut Rules {
        Arc::make_mut(self.rules.get_or_insert_default())
    }
}

impl<S> Layer<S> for BudgetLayer {
    type Service = Budgeted<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let rules = self.rules.clone().filter(|rules| rules.charge_anything());
        Budgeted::new(rules.map(|rules| Arc::new(Charged::new(rules))), inner)
    }
}

impl fmt::Debug for BudgetLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BudgetLayer").field("rules", &self.rules).finish()
    }
}

// === impl Rules ===

impl Rules {
    /// Whether calls are charged that are of no run: a store or a caller alone charges
    /// nothing, and what calls cost matters to runs as well.
    const fn charge_anything(&self) -> bool {
        !(self.budgets.is_empty() && self.costs.is_empty())
    }

    /// Whether there are budgets of runs.
    fn charge_runs(&self) -> bool {
        // They come first.
        self.budgets.first().is_some_and(|budget| budget.shared_per() == Per::Run)
    }

    /// Who makes a call, if that is known.
    fn caller(&self, context: &Context) -> Option<String> {
        self.caller.as_ref().and_then(|caller| caller(context))
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules")
            .field("budgets", &self.budgets)
            .field("costs", &self.costs)
            .field("store", &self.store.0)
            .finish_non_exhaustive()
    }
}

// === impl Store ===

impl Default for Store {
    fn default() -> Self {
        Self(Arc::new(MemoryBudgets::new()))
    }
}
