//! Possible tool calls in the output of a model, before they are validated.

use std::collections::HashSet;

use rmcp::model::JsonObject;
use serde_json::Value;

use super::{
    arguments,
    call::{CallId, Form, MalformedCall, MalformedKind, ModelCall, Problem},
    limits::ParseLimits,
};

/// Maximum length of a tool name, in bytes. Calls with a longer name are malformed. This is twice
/// the length that MCP recommends.
const MAX_CANDIDATE_NAME: usize = 256;

/// A tool call that was found in the output of a model and is not validated yet.
#[derive(Debug)]
pub(super) struct Candidate<'o> {
    id: Option<String>,
    name: Option<String>,
    form: Form,
    arguments: Arguments<'o>,
}

/// The arguments of a candidate, before or after parsing.
#[derive(Debug)]
enum Arguments<'o> {
    /// The arguments in the provider's encoding, which are not parsed yet. `None` if the call has
    /// no arguments.
    Unread(Option<&'o Value>),
    Read(Result<JsonObject, Problem>),
}

/// Validates the candidates in order. Each valid candidate becomes a call with a unique ID. Each
/// other candidate becomes a malformed call, which contains the reason.
pub(super) fn calls(
    found: Vec<Candidate<'_>>,
    limits: &ParseLimits,
) -> Vec<Result<ModelCall, MalformedCall>> {
    let mut taken: HashSet<String> = found.iter().filter_map(|found| found.id.clone()).collect();
    let mut seen = HashSet::new();
    let call = |(index, found): (usize, Candidate<'_>)| {
        let is_first = found.id.as_ref().is_none_or(|id| seen.insert(id.clone()));
        let id = found.id.map(CallId::new);
        let arguments = match found.arguments {
            _ if index >= limits.max_calls => Err(limits.too_many()),
            arguments => match arguments.read(limits) {
                Err(problem) => Err(problem),
                Ok(_) if !is_first => Err(Problem::new(
                    MalformedKind::DuplicateId,
                    "not called, since an earlier call has the same id",
                )),
                Ok(arguments) => Ok(arguments),
            },
        };
        let arguments = arguments.and_then(|arguments| {
            let name = found.name.as_deref().filter(|name| is_name(name));
            let name = name.ok_or_else(|| no_name(found.name.as_deref()))?;
            Ok((name.to_owned(), arguments))
        });
        match arguments {
            Ok((name, arguments)) => {
                let id = id.unwrap_or_else(|| make_id(index, &mut taken));
                Ok(ModelCall { id, name, arguments, form: found.form })
            }
            Err(problem) => {
                let name = found.name.filter(|name| is_name(name));
                Err(MalformedCall { id, name, form: found.form, problem })
            }
        }
    };
    found.into_iter().enumerate().map(call).collect()
}

// === impl Candidate ===

impl<'o> Candidate<'o> {
    /// Creates a candidate from the ID, the name and the arguments of a call in a provider's
    /// format. `None` means that the call does not contain the field.
    pub(super) fn new(
        id: Option<&Value>,
        name: Option<&Value>,
        arguments: Option<&'o Value>,
    ) -> Self {
        let text = |value: Option<&Value>| {
            let text = value.and_then(Value::as_str).filter(|text| !text.trim().is_empty());
            text.map(str::to_owned)
        };
        Self {
            id: text(id),
            name: text(name),
            form: Form::default(),
            arguments: Arguments::Unread(arguments),
        }
    }

    /// Parses the arguments of the candidate. The returned candidate no longer borrows from the
    /// model's output.
    pub(super) fn read(self, limits: &ParseLimits) -> Candidate<'static> {
        let arguments = Arguments::Read(self.arguments.read(limits));
        Candidate { id: self.id, name: self.name, form: self.form, arguments }
    }

    /// Creates a candidate for a call that was found in a model's text.
    pub(super) fn named(name: String, arguments: JsonObject) -> Self {
        let arguments = Arguments::Read(Ok(arguments));
        Self { id: None, name: Some(name), form: Form::default(), arguments }
    }

    /// Creates a candidate that validation rejects because of `problem`. `name` is `None` if the
    /// name of the tool is unknown.
    pub(super) fn malformed(name: Option<String>, problem: Problem) -> Self {
        let arguments = Arguments::Read(Err(problem));
        Self { id: None, name, form: Form::default(), arguments }
    }

    /// Sets the kind of the call in the provider's format. The result of the call is encoded for
    /// the same kind.
    pub(super) fn in_form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Marks the candidate as malformed because of `problem`, which replaces an earlier problem.
    pub(super) fn spoil(&mut self, problem: Problem) {
        self.arguments = Arguments::Read(Err(problem));
    }

    /// Marks the candidate as malformed because of `problem`, and returns the candidate.
    pub(super) fn spoiled(mut self, problem: Problem) -> Self {
        self.spoil(problem);
        self
    }
}

// === impl Arguments ===

impl Arguments<'_> {
    fn read(self, limits: &ParseLimits) -> Result<JsonObject, Problem> {
        match self {
            Self::Unread(arguments) => arguments::read(arguments, limits),
            Self::Read(arguments) => arguments,
        }
    }
}

fn is_name(name: &str) -> bool {
    !name.trim().is_empty() && name.len() <= MAX_CANDIDATE_NAME && !name.contains(char::is_control)
}

fn no_name(name: Option<&str>) -> Problem {
    let message = match name {
        None => "it has no name".to_owned(),
        Some(name) if name.len() > MAX_CANDIDATE_NAME => {
            format!("its name has more than {MAX_CANDIDATE_NAME} bytes")
        }
        Some(_) => "its name has illegal characters".to_owned(),
    };
    Problem::new(MalformedKind::Name, message)
}

/// Generates an ID, such as `call_0`, for a call to which the model gave no ID. `index` is the
/// index of the call. The ID differs from all IDs in `taken`, and is added to `taken`.
fn make_id(index: usize, taken: &mut HashSet<String>) -> CallId {
    let mut id = format!("call_{index}");
    while taken.contains(&id) {
        id.push('_');
    }
    taken.insert(id.clone());
    CallId::made(id)
}
