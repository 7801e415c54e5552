//! Checks that each reference in a definition refers to a value that exists whenever the reference
//! is evaluated. For example, a reference to the output of a step that may be skipped is an error,
//! unless the step has default results.

use rmcp::model::JsonObject;

use super::mistakes::{DefinitionPath, in_steps};
use crate::{
    composite::{error::DefinitionErrorKind as Kind, output_schemas, schema},
    engine::{
        output::Output,
        plan::{Elicitation, Step},
        step_output::text_of,
    },
    expr::{Condition, Field, PathSegment, Root, Use, follow},
};

/// The parts of a composite definition that are needed to check its references: its name, its steps
/// and its input schema.
pub(super) struct Known<'c> {
    pub(super) composite: &'c str,
    pub(super) steps: &'c [Step],
    pub(super) input_schema: Option<&'c JsonObject>,
}

/// The place in a definition where a reference is written: a step or the output block.
#[derive(Clone, Copy)]
enum By<'c> {
    Step(&'c Step),
    Output,
}

// === impl Known ===

impl Known<'_> {
    /// Checks all references in the steps and in the output block `output`. Adds errors at the path
    /// `at`, and adds warnings to `remarks`.
    pub(super) fn check(
        &self,
        output: Option<&Output>,
        remarks: &mut Vec<String>,
        at: &mut DefinitionPath<'_>,
    ) {
        for (index, step) in self.steps.iter().enumerate() {
            let mut at = at.within(in_steps(index));
            for used in step.uses() {
                self.check_use(&used, By::Step(step), remarks, &mut at);
            }
        }
        for used in output.into_iter().flat_map(Output::uses) {
            self.check_use(&used, By::Output, remarks, &mut at.within(["output"]));
        }
    }

    /// Returns the step to which a reference refers and the field that it reads, such as `output`.
    /// Returns `None` for references that do not refer to a step, and for fields that every step
    /// has, such as `status`.
    fn field(&self, root: Root) -> Option<(&Step, Field)> {
        match root {
            Root::Step {
                step,
                field: field @ (Field::Output | Field::Content | Field::Blocks | Field::Text),
            } => Some((&self.steps[step], field)),
            _ => None,
        }
    }

    /// Returns an error if a reference reads a field that the referenced step never has, for
    /// example the `blocks` of a step without a tool result.
    fn missing_field(&self, used: &Use<'_>) -> Option<Kind> {
        let (step, field) = self.field(used.root)?;
        if step.action.as_early_end().is_some() {
            let (step, field) = (step.id.to_string(), field.name());
            return Some(Kind::OutputOfStop { step, field });
        }
        let is_checked = field == Field::Blocks || field != Field::Output && !used.optional;
        (is_checked && !step.action.has_tool_result()).then(|| no_tool_result(field, step))
    }

    fn check_use(
        &self,
        used: &Use<'_>,
        by: By<'_>,
        remarks: &mut Vec<String>,
        at: &mut DefinitionPath<'_>,
    ) {
        if by.precedes(used.root, self.steps) {
            return;
        }
        if let Some(mistake) = self.missing_field(used) {
            return at.push(used.place.clone(), mistake);
        }
        if used.optional {
            return;
        }
        let (step, field) = match (self.field(used.root), used.root) {
            (Some(field), _) => field,
            (None, Root::Input) => {
                let schema = self.input_schema;
                let unknown = schema.and_then(|schema| schema::undeclared(schema, used.path));
                if let Some((name, near)) = unknown {
                    at.push(used.place.clone(), Kind::UnknownInput { name, near });
                }
                return;
            }
            _ => return,
        };
        if let Some(ask) = step.action.as_elicitation() {
            if let Some(mistake) = unanswerable(used, step, ask) {
                return at.push(used.place.clone(), mistake);
            }
            if field == Field::Output
                && let Some(why) = may_be_unanswered(used, step, ask)
                && !by.has_condition_on(used.root)
            {
                remarks.push(format!(
                    "composite `{}`: {} needs `{}`, but {why}: end it in `?`, or let a condition look at the `action`",
                    self.composite,
                    by.message(),
                    used.text,
                ));
            }
        }
        let may_be_missing = step.may_be_skipped() || by.is_final_without_check(used.root);
        if may_be_missing && !has_default(step, field, used.path) {
            let missing = || match field {
                Field::Output => {
                    let path: String = used.path.iter().map(ToString::to_string).collect();
                    Some(path.strip_prefix('.').unwrap_or(&path).to_owned())
                }
                Field::Text => Some(field.name().to_owned()),
                _ => None,
            };
            let kind = Kind::NoDefault {
                step: step.id.to_string(),
                by: by.id(),
                reference: used.text.to_owned(),
                lacks: step.default_results.as_ref().and_then(|_| missing()),
            };
            at.push(used.place.clone(), kind);
        }
    }
}

/// Checks a reference to the user's answer in the elicitation step `step`. Returns an error if no
/// valid answer can contain the referenced value, for example because the form has no such
/// property. Returns `None` if the reference is valid.
fn unanswerable(used: &Use<'_>, step: &Step, ask: &Elicitation) -> Option<Kind> {
    let form = ask.schema.schema();
    let (name, near) = schema::undeclared(&output_schemas::answer_schema(form), used.path)?;
    // Properties of the form are in the `content` of the answer.
    let is_in_form = used.path.len() == 1 && schema::declares(form, &name);
    let near = if is_in_form { Some(format!("content.{name}")) } else { near };
    Some(Kind::UnknownAnswer { step: step.id.to_string(), name, near })
}

/// Creates the error for a reference to a field that only tool results have, such as `content`, if
/// the referenced step has no tool result.
fn no_tool_result(field: Field, step: &Step) -> Kind {
    let output = format!("$steps{}.output", PathSegment::Key(step.id.to_string()));
    let near = match step.action.as_elicitation() {
        Some(_) => output + ".content",
        None => output,
    };
    Kind::NoToolResult { step: step.id.to_string(), field: field.name(), near }
}

/// Returns `true` if the default results of `step` contain the referenced value. For example, the
/// reference `$steps.search.output.hits` has the field `output` and the path `hits`.
fn has_default(step: &Step, field: Field, path: &[PathSegment]) -> bool {
    step.default_results.as_ref().is_some_and(|defaults| match field {
        Field::Output => follow(defaults, path).is_some(),
        Field::Text => text_of(defaults).is_some(),
        _ => false,
    })
}

/// Returns the reason why the user's answer may not contain the referenced value. The user may
/// decline the question, or omit a property that is not required. Returns `None` if every answer
/// contains the value.
fn may_be_unanswered(used: &Use<'_>, step: &Step, ask: &Elicitation) -> Option<String> {
    let [PathSegment::Key(content), path @ ..] = used.path else { return None };
    if content != "content" || !used.certain {
        return None;
    }
    if ask.may_go_on() {
        return Some(format!("step `{}` can complete without an answer", step.id));
    }
    let [PathSegment::Key(name), ..] = path else { return None };
    let required = ask.schema.schema().get("required").and_then(|names| names.as_array());
    let is_required = required.is_some_and(|names| names.iter().any(|other| other == name));
    (!is_required).then(|| format!("the user may leave it out when answering step `{}`", step.id))
}

// === impl By ===

impl By<'_> {
    /// Returns `true` if the reference is in a step, and a condition of the same step also reads
    /// `field`.
    fn has_condition_on(self, field: Root) -> bool {
        let Self::Step(step) = self else { return false };
        let cases = step.action.calls().filter_map(|call| call.when);
        let mut uses = step.condition.iter().chain(cases).flat_map(Condition::uses);
        uses.any(|used| used.root == field)
    }

    /// Returns `true` if an ordinary step refers to a finally step, which runs only later.
    /// `finals::check` reports this error, so it is not reported here.
    fn precedes(self, field: Root, steps: &[Step]) -> bool {
        let (Self::Step(by), Root::Step { step, .. }) = (self, field) else { return false };
        !by.is_final() && steps[step].is_final()
    }

    /// Returns `true` if a finally step refers to another step without checking its status in a
    /// condition. The other step may have been skipped or cancelled, and then has no output.
    fn is_final_without_check(self, field: Root) -> bool {
        let (Self::Step(by), Root::Step { step, .. }) = (self, field) else { return false };
        let status = Root::Step { step, field: Field::Status };
        by.is_final() && !self.has_condition_on(status)
    }

    fn id(self) -> Option<String> {
        match self {
            Self::Step(step) => Some(step.id.to_string()),
            Self::Output => None,
        }
    }

    fn message(self) -> String {
        match self {
            Self::Step(step) => format!("step `{}`", step.id),
            Self::Output => "the output".to_owned(),
        }
    }
}
