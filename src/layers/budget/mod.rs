//! Budgets: limits on the number, size and cost of tool calls.
//!
//! A [`Budget`] is an amount of calls, bytes or [cost](Cost) that several tool calls share: all
//! calls, the calls of one caller, or the calls of one run. Budgets protect a server from clients
//! that call too often, and operators from unexpected costs. A [`BudgetLayer`] charges every
//! `tools/call` request to each budget that selects the called tool, and rejects the call if too
//! little of a budget is left. Place the layer below a
//! [`CompositeLayer`](crate::composite::CompositeLayer), so that each step of a composite is
//! charged like a direct call.
//!
//! A budget limits total consumption, not concurrency. To limit the number of concurrent calls, use
//! Tower's `ConcurrencyLimit`.
//!
//! # What is charged, and when
//!
//! Before a tool call, a [`BudgetLayer`] *reserves* an amount of each budget: one call, or the
//! estimated cost. Because of these reservations, concurrent calls never exceed a budget of calls.
//! From a budget of bytes, the layer reserves nothing, because the size of the result is unknown
//! before the call. It rejects the call only if no bytes are left.
//!
//! After the reply to a tool call, a [`BudgetLayer`] *settles* the reservation: it charges the
//! actual amount, even if this exceeds the amount that is left in the budget. The layer then
//! rejects further calls until refills have made up for the overdraft. A single call is charged at
//! most the limit of the budget, or [`max_per_call`](Budget::max_per_call) if set. If a budget has
//! a refill, the total spent amount is [capped](Budget::most_spent), too. The budget therefore
//! recovers in foreseeable time, whatever costs servers report, and however many calls run
//! concurrently.
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
//! A tool call that was forwarded to the server is charged even if the caller cancels it or a
//! timeout ends it, because the tool may have run. Otherwise, clients could avoid charges by
//! canceling calls just before the reply, and calls to a tool that is slower than its timeout would
//! be free.
//!
//! A tool call that fails is charged, unless its error proves that the call was not sent to the
//! server. A [`BudgetLayer`] recognizes such an error only if it is a
//! [`BackendError`](crate::message::BackendError), or a [`BoxError`](tower::BoxError) whose source
//! chain contains a `BackendError`.
//!
//! If several budgets select a tool, a [`BudgetLayer`] reserves budgets per run first, then budgets
//! per caller, then global budgets. If one of them rejects the call, the layer releases the
//! reservations that it has already made.
//!
//! If a budget rejects a tool call, the client receives an error with the name of the budget and,
//! if known, the time after which to retry. The time is an estimate: it assumes that no other call
//! comes first, and that each running call consumes exactly the amount reserved for it.
//!
//! If a budget store is unavailable, the store decides whether calls are allowed or rejected. The
//! client of a rejected call receives the error that the tool is temporarily unavailable. The layer
//! logs the reason as a warning at most once in ten seconds, and logs all further rejections at
//! debug level.
//!
//! # The cost limit of a run
//!
//! A *run* of a composite is one call of the composite, together with all tool calls that result
//! from it. The cost of each tool call in a run counts toward the cost limit of the run, even if no
//! budget has the unit [`Cost`](Unit::Cost). To limit the cost of a composite's runs, set its
//! `max_cost`.
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
mod reservation;
mod rules;
mod service;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

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
use crate::{
    message::{Context, identified_by},
    pattern::Patterns,
};

/// The response future of the service in this module.
pub mod future {
    pub use super::service::ResponseFuture;
}

/// A layer that charges tool calls to budgets. Rejects a call if a budget has too little left.
///
/// A new `BudgetLayer` has no budgets and forwards all requests. In the run of a composite, it
/// still counts the cost of each tool call toward the [cost
/// limit](crate::composite::CompositeTool::max_cost) of the run.
///
/// All clones of a `BudgetLayer`, and all services created by them, share the balances of the
/// budgets.
///
/// See the [module docs](crate::budget) for an example, and for the amounts that calls are charged.
#[derive(Clone, Debug, Default)]
pub struct BudgetLayer {
    /// The settings. `None` if nothing has been set, so that all defaults apply.
    rules: Option<Arc<Rules>>,
}

// === impl BudgetLayer ===

impl BudgetLayer {
    /// Creates a layer without budgets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a budget. Replaces an earlier budget of the same name.
    ///
    /// Do not give a budget the name `max_cost`: error messages use this name for the [cost
    /// limit](crate::composite::CompositeTool::max_cost) of a composite's run.
    /// [`try_budget`](Self::try_budget) rejects the name, `budget` does not.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        let budgets = &mut self.rules().budgets;
        budgets.retain(|other| other.name() != budget.name());
        let index = budgets.partition_point(|other| other.shared_per() <= budget.shared_per());
        budgets.insert(index, budget);
        self
    }

    /// Validates a budget and adds it.
    ///
    /// # Errors
    ///
    /// Returns an error if the layer already has a budget of the same name, if the name is blank or
    /// the reserved name `max_cost`, or if the amount or interval of the refill is zero.
    pub fn try_budget(self, budget: Budget) -> Result<Self, BudgetError> {
        budget.check()?;
        let mut budgets = self.rules.iter().flat_map(|rules| &rules.budgets);
        if budgets.any(|other| other.name() == budget.name()) {
            return Err(BudgetError::Duplicate(budget.name().to_owned()));
        }
        Ok(self.budget(budget))
    }

    /// Sets the cost of each call to the tools that `cost` selects. If several costs select a tool,
    /// the one that was added first applies. If no cost selects a tool, each call to it costs one
    /// unit.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.rules().costs.push(cost);
        self
    }

    /// Sets the store for the balances of global budgets and budgets per caller. Use a remote store
    /// to share budgets between processes. Defaults to a store in [memory](MemoryBudgets) that only
    /// this layer and its clones use.
    #[must_use]
    pub fn store(mut self, store: impl BudgetStore + 'static) -> Self {
        self.rules().store = Store(Arc::new(store));
        self
    }

    /// Sets the function that identifies callers, for budgets [per caller](Per::Caller). It returns
    /// the identity of the caller of a request, or `None` if the caller is unidentified. All
    /// unidentified callers share one balance.
    ///
    /// The identity of a caller must be one that clients cannot forge, such as an authenticated
    /// subject. Otherwise, a client that poses as another caller can use up the other caller's
    /// balance.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.rules().caller = Some(identified_by(caller));
        self
    }

    /// Returns all budgets, with the budgets per run first.
    pub fn budgets(&self) -> impl Iterator<Item = &Budget> {
        self.rules.iter().flat_map(|rules| &rules.budgets)
    }

    /// Returns the tool patterns of all budgets and costs, for warnings. Each pattern comes with
    /// the name of the setting that contains it, such as `budget.limits.tools`.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = (&'static str, Patterns)> {
        self.rules.iter().flat_map(|rules| {
            let budgets = rules.budgets.iter().map(|budget| ("budget.limits.tools", &budget.tools));
            let costs = rules.costs.iter().map(|cost| ("budget.costs.tools", &cost.tools));
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
