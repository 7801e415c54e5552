//! The data of a run that expressions can read.

use std::borrow::Cow;

use serde_json::Value;

/// Provides the values that expressions read, such as the input of a run and the outputs of its
/// steps.
pub(crate) trait Data {
    /// Returns the value of `root`. Returns `None` if there is no such value, for example because
    /// the step has not run.
    fn get(&self, root: Root) -> Option<Cow<'_, Value>>;
}

/// The value at which a reference starts. For example, `$input.query` starts at the input of the
/// run. The rest of the reference is a path to a part of this value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// The input of the run: the validated arguments of the composite call.
    Input,
    /// A field of a step, such as its output.
    Step {
        /// The index of the step.
        step: usize,
        field: Field,
    },
    /// The current element of a loop. In a loop that repeats a call, the output of the previous
    /// iteration.
    Item,
    /// The index of the current loop element, starting at zero. Written as `$index`.
    Index,
    /// The ID of the run.
    WorkflowId,
    /// The name of the composite.
    WorkflowName,
    /// The start of the run in RFC 3339 format.
    WorkflowStartedAt,
}

/// A field of a step. For example, `$steps.search.output` reads the field `output` of the step
/// `search`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// The output: the structured content of the tool result or the value that was parsed from its
    /// text. Without both, an object with the content blocks, like `Content`.
    Output,
    /// An object with all content blocks of the tool result. Its keys are `text`, `text_1`,
    /// `image_0`, `resource` and so on.
    Content,
    /// An array of all content blocks of the tool result, as in the MCP specification.
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
    pub(crate) const ALL: [Self; 6] =
        [Self::Output, Self::Content, Self::Blocks, Self::Text, Self::Status, Self::Error];

    /// Returns the name of the field in references, such as `output`.
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

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// A JSON value as data, which contains only the input of a run.
impl Data for Value {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        (root == Root::Input).then_some(Cow::Borrowed(self))
    }
}
