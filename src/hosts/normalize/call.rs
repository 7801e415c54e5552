//! Tool calls in the output of a model, both well-formed and malformed ones.

use std::{error::Error, fmt, sync::Arc};

use rmcp::model::JsonObject;

/// The id of a call in the output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    text: Arc<str>,
    is_made: bool,
}

/// A tool call that a model has requested.
///
/// The call may refer to an unknown tool, or have arguments that the tool does not accept.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCall {
    /// The id of the call, which the result of the call repeats.
    pub id: CallId,
    /// The name of the tool, as the model wrote it.
    pub name: String,
    /// The arguments of the tool.
    pub arguments: JsonObject,
    pub(super) form: Form,
}

/// A call in the output of a model that cannot be executed, for example because it is incomplete.
///
/// The `Display` text describes why the call is malformed, and can be returned to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedCall {
    pub(super) id: Option<CallId>,
    pub(super) name: Option<String>,
    pub(super) form: Form,
    pub(super) problem: Problem,
}

/// The reason why a call is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MalformedKind {
    /// The name of the tool is missing or invalid.
    Name,
    /// The arguments are not a JSON object.
    Arguments,
    /// The call cannot be parsed.
    Syntax,
    /// The output of the model was cut off before the call was complete.
    Incomplete,
    /// A previous call has the same id.
    DuplicateId,
    /// The call is not a function call, but for example a custom tool call.
    Unsupported,
    /// The call belongs to a choice or candidate after the first. Only calls of the first choice or
    /// candidate are executed.
    OtherChoice,
    /// The arguments of the call are too large or nested too deep, or the output has too many
    /// calls.
    OverLimit,
}

/// The reason why a call is malformed, with a message for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: MalformedKind,
    pub(super) message: String,
}

/// The provider's format of a call, which determines the format of the call's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Function,
    /// The `function_call` of a message. This older form allows at most one call per message.
    Legacy,
    /// A custom tool call, whose input is free text.
    Custom,
}

// === impl CallId ===

impl CallId {
    /// Creates an id from the text that the provider uses to identify a call.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: false }
    }

    /// Creates a generated id for a call that has none.
    pub(super) fn made(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: true }
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns `true` if this module generated the id, because the call had none. The provider does
    /// not know a generated id.
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

// === impl ModelCall ===

impl ModelCall {
    /// Creates a call that other code has parsed.
    pub fn new(id: CallId, name: impl Into<String>, arguments: JsonObject) -> Self {
        Self { id, name: name.into(), arguments, form: Form::default() }
    }
}

// === impl MalformedCall ===

impl MalformedCall {
    /// Returns the id that the provider gave to the call, if any.
    #[must_use]
    pub const fn id(&self) -> Option<&CallId> {
        self.id.as_ref()
    }

    /// Returns the name of the tool. `None` if the name is missing or invalid.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the reason why the call is malformed.
    #[must_use]
    pub const fn kind(&self) -> MalformedKind {
        self.problem.kind
    }

    /// Returns a message that describes why the call is malformed, without the name of the tool.
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
