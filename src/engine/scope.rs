//! Scopes: the deadline, limits and observers that apply to a run and its nested runs.

use std::{
    sync::{Arc, OnceLock, atomic::Ordering},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    limits::{CallLimits, HEARTBEAT, RunLimits, after},
    meter::{Counter, Meter, Metered, Reached, Used},
    observation::BranchPlace,
    outcome::{ErrorKind, StepError},
    serde_defaults::is_default,
};
use crate::{
    message::{Account, Charged, Context, content_size},
    observe::Observers,
};

/// Parsed text results of one call may use at most this many times `max_result_bytes` of memory.
const PARSED_TIMES: usize = 16;

/// The deadline, limits and observers of a run. A nested run derives its scope from the scope of
/// its outer run.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    meter: Arc<Meter>,
    /// Adds up the costs of the tool calls of the run. `None` until [`of_run`](Self::of_run)
    /// assigns the scope to a run.
    account: Option<Arc<Account>>,
    /// If `true`, the meter belongs to this run alone. Otherwise, it is shared with the outer run.
    owns_meter: bool,
    pub(crate) started: Instant,
    /// The time at which the run must end. A nested run ends with its outer run at the latest.
    pub(crate) deadline: Instant,
    /// The interval of heartbeats: progress notifications that a run sends while it makes no other
    /// progress. Zero disables heartbeats.
    pub(super) heartbeat: Duration,
    asking: Asking,
    pub(super) observers: Observers,
    /// The step of the outer run that calls this run. `None` if the run is not nested, or if its
    /// outer run is not observed.
    pub(super) place: Option<Arc<BranchPlace>>,
    /// The ID of a nested run. Retries of the call keep the ID. `None` if the run is not nested.
    pub(super) run_id: Option<Arc<str>>,
}

/// Determines whether a run may ask the user questions.
#[derive(Clone, Debug)]
enum Asking {
    /// Questions are allowed. A run can be suspended for a question if its state has at most `room`
    /// bytes. `usize::MAX` means no limit, because suspended runs stay in memory.
    Open { room: usize },
    /// Questions fail with this reason.
    Closed(Arc<str>),
}

/// The resource usage of a single run. Stored while the run is suspended, so that limits in the
/// definition of its composite apply to the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    #[serde(skip_serializing_if = "is_default", default)]
    calls: usize,
    #[serde(skip_serializing_if = "is_default", default)]
    result_bytes: usize,
    #[serde(skip_serializing_if = "is_default", default)]
    charged: Charged,
}

// === impl Scope ===

impl Scope {
    /// Creates the scope of a run that is not nested and starts now.
    pub(crate) fn new(limits: CallLimits, timeout: Duration) -> Self {
        Self::resumed(limits, timeout, Used::default(), Instant::now())
    }

    /// Creates the scope of a run that is not nested and resumes. `used` is the resource usage
    /// before the suspension. `started` is the start of the run. The run must end `timeout` after
    /// it.
    pub(crate) fn resumed(
        limits: CallLimits,
        timeout: Duration,
        used: Used,
        started: Instant,
    ) -> Self {
        Self {
            meter: Arc::new(Meter::new(limits.max_calls, limits.max_result_bytes, used)),
            account: None,
            owns_meter: false,
            started,
            deadline: after(started, timeout),
            heartbeat: HEARTBEAT,
            asking: Asking::Open { room: usize::MAX },
            observers: Observers::default(),
            place: None,
            run_id: None,
        }
    }

    /// Forbids questions to the user. They fail with the reason `why`.
    pub(crate) fn close(mut self, why: Arc<str>) -> Self {
        self.asking = Asking::Closed(why);
        self
    }

    /// Sets the maximum size of the run's state, in bytes. A run with a larger state cannot be
    /// suspended for a question.
    pub(crate) fn state_room(mut self, bytes: usize) -> Self {
        self.asking = Asking::Open { room: bytes };
        self
    }

    /// Returns the reason why questions are forbidden. Returns `None` if they are allowed.
    pub(crate) const fn closed(&self) -> Option<&Arc<str>> {
        match &self.asking {
            Asking::Open { .. } => None,
            Asking::Closed(why) => Some(why),
        }
    }

    /// Returns the maximum size of the run's state, in bytes. A run with a larger state cannot be
    /// suspended for a question. Returns `usize::MAX` if questions are forbidden.
    pub(super) const fn room(&self) -> usize {
        match self.asking {
            Asking::Open { room } => room,
            Asking::Closed(_) => usize::MAX,
        }
    }

    pub(crate) const fn heartbeat(mut self, every: Duration) -> Self {
        self.heartbeat = every;
        self
    }

    pub(crate) fn observers(mut self, observers: Observers) -> Self {
        self.observers = observers;
        self
    }

    /// Returns the resource usage of the whole call of the composite, including nested runs.
    pub(crate) fn used(&self) -> Used {
        self.meter.outermost().used()
    }

    /// Returns the scope of a nested run that starts now. The run must end after `timeout`, or at
    /// the deadline of this scope if that is earlier.
    pub(crate) fn nested(&self, timeout: Duration) -> Self {
        let started = Instant::now();
        let deadline = self.deadline.min(after(started, timeout));
        Self { started, deadline, ..self.clone() }
    }

    /// Returns the scope of the finally steps of this run. They must end when
    /// the duration `grace` has passed since `now`.
    ///
    /// The limits that can end the run do not apply to the finally steps. Their tool calls count
    /// from zero toward the limits for one call of a composite.
    pub(crate) fn of_finals(&self, grace: Duration, now: Instant) -> Self {
        let outer = self.meter.outermost();
        let meter = Meter::new(outer.max_calls, outer.max_result_bytes, Used::default());
        let deadline = after(now, grace);
        Self { meter: Arc::new(meter), owns_meter: false, deadline, ..self.clone() }
    }

    /// Returns the scope of a call whose usage a journal stores. The call counts toward `meter`,
    /// and its costs are charged to `account`.
    pub(super) fn detached(&self, meter: &Arc<Meter>, account: Option<&Arc<Account>>) -> Self {
        let (meter, account) = (meter.clone(), account.cloned());
        Self { meter, account, owns_meter: false, ..self.clone() }
    }

    pub(super) const fn meter(&self) -> &Arc<Meter> {
        &self.meter
    }

    /// Returns the scope for a run of the composite `name`. `limits` are the limits in its
    /// definition. `spent` is the resource usage of the run before it was suspended, or `None` for
    /// a new run.
    pub(crate) fn of_run(
        mut self,
        name: &Arc<str>,
        limits: RunLimits,
        context: &Context,
        spent: Option<&Spent>,
    ) -> Self {
        let Spent { calls, result_bytes, charged } = spent.cloned().unwrap_or_default();
        let outer = self.account.take().or_else(|| context.account().cloned());
        let account = Arc::new(Account::new(limits.max_cost, outer, charged));
        self.owns_meter = !limits.is_empty();
        if self.owns_meter {
            let run = Metered {
                name: name.clone(),
                cost: limits.max_cost.map(|max| (max, account.clone())),
                reached: OnceLock::new(),
            };
            let max_calls = limits.max_calls.unwrap_or(usize::MAX);
            let max_result_bytes = limits.max_result_bytes.unwrap_or(usize::MAX);
            let used = Used { calls, result_bytes, parsed_bytes: 0 };
            self.meter = Arc::new(Meter {
                run: Some(run),
                outer: Some(self.meter),
                ..Meter::new(max_calls, max_result_bytes, used)
            });
        }
        self.account = Some(account);
        self
    }

    /// Returns the resource usage of this run, to store it while the run is suspended. Counts only
    /// what the run does not share with an outer run. Returns `None` if all counts are zero.
    pub(super) fn spent(&self) -> Option<Box<Spent>> {
        let mut spent = Spent::default();
        if self.owns_meter {
            let Used { calls, result_bytes, .. } = self.meter.used();
            (spent.calls, spent.result_bytes) = (calls, result_bytes);
        }
        if let Some(account) = &self.account {
            spent.charged = account.amounts();
        }
        (spent != Spent::default()).then(|| Box::new(spent))
    }

    /// Returns the account that adds up the costs of the tool calls of the run. Returns `None`
    /// before [`of_run`](Self::of_run).
    pub(crate) const fn account(&self) -> Option<&Arc<Account>> {
        self.account.as_ref()
    }

    /// Returns `true` if a limit of this run or of an outer run, such as `max_calls`, can end the
    /// run.
    pub(super) fn is_limited(&self) -> bool {
        self.meter.can_end_runs()
    }

    /// Returns the limit that ended this run or an outer run. Returns `None` if no limit was
    /// reached. If several nested runs have reached limits, returns the limit of the outermost one.
    pub(crate) fn reached(&self) -> Option<Reached> {
        if !self.meter.can_end_runs() {
            return None;
        }
        self.meter.chain().filter_map(Meter::reached).last()
    }

    /// Like [`reached`](Self::reached), but also returns a limit that the next tool call would
    /// exceed. Called before each tool call.
    pub(super) fn reached_by_call(&self) -> Option<Reached> {
        if !self.meter.can_end_runs() {
            return None;
        }
        for meter in self.meter.chain() {
            if let Some(run) = &meter.run
                && let Some(setting) = meter.used_up()
            {
                run.reached.get_or_init(|| setting);
            }
        }
        self.reached()
    }

    /// Counts a tool call toward the limits of this run and of its outer runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the call would exceed a limit.
    pub(super) fn count_call(&self) -> Result<(), StepError> {
        if let Some(reached) = self.reached_by_call() {
            return Err(self.refusal(&reached));
        }
        self.meter.count(Counter::Calls, 1).map_err(|meter| match meter.reached() {
            Some(reached) => self.refusal(&reached),
            None => {
                let max = meter.max_calls;
                let message = format!("the run made more than {max} calls (`max_calls`)");
                StepError::new(ErrorKind::Limit, message)
            }
        })
    }

    /// Adds the size of a tool's reply to the total size of the tool results, in bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply would exceed a limit.
    pub(super) fn keep_answer(&self, bytes: usize) -> Result<(), StepError> {
        self.count_bytes(&self.meter, "an answer", bytes)
    }

    /// Adds the size of a computed value, such as the output of a step without a tool call, to the
    /// total size of the tool results.
    ///
    /// # Errors
    ///
    /// Returns an error if the value would exceed a limit.
    pub(crate) fn keep_made(&self, value: &Value) -> Result<(), StepError> {
        self.count_bytes(&self.meter, "a value", content_size::of_value(value))
    }

    /// Counts the size of a value that the run builds from tool results, such as its output. Only
    /// `max_result_bytes` of the whole call limits such values. Limits in the definition of a
    /// composite apply to tool results only.
    ///
    /// # Errors
    ///
    /// Returns an error if the value would exceed a limit.
    pub(crate) fn keep_given(&self, value: &Value) -> Result<(), StepError> {
        self.count_bytes(self.meter.outermost(), "a value", content_size::of_value(value))
    }

    /// Counts the memory of a JSON value that was parsed from a text result. Returns an error if
    /// the values of the whole call would need more than [`PARSED_TIMES`] times `max_result_bytes`.
    pub(super) fn count_parsed(&self, bytes: usize) -> Result<(), StepError> {
        let meter = self.meter.outermost();
        let max = meter.max_result_bytes;
        let most = max.saturating_mul(PARSED_TIMES);
        let fits = |sum: usize| Some(sum.saturating_add(bytes)).filter(|&sum| sum <= most);
        match meter.parsed_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(StepError::new(
                ErrorKind::Limit,
                format!(
                    "the values of texts would take more than {PARSED_TIMES} times `max_result_bytes`, which is {max}"
                ),
            )),
        }
    }

    fn count_bytes(&self, meter: &Meter, what: &str, bytes: usize) -> Result<(), StepError> {
        let Err(meter) = meter.count(Counter::ResultBytes, bytes) else { return Ok(()) };
        let reached = meter.reached();
        let of = match &reached {
            Some(reached) if *reached.of != *self.name() => format!(" of `{}`", reached.of),
            _ => String::new(),
        };
        let max = meter.max_result_bytes;
        let why = format!(
            "{what} of {bytes} bytes exceeds the rest of `max_result_bytes`{of}, which is {max}"
        );
        let error = StepError::new(ErrorKind::Limit, why);
        Err(StepError { ends_run: reached.is_some(), ..error })
    }

    /// Returns the error of a step or tool call that was rejected because of a limit.
    fn refusal(&self, reached: &Reached) -> StepError {
        reached.refusal(self.name())
    }

    /// Returns the name of the composite if the run has limits of its own. Otherwise, returns an
    /// empty string.
    fn name(&self) -> &str {
        let run = self.meter.run.as_ref().filter(|_| self.owns_meter);
        run.map_or("", |run| &run.name)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{CallToolResult, ContentBlock};
    use serde_json::json;

    use super::*;

    #[test]
    fn results_and_computed_values_share_the_byte_limit() {
        let scope = Scope::new(CallLimits::default().max_result_bytes(20), Duration::from_secs(1));
        let answer = CallToolResult::success(vec![ContentBlock::text("0123456789")]);
        assert!(scope.keep(&Ok(answer.into())).is_ok());
        let expected = "a value of 11 bytes exceeds the rest of `max_result_bytes`, which is 20";
        let refused = scope.keep_made(&json!("01234567890"));
        assert_eq!(refused, Err(StepError::new(ErrorKind::Limit, expected)));
        assert_eq!(scope.nested(Duration::from_secs(1)).keep_made(&json!("0123456789")), Ok(()));
        assert!(scope.keep_made(&json!(null)).is_err());
    }

    /// Returns the scopes of an outer and a nested run. `outer` and `inner` are the maximum numbers
    /// of calls of these runs.
    fn nested(outer: usize, inner: usize) -> (Scope, Scope) {
        let of = |scope: Scope, name: &str, max_calls: usize| {
            let limits = RunLimits { max_calls: Some(max_calls), ..RunLimits::default() };
            scope.of_run(&name.into(), limits, &Context::default(), None)
        };
        let outer = of(Scope::new(CallLimits::default(), Duration::from_secs(1)), "outer", outer);
        let inner = of(outer.nested(Duration::from_secs(1)), "inner", inner);
        (outer, inner)
    }

    #[test]
    fn calls_of_a_nested_run_count_in_its_outer_runs() {
        let (outer, inner) = nested(3, 2);
        assert_eq!(
            [inner.count_call(), outer.count_call(), inner.count_call()],
            [const { Ok(()) }; 3]
        );
        let reached = outer.reached_by_call().unwrap();
        assert_eq!(reached.message("outer"), "`max_calls`, which is 3, was reached");
        assert_eq!(reached.message("inner"), "`max_calls` of `outer`, which is 3, was reached");
    }

    #[test]
    fn limit_of_a_nested_scope_ends_only_that_run() {
        let (outer, inner) = nested(3, 1);
        assert_eq!((inner.count_call(), inner.reached()), (Ok(()), None));
        assert!(inner.count_call().unwrap_err().ends_run);
        assert_eq!(&*inner.reached().unwrap().of, "inner");
        assert_eq!((outer.reached(), outer.count_call()), (None, Ok(())));
    }

    #[test]
    fn bytes_rejected_by_an_outer_limit_are_released_by_the_run() {
        let limits = CallLimits::default().max_result_bytes(10);
        let scope = Scope::new(limits, Duration::from_secs(1));
        let own = RunLimits { max_result_bytes: Some(15), ..RunLimits::default() };
        let scope = scope.of_run(&"run".into(), own, &Context::default(), None);
        assert!(!scope.keep_made(&json!("0123456789ab")).unwrap_err().ends_run);
        assert_eq!(scope.spent(), None);
        assert_eq!((scope.keep_made(&json!("0123456789")), scope.reached()), (Ok(()), None));
    }

    #[test]
    fn output_of_a_run_counts_only_for_the_whole_client_call() {
        let limits = CallLimits::default().max_result_bytes(15);
        let scope = Scope::new(limits, Duration::from_secs(1));
        let own = RunLimits { max_result_bytes: Some(10), ..RunLimits::default() };
        let scope = scope.of_run(&"run".into(), own, &Context::default(), None);
        let within = scope.nested(Duration::from_secs(1));
        assert_eq!(within.keep_given(&json!("0123456789ab")), Ok(()));
        assert_eq!((scope.reached(), scope.spent()), (None, None));
        assert!(!within.keep_given(&json!("0123456789ab")).unwrap_err().ends_run);
    }

    #[test]
    fn concurrent_rejections_by_an_outer_limit_do_not_end_the_run() {
        let limits = CallLimits::default().max_result_bytes(100);
        let scope = Scope::new(limits, Duration::from_secs(1));
        let own = RunLimits { max_result_bytes: Some(200), ..RunLimits::default() };
        let scope = scope.of_run(&"run".into(), own, &Context::default(), None);
        assert_eq!(scope.keep_made(&json!("x".repeat(50))), Ok(()));
        // Each value exceeds the limit of all calls together. Only both values at once would exceed
        // the limit of the run.
        std::thread::scope(|threads| {
            for bytes in [101, 51] {
                let (value, scope) = (json!("x".repeat(bytes)), &scope);
                threads.spawn(move || {
                    for _ in 0..20_000 {
                        assert!(scope.keep_made(&value).is_err());
                    }
                });
            }
        });
        assert_eq!(scope.reached(), None);
    }

    #[test]
    fn run_costs_one_allocation_nested_or_not() {
        let (name, context) = ("run".into(), Context::default());
        let of_run = |scope: Scope| scope.of_run(&name, RunLimits::default(), &context, None);
        let scope = Scope::new(CallLimits::default(), Duration::from_secs(1));
        let mut outer = None;
        let count = allocation_counter::measure(|| outer = Some(of_run(scope))).count_total;
        assert_eq!(count, 1);
        let inner = outer.unwrap().nested(Duration::from_secs(1));
        let count = allocation_counter::measure(|| drop(of_run(inner))).count_total;
        assert_eq!(count, 1);
    }

    #[test]
    fn spent_calls_are_kept_when_a_run_resumes() {
        let (outer, inner) = nested(9, 2);
        assert_eq!((inner.count_call(), outer.spent().unwrap().calls), (Ok(()), 1));
        let limits = RunLimits { max_calls: Some(2), ..RunLimits::default() };
        let spent = serde_json::to_value(inner.spent()).unwrap();
        let spent: Option<Box<Spent>> = serde_json::from_value(spent).unwrap();
        let resumed = outer.nested(Duration::from_secs(1));
        let resumed =
            resumed.of_run(&"inner".into(), limits, &Context::default(), spent.as_deref());
        assert_eq!(resumed.count_call(), Ok(()));
        assert!(resumed.count_call().is_err());
    }

    #[test]
    fn charged_cost_is_kept_when_a_run_resumes() {
        let limits = RunLimits { max_cost: Some(5), ..RunLimits::default() };
        let of_run = |spent: Option<&Spent>| {
            let scope = Scope::new(CallLimits::default(), Duration::from_secs(1));
            scope.of_run(&"run".into(), limits, &Context::default(), spent)
        };
        let scope = of_run(None);
        scope.account().unwrap().reserve_cost(5).unwrap().settle(5);
        let spent = serde_json::to_value(scope.spent()).unwrap();
        let spent: Option<Box<Spent>> = serde_json::from_value(spent).unwrap();
        assert!(of_run(spent.as_deref()).count_call().is_err());
    }

    #[test]
    fn total_usage_is_kept_when_a_run_resumes() {
        let limits = CallLimits::default().max_calls(2).max_result_bytes(20);
        let scope = Scope::new(limits, Duration::from_secs(1));
        assert_eq!((scope.count_call(), scope.keep_made(&json!("0123456789"))), (Ok(()), Ok(())));
        let used = serde_json::to_value(scope.used()).unwrap();
        let used = serde_json::from_value(used).unwrap();
        let resumed = Scope::resumed(limits, Duration::from_secs(1), used, Instant::now());
        assert!(resumed.keep_made(&json!("0123456789a")).is_err());
        assert_eq!((resumed.count_call(), resumed.count_call().is_err()), (Ok(()), true));
    }

    #[test]
    fn error_counts_with_its_data() {
        let limits = CallLimits::default().max_result_bytes(20);
        let scope = Scope::new(limits, Duration::from_secs(1));
        let mut error = StepError::new(ErrorKind::Protocol, "0123456789");
        error.data = Some(json!("0123456"));
        assert_eq!(scope.keep(&Err(error.clone())), Ok(()));
        assert_eq!(scope.used().result_bytes, 10 + content_size::of_value(&json!("0123456")));
        assert_eq!(scope.keep(&Err(error)).unwrap_err().kind, ErrorKind::Limit);
    }

    #[test]
    fn error_names_the_run_of_the_limit() {
        let of = |scope: Scope, name: &str, bytes: usize| {
            let limits = RunLimits { max_result_bytes: Some(bytes), ..RunLimits::default() };
            scope.of_run(&name.into(), limits, &Context::default(), None)
        };
        let outer = of(Scope::new(CallLimits::default(), Duration::from_secs(1)), "outer", 10);
        let inner = of(outer.nested(Duration::from_secs(1)), "inner", 100);
        let message = |scope: &Scope| scope.keep_made(&json!("0123456789ab")).unwrap_err().message;
        let expected = "exceeds the rest of `max_result_bytes` of `outer`, which is 10";
        assert!(message(&inner).ends_with(expected), "{}", message(&inner));
        let expected = "exceeds the rest of `max_result_bytes`, which is 10";
        assert!(message(&outer).ends_with(expected), "{}", message(&outer));
    }

    #[tokio::test(start_paused = true)]
    async fn nested_deadline_may_be_earlier_but_not_later() {
        let outer = Scope::new(CallLimits::default(), Duration::from_secs(10));
        let sooner = outer.nested(Duration::from_secs(1));
        assert_eq!(sooner.deadline, Instant::now() + Duration::from_secs(1));
        assert_eq!(outer.nested(Duration::from_secs(99)).deadline, outer.deadline);
    }

    #[test]
    fn unspent_amounts_are_not_serialized() {
        let (_, inner) = nested(9, 2);
        assert_eq!(inner.count_call(), Ok(()));
        let spent = serde_json::to_value(inner.spent()).unwrap();
        assert_eq!(spent, json!({ "calls": 1 }));
    }
}
