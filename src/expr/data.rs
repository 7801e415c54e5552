use std::{borrow::Cow, fmt};

use serde_json::Value;

/// The values that expressions refer to, as they are when one is evaluated.
///
/// Templates keep it while they are evaluated, so it is shared and not borrowed.
pub(crate) trait Data: fmt::Debug + Send + Sync + 'static {
    /// The value of a root; `None` if it has none now.
    fn get(&self, root: Root) -> Option<Cow<'_, Value>>;
}

/// What a reference begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Root {
    /// The input of the run.
    Input,
    /// A field of the record of a step.
    Step {
        /// Its place in the plan.
        step: usize,
        field: Field,
    },
    /// The element that a loop is at.
    Item,
    /// Its place, from zero.
    Index,
    /// The id of the run.
    WorkflowId,
    /// The name of the composite.
    WorkflowName,
}

/// A field of the record of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Field {
    /// What it gave: structured content, parsed JSON, or an object made of its content.
    Output,
    /// An object made of the content of its result: `text`, `text_1`, `image_0`, `resource`.
    Content,
    /// The first text of its result.
    Text,
    /// How it ended, such as `completed`.
    Status,
    /// Why it failed, as an object with `kind` and `message`; else null.
    Error,
}

// === impl Field ===

impl Field {
    /// All fields.
    pub(crate) const ALL: [Self; 5] =
        [Self::Output, Self::Content, Self::Text, Self::Status, Self::Error];

    /// How it is written.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Output => "output",
            Self::Content => "content",
            Self::Text => "text",
            Self::Status => "status",
            Self::Error => "error",
        }
    }

    /// The field that is written so.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }
}

/// The input, and nothing else.
impl Data for Value {
    fn get(&self, root: Root) -> Option<Cow<'_, Value>> {
        (root == Root::Input).then_some(Cow::Borrowed(self))
    }
}
