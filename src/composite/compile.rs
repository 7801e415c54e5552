use std::{
    collections::{HashMap, HashSet},
    iter,
    sync::Arc,
    time::Duration,
};

use rmcp::model::{JsonObject, ToolAnnotations};
use serde_json::Value;

use super::{
    definition::{
        CompositeTool, MAX_DEPTH, MAX_TARGETS, Order, RUN_TIMEOUT, Strategy, Success,
        TARGET_TIMEOUT, Target,
    },
    error::{DefinitionError, DefinitionErrorKind as Kind, DefinitionErrors, Segment},
    input,
};
use crate::{
    engine::plan::{Arguments, Plan, Step, Stop},
    expr::{Expression, PathSegment, ReferenceError},
    names::{MAX_SEPARATOR, is_separator, is_tool_name},
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
}

/// A composite that can run.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) name: Arc<str>,
    pub(super) description: String,
    pub(super) title: Option<String>,
    pub(super) input_schema: Option<Arc<JsonObject>>,
    pub(super) output_schema: Option<Arc<JsonObject>>,
    pub(super) annotations: ToolAnnotations,
    pub(super) timeout: Duration,
    pub(super) plan: Plan,
    pub(super) answer: Answer,
    /// Beside each step of the plan, what the plan does not know of it.
    pub(super) targets: Vec<CompiledTarget>,
}

/// What a target is, beyond the call.
#[derive(Debug)]
pub(super) struct CompiledTarget {
    pub(super) route: Route,
    /// Whether the composite succeeds, and exists, without it.
    pub(super) optional: bool,
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
pub(super) enum Answer {
    /// All branches, and a judgement over them.
    Branches { success: Success, order: Order, report: bool },
    /// The branch that succeeded, unchanged.
    Winner,
}

/// Collects mistakes and where they are.
struct Mistakes {
    errors: Vec<DefinitionError>,
}

/// The place of a composite, for its mistakes.
struct Place<'m> {
    mistakes: &'m mut Mistakes,
    index: usize,
    name: String,
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
        let mut mistakes = Mistakes { errors: Vec::new() };
        if let Some(separator) = separator
            && !is_separator(separator)
        {
            let separator = separator.to_owned();
            let kind = Kind::IllegalSeparator { separator, max: MAX_SEPARATOR };
            mistakes.errors.push(DefinitionError::new(String::new(), Vec::new(), kind));
        }
        let separator = separator.unwrap_or_default();
        let mut places = HashMap::new();
        for (index, definition) in definitions.iter().enumerate() {
            if places.contains_key(&definition.name) {
                let name = definition.name.clone();
                mistakes.at(index, &definition.name).push(["name"], Kind::DuplicateName { name });
            } else {
                places.insert(definition.name.clone(), index);
            }
        }

        let compiled: Vec<_> = definitions
            .into_iter()
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
        Ok(Self { composites: compiled, places, callees_first })
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
    fn new(definition: CompositeTool, places: &HashMap<String, usize>, at: &mut Place<'_>) -> Self {
        let CompositeTool { name, description, strategy, mut targets, .. } = definition;
        if description.trim().is_empty() {
            at.push(["description"], Kind::Blank { key: "description" });
        }
        if definition.timeout.is_some_and(|timeout| timeout.is_zero()) {
            at.push(["timeout"], Kind::Zero { key: "timeout" });
        }
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

        let chooses_one = matches!(strategy, Strategy::Race | Strategy::Fallback);
        let one_by_one = matches!(strategy, Strategy::Sequential | Strategy::Fallback);
        let with = format!("strategy = \"{}\"", strategy.name());
        let mut meaningless = |key, given: bool| {
            if given {
                at.push([key], Kind::Meaningless { key, with: with.clone() });
            }
        };
        meaningless("success", chooses_one && definition.success.is_some());
        meaningless("order", chooses_one && definition.order.is_some());
        meaningless("report", chooses_one && definition.report.is_some());
        meaningless("max_parallel", one_by_one && definition.max_parallel.is_some());
        if definition.report == Some(false) && definition.output_schema.is_some() {
            let kind =
                Kind::Meaningless { key: "output_schema", with: "report = false".to_owned() };
            at.push(["output_schema"], kind);
        }
        if definition.max_parallel == Some(0) {
            at.push(["max_parallel"], Kind::Zero { key: "max_parallel" });
        }

        let count = targets.len();
        match count {
            0 => at.push(["targets"], Kind::NoTargets),
            1..=MAX_TARGETS => (),
            _ => at.push(["targets"], Kind::TooManyTargets { count, max: MAX_TARGETS }),
        }
        // What is too much is not looked at any further.
        targets.truncate(MAX_TARGETS);
        let success = definition.success.unwrap_or_default();
        if let Success::Quorum(quorum) = success
            && count > 0
            && !(1..=count).contains(&quorum)
        {
            at.push(["success"], Kind::Quorum { quorum, targets: count });
        }

        let (answer, stop) = if chooses_one {
            (Answer::Winner, Stop::FirstSuccess)
        } else {
            let order = definition.order.unwrap_or_default();
            let report = definition.report.unwrap_or(true);
            (Answer::Branches { success, order, report }, Stop::Never)
        };
        let concurrency =
            if one_by_one { 1 } else { definition.max_parallel.unwrap_or(MAX_TARGETS) };

        let ids = ids(&targets, at);
        let mut steps = Vec::with_capacity(count);
        let mut compiled = Vec::with_capacity(count);
        for (index, (target, id)) in targets.into_iter().zip(ids).enumerate() {
            if chooses_one && target.optional.is_some() {
                let kind = Kind::Meaningless { key: "optional", with: with.clone() };
                at.push(in_target(index, "optional"), kind);
            }
            let route = match places.get(&target.tool) {
                // A composite of its own name means the tool behind it, so that
                // a tool can be wrapped under its own name.
                Some(&callee) if target.tool != name && !target.behind => Route::Composite(callee),
                _ => Route::Inner,
            };
            let optional = target.optional.unwrap_or(false);
            compiled.push(CompiledTarget { route, optional });
            steps.push(step(target, id, index, at));
        }

        Self {
            name: name.into(),
            description,
            title: definition.title,
            input_schema: definition.input_schema.map(input::with_object_type).map(Arc::new),
            output_schema: definition.output_schema.map(input::with_object_type).map(Arc::new),
            annotations: definition.annotations.unwrap_or_default(),
            timeout: definition.timeout.unwrap_or(RUN_TIMEOUT),
            plan: Plan { steps, concurrency, stop },
            answer,
            targets: compiled,
        }
    }

    /// How many targets there must be, at least, for a run to succeed; with
    /// fewer the composite does not exist.
    pub(super) fn needed(&self) -> usize {
        match self.answer {
            Answer::Winner | Answer::Branches { success: Success::Any, .. } => 1,
            Answer::Branches { success: Success::Quorum(quorum), .. } => quorum,
            Answer::Branches { success: Success::All, .. } => {
                self.targets.iter().filter(|target| !target.optional).count()
            }
        }
    }

    /// Whether a particular target must succeed.
    pub(super) fn requires(&self, target: usize) -> bool {
        match self.answer {
            Answer::Branches { success: Success::All, .. } => !self.targets[target].optional,
            Answer::Branches { .. } | Answer::Winner => false,
        }
    }
}

fn step(target: Target, id: Arc<str>, index: usize, at: &mut Place<'_>) -> Step {
    let path = |key| in_target(index, key);
    if target.tool.trim().is_empty() {
        at.push(path("tool"), Kind::Blank { key: "tool" });
    }
    if target.timeout.is_some_and(|timeout| timeout.is_zero()) {
        at.push(path("timeout"), Kind::Zero { key: "timeout" });
    }
    let arguments = match &target.arguments {
        None => Arguments::Input,
        Some(value) => match parse_arguments(value) {
            Ok(expression) => Arguments::Mapped(expression),
            Err(errors) => {
                for (within, error) in errors {
                    let place = path("arguments").into_iter().chain(within);
                    at.push(place, Kind::Reference(error));
                }
                Arguments::Input
            }
        },
    };
    Step {
        id,
        tool: target.tool.into(),
        arguments,
        timeout: target.timeout.unwrap_or(TARGET_TIMEOUT),
    }
}

fn parse_arguments(value: &Value) -> Result<Expression, Vec<(Vec<Segment>, ReferenceError)>> {
    let found = match value {
        // A reference to all or part of the input may well be an object.
        Value::Object(_) | Value::String(_) => None,
        Value::Null => Some("null"),
        Value::Bool(_) => Some("a boolean"),
        Value::Number(_) => Some("a number"),
        Value::Array(_) => Some("an array"),
    };
    if let Some(found) = found {
        return Err(vec![(Vec::new(), ReferenceError::NoObject { found })]);
    }
    let expression = Expression::parse(value).map_err(|errors| {
        errors
            .iter()
            .map(|(path, error)| (path.iter().map(segment).collect(), error.clone()))
            .collect::<Vec<_>>()
    })?;
    if value.is_string() && expression.references().is_empty() {
        return Err(vec![(Vec::new(), ReferenceError::NoObject { found: "a string" })]);
    }
    Ok(expression)
}

fn in_target(index: usize, key: &str) -> [Segment; 3] {
    ["targets".into(), index.into(), key.into()]
}

fn segment(segment: &PathSegment) -> Segment {
    match segment {
        PathSegment::Key(key) => Segment::Key(key.clone()),
        PathSegment::Index(index) => Segment::Index(*index),
    }
}

/// The ids of all targets: as given, else the tool's name, made unique.
fn ids(targets: &[Target], at: &mut Place<'_>) -> Vec<Arc<str>> {
    let mut taken = HashSet::new();
    for (index, target) in targets.iter().enumerate() {
        let Some(id) = &target.id else { continue };
        let path = in_target(index, "id");
        if !is_id(id) {
            at.push(path, Kind::IllegalId { id: id.clone() });
        } else if !taken.insert(id.clone()) {
            at.push(path, Kind::DuplicateId { id: id.clone() });
        }
    }
    let mut unique = |tool: &str| {
        let mut id = tool.to_owned();
        let mut count = 1;
        while !taken.insert(id.clone()) {
            count += 1;
            id = format!("{tool}_{count}");
        }
        id
    };
    targets
        .iter()
        .map(|target| target.id.clone().unwrap_or_else(|| unique(&target.tool)).into())
        .collect()
}

fn is_id(id: &str) -> bool {
    (1..=MAX_ID).contains(&id.len())
        && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

// === impl Mistakes ===

impl Mistakes {
    fn at(&mut self, index: usize, name: &str) -> Place<'_> {
        Place { mistakes: self, index, name: name.to_owned() }
    }
}

// === impl Place ===

impl Place<'_> {
    fn push<P: Into<Segment>>(&mut self, path: impl IntoIterator<Item = P>, kind: Kind) {
        let path = [Segment::Index(self.index)].into_iter().chain(path.into_iter().map(Into::into));
        self.mistakes.errors.push(DefinitionError::new(self.name.clone(), path.collect(), kind));
    }
}
