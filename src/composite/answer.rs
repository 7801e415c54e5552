//! Builds the tool result of a composite from the outcomes of its branches or steps.

use std::{fmt::Write, sync::Arc};

use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Map, Value, json};

use super::{
    compile::{Compiled, ResultForm, Route},
    definition::{OnLimit, Trace},
    limit_end::{LimitEnd, MAX_NAMED_STEPS},
    report::{add_content, attribute, failure_text, report_of, report_of_step, tool, trace},
    strategy::{BranchOrder, Labels, Success},
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

/// The `_meta` key for the trace of a composite's run, for debugging. The trace lists the times and
/// the outcome of each tool call or step. To request the trace, a client sets this key to `true` in
/// the `_meta` of its `tools/call` request. The `_meta` of the result then contains the trace under
/// the same key.
///
/// A result also contains the trace without a request if the run failed, or if the composite has
/// [`Trace::Always`]. The exception is a failed fan-out whose [`report`](super::FanOut::report) is
/// disabled: its result contains the trace only on request.
///
/// The trace is a JSON array with an object for each target of a fan-out, race or fallback, or for
/// each step of a pipeline or workflow, in the order of their declaration. The members of the
/// object are:
/// - `step` and `status`: the id of the target or step, and its final status, such as `completed`
/// - `started_ms` and `duration_ms`: the start and the duration in milliseconds, where the start is
///   relative to the start of the run
/// - `tool`: the name of the called tool, if it differs from `step`
/// - `attempts`: the number of calls, if it is not 1
/// - `error`: the error, if there is one
/// - `meta`: the `_meta` that the tool returned, if any
pub const TRACE: &str = "mcp-composite/trace";

/// The `_meta` key for information about the limit that ended the run of a composite early, such as
/// [`max_calls`](super::CompositeTool::max_calls). The `_meta` of a composite's result contains
/// this key only if a limit has ended the run.
///
/// The value of the key `mcp-composite/limit` in a result is an object with these members:
/// - `setting`: the name of the limit, for example `max_calls`
/// - `limit`: the value of the limit, for example `100`
/// - `of`: the name of the outer composite that defines the limit; missing if this composite
///   defines the limit itself
/// - `skipped`: the names of the targets, steps and loop elements (`step[3]`) that did not start
/// - `refused`: the names of the targets and steps that failed because of the limit, if any
pub const LIMIT: &str = "mcp-composite/limit";

/// The `_meta` key for the reports about the steps of a failed pipeline or workflow. The key is
/// used only if the composite advertises an output schema, because the reports do not match this
/// schema. Otherwise, the reports are in the member `steps` of the structured content.
///
/// The value of the key `mcp-composite/steps` is an object with one member for each step of the
/// composite. The member's name is the id of the step. The member's value is a report: an object
/// with the step's `status` and, if present, its `output` and `error`.
///
/// If the output of a step is too large, its report contains only the beginning of the output, as
/// text, and the member `truncated` is `true`. In the output of a loop, members such as `item` are
/// removed first. If no part of the output fits, the report has no `output`.
pub const STEPS: &str = step_output::STEPS;

/// Determines which data about completed steps the result of a failed pipeline or workflow
/// contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Report {
    /// Only the ids of the completed steps, without their outputs. Used if the definition sets
    /// `report` to `false`.
    Names,
    /// The ids and outputs of the completed steps, as content blocks and in `_meta`. Used if the
    /// composite advertises an output schema, because the schema describes only successful results.
    Meta,
    /// The ids and outputs of the completed steps, as content blocks and in the structured content.
    /// Used if the composite advertises no output schema.
    Structured,
}

/// The maximum nesting depth of the structured report of a failed run. A deeper report is omitted.
/// The limit is lower than [`MAX_RESULT_DEPTH`], because outer composites nest the report in their
/// own results.
const MAX_REPORT_LEVELS: usize = 80;

/// The origin of the output schema that a composite advertises to clients.
#[derive(Clone, Debug, Default)]
pub(super) enum OutputSchema {
    #[default]
    None,
    /// The schema is declared in the definition or generated from it, for example from the output
    /// block.
    Own,
    /// The schema was copied from the called tools, because the composite returns their results
    /// unchanged. Results are checked against it, since a tool may violate its own schema.
    OfTools(Arc<InputSchema>),
}

/// Builds the tool result of a finished run. The `_meta` of the result may contain the [`TRACE`] of
/// the run.
pub(super) fn answer(
    compiled: &Compiled,
    mut state: Box<RunState>,
    context: &Context,
    scope: &Scope,
    advertised: &OutputSchema,
) -> CallToolResult {
    let is_stopped = state.ended_by.is_some_and(|step| compiled.plan.is_stop(step));
    let mut limit = LimitEnd::of(compiled, &state);
    let is_traced = compiled.definition.trace == Trace::Always
        || context.meta().get(TRACE).is_some_and(|value| *value == Value::Bool(true));
    // The trace is built before the results are moved into the answer, because it includes their
    // `_meta`.
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
                // The output schema describes successful results, so a structured report would not
                // match it.
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
            None => {
                branches(compiled, &mut state, false, BranchOrder::Declared, false, Labels::Meta)
            }
        },
    };
    if let (Some(limit), ResultForm::Branches { .. } | ResultForm::Winner) =
        (&limit, compiled.answer)
    {
        result.content.push(ContentBlock::text(limit.message()));
    }
    check(compiled, advertised, is_stopped, &mut result);
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

/// Returns `true` if a finished fan-out has succeeded. The rule `success` may require all targets,
/// one target or a quorum.
fn judge(compiled: &Compiled, state: &RunState, success: Success) -> bool {
    let succeeded =
        |outcome: &Option<Outcome>| outcome.as_ref().is_some_and(|outcome| outcome.is_success());
    if state.reached.is_some() {
        return judge_partial(compiled, state, success);
    }
    let successes = state.outcomes.iter().filter(|outcome| succeeded(outcome)).count();
    match success {
        Success::All => {
            let mut targets = state.outcomes.iter().enumerate();
            successes >= 1
                && targets.all(|(target, outcome)| succeeded(outcome) || !compiled.requires(target))
        }
        Success::Any => successes >= 1,
        Success::Quorum(quorum) => successes >= quorum,
    }
}

/// Returns `true` if a fan-out that a limit ended early counts as a success. For this, the
/// definition must set [`OnLimit::Partial`], and at least one target must have succeeded.
///
/// With [`Success::All`], the fan-out still fails if a required target has failed for another
/// reason than the limit.
fn judge_partial(compiled: &Compiled, state: &RunState, success: Success) -> bool {
    let outcomes = || state.outcomes.iter().flatten();
    let failed = |outcome: &Outcome| outcome.has_failed() && !outcome.is_refused();
    let mut targets = state.outcomes.iter().enumerate();
    let has_failed = success == Success::All
        && targets.any(|(target, outcome)| {
            compiled.requires(target) && outcome.as_ref().is_some_and(failed)
        });
    compiled.definition.on_limit == OnLimit::Partial
        && outcomes().any(|outcome| outcome.is_success())
        && !has_failed
}

/// Removes the result of the first successful branch from `state`, and returns it as the result of
/// a race or fallback. Returns `None` if no branch succeeded.
fn winner(state: &mut RunState) -> Option<CallToolResult> {
    let outcomes = &mut state.outcomes;
    let won = |&&step: &&usize| outcomes[step].as_ref().is_some_and(|outcome| outcome.is_success());
    let step = *state.finished.iter().find(won)?;
    outcomes[step].as_mut()?.result.take().map(ToolResult::into_inner)
}

/// Builds the result of a fan-out, which contains the content of all branches. If `report` is
/// `true`, the structured content of the result describes the outcome of each branch.
fn branches(
    compiled: &Compiled,
    state: &mut RunState,
    succeeded: bool,
    order: BranchOrder,
    report: bool,
    labels: Labels,
) -> CallToolResult {
    let steps = compiled.plan.steps();
    let templates = compiled.templates.of(steps);
    let structured = report.then(|| report_of(templates, state));

    let mut content = Vec::with_capacity(steps.len());
    for place in 0..steps.len() {
        let step = match order {
            BranchOrder::Declared => place,
            BranchOrder::Completion => state.finished[place],
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

/// Builds the result of a pipeline or workflow. If the run failed, `report` determines what the
/// result contains about the completed steps.
fn steps(
    compiled: &Compiled,
    report: Report,
    state: &mut RunState,
    scope: &Scope,
    limit: Option<&LimitEnd>,
) -> CallToolResult {
    let result =
        stopped(compiled, state).unwrap_or_else(|| output_of_steps(compiled, state, scope, limit));
    let mut result = result.unwrap_or_else(|why| failed(compiled, report, state, why));
    if compiled.plan.grace().is_some() {
        result.content.extend(failed_steps(compiled, state, true).map(ContentBlock::text));
    }
    result
}

/// Returns a text for each failed finally step if `is_final` is `true`, and for each other failed
/// step if it is `false`. The failure of a finally step does not change the outcome of the run.
fn failed_steps(
    compiled: &Compiled,
    state: &RunState,
    is_final: bool,
) -> impl Iterator<Item = String> {
    let what = if is_final { "finally step" } else { "step" };
    let outcomes = compiled.plan.steps().iter().zip(&state.outcomes);
    outcomes
        .filter_map(|(step, outcome)| Some((step, outcome.as_ref()?)))
        .filter(move |(step, outcome)| step.is_final() == is_final && outcome.has_failed())
        .map(move |(step, outcome)| failure_text(what, step, outcome))
}

/// Returns the result of the run if a [stop](plan::Action::Stop) step ended it. If the stop step
/// fails the run, returns its error message instead. Returns `None` if no stop step ended the run.
fn stopped(compiled: &Compiled, state: &mut RunState) -> Option<Result<CallToolResult, String>> {
    let step = state.ended_by.filter(|&step| compiled.plan.is_stop(step))?;
    let result = state.outcomes[step].as_mut()?.result.take()?.into_inner();
    Some(match &result.structured_content {
        Some(output) if is_deeper(output, MAX_RESULT_DEPTH) => Err(too_deep()),
        _ if result.is_error == Some(true) => {
            Err(step_output::output_text(&result).unwrap_or_default())
        }
        _ => Ok(result),
    })
}

fn too_deep() -> String {
    format!("the output is nested deeper than {MAX_RESULT_DEPTH} levels")
}

/// Returns the result of a pipeline or workflow that no stop step ended. If the run failed, returns
/// the reason as an error message.
fn output_of_steps(
    compiled: &Compiled,
    state: &mut RunState,
    scope: &Scope,
    limit: Option<&LimitEnd>,
) -> Result<CallToolResult, String> {
    if let Some(failure) = failure(compiled, state) {
        return Err(failure);
    }
    let last = state.last_completed(&compiled.plan);
    if let Some(limit) = limit {
        let message = limit.message();
        if last.is_none() {
            return Err(format!("{message}; no step has completed"));
        }
        if compiled.definition.on_limit == OnLimit::Fail {
            return Err(message);
        }
    }
    // A computed output is checked and counted like a tool result. Values parsed from texts can be
    // nested deeper than any tool result, and nested composites could otherwise build ever larger
    // outputs.
    let made = |output: Value| {
        if is_deeper(&output, MAX_RESULT_DEPTH) {
            return Err(too_deep());
        }
        match scope.keep_given(&output) {
            Ok(()) => Ok(step_output::result_of(output)),
            Err(error) => Err(error.message),
        }
    };
    // An output block may use the default results of failed steps.
    let stands_in = |(step, outcome): (&Step, &Option<Outcome>)| {
        step.is_final()
            || step.default_results.is_some()
            || outcome.as_ref().is_none_or(|outcome| !outcome.has_failed())
    };
    let has_output = matches!(compiled.plan.answer, plan::RunOutput::Output(_));
    if last.is_none()
        && let Some(failures) = failures(compiled, state)
        && !(has_output && compiled.plan.steps().iter().zip(&state.outcomes).all(stands_in))
    {
        return Err(format!("no step completed: {failures}"));
    }
    let ended = state.ended_by.map(|step| ended_text(&compiled.plan.steps()[step]));
    let ended = ended.or_else(|| limit.map(LimitEnd::message));
    let mut result = if let plan::RunOutput::Output(output) = &compiled.plan.answer {
        let evaluated = state.evaluate(|data| output.evaluate(data));
        let mut result = made(evaluated.map_err(|failure| match &ended {
            None => failure.message,
            Some(ended) => format!("{ended}: {}", failure.message),
        })?)?;
        if !output.content.is_empty() {
            for block in output.blocks(state) {
                scope.keep_given(&block).map_err(|error| error.message)?;
                result.content.extend(serde_json::from_value::<ContentBlock>(block).ok());
            }
        }
        result
    } else {
        let Some(last) = last.and_then(|step| state.outcomes[step].as_mut()) else {
            return Ok(CallToolResult::success(vec![ContentBlock::text("every step was skipped")]));
        };
        // A step that makes several calls, such as a loop, has an output but no tool result.
        match last.result.take() {
            Some(result) => result.into_inner(),
            None => made(last.take_output().unwrap_or_default())?,
        }
    };
    result.content.extend(ended.map(ContentBlock::text));
    Ok(result)
}

/// Builds the result of a failed pipeline or workflow. Its content starts with the reason of the
/// failure, followed by the outputs of the completed steps.
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

/// Returns a text that describes a completed step and its output, for the result of a failed run.
/// For a loop that ended early, the text contains only the finished elements.
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

/// Checks the structured content of a result against the output schema that the composite
/// advertises. If a successful result has no matching structured content, the result becomes an
/// error. Content that does not match is removed, and a text explains why.
///
/// An output block builds content that always matches its generated schema, so this content is not
/// checked. The exception is a run that a stop step ended (`is_stopped`): the stop step supplies
/// the content instead, so the content is checked.
fn check(
    compiled: &Compiled,
    advertised: &OutputSchema,
    is_stopped: bool,
    result: &mut CallToolResult,
) {
    let has_block = matches!(compiled.plan.answer, plan::RunOutput::Output(_));
    let (schema, name) = match (&compiled.output_schema, advertised) {
        (Some(block), _) if has_block => (block, "schema of the `output` block"),
        (Some(declared), _) => (declared, "`output_schema`"),
        (None, OutputSchema::OfTools(schema)) => (&**schema, "output schema of its tool"),
        (None, OutputSchema::None | OutputSchema::Own) => return,
    };
    let is_error = result.is_error == Some(true);
    let why = match &result.structured_content {
        None if is_error => return,
        None => "it has no structured content".to_owned(),
        Some(_) if has_block && !is_stopped => return,
        Some(content) => match schema.check(&compiled.name, content, |unusable| {
            let (tool, error) = (&compiled.name, Reason(unusable));
            tracing::warn!(%tool, %error, "results are not validated: the output schema is invalid");
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

/// Returns the text that explains why a run ended early: the user declined or dismissed the
/// question of the elicitation step `step`.
fn ended_text(step: &Step) -> String {
    format!(
        "the run ended at step `{}`, which was not accepted: the remaining steps were skipped",
        step.id
    )
}

/// Returns the reason why a pipeline or workflow failed, or `None` if it did not fail.
fn failure(compiled: &Compiled, state: &RunState) -> Option<String> {
    let plan = &compiled.plan;
    let outcome = |step: usize| state.outcomes[step].as_ref();
    if let Some(step) = state.failed {
        return Some(failure_text("step", &plan.steps()[step], outcome(step)?));
    }
    if !state.timed_out {
        return None;
    }
    let late = |&step: &usize| {
        !plan.is_final(step) && outcome(step).is_some_and(|it| it.status == Status::TimedOut)
    };
    let late = (0..plan.steps().len()).filter(late);
    let late: Vec<_> = late.map(|step| format!("`{}`", plan.steps()[step].id)).collect();
    let timeout = compiled.definition.timeout;
    let message = format!("the run took longer than its `timeout` of {timeout:?}");
    if late.is_empty() { Some(message) } else { Some(format!("{message}, in {}", late.join(", "))) }
}

/// Lists the failed steps with the causes of their failures. Returns `None` if no step failed.
fn failures(compiled: &Compiled, state: &RunState) -> Option<String> {
    let mut failures: Vec<_> = failed_steps(compiled, state, false).collect();
    if let Some(more @ 1..) = failures.len().checked_sub(MAX_NAMED_STEPS) {
        failures.truncate(MAX_NAMED_STEPS);
        failures.push(format!("and {more} more"));
    }
    (!failures.is_empty()).then(|| failures.join("; "))
}
