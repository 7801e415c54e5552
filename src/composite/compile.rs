//! Compiles the composite definitions of a layer to executable plans.

mod arguments;
mod elicitation;
mod fan_out;
mod finals;
mod loops;
mod mistakes;
mod output;
mod parts;
mod retries;
mod steps;
mod stops;
mod uses;

use std::{
    iter,
    sync::{Arc, OnceLock},
};

use foldhash::HashMap;
use rmcp::model::JsonObject;

pub(super) use self::parts::{CompiledTarget, ResultForm, Route};
use self::{mistakes::DefinitionPath, parts::Parts};
use super::{
    definition::{CompositeTool, MAX_COMPOSITE_DEPTH, OnLimit},
    error::{DefinitionError, DefinitionErrorKind as Kind, DefinitionErrors, Segment},
    fingerprint::fingerprint,
    input,
    report::Templates,
    strategy::{Fallback, Pipeline, Race, Strategy, Success, Workflow},
    task_mode::TaskMode,
};
use crate::{
    engine::plan::{CallSite, Plan, Step, StepSet},
    fingerprint::{Fingerprint, Fingerprinter},
    names::{MAX_SEPARATOR, is_separator, is_tool_name},
    schema::InputSchema,
};

/// All composites of a layer, compiled and checked for errors such as cycles of calls.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) composites: Vec<Compiled>,
    places: HashMap<String, usize>,
    /// The indexes of the composites in topological order: callees precede their callers.
    pub(super) callees_first: Vec<usize>,
    /// The fingerprint of each composite. Fingerprints are computed on first use, because computing
    /// all of them takes as long as the rest of the compilation.
    fingerprints: Vec<OnceLock<Fingerprint>>,
}

/// A composite after compilation. Contains the execution plan, and the properties that are needed
/// to run the composite and to list it as a tool.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) name: Arc<str>,
    pub(super) definition: CompositeTool,
    /// The input schema of the definition, with the type `object`.
    pub(super) input_schema: Option<Arc<JsonObject>>,
    /// The output schema that is declared in the definition or generated from its output block.
    /// `None` if there is neither.
    pub(super) output_schema: Option<InputSchema>,
    /// Whether a limit such as `max_calls` can end a run early. The limit may belong to this
    /// composite or to a composite that calls it.
    is_limited: bool,
    pub(super) plan: Plan,
    pub(super) answer: ResultForm,
    /// The task mode of the definition, or the default of its strategy.
    pub(super) task: TaskMode,
    /// The targets of the plan's tool calls, indexed by call site.
    pub(super) targets: Vec<CompiledTarget>,
    /// The steps that ask the user a question whenever they run, and whose failure fails the run. A
    /// step asks either directly or by calling a composite that asks.
    pub(super) asking: StepSet,
    /// Remarks about parts of the definition that are valid but probably not intended.
    pub(super) remarks: Vec<String>,
    pub(super) templates: Templates,
}

/// The state of a composite in the depth-first search that detects composites that call each other
/// in a cycle.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Pending,
    Open,
    Done { depth: usize },
}

// === impl Program ===

impl Program {
    /// Compiles all definitions and checks them against each other.
    ///
    /// If `separator` is given, names of composites may also contain the characters of the
    /// separator.
    pub(super) fn compile(
        definitions: Vec<CompositeTool>,
        separator: Option<&str>,
    ) -> Result<Self, DefinitionErrors> {
        let mut mistakes = Vec::new();
        if let Some(separator) = separator
            && !is_separator(separator)
        {
            let separator = separator.to_owned();
            let kind = Kind::IllegalSeparator { separator, max: MAX_SEPARATOR };
            mistakes.push(DefinitionError::new(String::new(), Vec::new(), kind));
        }
        let separator = separator.unwrap_or_default();
        let mut places = HashMap::default();
        for (index, definition) in definitions.iter().enumerate() {
            if places.contains_key(&definition.name) {
                let name = definition.name.clone();
                DefinitionPath::new(&mut mistakes, index, &definition.name)
                    .push(["name"], Kind::DuplicateName { name });
            } else {
                places.insert(definition.name.clone(), index);
            }
        }

        let mut compiled: Vec<_> = definitions
            .into_iter()
            .enumerate()
            .map(|(index, definition)| {
                let name = definition.name.clone();
                let mut at = DefinitionPath::new(&mut mistakes, index, &name);
                if !is_tool_name(&name, separator) {
                    let separator = separator.to_owned();
                    at.push(["name"], Kind::IllegalName { name: name.clone(), separator });
                }
                Compiled::new(definition, &places, &mut at)
            })
            .collect();
        let callees_first = order(&compiled, &mut mistakes);
        if !mistakes.is_empty() {
            mistakes.sort_by_key(|error| match error.path().first() {
                Some(Segment::Index(index)) => Some(*index),
                // Errors that do not belong to a single composite come first.
                _ => None,
            });
            return Err(DefinitionErrors::new(mistakes));
        }
        note_asking(&mut compiled, &callees_first);
        note_limits(&mut compiled, &callees_first);
        let fingerprints = compiled.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { composites: compiled, places, callees_first, fingerprints })
    }

    /// Returns a fingerprint that changes if the definition of the composite, or of any composite
    /// that it calls, changes.
    pub(super) fn fingerprint(&self, composite: usize) -> Fingerprint {
        *self.fingerprints[composite].get_or_init(|| {
            let own = fingerprint(self.definition(composite));
            let own = Fingerprinter::default().and_fingerprint(&own);
            let targets = self.composites[composite].targets.iter().enumerate();
            // A tool name may refer to a composite or to a tool behind the layer, depending on all
            // definitions of the layer. The choice affects the behavior, so the fingerprint
            // includes it.
            let whole = targets.fold(own, |whole, (place, target)| match target.route {
                Route::Inner => whole,
                Route::Composite(callee) => {
                    whole.and(&place.into()).and_fingerprint(&self.fingerprint(callee))
                }
            });
            whole.finish()
        })
    }

    pub(super) fn definition(&self, composite: usize) -> &CompositeTool {
        &self.composites[composite].definition
    }

    /// Returns the index of the composite with this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.composites.is_empty()
    }
}

/// Returns the indexes of the composites in topological order: callees precede their callers. Adds
/// an error for each cycle of composites that call each other, and for composites that are nested
/// too deep.
fn order(composites: &[Compiled], mistakes: &mut Vec<DefinitionError>) -> Vec<usize> {
    let mut visits = vec![Visit::Pending; composites.len()];
    let mut order = Vec::with_capacity(composites.len());
    for composite in 0..composites.len() {
        visit(composite, composites, &mut Vec::new(), &mut visits, &mut order, mistakes);
    }
    order
}

/// Completes the set `asking` of each composite. Adds each required step that calls another
/// composite, if this composite always asks the user a question.
fn note_asking(composites: &mut [Compiled], callees_first: &[usize]) {
    for &at in callees_first {
        let composite = &composites[at];
        let Compiled { plan, targets, answer, .. } = composite;
        let asks = |call: &CallSite| match targets[call.site].route {
            Route::Composite(callee) => composites[callee].is_certain_to_ask(),
            Route::Inner => false,
        };
        let is_certain = |step: &Step| step.action.always_calls() && step.action.sites().all(asks);
        let precedes_stops = |at: usize| plan.precedes_stops(at);
        let steps = plan.steps().iter().enumerate();
        // In a fan-out, each step calls one target.
        let is_needed = |at: usize, step: &Step| match answer {
            ResultForm::Steps { .. } => !step.may_fail(),
            ResultForm::Branches { .. } | ResultForm::Winner => composite.requires(at),
        };
        let asking = steps
            .filter(|(at, step)| is_needed(*at, step) && is_certain(step))
            .filter(|(at, _)| precedes_stops(*at));
        let asking: StepSet = asking.map(|(step, _)| step).collect();
        composites[at].asking = composites[at].asking.union(asking);
    }
}

/// Marks each composite whose runs can be ended early by a limit. These are the composites that set
/// limits, and all composites that they call, directly or indirectly.
fn note_limits(composites: &mut [Compiled], callees_first: &[usize]) {
    // Visits callers before callees, so that the mark reaches indirect callees too.
    for &at in callees_first.iter().rev() {
        if composites[at].is_limited {
            for callee in callees(&composites[at]).collect::<Vec<_>>() {
                composites[callee].is_limited = true;
            }
            composites[at].plan.may_end_anywhere();
        }
    }
}

/// Visits a composite and all composites that it calls, in depth-first order. Returns the nesting
/// depth of the composite, which is the number of composites in its longest chain of calls.
fn visit(
    composite: usize,
    composites: &[Compiled],
    path: &mut Vec<usize>,
    visits: &mut [Visit],
    order: &mut Vec<usize>,
    mistakes: &mut Vec<DefinitionError>,
) -> usize {
    let names = |path: &[usize]| path.iter().map(|&at| composites[at].name.to_string()).collect();
    match visits[composite] {
        Visit::Done { depth } => return depth,
        Visit::Open => {
            let start = path.iter().position(|&at| at == composite).unwrap_or_default();
            let mut cycle = path[start..].to_vec();
            cycle.push(composite);
            DefinitionPath::new(mistakes, path[start], &composites[path[start]].name)
                .push::<&str>([], Kind::Cycle { composites: names(&cycle) });
            return 0;
        }
        // This path is already long enough to be reported as too deep. The remaining composites are
        // visited later, starting from other composites.
        Visit::Pending if path.len() > 4 * MAX_COMPOSITE_DEPTH => return 0,
        Visit::Pending => visits[composite] = Visit::Open,
    }
    path.push(composite);
    let mut depth = 1;
    for callee in callees(&composites[composite]) {
        depth = depth.max(1 + visit(callee, composites, path, visits, order, mistakes));
    }
    path.pop();
    // Reported only once, for the first composite that exceeds the maximum by one level.
    if depth == MAX_COMPOSITE_DEPTH + 1 {
        let chain: Vec<_> =
            iter::successors(Some(composite), |&at| deepest_callee(at, composites, visits))
                .take(depth)
                .collect();
        let kind = Kind::TooDeep { composites: names(&chain), depth, max: MAX_COMPOSITE_DEPTH };
        DefinitionPath::new(mistakes, composite, &composites[composite].name)
            .push::<&str>([], kind);
    }
    visits[composite] = Visit::Done { depth };
    order.push(composite);
    depth
}

/// Returns the indexes of the composites that a composite calls.
fn callees(composite: &Compiled) -> impl Iterator<Item = usize> {
    composite.targets.iter().filter_map(|target| match target.route {
        Route::Composite(callee) => Some(callee),
        Route::Inner => None,
    })
}

/// Returns the index of the called composite with the deepest chain of nested calls.
fn deepest_callee(composite: usize, composites: &[Compiled], visits: &[Visit]) -> Option<usize> {
    callees(&composites[composite]).max_by_key(|&callee| match visits[callee] {
        Visit::Done { depth } => depth,
        Visit::Open | Visit::Pending => 0,
    })
}

/// Compiles the parts of a definition that depend on its strategy, for example on whether it is a
/// fan-out or a workflow.
fn parts(
    definition: &CompositeTool,
    places: &HashMap<String, usize>,
    at: &mut DefinitionPath<'_>,
) -> Parts {
    match &definition.strategy {
        Strategy::FanOut(fan_out) => fan_out::compile(fan_out, definition, places, at),
        Strategy::Race(Race { targets, max_parallel }) => {
            fan_out::compile_race(targets, *max_parallel, definition, places, at)
        }
        Strategy::Fallback(Fallback { targets }) => {
            fan_out::compile_race(targets, 1, definition, places, at)
        }
        Strategy::Pipeline(Pipeline { steps, output, report }) => {
            steps::compile(steps, output.as_ref(), *report, None, definition, places, at)
        }
        Strategy::Workflow(Workflow { steps, output, report, max_parallel }) => {
            let (output, max_parallel) = (output.as_ref(), Some(*max_parallel));
            steps::compile(steps, output, *report, max_parallel, definition, places, at)
        }
    }
}

// === impl Compiled ===

impl Compiled {
    /// Compiles the definition of one composite. Errors are added to the path `at`. If there are
    /// errors, the returned composite is incomplete and must not be used.
    fn new(
        definition: CompositeTool,
        places: &HashMap<String, usize>,
        at: &mut DefinitionPath<'_>,
    ) -> Self {
        at.not_blank("description", &definition.description);
        at.not_zero("timeout", definition.timeout.is_zero());
        let limits = definition.limits;
        at.not_zero("max_calls", limits.max_calls == Some(0));
        at.not_zero("max_result_bytes", limits.max_result_bytes == Some(0));
        at.not_zero("max_cost", limits.max_cost == Some(0));
        for (key, schema) in [
            ("input_schema", &definition.input_schema),
            ("output_schema", &definition.output_schema),
        ] {
            if let Some(reason) =
                schema.as_ref().and_then(|schema| input::reject_schema(schema).err())
            {
                at.push([key], Kind::Schema { key, reason });
            }
        }

        let Parts { plan, answer, targets, remarks } = parts(&definition, places, at);
        let output_schema = match &definition.strategy {
            Strategy::Pipeline(Pipeline { output: Some(output), .. })
            | Strategy::Workflow(Workflow { output: Some(output), .. }) => {
                Some(output::schema(output))
            }
            _ => definition.output_schema.clone().map(input::with_object_type),
        };
        let input_schema = definition.input_schema.clone().map(input::with_object_type);
        Self {
            name: definition.name.as_str().into(),
            input_schema: input_schema.map(Arc::new),
            output_schema: output_schema.map(|schema| InputSchema::new(Arc::new(schema))),
            is_limited: !limits.is_empty(),
            asking: plan.certain_questions(),
            plan,
            answer,
            task: definition
                .task
                .unwrap_or_else(|| TaskMode::default_of(&definition.strategy, definition.timeout)),
            targets,
            remarks,
            templates: Templates::default(),
            definition,
        }
    }

    /// Returns the minimum number of targets whose tools must exist so that a run can succeed. The
    /// composite is hidden from the tool list while fewer of them exist.
    pub(super) fn needed(&self) -> usize {
        match self.answer {
            ResultForm::Winner | ResultForm::Branches { success: Success::Any, .. } => 1,
            ResultForm::Branches { success: Success::Quorum(quorum), .. } => quorum,
            ResultForm::Branches { success: Success::All, .. } => self.required().max(1),
            ResultForm::Steps { .. } => self.required(),
        }
    }

    /// Returns the number of targets that are not optional.
    fn required(&self) -> usize {
        self.targets.iter().filter(|target| !target.optional).count()
    }

    /// Returns `true` if a run of this composite cannot succeed without asking the user.
    fn is_certain_to_ask(&self) -> bool {
        let steps = self.plan.steps();
        { self.asking }.any(|step| steps[step].condition.is_none())
    }

    /// Returns `true` if a run may return a partial result because a limit has ended it early.
    pub(super) fn may_be_partial(&self) -> bool {
        self.is_limited
            && self.definition.on_limit == OnLimit::Partial
            && self.plan.steps().len() > 1
    }

    /// Returns `true` if a run can only succeed if this target succeeds.
    pub(super) fn requires(&self, target: usize) -> bool {
        match self.answer {
            ResultForm::Branches { success: Success::All, .. } | ResultForm::Steps { .. } => {
                !self.targets[target].optional
            }
            ResultForm::Branches { .. } | ResultForm::Winner => false,
        }
    }
}
