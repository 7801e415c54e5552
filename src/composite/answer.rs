//! How the outcomes of a run become one result.

use std::{fmt::Write, sync::Arc};

use rmcp::model::{CallToolResult, ContentBlock, MetaObject};
use serde_json::{Map, Value};

use super::{
    compile::{Answer, Compiled},
    definition::{OnLimit, Order, Success},
    run::MAX_LEVELS,
};
use crate::{
    engine::{
        meter::Reached,
        outcome::{Outcome, Status},
        plan::{self, Action, Step},
        scope::Scope,
        state::RunState,
    },
    expr::Data,
    input_schema::InputSchema,
    message::is_deeper,
};

/// Under which key of a content block's `_meta` the name of its branch stands.
pub const BRANCH: &str = "mcp-composite/branch";
/// Under which key of a content block's `_meta` the tool of its branch stands,
/// if the branch is not named after it.
pub const TOOL: &str = "mcp-composite/tool";
/// Under which key of a result's `_meta` the trace of the run stands.
///
/// It is there with a race or fallback, a pipeline or workflow, and else if the
/// report is. It is an array, with an object for each branch or step in declared
/// order: `step`, `status`, `started_ms` (after the run) and `duration_ms`; `tool`
/// if it is not `step`, `attempts` if it is not 1, and where there is one, `error`
/// and the branch's own `_meta` as `meta`.
pub const TRACE: &str = "mcp-composite/trace";

/// Under which key of a result's `_meta` stands which limit has ended the run, if one
/// has.
///
/// It is an object: `setting`, such as `max_calls`; `limit`; `of`, if it is a limit of a
/// composite that this one was called by; `skipped`, the names of the branches, steps and
/// elements of loops (`step[3]`) that did not begin, and `refused`, of those that failed
/// because of it.
pub const LIMIT: &str = "mcp-composite/limit";

/// How many of what a limit has kept from running is named in words.
const MAX_NAMED: usize = 10;

/// Makes the result of a finished run.
pub(super) fn answer(
    compiled: &Compiled,
    mut state: Box<RunState>,
    scope: &Scope,
) -> CallToolResult {
    let mut limit = LimitEnd::of(compiled, &state);
    let (mut result, trace) = match compiled.answer {
        Answer::Branches { success, order, report } => {
            let succeeded = judge(compiled, &state, success);
            let trace = report.then(|| trace(compiled, &state));
            let result = branches(compiled, state, succeeded, order, report);
            (noted(result, limit.as_ref().map(LimitEnd::told)), trace)
        }
        Answer::Steps => {
            let trace = trace(compiled, &state);
            if state.failed.is_some() || state.timed_out {
                limit = None;
            }
            (steps(compiled, state, scope, limit.as_ref()), Some(trace))
        }
        Answer::Winner => {
            let winner = winner(&mut state);
            let trace = trace(compiled, &state);
            if winner.is_some() {
                // It is all that there was to be.
                limit = None;
            }
            let nobody = || {
                let told = limit.as_ref().map(LimitEnd::told);
                noted(branches(compiled, state, false, Order::Declared, false), told)
            };
            (winner.unwrap_or_else(nobody), Some(trace))
        }
    };
    if limit.is_some() {
        result = checked(compiled, result);
    }
    if let Some(trace) = trace {
        result.meta.get_or_insert_default().insert(TRACE.to_owned(), trace);
    }
    if let Some(limit) = limit {
        let meta = result.meta.get_or_insert_default();
        meta.insert(LIMIT.to_owned(), limit.into_value());
    }
    result
}

/// Whether a finished run has succeeded.
fn judge(compiled: &Compiled, state: &RunState, success: Success) -> bool {
    let succeeded = |outcome: &Option<Box<Outcome>>| {
        outcome.as_ref().is_some_and(|outcome| outcome.is_success())
    };
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

/// Whether a run that a limit has ended has succeeded as far as it went.
///
/// What failed without the limit fails the run as ever.
fn judge_partial(compiled: &Compiled, state: &RunState, success: Success) -> bool {
    let outcomes = || state.outcomes.iter().flatten();
    let failed = |outcome: &Outcome| outcome.has_failed() && !outcome.is_refused();
    let mut targets = state.outcomes.iter().enumerate();
    let has_failed = success == Success::All
        && targets.any(|(target, outcome)| {
            compiled.requires(target) && outcome.as_deref().is_some_and(failed)
        });
    compiled.on_limit == OnLimit::Partial
        && outcomes().any(|outcome| outcome.is_success())
        && !has_failed
}

/// Takes the result of the branch that succeeded first.
fn winner(state: &mut RunState) -> Option<CallToolResult> {
    let outcomes = &mut state.outcomes;
    let won = |&&step: &&usize| outcomes[step].as_ref().is_some_and(|outcome| outcome.is_success());
    let step = *state.finished.iter().find(won)?;
    outcomes[step].as_mut()?.result.take()
}

/// The result of all branches together.
fn branches(
    compiled: &Compiled,
    mut state: Box<RunState>,
    succeeded: bool,
    order: Order,
    report: bool,
) -> CallToolResult {
    let steps = compiled.plan.steps();
    let structured = report.then(|| report_of(steps, &mut state));

    let mut content = Vec::with_capacity(steps.len());
    for place in 0..steps.len() {
        let step = match order {
            Order::Declared => place,
            Order::Completion => state.finished[place],
        };
        if let Some(outcome) = state.outcomes[step].take() {
            add_content(&mut content, &steps[step], *outcome);
        }
    }

    let mut result = CallToolResult::success(content);
    result.is_error = Some(!succeeded);
    result.structured_content = structured;
    result
}

/// The result of a pipeline or workflow.
fn steps(
    compiled: &Compiled,
    mut state: Box<RunState>,
    scope: &Scope,
    limit: Option<&LimitEnd>,
) -> CallToolResult {
    let failed = |why: String| CallToolResult::error(vec![ContentBlock::text(why)]);
    if let Some(failure) = failure(compiled, &state) {
        return failed(failure);
    }
    if let Some(limit) = limit {
        let told = limit.told();
        if state.last_completed().is_none() {
            return failed(format!("{told}; no step has completed"));
        }
        if compiled.on_limit == OnLimit::Fail {
            return failed(told);
        }
    }
    // What is made of what steps gave is looked at once more: a text that is read can be
    // deeper than any answer, and composites within composites could make as much as
    // they like of it.
    let made = |output: Value| {
        if is_deeper(&output, MAX_LEVELS) {
            return failed(format!("the output is nested deeper than {MAX_LEVELS} levels"));
        }
        match scope.keep_given(&output) {
            Ok(()) => CallToolResult::structured(output),
            Err(error) => failed(error.message),
        }
    };
    let ended = state.ended_by.map(|step| ended_text(&compiled.plan.steps()[step]));
    let ended = ended.or_else(|| limit.map(LimitEnd::told));
    if let plan::Answer::Output(output) = &compiled.plan.answer {
        let data: Arc<dyn Data> = Arc::new(*state);
        return match (output.evaluate(&data), ended) {
            (Ok(output), ended) => noted(made(output), ended),
            (Err(failure), None) => failed(failure),
            (Err(failure), Some(ended)) => failed(format!("{ended}: {failure}")),
        };
    }
    let last = state.last_completed().and_then(|step| state.outcomes[step].take());
    let Some(mut last) = last else {
        return match failures(compiled, &state) {
            Some(failures) => failed(format!("no step completed: {failures}")),
            None => CallToolResult::success(vec![ContentBlock::text("every step was skipped")]),
        };
    };
    // What a loop gives is no result of a tool, nor what a person answered.
    let result = last.result.take();
    noted(result.unwrap_or_else(|| made(last.take_output().unwrap_or_default())), ended)
}

/// A partial result that is what the composite promises; another one is an error, and
/// keeps only what people read.
fn checked(compiled: &Compiled, mut result: CallToolResult) -> CallToolResult {
    let promised = compiled.output_schema.as_ref().filter(|_| result.is_error == Some(false));
    let Some(schema) = promised else { return result };
    let content = result.structured_content.as_ref();
    // Compiled here, since it is rare that a limit ends a run.
    if content.is_some_and(|content| InputSchema::new(schema.clone()).allows(content)) {
        return result;
    }
    result.structured_content = None;
    result.is_error = Some(true);
    let why = "what there is does not fit the `output_schema`";
    match result.content.last_mut() {
        Some(ContentBlock::Text(told)) => {
            let _ = write!(told.text, "; {why}");
        }
        _ => result.content.push(ContentBlock::text(why)),
    }
    result
}

/// How a limit has ended a run.
struct LimitEnd {
    reached: Reached,
    /// The run that was ended.
    run: Arc<str>,
    skipped: Vec<String>,
    refused: Vec<String>,
}

// === impl LimitEnd ===

impl LimitEnd {
    /// How a limit has ended this run, if one has.
    fn of(compiled: &Compiled, state: &RunState) -> Option<Self> {
        let reached = state.reached.clone()?;
        let steps = compiled.plan.steps();
        let is = |place: usize, status: Status| {
            let outcome = state.outcomes[place].as_deref();
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

    /// It in words.
    fn told(&self) -> String {
        let mut text = format!("the run ended early: {}", self.reached.told(&self.run));
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

/// Adds to a result what has to be said of it.
fn noted(mut result: CallToolResult, note: Option<String>) -> CallToolResult {
    result.content.extend(note.map(ContentBlock::text));
    result
}

/// That a person has ended the run.
fn ended_text(step: &Step) -> String {
    format!(
        "the run ended at step `{}`, which was not accepted: what had not begun was skipped",
        step.id
    )
}

/// Why a run of steps has failed, if it has.
fn failure(compiled: &Compiled, state: &RunState) -> Option<String> {
    let plan = &compiled.plan;
    let outcome = |step: usize| state.outcomes[step].as_deref();
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

/// The steps that failed, with their causes, if any has.
fn failures(compiled: &Compiled, state: &RunState) -> Option<String> {
    let outcomes = compiled.plan.steps().iter().zip(&state.outcomes);
    let mut failures: Vec<_> = outcomes
        .filter_map(|(step, outcome)| Some((step, outcome.as_deref()?)))
        .filter(|(_, outcome)| outcome.has_failed())
        .map(|(step, outcome)| failure_text("step", step, outcome))
        .collect();
    if let Some(more @ 1..) = failures.len().checked_sub(MAX_NAMED) {
        failures.truncate(MAX_NAMED);
        failures.push(format!("and {more} more"));
    }
    (!failures.is_empty()).then(|| failures.join("; "))
}

/// Adds the content of one branch; one that did not complete adds why.
fn add_content(content: &mut Vec<ContentBlock>, step: &Step, outcome: Outcome) {
    let completed = outcome.is_success();
    let tool = tool(step, &outcome).unwrap_or_default();
    if !completed {
        let text = failure_text("branch", step, &outcome);
        content.push(attributed(ContentBlock::text(text), &step.id, tool));
    }
    let blocks = outcome.result.into_iter().flat_map(|result| result.content);
    // The texts of a tool that failed are its cause, which was just told.
    let blocks = blocks.filter(|block| completed || block.as_text().is_none());
    content.extend(blocks.map(|block| attributed(block, &step.id, tool)));
}

/// The tool that a step has called, or would have.
fn tool<'p>(step: &'p Step, outcome: &Outcome) -> Option<&'p str> {
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

/// Says in a block's `_meta` whose it is.
fn attributed(mut block: ContentBlock, branch: &str, tool: &str) -> ContentBlock {
    let meta = match &mut block {
        ContentBlock::Text(text) => &mut text.meta,
        ContentBlock::Image(image) => &mut image.meta,
        ContentBlock::Audio(audio) => &mut audio.meta,
        ContentBlock::Resource(resource) => &mut resource.meta,
        ContentBlock::ResourceLink(link) => &mut link.meta,
        // A kind of content that is not known here is passed on as it is.
        _ => return block,
    };
    let meta = meta.get_or_insert_with(|| MetaObject(Map::with_capacity(2)));
    meta.insert(BRANCH.to_owned(), Value::from(branch));
    if tool == branch {
        // It may be that of a nested branch, or what a server pretends.
        meta.remove(TOOL);
    } else {
        meta.insert(TOOL.to_owned(), Value::from(tool));
    }
    block
}

/// The structured report: what became of each branch, and what it gave.
///
/// It takes the branches' structured content with it.
fn report_of(steps: &[Step], state: &mut RunState) -> Value {
    let mut branches = Map::with_capacity(steps.len());
    for (step, outcome) in steps.iter().zip(&mut state.outcomes) {
        let Some(outcome) = outcome else { continue };
        let mut branch = Map::with_capacity(2);
        branch.insert("status".to_owned(), outcome.status.name().into());
        if let Some(output) = outcome.result.as_mut().and_then(output) {
            branch.insert("output".to_owned(), output);
        }
        if let Some(error) = &outcome.error {
            branch.insert("error".to_owned(), error.to_value());
        }
        branches.insert(step.id.to_string(), branch.into());
    }
    let mut report = Map::new();
    report.insert("branches".to_owned(), branches.into());
    report.into()
}

/// What a branch gave: its structured content, or its text where it has none.
fn output(result: &mut CallToolResult) -> Option<Value> {
    if let Some(structured) = result.structured_content.take() {
        return Some(structured);
    }
    if result.is_error == Some(true) {
        // Its text is the error's message.
        return None;
    }
    let mut texts =
        result.content.iter().filter_map(ContentBlock::as_text).map(|text| text.text.as_str());
    let mut output = texts.next()?.to_owned();
    for text in texts {
        output.push('\n');
        output.push_str(text);
    }
    Some(output.into())
}

/// What was run, when, and how it ended; no arguments and no outputs.
fn trace(compiled: &Compiled, state: &RunState) -> Value {
    let steps = compiled.plan.steps().iter().zip(&state.outcomes);
    steps
        .filter_map(|(step, outcome)| {
            let outcome = outcome.as_ref()?;
            let mut entry = Map::with_capacity(4);
            entry.insert("step".to_owned(), Value::from(&*step.id));
            if let Some(tool) = tool(step, outcome).filter(|tool| **tool != *step.id) {
                entry.insert("tool".to_owned(), tool.into());
            }
            entry.insert("status".to_owned(), outcome.status.name().into());
            if outcome.attempts != 1 {
                entry.insert("attempts".to_owned(), outcome.attempts.into());
            }
            entry.insert("started_ms".to_owned(), outcome.started_ms.into());
            entry.insert("duration_ms".to_owned(), outcome.duration_ms.into());
            if let Some(error) = &outcome.error {
                entry.insert("error".to_owned(), error.to_value());
            }
            if let Some(meta) = outcome.result.as_ref().and_then(|result| result.meta.as_ref()) {
                entry.insert("meta".to_owned(), Value::Object(meta.0.clone()));
            }
            Some(Value::Object(entry))
        })
        .collect()
}
