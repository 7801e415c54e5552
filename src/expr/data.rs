//! The values that expressions refer to.

use std::borrow::Cow;

use serde_json::Value;

/// The values that expressions refer to, during an evaluation.
pub(crate) trait Data {
    /// Returns the value of a root; `None` if it has none at this time.
    fn get(&self, root: Root) -> Option<Cow<'_, Value>>;
}

/// The root of a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// The input of the run.
    Input,
    /// A field of the record of a step.
    Step {
        /// Its index in the plan.
        step: usize,
        field: Field,
    },
    /// The current element of a loop.
    Item,
    /// Its index, from zero.
    Index,
    /// The id of the run.
    WorkflowId,
    /// The name of the composite.
    WorkflowName,
}

/// A field of the record of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// The output: structured content, parsed JSON, or an object built from the content.
    Output,
    /// An object built from the content of the result: `text`, `text_1`, `image_0`, `resource`.
    Content,
    /// The first text of the result.
    Text,
    /// The status, such as `completed`.
    Status,
    /// The error, as an object with `kind` and `message`, or null.
    Error,
}

// === impl Field ===

impl Field {
    /// All fields.
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

    /// Finds a field by name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// Data with only the input.
impl Data for Value {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        (root == Root::Input).then_some(Cow::Borrowed(self))
    }
}
