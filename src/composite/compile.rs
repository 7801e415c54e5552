mod arguments;
mod elicitation;
mod fan_out;
mod mistakes;
mod output;
mod steps;
mod uses;

use std::{
    iter,
    sync::{Arc, OnceLock},
    time::Duration,
};

use foldhash::HashMap;
use rmcp::model::{JsonObject, ToolAnnotations};

use self::mistakes::{DefinitionPath, Mistakes};
use super::{
    answer::Templates,
    definition::{CompositeTool, Labels, MAX_DEPTH, OnLimit, Order, RUN_TIMEOUT, Success, Trace},
    error::{DefinitionError, DefinitionErrorKind as Kind, DefinitionErrors, Segment},
    fingerprint::fingerprint,
    input,
    step::ToolCall,
};
use crate::{
    engine::{
        limits::RunLimits,
        plan::{Action, CallSite, Plan, Step, StepSet, Switch},
    },
    fingerprint::{Fingerprint, Fingerprinter},
    names::{MAX_SEPARATOR, is_separator, is_tool_name},
    schema::InputSchema,
};

/// How long an id may be.
const MAX_ID: usize = 64;

/// All composites of a layer, checked against each other.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) composites: Vec<Compiled>,
    places: HashMap<String, usize>,
    /// The composites, each after those that it calls.
    pub(super) callees_first: Vec<usize>,
    /// What the composites were made of, to tell them apart.
    definitions: Vec<CompositeTool>,
    /// Made when they are needed: they would take as long as all the rest.
    fingerprints: Vec<OnceLock<Fingerprint>>,
}

/// A composite that can run.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) name: Arc<str>,
    pub(super) description: String,
    pub(super) title: Option<String>,
    pub(super) input_schema: Option<Arc<JsonObject>>,
    /// The declared schema of the structured content, or that of the output block.
    pub(super) output_schema: Option<InputSchema>,
    pub(super) annotations: ToolAnnotations,
    pub(super) timeout: Duration,
    pub(super) limits: RunLimits,
    pub(super) on_limit: OnLimit,
    /// Whether a limit may end a run, also one of a composite that calls it.
    is_limited: bool,
    pub(super) plan: Plan,
    pub(super) answer: ResultForm,
    pub(super) trace: Trace,
    /// Beside each place of the plan where a tool is called, what the plan does
    /// not know of it.
    pub(super) targets: Vec<CompiledTarget>,
    /// The steps that ask a person whenever they begin, also by a composite that they
    /// call, and without which a run fails.
    pub(super) asking: StepSet,
    /// What is no mistake, but hardly what was meant.
    pub(super) remarks: Vec<String>,
    pub(super) templates: Templates,
}

/// A target, beyond the call.
#[derive(Debug)]
pub(super) struct CompiledTarget {
    pub(super) route: Route,
    /// Whether the composite succeeds, and exists, without it.
    pub(super) optional: bool,
    /// Whether it is called in each run that succeeds.
    pub(super) certain: bool,
}

/// What the strategies make of a definition.
struct Parts {
    plan: Plan,
    answer: ResultForm,
    targets: Vec<CompiledTarget>,
    remarks: Vec<String>,
}

/// Where a target's name leads; decided once, when the layer is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// To the service behind the layer.
    Inner,
    /// To another composite.
    Composite(usize),
}

/// How the outcomes of a run become one result.
#[derive(Clone, Copy, Debug)]
pub(super) enum ResultForm {
    /// All branches, and a judgement over them.
    Branches { success: Success, order: Order, report: bool, labels: Labels },
    /// The branch that succeeded, unchanged.
    Winner,
    /// The answer of the plan. A run that fails reports its completed steps, with their
    /// outputs if `report` is set.
    Steps { report: bool },
}

/// How far the search for cycles has come with a composite.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Pending,
    Open,
    Done { depth: usize },
}

// === impl Program ===

impl Program {
    /// Checks all definitions, alone and against each other.
    ///
    /// Their names may have the `separator` in them, if there is one.
    pub(super) fn compile(
        definitions: Vec<CompositeTool>,
        separator: Option<&str>,
    ) -> Result<Self, DefinitionErrors> {
        let mut mistakes = Mistakes::default();
        if let Some(separator) = separator
            && !is_separator(separator)
        {
            let separator = separator.to_owned();
            let kind = Kind::IllegalSeparator { separator, max: MAX_SEPARATOR };
            mistakes.errors.push(DefinitionError::new(String::new(), Vec::new(), kind));
        }
        let separator = separator.unwrap_or_default();
        let mut places = HashMap::default();
        for (index, definition) in definitions.iter().enumerate() {
            if places.contains_key(&definition.name) {
                let name = definition.name.clone();
                mistakes.at(index, &definition.name).push(["name"], Kind::DuplicateName { name });
            } else {
                places.insert(definition.name.clone(), index);
            }
        }

        let mut compiled: Vec<_> = definitions
            .iter()
            .cloned()
            .enumerate()
            .map(|(index, definition)| {
                let name = definition.name.clone();
                let mut at = mistakes.at(index, &name);
                if !is_tool_name(&name, separator) {
                    let separator = separator.to_owned();
                    at.push(["name"], Kind::IllegalName { name: name.clone(), separator });
                }
                Compiled::new(definition, &places, &mut at)
            })
            .collect();
        let callees_first = order(&compiled, &mut mistakes);
        if !mistakes.errors.is_empty() {
            mistakes.errors.sort_by_key(|error| match error.path().first() {
                Some(Segment::Index(index)) => Some(*index),
                // What is wrong with all of them comes first.
                _ => None,
            });
            return Err(DefinitionErrors::new(mistakes.errors));
        }
        note_asking(&mut compiled, &callees_first);
        note_limits(&mut compiled, &callees_first);
        let fingerprints = definitions.iter().map(|_| OnceLock::new()).collect();
        Ok(Self { composites: compiled, places, callees_first, definitions, fingerprints })
    }

    /// What tells a composite, with all that it calls, from what it was before.
    pub(super) fn fingerprint(&self, composite: usize) -> Fingerprint {
        *self.fingerprints[composite].get_or_init(|| {
            let own = fingerprint(&self.definitions[composite]);
            let own = Fingerprinter::default().and_fingerprint(&own);
            let targets = self.composites[composite].targets.iter().enumerate();
            // Where a name leads is a matter of all definitions, so it counts too.
            let whole = targets.fold(own, |whole, (place, target)| match target.route {
                Route::Inner => whole,
                Route::Composite(callee) => {
                    whole.and(&place.into()).and_fingerprint(&self.fingerprint(callee))
                }
            });
            whole.finish()
        })
    }

    /// What a composite was made of.
    pub(super) fn definition(&self, composite: usize) -> &CompositeTool {
        &self.definitions[composite]
    }

    /// The composite of this name.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.places.get(name).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.composites.is_empty()
    }
}

/// Puts composites after those that they call, and tells those that cannot be.
fn order(composites: &[Compiled], mistakes: &mut Mistakes) -> Vec<usize> {
    let mut visits = vec![Visit::Pending; composites.len()];
    let mut order = Vec::with_capacity(composites.len());
    for composite in 0..composites.len() {
        visit(composite, composites, &mut Vec::new(), &mut visits, &mut order, mistakes);
    }
    order
}

/// Notes which steps call composites that have to ask.
fn note_asking(composites: &mut [Compiled], callees_first: &[usize]) {
    for &at in callees_first {
        let composite = &composites[at];
        let Compiled { plan, targets, answer, .. } = composite;
        let asks = |call: &CallSite| match targets[call.site].route {
            Route::Composite(callee) => composites[callee].is_certain_to_ask(),
            Route::Inner => false,
        };
        let is_certain = |step: &Step| match &step.action {
            Action::Call(call) => asks(call),
            Action::Switch(Switch { default: Some(_), .. }) => step.action.sites().all(asks),
            // A loop may have no elements, and a switch no case that applies.
            Action::ForEach(_) | Action::Switch(_) | Action::Elicit(_) => false,
        };
        let steps = plan.steps().iter().enumerate();
        // Of a fan-out, each step has the one call of a target.
        let is_needed = |at: usize, step: &Step| match answer {
            ResultForm::Steps { .. } => !step.may_fail(),
            ResultForm::Branches { .. } | ResultForm::Winner => composite.requires(at),
        };
        let asking = steps.filter(|(at, step)| is_needed(*at, step) && is_certain(step));
        let asking: StepSet = asking.map(|(step, _)| step).collect();
        composites[at].asking = composites[at].asking.union(asking);
    }
}

/// Notes which plans a limit may end: of composites that have some, and of all that
/// those call.
fn note_limits(composites: &mut [Compiled], callees_first: &[usize]) {
    // Each before those that it calls.
    for &at in callees_first.iter().rev() {
        if composites[at].is_limited {
            for callee in callees(&composites[at]).collect::<Vec<_>>() {
                composites[callee].is_limited = true;
            }
            composites[at].plan.may_end_anywhere();
        }
    }
}

/// Visits a composite and all that it calls; returns how deep they are nested.
fn visit(
    composite: usize,
    composites: &[Compiled],
    path: &mut Vec<usize>,
    visits: &mut [Visit],
    order: &mut Vec<usize>,
    mistakes: &mut Mistakes,
) -> usize {
    let names = |path: &[usize]| path.iter().map(|&at| composites[at].name.to_string()).collect();
    match visits[composite] {
        Visit::Done { depth } => return depth,
        Visit::Open => {
            let start = path.iter().position(|&at| at == composite).unwrap_or_default();
            let mut cycle = path[start..].to_vec();
            cycle.push(composite);
            mistakes
                .at(path[start], &composites[path[start]].name)
                .push::<&str>([], Kind::Cycle { composites: names(&cycle) });
            return 0;
        }
        // Deep enough to tell that it is too deep; the rest is visited from elsewhere.
        Visit::Pending if path.len() > 4 * MAX_DEPTH => return 0,
        Visit::Pending => visits[composite] = Visit::Open,
    }
    path.push(composite);
    let mut depth = 1;
    for callee in callees(&composites[composite]) {
        depth = depth.max(1 + visit(callee, composites, path, visits, order, mistakes));
    }
    path.pop();
    // Told once, for the first composite that is one too deep.
    if depth == MAX_DEPTH + 1 {
        let chain: Vec<_> =
            iter::successors(Some(composite), |&at| deepest_callee(at, composites, visits))
                .take(depth)
                .collect();
        let kind = Kind::TooDeep { composites: names(&chain), depth, max: MAX_DEPTH };
        mistakes.at(composite, &composites[composite].name).push::<&str>([], kind);
    }
    visits[composite] = Visit::Done { depth };
    order.push(composite);
    depth
}

/// The composites that a composite calls.
fn callees(composite: &Compiled) -> impl Iterator<Item = usize> {
    composite.targets.iter().filter_map(|target| match target.route {
        Route::Composite(callee) => Some(callee),
        Route::Inner => None,
    })
}

/// Of the composites that a composite calls, the one that goes deepest.
fn deepest_callee(composite: usize, composites: &[Compiled], visits: &[Visit]) -> Option<usize> {
    callees(&composites[composite]).max_by_key(|&callee| match visits[callee] {
        Visit::Done { depth } => depth,
        Visit::Open | Visit::Pending => 0,
    })
}

// === impl Compiled ===

impl Compiled {
    /// Compiles a definition; what it returns is only of use without mistakes.
    fn new(
        mut definition: CompositeTool,
        places: &HashMap<String, usize>,
        at: &mut DefinitionPath<'_>,
    ) -> Self {
        at.not_blank("description", &definition.description);
        at.not_zero("timeout", definition.timeout.is_some_and(|timeout| timeout.is_zero()));
        let limits = RunLimits {
            max_calls: definition.max_calls,
            max_result_bytes: definition.max_result_bytes,
            max_cost: definition.max_cost,
        };
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

        let compile =
            if definition.strategy.has_steps() { steps::compile } else { fan_out::compile };
        let Parts { plan, answer, targets, remarks } = compile(&mut definition, places, at);
        Self {
            name: definition.name.into(),
            description: definition.description,
            title: definition.title,
            input_schema: definition.input_schema.map(input::with_object_type).map(Arc::new),
            output_schema: definition
                .output_schema
                .map(input::with_object_type)
                .map(|schema| InputSchema::new(Arc::new(schema))),
            annotations: definition.annotations.unwrap_or_default(),
            timeout: definition.timeout.unwrap_or(RUN_TIMEOUT),
            limits,
            on_limit: definition.on_limit.unwrap_or_default(),
            is_limited: !limits.is_empty(),
            asking: {
                let needed = |&step: &usize| !plan.steps()[step].may_fail();
                plan.questions.filter(needed).collect()
            },
            plan,
            answer,
            trace: definition.trace.unwrap_or_default(),
            targets,
            remarks,
            templates: Templates::default(),
        }
    }

    /// How many targets there must be, at least, for a run to succeed; with
    /// fewer the composite does not exist.
    pub(super) fn needed(&self) -> usize {
        match self.answer {
            ResultForm::Winner | ResultForm::Branches { success: Success::Any, .. } => 1,
            ResultForm::Branches { success: Success::Quorum(quorum), .. } => quorum,
            ResultForm::Branches { success: Success::All, .. } | ResultForm::Steps { .. } => {
                self.targets.iter().filter(|target| !target.optional).count()
            }
        }
    }

    /// Whether each run that succeeds asks a person.
    fn is_certain_to_ask(&self) -> bool {
        let steps = self.plan.steps();
        { self.asking }.any(|step| steps[step].condition.is_none())
    }

    /// Whether a limit may leave the result of another step than the last.
    pub(super) fn may_be_partial(&self) -> bool {
        self.is_limited && self.on_limit == OnLimit::Partial && self.plan.steps().len() > 1
    }

    /// Whether a particular target must succeed.
    pub(super) fn requires(&self, target: usize) -> bool {
        match self.answer {
            ResultForm::Branches { success: Success::All, .. } | ResultForm::Steps { .. } => {
                !self.targets[target].optional
            }
            ResultForm::Branches { .. } | ResultForm::Winner => false,
        }
    }
}

impl CompiledTarget {
    /// A target of `composite`, at a place where it calls the tool.
    fn new(
        call: &ToolCall,
        composite: &str,
        places: &HashMap<String, usize>,
        optional: bool,
        certain: bool,
    ) -> Self {
        let route = match places.get(&call.tool) {
            // A composite of its own name means the tool behind it, so that a
            // tool can be wrapped under its own name.
            Some(&callee) if call.tool != composite && !call.behind => Route::Composite(callee),
            _ => Route::Inner,
        };
        Self { route, optional, certain }
    }
}

fn is_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}
