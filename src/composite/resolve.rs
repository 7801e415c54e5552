use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};

use super::{
    compile::{Answer, Compiled, Program, Route},
    input::Input,
    schema::{self, Source},
};
use crate::{catalog::Tools, complaints::Complaints};

/// What becomes of a program's composites with the tools that there are.
#[derive(Debug)]
pub(super) struct Resolved {
    /// In the order of the program.
    pub(super) composites: Vec<Resolution>,
}

/// What becomes of one composite.
#[derive(Debug)]
pub(super) enum Resolution {
    /// It can run.
    Available(Box<Available>),
    /// Tools that it cannot do without are not known.
    Missing,
}

/// A composite that can run with the tools that there are.
#[derive(Debug)]
pub(super) struct Available {
    /// It, as a tool.
    pub(super) tool: Tool,
    pub(super) input: Input,
    /// Whether its input schema was derived.
    pub(super) derived: bool,
    /// How each of its targets is called.
    pub(super) targets: Vec<ResolvedTarget>,
}

/// A target with the tools that there are.
#[derive(Debug)]
pub(super) struct ResolvedTarget {
    /// The input schema of its tool, if there is such a tool.
    schema: Option<Arc<JsonObject>>,
    /// Whether the tool refuses what its schema does not name.
    closed: bool,
}

// === impl Resolved ===

impl Resolved {
    pub(super) fn new(program: &Program, tools: &Tools, complaints: &Complaints) -> Self {
        let mut composites: Vec<_> =
            program.composites.iter().map(|_| Resolution::Missing).collect();
        for &at in &program.callees_first {
            composites[at] =
                Resolution::new(&program.composites[at], tools, &composites, complaints);
        }
        Self { composites }
    }

    /// The composite, if it can run.
    pub(super) fn available(&self, composite: usize) -> Option<&Available> {
        self.composites[composite].available()
    }
}

// === impl Resolution ===

impl Resolution {
    fn new(
        compiled: &Compiled,
        tools: &Tools,
        composites: &[Self],
        complaints: &Complaints,
    ) -> Self {
        let found: Vec<Option<&Tool>> = compiled
            .plan
            .steps
            .iter()
            .zip(&compiled.targets)
            .map(|(step, target)| match target.route {
                Route::Inner => tools.get(&step.tool),
                Route::Composite(callee) => {
                    composites[callee].available().map(|callee| &callee.tool)
                }
            })
            .collect();

        let steps = || compiled.plan.steps.iter().zip(&found);
        let missing: Vec<_> = steps()
            .filter(|(_, tool)| tool.is_none())
            .map(|(step, _)| format!("`{}`", step.tool))
            .collect();
        let known = found.len() - missing.len();
        let lacks_required =
            found.iter().enumerate().any(|(at, tool)| tool.is_none() && compiled.requires(at));
        let name = &compiled.name;
        if lacks_required || known < compiled.needed() || known == 0 {
            complaints
                .tell(format_args!("composite `{name}` is not listed: no {}", missing.join(", ")));
            return Self::Missing;
        }
        if !missing.is_empty() {
            complaints.tell(format_args!("composite `{name}` goes without {}", missing.join(", ")));
        }

        let targets = steps().map(|(_, tool)| ResolvedTarget::new(*tool)).collect();
        let annotations: Vec<_> =
            found.iter().map(|tool| tool.and_then(|tool| tool.annotations.as_ref())).collect();
        let derived = schema::derive_annotations(&annotations);
        let (annotations, claims) = schema::merge_annotations(&compiled.annotations, &derived);
        if !claims.is_empty() {
            let claims = claims.join(", ");
            complaints.tell(format_args!(
                "composite `{name}` claims more safety than its targets have: {claims} ignored"
            ));
        }
        let derived = compiled.input_schema.is_none();
        let input_schema = match &compiled.input_schema {
            Some(schema) => schema.clone(),
            None => Arc::new(derive_input(compiled, &found)),
        };
        let tool = tool(compiled, &found, input_schema.clone(), annotations);
        Self::Available(Box::new(Available {
            tool,
            input: Input::new(input_schema),
            derived,
            targets,
        }))
    }

    fn available(&self) -> Option<&Available> {
        match self {
            Self::Available(available) => Some(available),
            Self::Missing => None,
        }
    }
}

fn derive_input(compiled: &Compiled, found: &[Option<&Tool>]) -> JsonObject {
    let sources: Vec<_> = compiled
        .plan
        .steps
        .iter()
        .zip(&compiled.targets)
        .zip(found)
        .map(|((step, target), tool)| Source {
            id: &step.id,
            optional: target.optional,
            arguments: &step.arguments,
            schema: tool.map(|tool| &*tool.input_schema),
        })
        .collect();
    schema::derive_input(&sources)
}

fn tool(
    compiled: &Compiled,
    found: &[Option<&Tool>],
    input_schema: Arc<JsonObject>,
    annotations: ToolAnnotations,
) -> Tool {
    let mut tool = Tool::new(compiled.name.to_string(), compiled.description.clone(), input_schema)
        .with_annotations(annotations);
    tool.title.clone_from(&compiled.title);
    tool.output_schema = match (&compiled.output_schema, compiled.answer) {
        (Some(given), _) => Some(given.clone()),
        (None, Answer::Branches { report: true, .. }) => {
            let ids = compiled.plan.steps.iter().map(|step| &*step.id);
            Some(Arc::new(schema::report_schema(ids)))
        }
        (None, Answer::Branches { report: false, .. }) => None,
        // The winner's result is passed on: what all targets promise, it keeps.
        (None, Answer::Winner) => {
            let mut schemas =
                found.iter().map(|tool| tool.and_then(|tool| tool.output_schema.as_ref()));
            let first = schemas.next().flatten();
            first.filter(|first| schemas.all(|schema| schema == Some(first))).cloned()
        }
    };
    tool
}

// === impl ResolvedTarget ===

impl ResolvedTarget {
    fn new(tool: Option<&Tool>) -> Self {
        let schema = tool.map(|tool| tool.input_schema.clone());
        let closed = schema.as_deref().is_some_and(schema::is_closed);
        Self { schema, closed }
    }

    /// Whether there is such a tool.
    pub(super) const fn exists(&self) -> bool {
        self.schema.is_some()
    }

    /// Leaves out arguments that the tool did not ask for: all of them if it
    /// takes no others, else those in `optional`.
    pub(super) fn narrow(&self, arguments: &mut JsonObject, optional: &[String]) {
        let Some(schema) = &self.schema else { return };
        if self.closed {
            arguments.retain(|name, _| schema::declares(schema, name));
        } else {
            for name in optional {
                if !schema::declares(schema, name) {
                    arguments.remove(name);
                }
            }
        }
    }
}
