//! Converts the outcomes of a run to one result.

use std::{fmt::Write, sync::Arc};

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use super::{
    compile::{Compiled, ResultForm, Route},
    definition::{OnLimit, Trace},
    limit_end::{LimitEnd, MAX_NAMED_STEPS},
    report::{add_content, attribute, failure_text, report_of, report_of_step, tool, trace},
    strategy::{Labels, Order, Success},
    target_call::MAX_RESULT_DEPTH,
};
use crate::{
    engine::{
        outcome::{Outcome, Status},
        plan::{self, Step},
        preserved_outputs::Preservation,
        scope::Scope,
        state::RunState,
        step_output,
    },
    message::{Context, ToolResult, is_deeper},
    schema::InputSchema,
    warnings::sanitize::Reason,
};

/// The key of a result's `_meta` for the trace of the run, and of a request's `_meta` to ask
/// for it.
///
/// The result has a trace if the request has `true` under this key, if the composite is
/// defined with [`Trace::Always`], or if the run fails and reports. A trace is an array, with
/// an object for each branch or step in declared order: `step`, `status`, `started_ms` (after
/// the run) and `duration_ms`; `tool` if it is not `step`, `attempts` if it is not 1, and where
/// there is one, `error` and the branch's own `_meta` as `meta`.
pub const TRACE: &str = "mcp-composite/trace";

/// The key of a result's `_meta` for the limit that ended the run, if any.
///
/// The value is an object: `setting`, such as `max_calls`; `limit`; `of`, if the limit belongs to a
/// composite that called this one; `skipped`, the names of the branches, steps and loop elements
/// (`step[3]`) that did not begin; and `refused`, the names of those that failed because of the
/// limit.
pub const LIMIT: &str = "mcp-composite/limit";

/// The key of a result's `_meta` for the step report of a failed pipeline or workflow that
/// advertises an output schema. Without an output schema, the report is the `steps` member of the
/// structured content.
///
/// The value is an object with a member for each step: `status`, and if present, `output` and
/// `error`. `truncated` is `true` if the output is too large: then `output` is the beginning of its
/// text, or a loop without parts of its elements.
pub const STEPS: &str = step_output::STEPS;

/// The detail in which a failed pipeline or workflow reports its completed steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// Their names.
    Names,
    /// Their outputs, as content and in `_meta`.
    Meta,
    /// Their outputs, as content and as structured content.
    Structured,
}

/// Maximum nesting depth of the structured report of a failed run, so that the composites around it
/// can pass it on within [`MAX_RESULT_DEPTH`].
const MAX_REPORT_LEVELS: usize = 80;

/// The output schema that a composite advertises, as far as its results depend on it.
#[derive(Clone, Debug, Default)]
pub(super) enum OutputSchema {
    #[default]
    None,
    /// A declared or generated schema.
    Own,
    /// The schema of the tools whose results are passed on. The results may not fit it.
    OfTools(Arc<InputSchema>),
}

/// Builds the result of a finished run of a composite that was called in this context.
pub(super) fn answer(
    compiled: &Compiled,
    mut state: Box<RunState>,
    context: &Context,
    scope: &Scope,
    advertised: &OutputSchema,
) -> CallToolResult {
    let mut limit = LimitEnd::of(compiled, &state);
    let is_traced = compiled.trace == Trace::Always
        || context.meta().get(TRACE).is_some_and(|asked| *asked == Value::Bool(true));
    // Before the results are moved, because the trace includes their `_meta`.
    let trace = |state: &RunState| {
        let steps = compiled.plan.steps();
        trace(steps, compiled.templates.of(steps), state)
    };
    let mut traced = is_traced.then(|| trace(&state));
    let mut result = match compiled.answer {
        ResultForm::Branches { success, order, report, labels } => {
            let succeeded = judge(compiled, &state, success);
            branches(compiled, &mut state, succeeded, order, report, labels)
        }
        ResultForm::Steps { report } => {
            let report = match (report, advertised) {
                (false, _) => Report::Names,
                (true, OutputSchema::None) => Report::Structured,
                // Structured content must fit the schema.
                (true, _) => Report::Meta,
            };
            if state.failed.is_some() || state.timed_out {
                limit = None;
            }
            steps(compiled, report, &mut state, scope, limit.as_ref())
        }
        ResultForm::Winner => match winner(&mut state) {
            Some(winner) => {
                // A race or fallback with a winner is complete.
                limit = None;
                winner
            }
            None => branches(compiled, &mut state, false, Order::Declared, false, Labels::Meta),
        },
    };
    if let (Some(limit), ResultForm::Branches { .. } | ResultForm::Winner) =
        (&limit, compiled.answer)
    {
        result.content.push(ContentBlock::text(limit.message()));
    }
    check(compiled, advertised, &mut result);
    let reports = !matches!(compiled.answer, ResultForm::Branches { report: false, .. });
    if traced.is_none() && reports && result.is_error == Some(true) {
        traced = Some(trace(&state));
    }
    if let Some(traced) = traced {
        result.meta.get_or_insert_default().insert(TRACE.to_owned(), traced);
    }
    if let Some(limit) = limit {
        let meta = result.meta.get_or_insert_default();
        meta.insert(LIMIT.to_owned(), limit.into_value());
    }
    result
}

/// Returns `true` if a finished run has succeeded.
fn judge(compiled: &Compiled, state: &RunState, success: Success) -> bool {
    let succeeded =
        |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(|outcome| outcome.is_success());
    if state.reached.is_some() {
        return judge_partial(compiled, state, success);
    }
    let successes = state.outcomes.iter().filter(|outcome| succeeded(outcome)).count();
    match success {
        Success::All => (state.outcomes.iter().enumerate())
            .all(|(target, outcome)| succeeded(outcome) || !compiled.requires(target)),
        Success::Any => successes >= 1,
        Success::Quorum(quorum) => successes >= quorum,
    }
}

/// Returns `true` if a run that was ended by a limit has succeeded so far.
///
/// Failures for other reasons count as usual.
fn judge_partial(compiled: &Compiled, state: &RunState, success: Success) -> bool {
    let outcomes = || state.outcomes.iter().flatten();
    let failed = |outcome: &Outcome| outcome.has_failed() && !outcome.is_refused();
    let mut targets = state.outcomes.iter().enumerate();
    let has_failed = success == Success::All
        && targets.any(|(target, outcome)| {
            compiled.requires(target) && outcome.as_ref().is_some_and(failed)
        });
    compiled.on_limit == OnLimit::Partial
        && outcomes().any(|outcome| outcome.is_success())
        && !has_failed
}

/// Takes the result of the first branch that succeeded.
fn winner(state: &mut RunState) -> Option<CallToolResult> {
    let outcomes = &mut state.outcomes;
    let won = |&&step: &&usize| outcomes[step].as_ref().is_some_and(|outcome| outcome.is_success());
    let step = *state.finished.iter().find(won)?;
    outcomes[step].as_mut()?.result.take().map(ToolResult::into_inner)
}

/// Builds the result of all branches.
fn branches(
    compiled: &Compiled,
    state: &mut RunState,
    succeeded: bool,
    order: Order,
    report: bool,
    labels: Labels,
) -> CallToolResult {
    let steps = compiled.plan.steps();
    let templates = compiled.templates.of(steps);
    let structured = report.then(|| report_of(templates, state));

    let mut content = Vec::with_capacity(steps.len());
    for place in 0..steps.len() {
        let step = match order {
            Order::Declared => place,
            Order::Completion => state.finished[place],
        };
        if let Some(outcome) = &mut state.outcomes[step] {
            let is_composite = matches!(compiled.targets[step].route, Route::Composite(_));
            let template = templates.steps[step].as_ref();
            add_content(&mut content, &steps[step], template, outcome, is_composite, labels);
        }
    }

    let mut result = CallToolResult::success(content);
    result.is_error = Some(!succeeded);
    result.structured_content = structured;
    result
}

/// Builds the result of a pipeline or workflow.
fn steps(
    compiled: &Compiled,
    report: Report,
    state: &mut RunState,
    scope: &Scope,
    limit: Option<&LimitEnd>,
) -> CallToolResult {
    match output_of_steps(compiled, state, scope, limit) {
        Ok(result) => result,
        Err(why) => failed(compiled, report, state, why),
    }
}

/// Returns the result of a pipeline or workflow, or the reason of its failure.
fn output_of_steps(
    compiled: &Compiled,
    state: &mut RunState,
    scope: &Scope,
    limit: Option<&LimitEnd>,
) -> Result<CallToolResult, String> {
    if let Some(failure) = failure(compiled, state) {
        return Err(failure);
    }
    if let Some(limit) = limit {
        let told = limit.message();
        if state.last_completed().is_none() {
            return Err(format!("{told}; no step has completed"));
        }
        if compiled.on_limit == OnLimit::Fail {
            return Err(told);
        }
    }
    // Outputs are checked and counted again: parsed texts can be nested deeper than any result, and
    // nested composites could otherwise build outputs without limit.
    let made = |output: Value| {
        if is_deeper(&output, MAX_RESULT_DEPTH) {
            return Err(format!("the output is nested deeper than {MAX_RESULT_DEPTH} levels"));
        }
        match scope.keep_given(&output) {
            Ok(()) => Ok(CallToolResult::structured(output)),
            Err(error) => Err(error.message),
        }
    };
    // An output block may use the defaults that stand in for failed steps.
    let stands_in = |(step, outcome): (&Step, &Option<Outcome>)| {
        step.default_results.is_some()
            || outcome.as_ref().is_none_or(|outcome| !outcome.has_failed())
    };
    let has_output = matches!(compiled.plan.answer, plan::RunOutput::Output(_));
    if state.last_completed().is_none()
        && let Some(failures) = failures(compiled, state)
        && !(has_output && compiled.plan.steps().iter().zip(&state.outcomes).all(stands_in))
    {
        return Err(format!("no step completed: {failures}"));
    }
    let ended = state.ended_by.map(|step| ended_text(&compiled.plan.steps()[step]));
    let ended = ended.or_else(|| limit.map(LimitEnd::message));
    let mut result = if let plan::RunOutput::Output(output) = &compiled.plan.answer {
        let output = state.evaluate(|data| output.evaluate(data));
        made(output.map_err(|failure| match &ended {
            None => failure.message,
            Some(ended) => format!("{ended}: {}", failure.message),
        })?)?
    } else {
        let last = state.last_completed().and_then(|step| state.outcomes[step].as_mut());
        let Some(last) = last else {
            return Ok(CallToolResult::success(vec![ContentBlock::text("every step was skipped")]));
        };
        // Loops and elicitations have no tool result.
        match last.result.take() {
            Some(result) => result.into_inner(),
            None => made(last.take_output().unwrap_or_default())?,
        }
    };
    result.content.extend(ended.map(ContentBlock::text));
    Ok(result)
}

/// Builds the result of a failed pipeline or workflow: the reason, then the outputs of the
/// completed steps.
fn failed(
    compiled: &Compiled,
    report: Report,
    state: &mut RunState,
    why: String,
) -> CallToolResult {
    let steps = compiled.plan.steps();
    let mut content = vec![ContentBlock::text(why)];
    let mut reported = Map::with_capacity(steps.len());
    for (place, step) in steps.iter().enumerate() {
        let preserved = match report {
            Report::Names => None,
            Report::Meta | Report::Structured => state.take_output(&compiled.plan, place),
        };
        let Some(outcome) = &state.outcomes[place] else { continue };
        let is_partial = preserved.is_some() && !outcome.is_success();
        if outcome.is_success() || is_partial {
            let text = completed_text(step, outcome, preserved.as_ref());
            let tool = tool(step, outcome).unwrap_or_default();
            let mut block = ContentBlock::text(text);
            attribute(&mut block, None, &step.id, tool);
            content.push(block);
        }
        let (output, is_truncated) = match preserved {
            Some(Preservation::Output(output)) => (Some(output), false),
            Some(Preservation::Truncated(output)) => (Some(output), true),
            Some(Preservation::TooLarge) => (None, true),
            None => (None, false),
        };
        let mut report = report_of_step(outcome, output);
        if is_truncated {
            report.insert("truncated".to_owned(), true.into());
        }
        reported.insert(step.id.to_string(), report.into());
    }
    let mut result = CallToolResult::error(content);
    let reported = Value::Object(reported);
    match report {
        _ if is_deeper(&reported, MAX_REPORT_LEVELS) => (),
        Report::Names => (),
        Report::Meta => {
            drop(result.meta.get_or_insert_default().insert(STEPS.to_owned(), reported))
        }
        Report::Structured => result.structured_content = Some(json!({ "steps": reported })),
    }
    result
}

/// Describes a completed step and its output, or the progress of a loop.
fn completed_text(step: &Step, outcome: &Outcome, output: Option<&Preservation>) -> String {
    let mut text = format!("step `{}` ", step.id);
    if let Some(tool) = tool(step, outcome) {
        // Writing to a string does not fail.
        let _ = write!(text, "(tool `{tool}`) ");
    }
    text.push_str(if outcome.is_success() { "completed" } else { "ended early; its elements" });
    let _ = match output {
        Some(Preservation::Output(Value::String(output))) => write!(text, ": {output}"),
        Some(Preservation::Output(output)) => write!(text, ": {output}"),
        Some(Preservation::Truncated(Value::String(prefix))) => {
            write!(text, ", with an output that is too large to repeat and begins with: {prefix}")
        }
        Some(Preservation::Truncated(output)) => {
            write!(text, ", without the parts that are too large to repeat: {output}")
        }
        Some(Preservation::TooLarge) => write!(text, "; the output is too large to repeat"),
        None => Ok(()),
    };
    text
}

/// Checks the structured content of a result against the output schema, unless the schema is
/// generated. A result that does not fit becomes an error and keeps its content.
fn check(compiled: &Compiled, advertised: &OutputSchema, result: &mut CallToolResult) {
    let (schema, name) = match (&compiled.output_schema, advertised) {
        (Some(declared), _) => (declared, "`output_schema`"),
        (None, OutputSchema::OfTools(schema)) => (&**schema, "output schema of its tool"),
        (None, OutputSchema::None | OutputSchema::Own) => return,
    };
    let is_error = result.is_error == Some(true);
    let why = match &result.structured_content {
        None if is_error => return,
        None => "it has no structured content".to_owned(),
        // The output of an output block always fits its schema.
        Some(_) if matches!(compiled.plan.answer, plan::RunOutput::Output(_)) => return,
        Some(content) => match schema.check(&compiled.name, content, |unusable| {
            let (tool, error) = (&compiled.name, Reason(unusable));
            tracing::warn!(%tool, %error, "results are not checked: the output schema cannot be used");
        }) {
            Ok(()) => return,
            Err(refusal) => refusal.reason(),
        },
    };
    result.structured_content = None;
    result.is_error = Some(true);
    if !is_error {
        let why = format!("the result does not fit the {name}: {why}");
        result.content.push(ContentBlock::text(why));
    }
}

/// Describes the end of a run by a user who did not accept.
fn ended_text(step: &Step) -> String {
    format!(
        "the run ended at step `{}`, which was not accepted: what had not begun was skipped",
        step.id
    )
}

/// Returns the reason why a run of steps has failed, if it has.
fn failure(compiled: &Compiled, state: &RunState) -> Option<String> {
    let plan = &compiled.plan;
    let outcome = |step: usize| state.outcomes[step].as_ref();
    if let Some(step) = state.failed {
        return Some(failure_text("step", &plan.steps()[step], outcome(step)?));
    }
    if !state.timed_out {
        return None;
    }
    let late = |&step: &usize| outcome(step).is_some_and(|it| it.status == Status::TimedOut);
    let late = (0..plan.steps().len()).filter(late);
    let late: Vec<_> = late.map(|step| format!("`{}`", plan.steps()[step].id)).collect();
    let timeout = compiled.timeout;
    let told = format!("the run took longer than its `timeout` of {timeout:?}");
    if late.is_empty() { Some(told) } else { Some(format!("{told}, in {}", late.join(", "))) }
}

/// Returns the failed steps with their causes, if any.
fn failures(compiled: &Compiled, state: &RunState) -> Option<String> {
    let outcomes = compiled.plan.steps().iter().zip(&state.outcomes);
    let mut failures: Vec<_> = outcomes
        .filter_map(|(step, outcome)| Some((step, outcome.as_ref()?)))
        .filter(|(_, outcome)| outcome.has_failed())
        .map(|(step, outcome)| failure_text("step", step, outcome))
        .collect();
    if let Some(more @ 1..) = failures.len().checked_sub(MAX_NAMED_STEPS) {
        failures.truncate(MAX_NAMED_STEPS);
        failures.push(format!("and {more} more"));
    }
    (!failures.is_empty()).then(|| failures.join("; "))
}
