//! Looks up the tools that composites call, and derives the schemas of the composites from those of
//! the tools.

use std::{collections::BTreeSet, sync::Arc};

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::{
    annotations::{derive_annotations, merge_annotations},
    answer::OutputSchema,
    compile::{Compiled, Program, ResultForm, Route},
    effect::Effect,
    error::DisplayPath,
    input::{Checked, Input},
    output_schemas,
    schema::{self, Need, Source},
};
use crate::{
    catalog::Tools,
    engine::{
        outcome::StepError,
        plan::{self, Arguments, CallSite, Elicitation, Plan, Step},
    },
    expr::{PathSegment, Use},
    message::Refusal,
    schema::{
        InputSchema,
        fit::{Misfit, misfits},
    },
    warnings::Warnings,
};

/// All composites of a layer, with the tools that they call. Computed again whenever the tool list
/// of the inner service changes.
#[derive(Debug)]
pub(super) struct Resolved {
    /// One element for each composite, in the order of the definitions. An element is `None` if a
    /// required tool is missing, or if the policy for data flows forbids the composite. The
    /// composite is then not listed and cannot run.
    composites: Vec<Option<Box<Available>>>,
}

/// A composite whose required tools all exist, so that it can be listed and run.
#[derive(Debug)]
pub(super) struct Available {
    /// The composite as a tool that is listed for clients.
    pub(super) tool: Tool,
    input: Input,
    /// `true` if targets that receive the whole input of the composite receive it as the client
    /// sent it, without defaults. The reason is that a default in a derived input schema may belong
    /// to another target.
    passes_given: bool,
    pub(super) output: OutputSchema,
    /// The targets of the composite, indexed by call site.
    pub(super) targets: Vec<ResolvedTarget>,
}

/// A target of a composite, together with the tool that it currently calls.
#[derive(Debug)]
pub(super) struct ResolvedTarget {
    /// The name of the tool as written in the definition.
    name: Arc<str>,
    /// The input schema of the tool. `None` if the tool does not exist.
    schema: Option<Input>,
    /// `true` if the tool's input schema rejects arguments that it does not declare.
    closed: bool,
    arguments: ArgumentSource,
    /// `true` if the tool has the annotation `readOnlyHint: true`.
    pub(super) is_read_only: bool,
    /// `true` if the tool has the annotation `readOnlyHint: true` or `idempotentHint: true`. Such a
    /// tool is called again if the server stopped during a call.
    pub(super) is_repeatable: bool,
    pub(super) effect: Effect,
}

/// The source of the arguments of a target's tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ArgumentSource {
    /// The arguments are the values of the expressions in the definition of the target.
    Mapped,
    /// The arguments are the whole input of the composite, adapted to the input schema of the tool.
    Input,
    /// The arguments are the whole input of the composite. They are not checked again, because the
    /// tool has the same input schema as the composite.
    CheckedInput,
}

// === impl Resolved ===

impl Resolved {
    /// Looks up the tools that the composites call. Composites whose index is in `forbidden` are
    /// not available.
    pub(super) fn new(
        program: &Program,
        tools: &Tools,
        forbidden: &BTreeSet<usize>,
        warnings: &Warnings,
    ) -> Self {
        let mut composites: Vec<_> = program.composites.iter().map(|_| None).collect();
        let allowed = program.callees_first.iter().filter(|at| !forbidden.contains(*at));
        for &at in allowed {
            let found = find_tools(&program.composites[at], tools, &composites);
            composites[at] = Available::new(&program.composites[at], &found, warnings);
        }
        Self { composites }
    }

    /// Returns the composite with this index. Returns `None` if one of its required tools is
    /// missing, or if the composite is forbidden.
    pub(super) fn available(&self, composite: usize) -> Option<&Available> {
        self.composites[composite].as_deref()
    }
}

// === impl Available ===

impl Available {
    /// `found` contains the tools that the targets of the composite call, ordered by call site.
    /// Returns `None` if a required tool is missing.
    fn new(compiled: &Compiled, found: &[Option<&Tool>], warnings: &Warnings) -> Option<Box<Self>> {
        if !check_presence(compiled, found, warnings) {
            return None;
        }
        warn_of_misfits(compiled, found, warnings);
        let annotations = annotations(compiled, found, warnings);
        let input_schema = input_schema(compiled, found);
        let calls = compiled.plan.sites().zip(found);
        let targets: Vec<_> =
            calls.map(|(call, tool)| ResolvedTarget::new(call, *tool, &input_schema)).collect();
        // A default in a declared input schema belongs to the composite itself, so all targets
        // receive it.
        let passes_given = compiled.input_schema.is_none()
            && targets.iter().any(|target| target.arguments == ArgumentSource::Input);
        let of_tools = schema_of_tools(compiled, found);
        let tool = tool(compiled, of_tools.cloned(), input_schema.clone(), annotations);
        let output = match (of_tools, &tool.output_schema) {
            (Some(schema), _) => OutputSchema::OfTools(Arc::new(InputSchema::new(schema.clone()))),
            (None, Some(_)) => OutputSchema::Own,
            (None, None) => OutputSchema::None,
        };
        let input = Input::new(input_schema);
        Some(Box::new(Self { tool, input, passes_given, output, targets }))
    }

    /// Adds the defaults of the input schema to the arguments of a call, and then checks the
    /// arguments; see [`Input::check`].
    pub(super) fn check(
        &self,
        tool: &str,
        arguments: Option<JsonObject>,
    ) -> Result<Checked, Refusal> {
        self.input.check(tool, arguments, self.passes_given)
    }
}

/// Returns the tools that the targets of a composite call, ordered by call site. An element is
/// `None` if its tool is missing.
fn find_tools<'t>(
    compiled: &Compiled,
    tools: &'t Tools,
    composites: &'t [Option<Box<Available>>],
) -> Vec<Option<&'t Tool>> {
    let targets = compiled.plan.sites().zip(&compiled.targets);
    targets
        .map(|(call, target)| match target.route {
            Route::Inner => tools.get(&call.tool),
            Route::Composite(callee) => composites[callee].as_ref().map(|callee| &callee.tool),
        })
        .collect()
}

/// Returns `true` if `found` contains all tools that the composite needs to run. Logs a warning
/// that names the missing tools, if any.
fn check_presence(compiled: &Compiled, found: &[Option<&Tool>], warnings: &Warnings) -> bool {
    let calls = compiled.plan.sites().zip(found);
    let missing: Vec<_> = calls
        .filter(|(_, tool)| tool.is_none())
        .map(|(call, _)| format!("`{}`", call.tool))
        .collect();
    let known = found.len() - missing.len();
    let lacks_required =
        found.iter().enumerate().any(|(at, tool)| tool.is_none() && compiled.requires(at));
    let name = &compiled.name;
    if lacks_required || known < compiled.needed() || (known == 0 && !missing.is_empty()) {
        warnings.warn(format_args!("composite `{name}` is not listed: no {}", missing.join(", ")));
        return false;
    }
    if !missing.is_empty() {
        warnings.warn(format_args!("composite `{name}` runs without {}", missing.join(", ")));
    }
    true
}

/// Logs a warning for each argument in the definition of a composite that can never match the input
/// schema of the called tool.
fn warn_of_misfits(compiled: &Compiled, found: &[Option<&Tool>], warnings: &Warnings) {
    let name = &compiled.name;
    for step in compiled.plan.steps() {
        for call in step.action.calls() {
            let tool = found.get(call.site.site).copied().flatten();
            let place = [call.path, vec!["arguments".into()]].concat();
            let misfits = tool.map(|tool| misfits_of(call.site, tool));
            for Misfit { path, message } in misfits.into_iter().flatten() {
                warnings.warn(format_args!(
                    "composite `{name}`, `{}`, `{}`: {message}",
                    step.id,
                    DisplayPath(&[&*place, &path].concat()),
                ));
            }
        }
    }
}

/// Returns the annotations of a composite. If the definition sets an annotation that claims more
/// safety than the called tools provide, ignores the annotation and logs a warning.
fn annotations(
    compiled: &Compiled,
    found: &[Option<&Tool>],
    warnings: &Warnings,
) -> ToolAnnotations {
    let annotations: Vec<_> =
        found.iter().map(|tool| tool.and_then(|tool| tool.annotations.as_ref())).collect();
    let derived = derive_annotations(&annotations);
    let (annotations, claims) = merge_annotations(&compiled.definition.annotations, &derived);
    if !claims.is_empty() {
        let claims = claims.join(", ");
        warnings.warn(format_args!(
            "composite `{}` claims more safety than its targets have: {claims} ignored",
            compiled.name,
        ));
    }
    annotations
}

/// Returns the input schema of a composite: the declared schema or, if the definition declares
/// none, a schema that is derived from the input schemas of the called tools.
pub(super) fn input_schema(compiled: &Compiled, found: &[Option<&Tool>]) -> Arc<JsonObject> {
    if let Some(schema) = &compiled.input_schema {
        return schema.clone();
    }
    let calls = compiled.plan.calls();
    let sources: Vec<_> = calls
        .zip(&compiled.targets)
        .map(|((id, call), target)| Source {
            id,
            certain: target.certain,
            arguments: &call.arguments,
            schema: found.get(call.site).copied().flatten().map(|tool| &*tool.input_schema),
        })
        .collect();
    Arc::new(schema::derive_input(&sources, needs(&compiled.plan)))
}

/// Returns the arguments in the definition of a tool call that can never match the input schema of
/// the tool.
fn misfits_of(call: &CallSite, tool: &Tool) -> Vec<Misfit> {
    match &call.arguments {
        Arguments::Input => Vec::new(),
        Arguments::Mapped(arguments) => misfits(&tool.input_schema, &arguments.sketch()),
    }
}

/// Returns the references to the composite's input outside the arguments of tool calls, for example
/// in conditions, in the output block, or in the collection of a loop.
fn needs(plan: &Plan) -> Vec<Need<'_>> {
    fn add<'p>(needs: &mut Vec<Need<'p>>, uses: Vec<Use<'p>>, certain: bool) {
        needs.extend(uses.into_iter().map(|used| Need { used, certain, schema: None }));
    }

    let mut needs = Vec::new();
    for (index, step) in plan.steps().iter().enumerate() {
        let aborts = !step.may_fail() && plan.precedes_stops(index);
        if let Some(condition) = &step.condition {
            add(&mut needs, condition.uses(), aborts);
        }
        let certain = aborts && step.condition.is_none();
        for (is_first, used) in step.action.decisions() {
            // Only a reference that is the whole collection of a loop must have an array as its
            // value. A reference inside a literal array can have any value.
            let is_collection = used.place == [PathSegment::from("collection")];
            let schema = is_collection.then(|| json!({ "type": "array" }));
            needs.push(Need { used, certain: certain && is_first, schema });
        }
    }
    if let plan::RunOutput::Output(output) = &plan.answer {
        add(&mut needs, output.uses(), true);
    }
    needs
}

/// Returns the output schema of the called tools, if the composite returns their results unchanged.
/// Returns `None` if the composite declares an output schema, or if its results may come from tools
/// with different schemas or from no tool.
fn schema_of_tools<'t>(
    compiled: &Compiled,
    found: &[Option<&'t Tool>],
) -> Option<&'t Arc<JsonObject>> {
    if compiled.output_schema.is_some() {
        return None;
    }
    let mut schemas = found.iter().map(|tool| tool.and_then(|tool| tool.output_schema.as_ref()));
    match compiled.answer {
        ResultForm::Branches { .. } => None,
        ResultForm::Steps { .. } => {
            let call = certain_last(compiled)?.action.as_call()?;
            schemas.nth(call.site).flatten()
        }
        ResultForm::Winner => {
            let first = schemas.next().flatten();
            first.filter(|first| schemas.all(|schema| schema == Some(first)))
        }
    }
}

/// Returns the last step of a pipeline or workflow that is not a finally step. Returns `None` if a
/// successful run may end without completing this step.
fn certain_last(compiled: &Compiled) -> Option<&Step> {
    let is_certain = |last: &&Step| {
        !last.may_be_skipped() && !compiled.plan.may_end_early() && !compiled.may_be_partial()
    };
    let mut steps = compiled.plan.steps().iter().rev();
    steps.find(|step| !step.is_final()).filter(is_certain)
}

fn tool(
    compiled: &Compiled,
    of_tools: Option<Arc<JsonObject>>,
    input_schema: Arc<JsonObject>,
    annotations: ToolAnnotations,
) -> Tool {
    let mut tool =
        Tool::new(compiled.name.to_string(), compiled.definition.description.clone(), input_schema)
            .with_annotations(annotations);
    tool.title.clone_from(&compiled.definition.title);
    tool.output_schema = match (&compiled.output_schema, compiled.answer) {
        (Some(given), _) => Some(given.schema().clone()),
        (None, ResultForm::Branches { report: true, .. }) => {
            let ids = compiled.plan.steps().iter().map(|step| &*step.id);
            Some(Arc::new(output_schemas::report_schema(ids)))
        }
        (None, ResultForm::Branches { report: false, .. }) => None,
        (None, ResultForm::Steps { .. }) => of_tools.or_else(|| {
            let action = &certain_last(compiled)?.action;
            let of_loop = action.as_loop().map(output_schemas::loop_schema);
            let answer = |ask: &Elicitation| output_schemas::answer_schema(ask.schema.schema());
            of_loop.or_else(|| action.as_elicitation().map(answer)).map(Arc::new)
        }),
        (None, ResultForm::Winner) => of_tools,
    };
    tool
}

// === impl ResolvedTarget ===

impl ResolvedTarget {
    /// Creates the target for a call in the definition. `tool` is the tool that it calls, or `None`
    /// if this tool is missing. `input_schema` is the input schema of the composite that contains
    /// the call.
    fn new(call: &CallSite, tool: Option<&Tool>, input_schema: &JsonObject) -> Self {
        let schema = tool.map(|tool| tool.input_schema.clone());
        let closed = schema.as_deref().is_some_and(schema::is_closed);
        let is_checked =
            || schema.as_deref().is_some_and(|schema| schema::adopt_whole(schema) == *input_schema);
        let arguments = match call.arguments {
            Arguments::Mapped(_) => ArgumentSource::Mapped,
            Arguments::Input if is_checked() => ArgumentSource::CheckedInput,
            Arguments::Input => ArgumentSource::Input,
        };
        let annotations = tool.and_then(|tool| tool.annotations.as_ref());
        let is_read_only = annotations.and_then(|it| it.read_only_hint) == Some(true);
        let is_idempotent = annotations.and_then(|it| it.idempotent_hint) == Some(true);
        Self {
            name: call.tool.clone(),
            schema: schema.map(Input::new),
            closed,
            arguments,
            is_read_only,
            is_repeatable: is_read_only || is_idempotent,
            effect: tool.map_or(Effect::Harmless, |_| Effect::new(annotations)),
        }
    }

    /// Converts the arguments of a tool call to the types that the input schema of the tool
    /// declares, and then checks them. Returns the converted arguments.
    ///
    /// If the target passes the whole input of the composite to its tool, the input is first
    /// adapted to the tool:
    /// - If `given` is set, it replaces the arguments. It is the input as the client sent it,
    ///   without the defaults of other targets.
    /// - Arguments that the tool would reject as unknown are removed.
    /// - The defaults of the tool's input schema are added.
    ///
    /// If the tool has the same input schema as the composite, the input is passed on unchanged.
    ///
    /// # Errors
    ///
    /// Returns an error that lists each violation of the schema with the path of the invalid
    /// argument.
    pub(super) fn prepare(
        &self,
        mut arguments: JsonObject,
        given: Option<&JsonObject>,
    ) -> Result<JsonObject, StepError> {
        let Some(schema) = &self.schema else { return Ok(arguments) };
        if self.arguments == ArgumentSource::Input {
            if let Some(given) = given {
                arguments.clone_from(given);
            }
            if self.closed {
                arguments.retain(|name, _| schema::declares(schema.schema(), name));
            }
        }
        let tool = &*self.name;
        let mut arguments = Value::Object(arguments);
        let fits = match self.arguments {
            ArgumentSource::CheckedInput => Ok(()),
            ArgumentSource::Input => {
                schema.add_defaults(tool, &mut arguments);
                schema.fit(tool, &mut arguments)
            }
            ArgumentSource::Mapped => schema.fit(tool, &mut arguments),
        };
        match (fits, arguments) {
            (Ok(()), Value::Object(arguments)) => Ok(arguments),
            (Ok(()), _) => Ok(JsonObject::new()),
            // The error is reported as if the tool itself had rejected the arguments.
            (Err(refusal), _) => Err(StepError::protocol(refusal.to_error())),
        }
    }
}
