//! Errors in composite definitions.

use std::{fmt, time::Duration};

use super::form_error::FormError;
pub use crate::expr::PathSegment as Segment;
use crate::{expr::ExpressionError, names::is_plain, suggest::DidYouMean};

/// All errors that were found in the composite definitions of a layer when the layer was built.
///
/// The `Display` implementation of `DefinitionErrors` prints one error per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionErrors(Vec<DefinitionError>);

/// An error in the definition of a composite tool. Contains the [path](Self::path) of the invalid
/// setting and the [kind](Self::kind) of the error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionError {
    composite: String,
    path: Vec<Segment>,
    kind: DefinitionErrorKind,
}

/// The kind of a [`DefinitionError`], with its details.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefinitionErrorKind {
    /// A required text, such as a name, is blank.
    #[error("`{key}` is blank")]
    Blank {
        /// The key of the blank text in the definition, for example `name`.
        key: &'static str,
    },
    /// The name of a composite breaks the MCP rules for tool names.
    #[error("illegal tool name {name:?}: expected 1 to 128 of {}", characters(separator))]
    IllegalName {
        /// The illegal name.
        name: String,
        /// The separator that the layer allows in the names of composites, such as `/`. Empty if no
        /// separator is configured.
        separator: String,
    },
    /// The separator that is allowed in the names of composites, such as `/`, is empty, too long,
    /// or contains characters other than visible ASCII.
    #[error(
        "illegal separator {separator:?}: expected 1 to {max} visible ASCII characters, such as `/`"
    )]
    IllegalSeparator {
        /// The illegal separator.
        separator: String,
        /// The maximum length of a separator in characters.
        max: usize,
    },
    /// Two composites have the same name.
    #[error("duplicate composite name `{name}`")]
    DuplicateName {
        /// The name that both composites have.
        name: String,
    },
    /// A fan-out, race or fallback has no targets, so there is no tool for it to call.
    #[error("no targets: expected at least one tool to call")]
    NoTargets,
    /// A fan-out, race or fallback has too many targets.
    #[error("{count} targets: expected at most {max}")]
    TooManyTargets {
        /// The number of targets in the definition.
        count: usize,
        /// The maximum number of targets.
        max: usize,
    },
    /// A pipeline or workflow has no steps.
    #[error("no steps: expected at least one")]
    NoSteps,
    /// A pipeline or workflow has too many steps.
    #[error("{count} steps: expected at most {max}")]
    TooManySteps {
        /// The number of steps in the definition.
        count: usize,
        /// The maximum number of steps.
        max: usize,
    },
    /// All steps of a pipeline or workflow are finally steps, which run after the other steps.
    #[error("no steps: expected at least one that is not a `finally` step")]
    OnlyFinally,
    /// In a pipeline, a step follows a finally step, although finally steps run after all other
    /// steps.
    #[error("this step follows the `finally` step `{finally}`: move it before that step")]
    AfterFinally {
        /// The id of the finally step that precedes the step.
        finally: String,
    },
    /// A step depends on a finally step or refers to its output, although finally steps run after
    /// all other steps.
    #[error("`{finally}` is a `finally` step, which runs after this step")]
    NeedsFinally {
        /// The id of the finally step that the step depends on or refers to.
        finally: String,
    },
    /// A [`Switch`](super::Switch) step has no cases, so there is no tool call to choose.
    #[error("no cases: expected at least one")]
    NoCases,
    /// A number in a definition is out of bounds.
    #[error("`{key}` is {value}: expected 1 to {max}")]
    OutOfBounds {
        /// The key of the setting in the definition, for example `max_parallel`.
        key: &'static str,
        /// The configured value of the setting.
        value: usize,
        /// The maximum value of the setting.
        max: usize,
    },
    /// In a retry policy or a repeated call, the first delay exceeds the maximum delay.
    #[error("`delay` is {delay:?}: expected at most the `max_delay` of {max_delay:?}")]
    DelayTooLong {
        /// The configured first delay, for example the delay before the first retry.
        delay: Duration,
        /// The configured maximum of all delays.
        max_delay: Duration,
    },
    /// A step depends on a step that does not exist.
    #[error("unknown step `{step}`{}", DidYouMean(near.as_deref()))]
    UnknownStep {
        /// The id of the missing step.
        step: String,
        /// The id of the existing step that is most similar to the unknown id. The error message
        /// suggests it. `None` if no id is similar.
        near: Option<String>,
    },
    /// The steps of a workflow depend on each other in a cycle, so none of them could start.
    #[error("a cycle of steps: {}", chain(steps))]
    StepCycle {
        /// The ids of the steps in the cycle. The first id is repeated at the end.
        steps: Vec<String>,
    },
    /// The name that a loop sets for its current element (`item_var`) is not a legal variable name.
    #[error(
        "illegal item_var {name:?}: expected letters, digits and `_`, no digit first, and no \
         reserved word"
    )]
    IllegalItemVar {
        /// The illegal variable name.
        name: String,
    },
    /// A repeated call refers to the output of the previous iteration (`$last`), which is absent in
    /// the first iteration. The reference must be optional (`$last?`) or have a default.
    #[error("`{reference}` is absent in the first iteration: write `{near}`")]
    AbsentLast {
        /// The reference to `$last`, as written in the definition.
        reference: String,
        /// The reference with a fallback for a missing value, for example `$last?`. The error
        /// message suggests it.
        near: String,
    },
    /// The factor by which the delay between the iterations of a [`Repeat`](super::Repeat) grows is
    /// out of bounds.
    #[error("`backoff` is {factor}: expected a factor from 1 to {max}")]
    Backoff {
        /// The configured factor, as text.
        factor: String,
        /// The maximum factor.
        max: u32,
    },
    /// A reference uses the output of a step that may be skipped or may fail, and the referenced
    /// value would then be missing. The step needs default results that contain the value.
    #[error("{}", no_default(step, by.as_deref(), reference, lacks.as_deref()))]
    NoDefault {
        /// The id of the referenced step, which may be skipped or fail.
        step: String,
        /// The id of the step in which the reference is written. `None` if it is written in the
        /// output block.
        by: Option<String>,
        /// The reference as written in the definition.
        reference: String,
        /// The part of the referenced path that the default results do not contain. `None` if the
        /// step has no default results at all.
        lacks: Option<String>,
    },
    /// A reference names an input property that the input schema of the composite does not declare.
    #[error("the input has no `{name}`{}", DidYouMean(near.as_deref()))]
    UnknownInput {
        /// The name of the input property that the reference uses.
        name: String,
        /// The declared input property whose name is most similar to the unknown name. The error
        /// message suggests it. `None` if no name is similar.
        near: Option<String>,
    },
    /// An output block, which builds the result of a pipeline or workflow, has no properties.
    #[error("no properties: expected at least one")]
    NoProperties,
    /// Two properties of an output block have the same name.
    #[error("duplicate property `{name}`")]
    DuplicateProperty {
        /// The name that both properties have.
        name: String,
    },
    /// An output block lists a property as required, but does not define this property.
    #[error("unknown property `{name}`{}", DidYouMean(near.as_deref()))]
    UnknownProperty {
        /// The name of the required property.
        name: String,
        /// The property of the output block whose name is most similar to the unknown name. The
        /// error message suggests it. `None` if no name is similar.
        near: Option<String>,
    },
    /// The properties of an output block are nested too deep.
    #[error("properties nested too deep: expected at most {max} levels")]
    PropertiesTooDeep {
        /// The maximum number of nested levels of properties.
        max: usize,
    },
    /// The default value of a property in an output block does not have the declared type of the
    /// property.
    #[error("the default is not of type {kind}")]
    DefaultType {
        /// The declared type of the property, such as `integer`.
        kind: &'static str,
    },
    /// The id of a target or step has an illegal length or illegal characters.
    #[error("illegal id {id:?}: expected 1 to 64 letters, digits, `_` and `-`")]
    IllegalId {
        /// The illegal id.
        id: String,
    },
    /// Two targets or two steps of a composite have the same id.
    #[error("duplicate id `{id}`")]
    DuplicateId {
        /// The id that both targets or both steps have.
        id: String,
    },
    /// An output block lists a step twice among the steps whose content blocks it adds to the
    /// result.
    #[error("duplicate step `{step}`")]
    DuplicateContent {
        /// The id of the step that is listed twice.
        step: String,
    },
    /// The quorum of a fan-out is zero or greater than the number of its targets.
    #[error("a quorum of {quorum} of {targets} targets: expected 1 to {targets}")]
    Quorum {
        /// The configured quorum, which is the number of targets that must succeed.
        quorum: usize,
        /// The number of targets of the fan-out.
        targets: usize,
    },
    /// Two settings cannot be combined, because one of them has no effect if the other is set.
    #[error("`{key}` cannot be used with `{with}`")]
    Meaningless {
        /// The key of the setting that has no effect.
        key: &'static str,
        /// The setting with which `key` cannot be combined, for example `strategy = "pipeline"`.
        with: String,
    },
    /// A number or duration that must be positive is zero.
    #[error("`{key}` is zero: expected more, or leave the key out")]
    Zero {
        /// The key of the setting in the definition, for example `timeout`.
        key: &'static str,
    },
    /// A step sets default results that can never be used. Default results replace the output of a
    /// step that is skipped, or that fails while the run continues.
    #[error(
        "`default_results` are never used: the step cannot be skipped, and if it fails, so does the run"
    )]
    UnusedDefault,
    /// The input or output schema of a composite cannot be used as the schema of a tool, for
    /// example because it is not a valid JSON Schema.
    #[error("`{key}` cannot be used: {reason}")]
    Schema {
        /// The key of the schema in the definition: `input_schema` or `output_schema`.
        key: &'static str,
        /// The reason why the schema cannot be used.
        reason: String,
    },
    /// A reference or template in the definition cannot be parsed or refers to an unknown value.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// The form of an [`Elicitation`](super::Elicitation) step, which asks the user a question, is
    /// invalid, so clients could not display it.
    #[error(transparent)]
    Form(#[from] FormError),
    /// A reference uses a field that only tool results have, such as `content`, but the referenced
    /// step has no tool result, for example because it is a loop or asks the user a question.
    #[error("step `{step}` has no `{field}`, which only the result of one tool has: use `{near}`")]
    NoToolResult {
        /// The id of the referenced step.
        step: String,
        /// The name of the referenced field, such as `content`.
        field: &'static str,
        /// A reference to the output of the step. The error message suggests it as a replacement.
        near: String,
    },
    /// A reference uses the output of a [`Stop`](super::Stop) step. No other step can use this
    /// output, because a stop step ends the run.
    #[error("step `{step}` ends the run, so no other step can use its `{field}`")]
    OutputOfStop {
        /// The id of the stop step.
        step: String,
        /// The name of the referenced field, such as `output`.
        field: &'static str,
    },
    /// A [`Stop`](super::Stop) step ends the run successfully with a text message, but the
    /// composite has an output schema, so its results must have structured content.
    #[error(
        "a composite with an output schema must return structured content: use `output` instead, \
         or set `is_error = true`"
    )]
    StopWithoutOutput,
    /// A step never starts, because it waits for a [`Stop`](super::Stop) step that always ends the
    /// run.
    #[error(
        "the step never starts: it waits for step `{stop}`, which always ends the run; give \
         `{stop}` a `condition`"
    )]
    NeverStarts {
        /// The id of the stop step.
        stop: String,
    },
    /// A reference uses a property that cannot occur in the user's answer to an elicitation step.
    #[error("the answer to step `{step}` has no `{name}`{}", DidYouMean(near.as_deref()))]
    UnknownAnswer {
        /// The id of the elicitation step that asks the question.
        step: String,
        /// The name of the property that the reference uses.
        name: String,
        /// The property of the answer whose name is most similar to the unknown name. The error
        /// message suggests it. `None` if no name is similar.
        near: Option<String>,
    },
    /// Composites call each other in a cycle.
    #[error("a cycle of composites: {}", chain(composites))]
    Cycle {
        /// The names of the composites in the order in which they call each other. The first name
        /// is repeated at the end to close the cycle.
        composites: Vec<String>,
    },
    /// Composites are nested too deep.
    #[error("composites nested {depth} deep, expected at most {max}: {}", chain(composites))]
    TooDeep {
        /// The names of the nested composites, from the outermost to the innermost.
        composites: Vec<String>,
        /// The nesting depth of the composites, which exceeds `max`.
        depth: usize,
        /// The maximum nesting depth of composites.
        max: usize,
    },
}

/// Returns the names of steps or composites that follow each other, such as `` `a` → `b` ``.
fn chain(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(" → ")
}

/// Returns the error message of [`DefinitionErrorKind::NoDefault`].
fn no_default(step: &str, by: Option<&str>, reference: &str, lacks: Option<&str>) -> String {
    let lacks = match lacks {
        Some(lacks) => format!("its `default_results` have no `{lacks}`"),
        None => "has no `default_results` for this".to_owned(),
    };
    let by = by.map_or_else(|| "the output".to_owned(), |by| format!("step `{by}`"));
    format!("step `{step}` can be skipped or fail, and {lacks}, which {by} needs as `{reference}`")
}

/// Returns the characters that are allowed in tool names.
fn characters(separator: &str) -> String {
    let others = match separator {
        plain if plain.chars().all(is_plain) => " and `.`".to_owned(),
        separator => format!(", `.`, and `{separator}` between them"),
    };
    format!("`A-Z`, `a-z`, `0-9`, `_`, `-`{others}")
}

// === impl DefinitionErrors ===

impl DefinitionErrors {
    pub(crate) const fn new(errors: Vec<DefinitionError>) -> Self {
        Self(errors)
    }

    /// Iterates over the errors, in the order of the composite definitions in which they occur.
    pub fn iter(&self) -> std::slice::Iter<'_, DefinitionError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a DefinitionErrors {
    type Item = &'a DefinitionError;
    type IntoIter = std::slice::Iter<'a, DefinitionError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for DefinitionErrors {
    type Item = DefinitionError;
    type IntoIter = std::vec::IntoIter<DefinitionError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl fmt::Display for DefinitionErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let errors: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&errors.join("\n"))
    }
}

impl std::error::Error for DefinitionErrors {}

// === impl DefinitionError ===

impl DefinitionError {
    pub(crate) const fn new(
        composite: String,
        path: Vec<Segment>,
        kind: DefinitionErrorKind,
    ) -> Self {
        Self { composite, path, kind }
    }

    /// Returns the name of the composite whose definition contains the error. Returns an empty
    /// string if the error does not belong to a single composite.
    #[must_use]
    pub fn composite(&self) -> &str {
        &self.composite
    }

    /// Returns the path of the invalid setting in the list of definitions, with the keys of a TOML
    /// configuration file. An example is `[0].targets[1].timeout`, where the first segment is the
    /// index of the composite. The path is empty if the error does not belong to a single
    /// composite.
    #[must_use]
    pub fn path(&self) -> &[Segment] {
        &self.path
    }

    /// Returns the kind of the error, with its details.
    #[must_use]
    pub const fn kind(&self) -> &DefinitionErrorKind {
        &self.kind
    }
}

impl fmt::Display for DefinitionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return self.kind.fmt(f);
        }
        write!(f, "composite `{}`", self.composite)?;
        // The first segment is the index of the composite. Its name is printed instead.
        match self.path.get(1..).unwrap_or_default() {
            [] => (),
            path => write!(f, " at `{}`", DisplayPath(path))?,
        }
        write!(f, ": {}", self.kind)
    }
}

// `Display` already includes the kind, so the kind is not returned as `source`.
impl std::error::Error for DefinitionError {}

/// Displays a path of keys and indexes in TOML notation, for example `targets[0].arguments."odd
/// key"`.
pub(crate) struct DisplayPath<'a>(pub(crate) &'a [Segment]);

impl fmt::Display for DisplayPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => {
                    f.write_str(if place == 0 { "" } else { "." })?;
                    if is_bare(key) {
                        f.write_str(key)?;
                    } else {
                        write!(f, "{:?}", key.chars().take(MAX_DISPLAYED_KEY).collect::<String>())?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The maximum number of characters that are printed of a single key.
const MAX_DISPLAYED_KEY: usize = 64;

/// Returns `true` if `key` is a bare key, which TOML allows without quotes.
fn is_bare(key: &str) -> bool {
    (1..=MAX_DISPLAYED_KEY).contains(&key.len())
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unusual_keys_are_quoted_in_paths() {
        let path = ["a".into(), 1.into(), "b-c".into(), "d e".into(), "".into(), "\u{7}".into()];
        assert_eq!(DisplayPath(&path).to_string(), "a[1].b-c.\"d e\".\"\".\"\\u{7}\"");
    }
}
