//! Converts the outcomes of a run to one result.

use std::{
    fmt::Write,
    sync::{Arc, OnceLock},
};

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value, json};

use super::{
    compile::{Compiled, ResultForm, Route},
    definition::{Labels, OnLimit, Order, Success, Trace},
    target_call::MAX_LEVELS,
};
use crate::{
    engine::{
        meter::Reached,
        outcome::{Outcome, Status},
        plan::{self, Action, Step},
        preserved_outputs::Preservation,
        scope::Scope,
        state::RunState,
        step_output::{self, output_text},
    },
    message::{
        Context, ToolResult,
        branch::{BRANCH, LABEL, TOOL, is_label},
        is_deeper,
    },
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

/// Maximum number of names in a text about refused or skipped calls.
const MAX_NAMED: usize = 10;

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
/// can pass it on within [`MAX_LEVELS`].
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

/// The parts that are equal in all results of a composite, created with the first result.
///
/// Cloning a map is faster than filling it, which allocates and places each key.
#[derive(Debug, Default)]
pub(super) struct Templates(OnceLock<Box<Cached>>);

#[derive(Debug)]
struct Cached {
    /// An entry for each step; `Some` for steps that call a single tool.
    steps: Vec<Option<Template>>,
    /// The `branches` of a report in which all branches have completed with the output null.
    branches: Map<String, Value>,
    /// For each member of `branches`, the index of its step.
    order: Vec<usize>,
}

#[derive(Debug)]
struct Template {
    /// The `_meta` of content without `_meta`, with the branch and its tool.
    attribution: MetaObject,
    /// The trace entry of a completed branch.
    trace: Map<String, Value>,
}

// === impl Templates ===

impl Templates {
    fn of(compiled: &Compiled) -> &Cached {
        compiled.templates.0.get_or_init(|| Box::new(Cached::new(compiled.plan.steps())))
    }
}

// === impl Cached ===

impl Cached {
    fn new(steps: &[Step]) -> Self {
        let completed = || {
            let mut branch = Map::with_capacity(2);
            branch.insert("status".to_owned(), Status::Completed.name().into());
            branch.insert("output".to_owned(), Value::Null);
            Value::Object(branch)
        };
        let branches: Map<_, _> =
            steps.iter().map(|step| (step.id.to_string(), completed())).collect();
        let place = |id: &String| steps.iter().position(|step| *step.id == **id);
        let order = branches.keys().filter_map(place).collect();
        Self { steps: steps.iter().map(Template::of).collect(), branches, order }
    }
}

// === impl Template ===

impl Template {
    fn of(step: &Step) -> Option<Self> {
        let Action::Call(call) = &step.action else { return None };
        let mut attribution = MetaObject(Map::with_capacity(2));
        write_branch(&mut attribution, &step.id, &call.tool);
        Some(Self { attribution, trace: trace_of(step, Some(&call.tool), Status::Completed) })
    }
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
    let mut traced = is_traced.then(|| trace(compiled, &state));
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
        traced = Some(trace(compiled, &state));
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
    let templates = Templates::of(compiled);
    let structured = report.then(|| report_of(templates, state));

    let mut content = Vec::with_capacity(steps.len());
    for place in 0..steps.len() {
        let step = match order {
            Order::Declared => place,
            Order::Completion => state.finished[place],
        };
        if let Some(outcome) = &mut state.outcomes[step] {
            let route = compiled.targets[step].route;
            let template = templates.steps[step].as_ref();
            add_content(&mut content, &steps[step], template, outcome, route, labels);
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
        if is_deeper(&output, MAX_LEVELS) {
            return Err(format!("the output is nested deeper than {MAX_LEVELS} levels"));
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
        let output = state.lend(|data| output.evaluate(data));
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

/// The end of a run by a limit.
struct LimitEnd {
    reached: Reached,
    /// The name of the run that was ended.
    run: Arc<str>,
    skipped: Vec<String>,
    refused: Vec<String>,
}

// === impl LimitEnd ===

impl LimitEnd {
    /// Returns the limit that ended this run, if any.
    fn of(compiled: &Compiled, state: &RunState) -> Option<Self> {
        let reached = state.reached.clone()?;
        let steps = compiled.plan.steps();
        let is = |place: usize, status: Status| {
            let outcome = state.outcomes[place].as_ref();
            outcome.is_some_and(|outcome| outcome.status == status && outcome.is_refused())
        };
        let all = |status: Status| {
            let places = (0..steps.len()).filter(move |&place| is(place, status));
            places.map(|place| steps[place].id.to_string())
        };
        let elements = state.skipped_elements.iter();
        let elements = elements.map(|id| format!("{}[{}]", steps[id.step].id, id.element));
        Some(Self {
            reached,
            run: compiled.name.clone(),
            skipped: elements.chain(all(Status::Skipped)).collect(),
            refused: all(Status::Failed).collect(),
        })
    }

    /// Describes the limit and the affected steps.
    fn message(&self) -> String {
        let mut text = format!("the run ended early: {}", self.reached.message(&self.run));
        for (what, names) in [("refused", &self.refused), ("skipped", &self.skipped)] {
            if names.is_empty() {
                continue;
            }
            let named: Vec<_> =
                names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
            let _ = write!(text, "; {what}: {}", named.join(", "));
            if let Some(more @ 1..) = names.len().checked_sub(MAX_NAMED) {
                let _ = write!(text, " and {more} more");
            }
        }
        text
    }

    fn into_value(self) -> Value {
        let Reached { setting, limit, of } = self.reached;
        let mut value = Map::with_capacity(5);
        value.insert("setting".to_owned(), setting.name().into());
        value.insert("limit".to_owned(), limit.into());
        if of != self.run {
            value.insert("of".to_owned(), Value::from(&*of));
        }
        value.insert("skipped".to_owned(), self.skipped.into());
        if !self.refused.is_empty() {
            value.insert("refused".to_owned(), self.refused.into());
        }
        value.into()
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
    if let Some(more @ 1..) = failures.len().checked_sub(MAX_NAMED) {
        failures.truncate(MAX_NAMED);
        failures.push(format!("and {more} more"));
    }
    (!failures.is_empty()).then(|| failures.join("; "))
}

/// Moves the content of one branch to `content`, below its label. Adds the reason if the branch did
/// not complete.
fn add_content(
    content: &mut Vec<ContentBlock>,
    step: &Step,
    template: Option<&Template>,
    outcome: &mut Outcome,
    route: Route,
    labels: Labels,
) {
    let completed = outcome.is_success();
    let tool = tool(step, outcome).unwrap_or_default();
    if !completed {
        let mut failure = ContentBlock::text(failure_text("branch", step, outcome));
        attribute(&mut failure, None, &step.id, tool);
        content.push(failure);
    }
    let Some(result) = &mut outcome.result else { return };
    let blocks = &mut result.content;
    if !completed {
        // The text of a failed tool is already in the error above.
        blocks.retain(|block| block.as_text().is_none());
    }
    // Only labels of nested composites are trusted; a server could forge them.
    let is_composite = matches!(route, Route::Composite(_));
    let has_labels = completed && labels == Labels::Text;
    if has_labels && blocks.first().is_some_and(|first| !(is_composite && is_label(first))) {
        let mut label = label(&step.id, tool);
        attribute(&mut label, template, &step.id, tool);
        mark(&mut label);
        content.push(label);
    }
    // Edited in place because blocks are large.
    for block in blocks.iter_mut() {
        let is_label = is_composite && is_label(block);
        if let ContentBlock::Text(text) = block
            && is_label
            && has_labels
        {
            text.text = format!("{}/{}", step.id, text.text);
        }
        attribute(block, template, &step.id, tool);
        if is_label {
            mark(block);
        }
    }
    content.append(blocks);
}

/// Returns the label of a branch, which names its tool if the branch is not named after it.
fn label(branch: &str, tool: &str) -> ContentBlock {
    ContentBlock::text(match tool == branch {
        true => format!("{branch}:"),
        false => format!("{branch} (tool `{tool}`):"),
    })
}

/// Marks a text as the label of a branch.
fn mark(block: &mut ContentBlock) {
    if let ContentBlock::Text(text) = block {
        let meta = text.meta.get_or_insert_with(|| MetaObject(Map::with_capacity(1)));
        meta.insert(LABEL.to_owned(), true.into());
    }
}

/// Returns the tool that a step has called or would have called.
fn tool<'p>(step: &'p Step, outcome: &Outcome) -> Option<&'p str> {
    if let Action::Call(call) = &step.action {
        return Some(&call.tool);
    }
    let mut sites = step.action.sites();
    let site = match outcome.site {
        Some(site) => sites.find(|call| call.site == site),
        None => sites.next().filter(|_| !matches!(step.action, Action::Switch(_))),
    };
    site.map(|call| &*call.tool)
}

fn failure_text(what: &str, step: &Step, outcome: &Outcome) -> String {
    let mut text = format!("{what} `{}` ", step.id);
    if let Some(tool) = tool(step, outcome) {
        // Writing to a string does not fail.
        let _ = write!(text, "(tool `{tool}`) ");
    }
    text.push_str(match outcome.status {
        Status::TimedOut => "timed out",
        Status::Skipped if outcome.error.is_some() => "was skipped",
        Status::Skipped => "was skipped: the run had ended",
        Status::Cancelled => "was cancelled",
        Status::Completed | Status::Failed => "failed",
    });
    if let Some(error) = &outcome.error {
        let _ = write!(text, ": {}", error.message);
    }
    text
}

/// Writes the branch and its tool to the `_meta` of a block.
fn attribute(block: &mut ContentBlock, template: Option<&Template>, branch: &str, tool: &str) {
    let meta = match block {
        ContentBlock::Text(text) => &mut text.meta,
        ContentBlock::Image(image) => &mut image.meta,
        ContentBlock::Audio(audio) => &mut audio.meta,
        ContentBlock::Resource(resource) => &mut resource.meta,
        ContentBlock::ResourceLink(link) => &mut link.meta,
        // Unknown kinds of content are passed on unchanged.
        _ => return,
    };
    match (meta, template) {
        (meta @ None, Some(template)) => *meta = Some(template.attribution.clone()),
        (meta, _) => {
            let meta = meta.get_or_insert_with(|| MetaObject(Map::with_capacity(2)));
            write_branch(meta, branch, tool);
        }
    }
}

fn write_branch(meta: &mut MetaObject, branch: &str, tool: &str) {
    meta.insert(BRANCH.to_owned(), Value::from(branch));
    meta.remove(LABEL);
    if tool == branch {
        // It may be set by a nested branch or forged by a server.
        meta.remove(TOOL);
    } else {
        meta.insert(TOOL.to_owned(), Value::from(tool));
    }
}

/// Builds the structured report: the status and output of each branch.
///
/// Moves the branches' structured content into it.
fn report_of(templates: &Cached, state: &mut RunState) -> Value {
    let mut branches = templates.branches.clone();
    let mut is_complete = true;
    for (branch, &step) in branches.values_mut().zip(&templates.order) {
        let Some(outcome) = &mut state.outcomes[step] else {
            is_complete = false;
            continue;
        };
        let output = outcome.result.as_mut().and_then(|result| output(result));
        let place = match branch {
            Value::Object(branch) if outcome.is_success() => {
                branch.values_mut().find(|value| value.is_null())
            }
            _ => None,
        };
        match (place, output) {
            (Some(place), Some(output)) => *place = output,
            (_, output) => *branch = report_of_step(outcome, output).into(),
        }
    }
    if !is_complete {
        let mut steps = templates.order.iter();
        branches.retain(|_, _| steps.next().is_some_and(|&step| state.outcomes[step].is_some()));
    }
    let mut report = Map::with_capacity(1);
    report.insert("branches".to_owned(), branches.into());
    report.into()
}

/// Returns the report of one branch or step.
fn report_of_step(outcome: &Outcome, output: Option<Value>) -> Map<String, Value> {
    let mut report = Map::with_capacity(2);
    report.insert("status".to_owned(), outcome.status.name().into());
    if let Some(output) = output {
        report.insert("output".to_owned(), output);
    }
    if let Some(error) = &outcome.error {
        report.insert("error".to_owned(), error.to_value());
    }
    report
}

/// Takes the output of a branch: its structured content, or else its text.
fn output(result: &mut CallToolResult) -> Option<Value> {
    if let Some(structured) = result.structured_content.take() {
        return Some(structured);
    }
    if result.is_error == Some(true) {
        // The text is already the message of the error.
        return None;
    }
    output_text(result).map(Value::from)
}

/// Builds the trace: steps, times and outcomes, without arguments and outputs.
fn trace(compiled: &Compiled, state: &RunState) -> Value {
    let templates = Templates::of(compiled);
    let steps = compiled.plan.steps().iter().zip(&state.outcomes).zip(&templates.steps);
    steps
        .filter_map(|((step, outcome), template)| {
            let outcome = outcome.as_ref()?;
            let mut entry = match template {
                Some(template) if outcome.status == Status::Completed => template.trace.clone(),
                _ => trace_of(step, tool(step, outcome), outcome.status),
            };
            let times = [("started_ms", outcome.started_ms), ("duration_ms", outcome.duration_ms)];
            for (key, time) in times.into_iter().filter(|(_, time)| *time > 0) {
                entry.insert(key.to_owned(), time.into());
            }
            if outcome.attempts != 1 {
                entry.insert("attempts".to_owned(), outcome.attempts.into());
            }
            if let Some(error) = &outcome.error {
                entry.insert("error".to_owned(), error.without_details().to_value());
            }
            if let Some(meta) = outcome.result.as_ref().and_then(|result| result.meta.as_ref()) {
                entry.insert("meta".to_owned(), Value::Object(meta.0.clone()));
            }
            Some(Value::Object(entry))
        })
        .collect()
}

/// Returns the trace entry of a step that was called once and took no time.
fn trace_of(step: &Step, tool: Option<&str>, status: Status) -> Map<String, Value> {
    let mut entry = Map::with_capacity(4);
    entry.insert("step".to_owned(), Value::from(&*step.id));
    if let Some(tool) = tool.filter(|tool| **tool != *step.id) {
        entry.insert("tool".to_owned(), tool.into());
    }
    entry.insert("status".to_owned(), status.name().into());
    entry.insert("started_ms".to_owned(), 0.into());
    entry.insert("duration_ms".to_owned(), 0.into());
    entry
}
