use std::{error::Error, fmt, sync::Arc};

use rmcp::model::JsonObject;

/// Which of the calls of a model's answer it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    text: Arc<str>,
    is_made: bool,
}

/// A call that a model asks for.
///
/// Whether there is such a tool, and whether these are arguments for it, is not known
/// yet.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// Under which its result goes back.
    pub id: CallId,
    /// The name of the tool, as the model wrote it.
    pub name: String,
    /// What the tool is called with.
    pub arguments: JsonObject,
    pub(super) form: Form,
}

/// A call that cannot be made, since it is not known for sure what the model wants.
///
/// Its text says what was expected, and can go back to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedCall {
    pub(super) id: Option<CallId>,
    pub(super) name: Option<String>,
    pub(super) form: Form,
    pub(super) problem: Problem,
}

/// What is wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MalformedKind {
    /// It has no name, or one that no tool can have.
    Name,
    /// Its arguments are no JSON object.
    Arguments,
    /// It cannot be read at all.
    Syntax,
    /// The model was stopped in the middle of it.
    Incomplete,
    /// A call before it has the same id.
    DuplicateId,
    /// It is a call of something that is no function.
    Unsupported,
    /// It belongs to an alternative answer; only the calls of the first are made.
    OtherChoice,
    /// It is larger or nested deeper than allowed, or one too many.
    OverLimit,
}

/// What is wrong with a call, and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: MalformedKind,
    pub(super) message: String,
}

/// In which of a provider's forms a call came, and its result has to go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Function,
    /// The one `function_call` of a message, as it was before there were several.
    Legacy,
    /// A call whose input is a text of any grammar.
    Custom,
}

// === impl CallId ===

impl CallId {
    /// The id that a provider gave to a call.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: false }
    }

    /// An id for a call that came without one.
    pub(super) fn made(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: true }
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it was made here, since the call came without one. The provider does
    /// not know it.
    #[must_use]
    pub const fn is_made(&self) -> bool {
        self.is_made
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// A call that was read elsewhere.
    pub fn new(id: CallId, name: impl Into<String>, arguments: JsonObject) -> Self {
        Self { id, name: name.into(), arguments, form: Form::default() }
    }
}

// === impl MalformedCall ===

impl MalformedCall {
    /// The id that the provider gave it, if it has one.
    #[must_use]
    pub const fn id(&self) -> Option<&CallId> {
        self.id.as_ref()
    }

    /// The name of the tool, as far as it is known.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// What kind of thing is wrong.
    #[must_use]
    pub const fn kind(&self) -> MalformedKind {
        self.problem.kind
    }

    /// What is wrong, without the name.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.problem.message
    }
}

impl fmt::Display for MalformedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed call")?;
        if let Some(name) = &self.name {
            write!(f, " of `{name}`")?;
        }
        write!(f, ": {}", self.problem.message)
    }
}

impl Error for MalformedCall {}

// === impl Problem ===

impl Problem {
    pub(super) fn new(kind: MalformedKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    pub(super) fn syntax(message: impl Into<String>) -> Self {
        Self::new(MalformedKind::Syntax, message)
    }

    pub(super) fn incomplete(message: impl Into<String>) -> Self {
        Self::new(MalformedKind::Incomplete, message)
    }

    pub(super) fn unsupported(message: impl Into<String>) -> Self {
        Self::new(MalformedKind::Unsupported, message)
    }
}
