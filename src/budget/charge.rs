use std::{borrow::Cow, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use super::{Budget, Denied, MAX_COST, Per, Permit, Reserving, Rules, Unit, cost::Price};
use crate::message::{Account, Hold, ItemKind, Refusal, Reply, Request};

/// A call on its way from one budget to the next.
///
/// Dropped, it gives back what was reserved so far.
pub(super) struct Charging {
    /// Which of the budgets comes next.
    next: usize,
    /// Who calls, once that was asked.
    caller: Option<Option<String>>,
    charges: Charges,
}

/// What is reserved for a call. Dropped, it is given back.
pub(super) struct Charges {
    price: Price,
    /// Of what the run may cost.
    cost: Option<Hold>,
    budgets: Vec<(Unit, Reserved)>,
}

enum Reserved {
    /// By the account of a run.
    Held(Hold),
    /// By a store.
    Permitted(Permit),
}

/// What a store was asked, and has not answered yet.
pub(super) type Asked = BoxFuture<'static, Result<Permit, Denied>>;

// === impl Charging ===

impl Charging {
    /// Reserves what the call costs of what its run may cost.
    pub(super) fn begin(rules: Option<&Rules>, request: &Request) -> Result<Self, Refusal> {
        let price = rules.map_or(Price::ONE, |rules| rules.price(called(request)));
        let cost = match request.context().account() {
            Some(account) if !price.is_nothing() => {
                let hold = account.reserve_cost(price.estimate());
                Some(hold.ok_or_else(|| over(MAX_COST, None))?)
            }
            _ => None,
        };
        let charges = Charges { price, cost, budgets: Vec::new() };
        Ok(Self { next: 0, caller: None, charges })
    }

    /// Reserves of one budget after the other, until a store must be waited for.
    pub(super) fn go_on(
        &mut self,
        rules: Option<&Rules>,
        request: &Request,
    ) -> Result<Option<Asked>, Refusal> {
        let (tool, context) = (called(request), request.context());
        let Self { next, caller, charges } = self;
        let Some(rules) = rules else { return Ok(None) };
        while let Some(budget) = rules.budgets.get(*next) {
            if charges.are_of(budget, tool) {
                let (store, amount) = (&rules.store.0, charges.estimate(budget.unit()));
                let reserving = match budget.shared_per() {
                    Per::Run => {
                        charges.hold(budget, amount, context.account())?;
                        None
                    }
                    Per::Caller => {
                        let caller = caller.get_or_insert_with(|| rules.caller(context));
                        Some(store.reserve(budget, caller.as_deref(), amount))
                    }
                    Per::Global => Some(store.reserve(budget, None, amount)),
                };
                match reserving {
                    None => {}
                    Some(Reserving::Now(reserved)) => charges.add(rules, budget, reserved, tool)?,
                    Some(Reserving::Later(asked)) => return Ok(Some(asked)),
                }
            }
            *next += 1;
        }
        Ok(None)
    }

    /// Takes what a store has answered that was waited for.
    pub(super) fn answered(
        &mut self,
        rules: Option<&Rules>,
        reserved: Result<Permit, Denied>,
        request: &Request,
    ) -> Result<(), Refusal> {
        let asked = rules.and_then(|rules| Some((rules, rules.budgets.get(self.next)?)));
        self.next += 1;
        let Some((rules, budget)) = asked else { return Ok(()) };
        self.charges.add(rules, budget, reserved, called(request))
    }

    /// All that is reserved, once there is nothing left to ask for.
    pub(super) fn done(self) -> Charges {
        self.charges
    }
}

// === impl Charges ===

impl Charges {
    /// Charges what the call really was, if it was made; else gives it back.
    pub(super) fn settle(self, reply: &Reply) {
        // Neither has reached the tool, or it has not begun.
        if reply.refusal().is_some() || reply.asks() {
            return;
        }
        let Self { price, cost, budgets } = self;
        let actual = price.actual(reply.tool_result());
        if let Some(hold) = cost {
            hold.settle(actual);
        }
        for (unit, reserved) in budgets {
            reserved.settle(match unit {
                Unit::Calls => 1,
                Unit::Bytes => reply.size().try_into().unwrap_or(u64::MAX),
                Unit::Cost => actual,
            });
        }
    }

    /// Whether a budget is for the call.
    fn are_of(&self, budget: &Budget, tool: &str) -> bool {
        let is_free = budget.unit() == Unit::Cost && self.price.is_nothing();
        !is_free && budget.selects(tool)
    }

    /// What is reserved, as long as it is not known what it is.
    const fn estimate(&self, unit: Unit) -> u64 {
        match unit {
            Unit::Calls => 1,
            Unit::Bytes => 0,
            Unit::Cost => self.price.estimate(),
        }
    }

    fn hold(
        &mut self,
        budget: &Budget,
        amount: u64,
        account: Option<&Arc<Account>>,
    ) -> Result<(), Refusal> {
        let (name, limit) = (budget.shared_name(), budget.limit());
        // There is an account: with such a budget, each call is of a run.
        let hold = account.and_then(|account| account.reserve(name, amount, limit));
        let hold = hold.ok_or_else(|| over(name, None))?;
        self.budgets.push((budget.unit(), Reserved::Held(hold)));
        Ok(())
    }

    fn add(
        &mut self,
        rules: &Rules,
        budget: &Budget,
        reserved: Result<Permit, Denied>,
        tool: &str,
    ) -> Result<(), Refusal> {
        match reserved {
            Ok(permit) => {
                self.budgets.push((budget.unit(), Reserved::Permitted(permit)));
                Ok(())
            }
            Err(Denied::Over { retry_after }) => Err(over(budget.name(), retry_after)),
            Err(Denied::Unavailable(error)) => {
                let (budget, message) =
                    (budget.name(), "a call is refused: its budget is not known");
                if rules.outage.is_to_tell() {
                    tracing::warn!(budget, tool, %error, "{message}");
                } else {
                    tracing::debug!(budget, tool, %error, "{message}");
                }
                Err(Refusal::Unavailable { kind: ItemKind::Tool, name: tool.to_owned().into() })
            }
        }
    }
}

/// The tool that is called.
fn called(request: &Request) -> &str {
    request.tool_call().map_or("", |call| &call.name)
}

fn over(budget: &str, retry_after: Option<Duration>) -> Refusal {
    Refusal::OverBudget { budget: Cow::Owned(budget.to_owned()), retry_after }
}

// === impl Reserved ===

impl Reserved {
    fn settle(self, actual: u64) {
        match self {
            Self::Held(hold) => hold.settle(actual),
            Self::Permitted(permit) => permit.settle(actual),
        }
    }
}
