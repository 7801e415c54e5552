//! The data of a run to which expressions can refer.

use std::borrow::Cow;

use serde_json::Value;

/// Provides the data of a run to the expressions that read it.
pub(crate) trait Data {
    /// Returns the value of a root. Returns `None` if the value does not exist yet, for example
    /// because the step has not run.
    fn get(&self, root: Root) -> Option<Cow<'_, Value>>;
}

/// The value at which the path of a reference starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// The input of the run: the arguments of the composite.
    Input,
    /// A field of a step's record. The record contains the outcome of the step.
    Step {
        /// The index of the step in the list of all steps.
        step: usize,
        /// The field of the record.
        field: Field,
    },
    /// The current element of a loop.
    Item,
    /// The index of the current element of a loop, starting at zero.
    Index,
    /// The ID of the run.
    WorkflowId,
    /// The name of the composite.
    WorkflowName,
    /// The time at which the run started, in RFC 3339 format.
    WorkflowStartedAt,
}

/// A field of a step's record. The record contains the outcome of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// The output of the step: the structured content of the tool result, the JSON value that was
    /// parsed from the result, or an object with the result's content blocks.
    Output,
    /// An object with all content blocks of the tool result, under keys such as `text`, `text_1`,
    /// `image_0` and `resource`.
    Content,
    /// The first text in the tool result.
    Text,
    /// The status of the step, such as `completed`.
    Status,
    /// The error of the step, as an object with `kind` and `message`. Null if the step has no
    /// error.
    Error,
}

// === impl Field ===

impl Field {
    /// All fields of a step's record.
    pub(crate) const ALL: [Self; 5] =
        [Self::Output, Self::Content, Self::Text, Self::Status, Self::Error];

    /// Returns the name of the field in references.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Content => "content",
            Self::Text => "text",
            Self::Status => "status",
            Self::Error => "error",
        }
    }

    /// Returns the field with this name. Returns `None` if no field has this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// Uses the JSON value as the input. All other roots have no value.
impl Data for Value {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        (root == Root::Input).then_some(Cow::Borrowed(self))
    }
}
