//! Budgets: limits on the number, size and cost of tool calls.
//!
//! A [`Budget`] is an amount of calls, bytes or [cost](Cost) that several calls share: all calls,
//! the calls of one caller, or the calls of one run. A [`BudgetLayer`] charges every `tools/call`
//! to each budget that selects the called tool, and rejects the call if too little is left. Place
//! the layer below a [`CompositeLayer`](crate::composite::CompositeLayer), so that the calls of a
//! composite are charged one by one, like direct calls.
//!
//! A budget limits the total consumption. To limit the number of concurrent calls, use Tower's
//! `ConcurrencyLimit`.
//!
//! # What is charged, and when
//!
//! Before a call, the layer *reserves* an amount of each budget: one call, or the estimated cost.
//! So concurrent calls never exceed a budget of calls. For a budget of bytes, the layer reserves
//! nothing, but rejects the call if nothing is left.
//!
//! After the reply, the layer *settles* the reservation: it charges the actual amount, even if that
//! is more than is left. Further calls are then rejected until the overdraft is refilled. The
//! charge of one call is at most the limit of the budget, or [`max_per_call`](Budget::max_per_call)
//! if set. If a budget has a refill, the amount that all calls together have spent is
//! [capped](Budget::most_spent) too. So whatever servers report, and however many calls run
//! concurrently, the budget always recovers in foreseeable time.
//!
//! | the call ends with | its reservation is |
//! |---|---|
//! | a result, also of a tool that failed | charged |
//! | a JSON-RPC error of the server | charged, with the estimate of its cost |
//! | a task that continues | charged, with the estimate of its cost; its result is fetched separately and not charged |
//! | a request for input from the client | released: the tool has not run, and is called again with the answer |
//! | a refusal of a layer or router below | released: the tool was not reached |
//! | an error of the service that proves that the call was not sent: a backend is [not connected](crate::message::BackendErrorKind::NotConnected) or [overloaded](crate::message::BackendErrorKind::Overloaded) | released |
//! | another error of the service, such as a timeout or a lost connection | charged, with the estimate of its cost and no bytes |
//! | a panic, or dropped: canceled, timed out above, its branch stopped | charged, with the estimate of its cost and no bytes |
//! | dropped before it was forwarded | released |
//!
//! A forwarded call is charged even if the caller abandons it or a timeout ends it, because the
//! tool may have run. Otherwise a client would pay nothing for calls that it cancels just before
//! their replies, and nothing for a tool that is slower than the timeout of its backend.
//!
//! A call that fails is not charged if its error proves that the call was not sent. The layer only
//! recognizes such an error if it is a [`BackendError`](crate::message::BackendError), or a
//! [`BoxError`](tower::BoxError) whose sources include a `BackendError`. A call that ends with any
//! other error is charged.
//!
//! Budgets per run are reserved first, then budgets per caller, then global budgets. If one of
//! them rejects the call, all earlier reservations are released.
//!
//! The error of a rejected call contains the name of the budget and, if known, the time after which
//! to retry. This time is an estimate. It assumes that no other call comes first, and that each
//! running call uses exactly its reserved amount.
//!
//! If a store is unavailable and grants no permit, the call is rejected with the error that the
//! tool is temporarily unavailable. The reason is logged as a warning at most once in ten seconds.
//! Further rejections in these ten seconds are logged at debug level.
//!
//! # The cost limit of a run
//!
//! The cost of every call in a run is charged to the run, even if no budget has the unit
//! [`Cost`](Unit::Cost). The `max_cost` of a composite limits the cost of its runs.
//!
#![doc = include_str!("../../guide/links.md")]
#![doc = include_str!("../../guide/budgets.md")]
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
mod reservation;
mod rules;
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
    store::{BudgetPermit, BudgetStore, BudgetUsage, Denied, OpenBudget, ReserveReply, Settle},
};
use self::{
    metering::Charged,
    rules::{Rules, Store},
};
use crate::{message::Context, pattern::Patterns};

/// Futures of the service in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// A layer that charges calls to budgets, and rejects calls if a budget is used up.
///
/// By default there are no budgets. The layer then charges the cost of each call in a run to the
/// run, and forwards all other calls.
///
/// All clones of the layer, and all services that they wrap, share the balances of the budgets.
///
/// See the [module docs](crate::budget) for the charges and an example.
#[derive(Clone, Default)]
pub struct BudgetLayer {
    /// `None` if no budget, cost, store or caller is set.
    rules: Option<Arc<Rules>>,
}

// === impl BudgetLayer ===

impl BudgetLayer {
    /// Creates a layer without budgets, which charges nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a budget. Replaces an earlier budget with the same name.
    ///
    /// Do not name a budget `max_cost`, because errors refer to the [cost
    /// limit](crate::composite::CompositeTool::max_cost) of a run by this name.
    /// [`try_budget`](Self::try_budget) rejects the name.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        let budgets = &mut self.rules().budgets;
        budgets.retain(|other| other.name() != budget.name());
        let place = budgets.partition_point(|other| other.shared_per() <= budget.shared_per());
        budgets.insert(place, budget);
        self
    }

    /// Validates a budget and adds it.
    ///
    /// # Errors
    ///
    /// Returns an error if the layer already has a budget of the same name, or if the amount or
    /// interval of the refill is zero. Also returns an error if the name is blank or is the
    /// reserved name `max_cost`.
    pub fn try_budget(self, budget: Budget) -> Result<Self, BudgetError> {
        budget.check()?;
        let mut budgets = self.rules.iter().flat_map(|rules| &rules.budgets);
        if budgets.any(|other| other.name() == budget.name()) {
            return Err(BudgetError::Duplicate(budget.name().to_owned()));
        }
        Ok(self.budget(budget))
    }

    /// Sets the cost of each call of the tools that `cost` selects. If several costs select a tool,
    /// the one that was added first is used. If no cost selects a tool, each call of the tool costs
    /// one unit.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.rules().costs.push(cost);
        self
    }

    /// Sets the store for the balances of budgets that outlive a run: global budgets and budgets
    /// per caller. Defaults to a store in [memory](MemoryBudgets) that only this layer and its
    /// clones use.
    #[must_use]
    pub fn store(mut self, store: impl BudgetStore + 'static) -> Self {
        self.rules().store = Store(Arc::new(store));
        self
    }

    /// Sets the function that identifies the caller of a request, for budgets [per
    /// caller](Per::Caller). All callers that the function does not identify (`None`) share one
    /// balance.
    ///
    /// Clients must not be able to forge the identity, because a client that poses as another
    /// caller uses that caller's balance. For example, use an authenticated subject.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.rules().caller = Some(Arc::new(caller));
        self
    }

    /// Returns the budgets. Those per run come first.
    pub fn budgets(&self) -> impl Iterator<Item = &Budget> {
        self.rules.iter().flat_map(|rules| &rules.budgets)
    }

    /// Returns the tool patterns of all budgets and costs, each with the name of its setting.
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
