//! The data of a run that expressions can read.

use std::borrow::Cow;

use serde_json::Value;

/// Provides the values that expressions can read, such as the input of a run and the outputs of its
/// steps.
pub(crate) trait Data {
    /// Returns the value of `root`. Returns `None` if the value does not exist, for example because
    /// the step has not run.
    fn get(&self, root: Root) -> Option<Cow<'_, Value>>;
}

/// The value at which a reference starts, such as the input of the run or the output of a step. The
/// rest of the reference is a path to a part of this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// The input of the run, which consists of the validated arguments of the composite call.
    Input,
    /// A field of a step's data, such as its output or its status.
    Step {
        /// The index of the step in the plan.
        step: usize,
        /// The selected field.
        field: Field,
    },
    /// The current element of a loop or, in a loop without a collection, the output of the previous
    /// iteration.
    Item,
    /// The index of the current loop element, starting at zero.
    Index,
    /// The ID of the run.
    WorkflowId,
    /// The name of the composite.
    WorkflowName,
    /// The time at which the run started, in RFC 3339 format.
    WorkflowStartedAt,
}

/// A field of the data of a step. A reference selects it by name: `$steps.search.output` reads the
/// output of the step `search`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// The output of the step: the structured content of the tool result, the JSON value that was
    /// parsed from its text, or else an object with its content blocks.
    Output,
    /// An object with all content blocks of the tool result. Its keys are `text`, `text_1`,
    /// `image_0`, `resource` and so on.
    Content,
    /// An array of all content blocks of the tool result, in the form that the MCP specification
    /// defines.
    Blocks,
    /// The first text in the tool result.
    Text,
    /// The status of the step, such as `completed`.
    Status,
    /// The error of the step, as an object with the members `kind` and `message`. Null if the step
    /// has no error.
    Error,
}

// === impl Field ===

impl Field {
    /// All fields, in the order in which messages list them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Output, Self::Content, Self::Blocks, Self::Text, Self::Status, Self::Error];

    /// Returns the name by which references select the field.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Content => "content",
            Self::Blocks => "blocks",
            Self::Text => "text",
            Self::Status => "status",
            Self::Error => "error",
        }
    }

    /// Parses the name of a field. Returns `None` if no field has this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// Provides a JSON value as the input of the run. All other roots have no value.
impl Data for Value {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        (root == Root::Input).then_some(Cow::Borrowed(self))
    }
}
