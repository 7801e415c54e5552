//! Calls found in the output of a model, well-formed and malformed.

use std::{error::Error, fmt, sync::Arc};

use rmcp::model::JsonObject;

/// The id of a call in the output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    text: Arc<str>,
    is_made: bool,
}

/// A call requested by a model.
///
/// Neither the existence of the tool nor its arguments have been checked yet.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall {
    /// The id that its result refers to.
    pub id: CallId,
    /// The name of the tool, as the model wrote it.
    pub name: String,
    /// The arguments of the tool.
    pub arguments: JsonObject,
    pub(super) form: Form,
}

/// A call that cannot be made since it is ambiguous or incomplete.
///
/// Its `Display` text describes the problem, and can be returned to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedCall {
    pub(super) id: Option<CallId>,
    pub(super) name: Option<String>,
    pub(super) form: Form,
    pub(super) problem: Problem,
}

/// The kind of problem of a malformed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MalformedKind {
    /// The name is missing or invalid.
    Name,
    /// The arguments are not a JSON object.
    Arguments,
    /// The call cannot be parsed.
    Syntax,
    /// The output of the model was cut off within the call.
    Incomplete,
    /// A previous call has the same id.
    DuplicateId,
    /// The call is not a function call.
    Unsupported,
    /// The call belongs to an alternative answer; only those of the first one are made.
    OtherChoice,
    /// The call is larger or nested deeper than allowed, or exceeds the number of calls.
    OverLimit,
}

/// The problem of a malformed call, with a message for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: MalformedKind,
    pub(super) message: String,
}

/// The provider's form of a call, which determines the form of its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Function,
    /// The single `function_call` of a message, from before parallel calls.
    Legacy,
    /// A custom tool call, whose input is free text.
    Custom,
}

// === impl CallId ===

impl CallId {
    /// Creates the id that a provider gave to a call.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: false }
    }

    /// Creates an id for a call without one.
    pub(super) fn made(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: true }
    }

    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns `true` if the id was generated here because the call had none. The provider does not
    /// know it.
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
    /// Creates a call that was parsed elsewhere.
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

    /// Returns the name of the tool, if known.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the kind of problem.
    #[must_use]
    pub const fn kind(&self) -> MalformedKind {
        self.problem.kind
    }

    /// Returns the description of the problem, without the name of the tool.
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
