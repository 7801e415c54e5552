//! Builds the parts of a composite's result: the content, the structured report, and the trace.

use std::{fmt::Write, sync::OnceLock};

use rmcp::model::{ContentBlock, MetaObject};
use serde_json::{Map, Value};

use super::strategy::Labels;
use crate::{
    engine::{
        outcome::{Outcome, Status},
        plan::Step,
        state::RunState,
        step_output::output_text,
    },
    message::{
        ToolResult,
        branch::{BRANCH, LABEL, TOOL, is_label},
    },
};

/// Precomputed parts of the results of a composite, such as the `_meta` that names a step. They are
/// created for the first result.
///
/// Each result clones these parts, because cloning a map is faster than filling a new one.
#[derive(Debug, Default)]
pub(super) struct Templates(OnceLock<Box<Cached>>);

#[derive(Debug)]
pub(super) struct Cached {
    /// The template of each step that makes exactly one tool call. `None` for all other steps, such
    /// as loops, switches and questions.
    pub(super) steps: Vec<Option<Template>>,
    /// The member `branches` of the report of a fan-out, before the results of a run are filled in.
    /// Each branch has the status `completed` and the output null.
    branches: Map<String, Value>,
    /// For each member of `branches`, the index of its step.
    order: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct Template {
    /// The `_meta` object that names the branch and its tool. Each content block without `_meta`
    /// receives a clone.
    attribution: MetaObject,
    /// The text block that precedes the content of the branch and names the branch.
    label: ContentBlock,
    /// The trace entry of the step if it completes. Each run clones it.
    trace: Map<String, Value>,
}

// === impl Templates ===

impl Templates {
    /// Returns the precomputed parts for `steps`, which are all steps of the composite. Creates
    /// them on the first call.
    pub(super) fn of(&self, steps: &[Step]) -> &Cached {
        self.0.get_or_init(|| Box::new(Cached::new(steps)))
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
        let call = step.action.as_call()?;
        let mut attribution = MetaObject(Map::with_capacity(2));
        write_branch(&mut attribution, &step.id, &call.tool);
        Some(Self {
            attribution,
            label: label(&step.id, &call.tool),
            trace: trace_of(step, Some(&call.tool), Status::Completed),
        })
    }
}

/// Appends the content of one branch to `content`. If the branch did not complete, an error text
/// replaces the texts of its result. If `labels` is [`Labels::Text`], a text block with the name of
/// the branch precedes the content of a completed branch.
pub(super) fn add_content(
    content: &mut Vec<ContentBlock>,
    step: &Step,
    template: Option<&Template>,
    outcome: &mut Outcome,
    is_composite: bool,
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
        // The error text above already contains the texts of a failed tool.
        blocks.retain(|block| block.as_text().is_none());
    }
    // Labels are trusted only in the results of nested composites, because a server could forge
    // them.
    let has_labels = completed && labels == Labels::Text;
    if has_labels && blocks.first().is_some_and(|first| !(is_composite && is_label(first))) {
        content.push(match template {
            Some(template) => template.label.clone(),
            None => label(&step.id, tool),
        });
    }
    // The blocks are edited in place, because they are large.
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

/// Returns a text block with the name of a branch and, if it is different, the name of its tool.
/// The block precedes the content of the branch.
fn label(branch: &str, tool: &str) -> ContentBlock {
    let mut label = ContentBlock::text(match tool == branch {
        true => format!("{branch}:"),
        false => format!("{branch} (tool `{tool}`):"),
    });
    attribute(&mut label, None, branch, tool);
    mark(&mut label);
    label
}

/// Marks a text block as the label of a branch, by setting a key in its `_meta`.
fn mark(block: &mut ContentBlock) {
    if let ContentBlock::Text(text) = block {
        let meta = text.meta.get_or_insert_with(|| MetaObject(Map::with_capacity(1)));
        meta.insert(LABEL.to_owned(), true.into());
    }
}

/// Returns the name of the tool that a step has called. If the step was skipped, returns the tool
/// that it would have called. Returns `None` if the step calls no tool, or if it is a switch that
/// has selected no case.
pub(super) fn tool<'p>(step: &'p Step, outcome: &Outcome) -> Option<&'p str> {
    if let Some(call) = step.action.as_call() {
        return Some(&call.tool);
    }
    let mut sites = step.action.sites();
    let site = match outcome.site {
        Some(site) => sites.find(|call| call.site == site),
        None => sites.next().filter(|_| step.action.as_switch().is_none()),
    };
    site.map(|call| &*call.tool)
}

pub(super) fn failure_text(what: &str, step: &Step, outcome: &Outcome) -> String {
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

/// Adds the name of the branch and the name of its tool to the `_meta` of a content block.
pub(super) fn attribute(
    block: &mut ContentBlock,
    template: Option<&Template>,
    branch: &str,
    tool: &str,
) {
    let meta = match block {
        ContentBlock::Text(text) => &mut text.meta,
        ContentBlock::Image(image) => &mut image.meta,
        ContentBlock::Audio(audio) => &mut audio.meta,
        ContentBlock::Resource(resource) => &mut resource.meta,
        ContentBlock::ResourceLink(link) => &mut link.meta,
        // Content blocks of unknown types are passed on unchanged.
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
        // A nested branch may have set this key, or a server may have forged it.
        meta.remove(TOOL);
    } else {
        meta.insert(TOOL.to_owned(), Value::from(tool));
    }
}

/// Builds the structured report of a fan-out. The report contains the status, the output and the
/// error of each branch.
///
/// Structured content is moved from the results of the branches into the report, not copied.
pub(super) fn report_of(templates: &Cached, state: &mut RunState) -> Value {
    let mut branches = templates.branches.clone();
    let mut is_complete = true;
    for (branch, &step) in branches.values_mut().zip(&templates.order) {
        let Some(outcome) = &mut state.outcomes[step] else {
            is_complete = false;
            continue;
        };
        let output = outcome.result.as_mut().and_then(output);
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

/// Returns the entry for one branch or step in a structured report: its status, output and error.
pub(super) fn report_of_step(outcome: &Outcome, output: Option<Value>) -> Map<String, Value> {
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

/// Takes the output out of the result of a branch. The output is the structured content or, without
/// structured content, the text.
fn output(result: &mut ToolResult) -> Option<Value> {
    // Accesses the result mutably only to take a value, because mutable access to a shared result
    // is slower.
    if result.structured_content.is_some() {
        return result.structured_content.take();
    }
    if result.is_error == Some(true) {
        // The text is already reported as the error message.
        return None;
    }
    output_text(result).map(Value::from)
}

/// Builds the trace of a run. It contains the times and the outcome of each step, but neither
/// arguments nor outputs.
pub(super) fn trace(steps: &[Step], templates: &Cached, state: &RunState) -> Value {
    let steps = steps.iter().zip(&state.outcomes).zip(&templates.steps);
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

/// Returns the trace entry of a step, without its error and with times of 0. `tool` is `None` if
/// the step calls no tool.
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
