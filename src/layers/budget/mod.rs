//! Budgets: limits on the number, size and cost of tool calls.
//!
//! A [`Budget`] is an amount of calls, bytes or [cost](Cost) that calls of the selected tools
//! share: all calls, the calls of each caller, or the calls of each run. A [`BudgetLayer`]
//! charges every `tools/call` to each budget that selects its tool, and rejects calls if not
//! enough is left. Place it below a [`CompositeLayer`](crate::composite::CompositeLayer), so
//! that the calls of a composite are charged one by one, like direct calls.
//!
//! A budget limits consumption. To limit concurrent calls, use Tower's `ConcurrencyLimit`.
//!
//! # What is charged, and when
//!
//! An amount is *reserved* before the call: one call, or the estimated cost. For bytes nothing
//! is reserved, but some must be left. So concurrent calls never exceed a budget of calls.
//! After the reply, the actual amount is *settled*, even if it is more than is left; calls are
//! then rejected until the overdraft is refilled. The charge of one call is at most the limit
//! of the budget, or [`max_per_call`](Budget::max_per_call). The total spent of a budget with a
//! refill is [capped](Budget::most_spent) likewise: whatever servers report and however many
//! calls run concurrently, the budget is full again after one complete refill.
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
//! A forwarded call is charged even if the caller abandons it or a timeout ends it, since the
//! tool may have run. Otherwise a client would pay nothing for calls that it cancels just before
//! their replies, and nothing for a tool that is slower than the timeout of its backend. The
//! error of an unsent call must be a [`BackendError`](crate::message::BackendError), or a
//! [`BoxError`](tower::BoxError) with one among its sources; calls that end with another error
//! are charged. Budgets of runs are reserved first, then those of callers, then global ones; a
//! rejection releases all earlier reservations.
//!
//! The error of a rejected call has the name of the budget and, if known, the time to retry
//! after. This estimate assumes that no other call comes first, and that the running calls use
//! what they have reserved. If a store is unavailable and grants no permit, the tool is
//! temporarily unavailable; the reason is logged, at most once in ten seconds as a warning.
//!
//! # What a run may cost
//!
//! The cost of every call is charged to its run, even if no budget counts cost. The `max_cost`
//! of a composite limits it.
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
    store::{BudgetStore, Denied, Held, OpenBudget, Permit, Reserving},
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

/// Charges calls to budgets.
///
/// Defaults to no budgets. Then only calls of runs with a cost limit are charged; all others
/// pass unchanged.
///
/// Its clones, and all services that it wraps, share the balances.
///
/// See the [module docs](crate::budget) for the charges and an example.
#[derive(Clone, Default)]
pub struct BudgetLayer {
    /// `None` if there is nothing to charge.
    rules: Option<Arc<Rules>>,
}

// === impl BudgetLayer ===

impl BudgetLayer {
    /// Creates a layer without budgets, which charges nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a budget, replacing one of the same name.
    ///
    /// Do not name it `max_cost`: composites report the [cost
    /// limit](crate::composite::CompositeTool::max_cost) of a run by this name.
    /// [`try_budget`](Self::try_budget) rejects that name.
    #[must_use]
    pub fn budget(mut self, budget: Budget) -> Self {
        let budgets = &mut self.rules().budgets;
        budgets.retain(|other| other.name() != budget.name());
        let place = budgets.partition_point(|other| other.shared_per() <= budget.shared_per());
        budgets.insert(place, budget);
        self
    }

    /// Adds a budget, after validating it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is a budget of the same name, the name is blank or `max_cost`,
    /// or the amount or interval of the refill is zero.
    pub fn try_budget(self, budget: Budget) -> Result<Self, BudgetError> {
        budget.check()?;
        let mut budgets = self.rules.iter().flat_map(|rules| &rules.budgets);
        if budgets.any(|other| other.name() == budget.name()) {
            return Err(BudgetError::Duplicate(budget.name().to_owned()));
        }
        Ok(self.budget(budget))
    }

    /// Adds the cost of calls of some tools. The first cost that selects a tool applies; calls
    /// of other tools cost one unit.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.rules().costs.push(cost);
        self
    }

    /// Sets the store that keeps the balances. Defaults to [memory](MemoryBudgets) that only
    /// this layer uses.
    #[must_use]
    pub fn store(mut self, store: impl BudgetStore + 'static) -> Self {
        self.rules().store = Store(Arc::new(store));
        self
    }

    /// Sets the function that identifies the caller, for budgets [per caller](Per::Caller). All
    /// unidentified callers share one balance.
    ///
    /// The identity must not be forgeable, such as an authenticated subject: a client that
    /// can pose as another caller gets another balance.
    #[must_use]
    pub fn caller<F>(mut self, caller: F) -> Self
    where
        F: Fn(&Context) -> Option<String> + Send + Sync + 'static,
    {
        self.rules().caller = Some(Arc::new(caller));
        self
    }

    /// Returns the patterns for tool names, each with the setting that contains it.
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
