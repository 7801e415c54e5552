//! The `[budget]` section, which limits the total usage of tools.

use std::{collections::HashSet, sync::Arc, time};

#[cfg(any(feature = "stdio", feature = "http"))]
use futures::future::join_all;
use serde::Deserialize;

#[cfg(any(feature = "stdio", feature = "http"))]
use super::BudgetState;
use super::{
    caller::CallerConfig,
    duration::Duration,
    filter::selection,
    read::Reader,
    redis::{RedisConfig, RedisSettings, StoreName},
    set_some::SetSome,
    source::sanitized,
};
use crate::{
    budget::{Budget, BudgetLayer, BudgetStore, Cost, MemoryBudgets, Per, Refill, Unit},
    composite::Segment,
    json_pointer,
};

const SECTION: &str = "budget";
/// A reserved budget name. It stands for the `max_cost` of a composite in error messages of
/// rejected calls.
const MAX_COST: &str = "max_cost";

/// Limits the total usage of tools, for example to a number of calls per minute.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct BudgetTable {
    /// Where the balances of the budgets are stored. Defaults to the memory of this process.
    store: Option<StoreName>,
    /// Whether calls are rejected or admitted while the budget store is unavailable. By default,
    /// calls are rejected.
    when_away: Option<AwayName>,
    /// Time after which Redis releases the amount reserved for a call, if the process that made the
    /// call has failed. Must be longer than any call takes. Defaults to 10 minutes.
    lease: Option<Duration>,
    /// Maximum number of callers for which each budget stores a balance. Only for the store in
    /// memory. Defaults to 100000.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_callers: Option<usize>,
    /// The budgets, each of which limits the calls of certain tools.
    limits: Vec<LimitTable>,
    /// The cost of a call of each tool. Calls of tools that are not listed cost one unit.
    costs: Vec<CostTable>,
}

/// A budget, which limits the total usage of certain tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["name", "limit"])))]
#[serde(default, deny_unknown_fields)]
struct LimitTable {
    /// The name of the budget. Error messages of rejected calls contain the name.
    name: Option<String>,
    /// The unit of the budget: calls, bytes of results, or cost as defined in `costs`. Defaults to
    /// calls.
    count: Option<Unit>,
    /// The size of the budget, in the unit that `count` selects.
    #[cfg_attr(test, schemars(range(min = 1)))]
    limit: Option<u64>,
    /// Name patterns of the tools whose calls are charged to the budget. They match the tool names
    /// before `[[aliases]]` renames the tools. Defaults to all tools.
    tools: Option<Vec<String>>,
    /// Whether all calls share the budget, or each caller, as identified by `[caller]`, or each run
    /// has a separate budget. By default, all calls share the budget.
    per: Option<Per>,
    /// When and by how much the budget is refilled. By default, it is never refilled.
    refill: Option<RefillTable>,
    /// Maximum amount charged for one call. If the backend reports a higher cost, only this amount
    /// is charged. Defaults to `limit`.
    #[cfg_attr(test, schemars(range(min = 1)))]
    max_per_call: Option<u64>,
}

/// When and by how much a budget is refilled.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["every"])))]
#[serde(default, deny_unknown_fields)]
struct RefillTable {
    /// The amount added to the budget at each refill. Defaults to the `limit` of the budget.
    #[cfg_attr(test, schemars(range(min = 1)))]
    amount: Option<u64>,
    /// The interval between refills.
    every: Option<Duration>,
}

/// The cost of each call of the matching tools.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("required" = ["tools", "cost"])))]
#[serde(default, deny_unknown_fields)]
struct CostTable {
    /// Name patterns of the tools. They match the tool names before `[[aliases]]` renames the
    /// tools. The first entry of `costs` that matches a tool determines the cost of its calls.
    tools: Option<Vec<String>>,
    /// The cost reserved before each call. The call is charged this cost if its result contains no
    /// actual cost. With `0`, such a call is free.
    cost: Option<u64>,
    /// JSON Pointer to the actual cost in a tool result, such as `/_meta/usage/total_tokens`.
    actual: Option<String>,
}

/// Whether calls are rejected or admitted while the budget store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
enum AwayName {
    /// Reject calls.
    Refuse,
    /// Admit calls without charging them to the budgets.
    Admit,
}

/// The budget layer of a configuration, and the store that contains the balances of its budgets.
#[derive(Clone, Debug)]
pub(super) struct BudgetConfig {
    layer: BudgetLayer,
    settings: Settings,
    pub(super) store: Arc<dyn BudgetStore>,
}

/// The settings of the budget store. If a reload does not change these settings, the existing store
/// stays in use, and its balances are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Settings {
    /// The URL path of the view that defines the budgets, such as `/team-a`. `None` if the budgets
    /// are defined at the top level of the file.
    view: Option<String>,
    redis: Option<RedisSettings>,
    admit: bool,
    lease: Option<time::Duration>,
    max_callers: Option<usize>,
}

/// Converts the `[budget]` section to a budget layer and its store, and reports errors in the
/// section to `reader`.
pub(super) fn build(
    table: BudgetTable,
    redis: &RedisConfig,
    caller: &CallerConfig,
    reader: &mut Reader<'_, '_>,
) -> BudgetConfig {
    let path = [SECTION.into()];
    let at = |key: &str| [SECTION.into(), Segment::from(key)];
    let store = table.store.unwrap_or_default();
    let redis_settings = (store == StoreName::Redis).then(|| redis.required(&at("store"), reader));
    for (key, is_given, of, name) in [
        ("when_away", table.when_away.is_some(), StoreName::Redis, "redis"),
        ("lease", table.lease.is_some(), StoreName::Redis, "redis"),
        ("max_callers", table.max_callers.is_some(), StoreName::Memory, "memory"),
    ] {
        if is_given && store != of {
            reader.report(&at(key), format!("`{key}` belongs to `store = \"{name}\"`"));
        }
    }
    let settings = Settings {
        view: reader.own_view(SECTION).map(str::to_owned),
        lease: reader.not_zero(&path, "lease", table.lease).map(|Duration(lease)| lease),
        max_callers: reader.not_zero(&path, "max_callers", table.max_callers),
        redis: redis_settings.cloned(),
        admit: table.when_away == Some(AwayName::Admit),
    };
    let layer = layer(table.limits, table.costs, caller, reader);
    BudgetConfig { layer, store: settings.build(store, redis), settings }
}

/// Builds the budget layer from the `limits` and `costs` tables. The layer has no store yet.
fn layer(
    limits: Vec<LimitTable>,
    costs: Vec<CostTable>,
    caller: &CallerConfig,
    reader: &mut Reader<'_, '_>,
) -> BudgetLayer {
    let mut layer = BudgetLayer::new();
    let mut names = HashSet::new();
    for (place, limit) in limits.into_iter().enumerate() {
        let path = [SECTION.into(), "limits".into(), place.into()];
        if let Some(name) = &limit.name
            && !names.insert(name.clone())
        {
            let message = format!("duplicate name {:?}", sanitized(name));
            reader.report(&[&path[..], &["name".into()]].concat(), message);
            continue;
        }
        if matches!(limit.per, Some(Per::Caller)) {
            let path = [&path[..], &["per".into()]].concat();
            caller.required(&path, "`per = \"global\"`", reader);
        }
        if let Some(budget) = limit.build(&path, reader) {
            layer = layer.budget(budget);
        }
    }
    for (place, cost) in costs.into_iter().enumerate() {
        let path = [SECTION.into(), "costs".into(), place.into()];
        if let Some(cost) = cost.build(&path, reader) {
            layer = layer.cost(cost);
        }
    }
    layer
}

// === impl Settings ===

impl Settings {
    fn build(&self, store: StoreName, redis: &RedisConfig) -> Arc<dyn BudgetStore> {
        match store {
            StoreName::Redis => redis.budgets(self.view.as_deref(), self.admit, self.lease),
            StoreName::Memory => Arc::new(
                MemoryBudgets::new().set_some(self.max_callers, MemoryBudgets::max_callers),
            ),
        }
    }
}

// === impl BudgetConfig ===

impl BudgetConfig {
    /// Reuses the store of `before` if both have the same settings, so that the balances are kept.
    /// `before` belongs to the previous configuration or to another view.
    pub(super) fn take_over(&mut self, before: &Self) {
        if self.settings == before.settings {
            self.store = before.store.clone();
        }
    }

    /// Returns the URL path of the view that defines the budgets, such as `/team-a`. Returns `None`
    /// if the budgets are defined at the top level of the file.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) fn view(&self) -> Option<&str> {
        self.settings.view.as_deref()
    }

    /// Returns the definition and the current usage of each budget. The usage is `None` if the
    /// store cannot report it, and for budgets with `per = "run"`.
    #[cfg(any(feature = "stdio", feature = "http"))]
    pub(super) async fn states(&self) -> Vec<BudgetState> {
        let states = self.layer.budgets().map(move |budget| async move {
            // Each run has a separate balance, which the store does not contain.
            let usage = match budget.shared_per() {
                Per::Run => None,
                _ => self.store.usage(budget).await,
            };
            let view = self.view().map(str::to_owned);
            BudgetState { view, budget: budget.clone(), usage }
        });
        join_all(states).await
    }

    /// Returns the budget layer, with the store that contains its balances.
    pub(super) fn layer(&self) -> BudgetLayer {
        self.layer.clone().store(self.store.clone())
    }
}

// === impl LimitTable ===

impl LimitTable {
    fn build(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Option<Budget> {
        let at = |key: &str| [path, &[key.into()]].concat();
        let name = reader.required(self.name, "name", path);
        if name.trim().is_empty() {
            reader.report(&at("name"), "blank name");
        } else if name == MAX_COST {
            // The error message contains this name if a run has exceeded its `max_cost`.
            let message = format!("`{MAX_COST}` is a key of composites: expected another name");
            reader.report(&at("name"), message);
        }
        let limit = match self.limit {
            Some(0) => Err("`limit` is zero: expected more, or hide the tools"),
            Some(limit) => Ok(limit),
            None => Err("missing key `limit`"),
        };
        let limit = limit.map_err(|message| reader.report(&at("limit"), message)).ok()?;
        let tools = selection(self.tools, None, ["tools", ""], path, reader);
        let max_per_call = reader.not_zero(path, "max_per_call", self.max_per_call);
        let mut budget = Budget::new(name, self.count.unwrap_or(Unit::Calls), limit)
            .tools(tools)
            .per(self.per.unwrap_or_default())
            .set_some(max_per_call, Budget::max_per_call);
        if let Some(refill) = self.refill {
            if matches!(self.per, Some(Per::Run)) {
                reader.report(&at("refill"), "`refill` cannot be used with `per = \"run\"`");
            }
            budget = budget.refill(refill.build(limit, &at("refill"), reader)?);
        }
        Some(budget)
    }
}

// === impl RefillTable ===

impl RefillTable {
    fn build(self, limit: u64, path: &[Segment], reader: &mut Reader<'_, '_>) -> Option<Refill> {
        let mut report = |key: &str, message: &str| {
            reader.report(&[path, &[key.into()]].concat(), message);
        };
        if self.amount == Some(0) {
            report("amount", "`amount` is zero: expected more, or leave the key out");
            return None;
        }
        match self.every {
            None => report("every", "missing key `every`"),
            Some(Duration(every)) if every.is_zero() => {
                report("every", "`every` is zero: expected more, or leave `refill` out");
            }
            Some(Duration(every)) => return Some(Refill::new(self.amount.unwrap_or(limit), every)),
        }
        None
    }
}

// === impl CostTable ===

impl CostTable {
    fn build(self, path: &[Segment], reader: &mut Reader<'_, '_>) -> Option<Cost> {
        let at = |key: &str| [path, &[key.into()]].concat();
        if self.tools.is_none() {
            reader.report(&at("tools"), "missing key `tools`");
        }
        let tools = selection(self.tools, None, ["tools", ""], path, reader);
        if self.cost.is_none() {
            reader.report(&at("cost"), "missing key `cost`");
        }
        if let Some(pointer) = &self.actual
            && !is_pointer(pointer)
        {
            let message = format!(
                "illegal JSON Pointer {:?}: expected one such as `/_meta/usage/total_tokens`",
                sanitized(pointer)
            );
            reader.report(&at("actual"), message);
        }
        let cost = Cost::new(tools, self.cost?);
        Some(cost.set_some(self.actual.as_deref(), Cost::actual_at))
    }
}

/// Returns `true` if `text` is a valid JSON Pointer to a part of a value. Returns `false` for the
/// empty pointer, because it refers to the whole value.
fn is_pointer(text: &str) -> bool {
    text.starts_with('/') && json_pointer::invalid_escape(text).is_none()
}
