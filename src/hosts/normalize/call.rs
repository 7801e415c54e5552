//! Tool calls that were found in the output of a model, both well-formed and malformed calls.

use std::{error::Error, fmt, sync::Arc};

use rmcp::model::JsonObject;

/// The ID of a tool call in the output of a model.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallId {
    text: Arc<str>,
    is_made: bool,
}

/// A tool call that a model has requested. The call is well-formed, but it may name an unknown
/// tool, or contain arguments that the tool does not accept.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelCall {
    /// The ID of the call in the output of the model. The provider requires the same ID in the
    /// result of the call.
    pub id: CallId,
    /// The name of the tool, as the model wrote it.
    pub name: String,
    /// The arguments of the call. They are not yet checked against the input schema of the tool.
    pub arguments: JsonObject,
    pub(super) form: Form,
}

/// A tool call in the output of a model that cannot be executed, for example because it is
/// incomplete. The `Display` output of a `MalformedCall` describes why the call is malformed, and
/// can be returned to the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MalformedCall {
    pub(super) id: Option<CallId>,
    pub(super) name: Option<String>,
    pub(super) form: Form,
    pub(super) problem: Problem,
}

/// The reason why a model's tool call is malformed, so that it cannot be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MalformedKind {
    /// The name of the called tool is missing or invalid.
    Name,
    /// The arguments of the call are not a JSON object.
    Arguments,
    /// The text of the call does not have the syntax that the format of the provider requires.
    Syntax,
    /// The output of the model was cut off before the call was complete.
    Incomplete,
    /// An earlier call in the same output has the same ID.
    DuplicateId,
    /// The call is not a function call but, for example, a custom tool call.
    Unsupported,
    /// The call belongs to a choice or candidate of the model's output other than the first. Only
    /// the calls of the first choice or candidate are executed.
    OtherChoice,
    /// The arguments of the call are too large or too deeply nested, or the model has written too
    /// many calls.
    OverLimit,
}

/// The reason why a tool call is malformed, with an error message for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) kind: MalformedKind,
    pub(super) message: String,
}

/// The kind of a tool call in the provider's format. The result of the call must be encoded for the
/// same kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Function,
    /// A call in the deprecated field `function_call` of a Chat Completions message. A message can
    /// contain only one such call.
    Legacy,
    /// A custom tool call of OpenAI, whose input is free text. Such calls are not executed.
    Custom,
}

// === impl CallId ===

impl CallId {
    /// Creates an ID from the text with which a model provider identifies the call, such as
    /// `call_abc123`.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: false }
    }

    /// Creates an ID for a call to which the model gave no ID. [`is_made`](Self::is_made) returns
    /// `true` for this ID.
    pub(super) fn made(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), is_made: true }
    }

    /// Returns the ID as a string.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns `true` if the ID was generated, for example as `call_0`, because the model's call
    /// had no ID. The provider does not know generated IDs.
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
    /// Creates a well-formed call, for example from the output of another parser.
    pub fn new(id: CallId, name: impl Into<String>, arguments: JsonObject) -> Self {
        Self { id, name: name.into(), arguments, form: Form::default() }
    }
}

// === impl MalformedCall ===

impl MalformedCall {
    /// Returns the ID that the model provider assigned to the call, such as `call_abc123`. Returns
    /// `None` if the call has no ID.
    #[must_use]
    pub const fn id(&self) -> Option<&CallId> {
        self.id.as_ref()
    }

    /// Returns the name of the tool, or `None` if the call contains no valid name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Returns the reason why the call is malformed.
    #[must_use]
    pub const fn kind(&self) -> MalformedKind {
        self.problem.kind
    }

    /// Returns the error message, which describes why the call is malformed. It does not contain
    /// the name of the tool.
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
