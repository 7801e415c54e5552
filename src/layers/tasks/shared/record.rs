//! The records of tasks in a shared store, as JSON.

use std::time::Duration;

use jiff::Timestamp;
use rmcp::model::{
    CallToolRequestParams, ErrorData, InputRequests, InputResponses, JsonObject, RequestMetaObject,
    Task, TaskPayload,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::store::{TaskPhase, TaskWrite};
use crate::{
    adapter::failure::mismatch,
    message::{ToolAnswer, is_deeper},
    store::caller_key,
    tasks::{description::describe, state::object, tool::METHOD},
};

/// The version of the format. A replica ignores records of a version that it does not know.
const VERSION: u32 = 1;

/// The maximum nesting depth of each value of a result, and of each answer. The parser rejects
/// records with more than 128 levels.
pub(super) const MAX_DEPTH: usize = 120;

/// The part of a task's record that does not change: the call, and the data that another process
/// needs to repeat the call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Call {
    version: u32,
    pub(super) owner: Owner,
    pub(super) params: CallToolRequestParams,
    /// The `_meta` of the request, with the protocol version and the capabilities of the client.
    pub(super) meta: RequestMetaObject,
    created_ms: i64,
    lifetime_ms: u64,
}

/// The owner of a task. A request can access the task only if it has the same owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::tasks) struct Owner {
    /// The view (a URL path of the gateway) through which the task was started.
    pub(in crate::tasks) view: Option<String>,
    /// The caller that started the task. `None` if the caller is unidentified.
    pub(in crate::tasks) caller: Option<String>,
}

/// The part of a task's record that changes while the task exists.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    updated_ms: i64,
    /// The number of times that the task has asked questions.
    pub(super) round: u64,
    pub(super) progress: Progress,
}

/// The progress of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Progress {
    Working {
        /// The parameters that are added when the call is repeated. Empty before the first
        /// questions.
        #[serde(default)]
        resume: Resume,
    },
    InputRequired {
        /// The questions without an answer. Their keys begin with the number of the round.
        open: InputRequests,
        resume: Resume,
    },
    Completed(JsonObject),
    Failed(JsonObject),
    Cancelled,
}

/// The parameters that are added to a call when it is repeated after its questions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Resume {
    /// The answers received so far. Their keys are those of the original questions, without the
    /// prefix that the task adds, such as `1:`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) answers: Option<InputResponses>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) request_state: Option<String>,
}

/// The version of a record. Parsed first, to detect records that this version of the crate cannot
/// read.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// Parses a part of a record. Logs the reason and returns `None` if it is malformed, or if it has
/// an unknown version.
pub(super) fn parse<T: DeserializeOwned>(record: &[u8]) -> Option<T> {
    let parsed = match serde_json::from_slice(record) {
        Ok(Versioned { version: VERSION }) => serde_json::from_slice(record),
        Ok(Versioned { version }) => {
            tracing::warn!(version, "a task in the shared store has an unknown version");
            return None;
        }
        Err(error) => Err(error),
    };
    let malformed = |error| tracing::warn!(%error, "a task in the shared store is malformed");
    parsed.map_err(malformed).ok()
}

/// Serializes a part of a record as JSON. This never fails for MCP values.
pub(super) fn format(part: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(part).unwrap_or_default()
}

// === impl Owner ===

impl Owner {
    /// Returns the owner as bytes, for tasks in the memory of this process.
    pub(in crate::layers::tasks) fn to_bytes(&self) -> Vec<u8> {
        let Self { view, caller } = self;
        let view = view.as_deref().unwrap_or_default();
        // The path of a view contains no NUL, so different pairs are different owners.
        [view.as_bytes(), b"\0", &caller_key(caller.as_deref())].concat()
    }
}

// === impl Call ===

impl Call {
    pub(super) fn new(
        owner: Owner,
        params: CallToolRequestParams,
        meta: RequestMetaObject,
        lifetime: Duration,
    ) -> Self {
        let lifetime_ms = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let created_ms = Timestamp::now().as_millisecond();
        Self { version: VERSION, owner, params, meta, created_ms, lifetime_ms }
    }

    /// Returns the time from the last change of the record until the record expires.
    pub(super) const fn lifetime(&self) -> Duration {
        Duration::from_millis(self.lifetime_ms)
    }

    /// Returns a [`TaskWrite`] that creates a record with the given token and phase, but without
    /// data.
    pub(super) fn write<'a>(&'a self, token: &'a str, phase: TaskPhase) -> TaskWrite<'a> {
        let caller = self.owner.caller.as_deref().map(str::as_bytes);
        TaskWrite { caller, ..TaskWrite::new(token, phase, self.lifetime()) }
    }

    /// Returns the task with this ID as clients see it, without its payload. See [`describe`].
    pub(super) fn task(&self, id: &str, state: &State) -> Task {
        let until = state.updated_ms.saturating_sub(self.created_ms);
        let ttl = self.lifetime() + Duration::from_millis(u64::try_from(until).unwrap_or(0));
        describe(id, time(self.created_ms), time(state.updated_ms), ttl)
    }
}

/// Converts a number of milliseconds since 1970 to a time.
fn time(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap_or(Timestamp::UNIX_EPOCH)
}

// === impl State ===

impl State {
    /// Creates a state whose last change is now.
    pub(super) fn new(round: u64, progress: Progress) -> Self {
        Self::at(Timestamp::now().as_millisecond(), round, progress)
    }

    /// Returns a state that began at this Unix time in milliseconds.
    pub(super) const fn at(updated_ms: i64, round: u64, progress: Progress) -> Self {
        Self { version: VERSION, updated_ms, round, progress }
    }

    /// Returns the state with the given progress, changed now.
    pub(super) fn then(&self, progress: Progress) -> Self {
        Self::new(self.round, progress)
    }

    /// Returns the parameters with which the call continues.
    pub(super) fn resume(&self) -> Resume {
        match &self.progress {
            Progress::Working { resume } => resume.clone(),
            _ => Resume::default(),
        }
    }

    /// Returns the state without the answers and the `requestState` for the repeated call. Returns
    /// `None` if the state contains neither.
    pub(super) fn without_answers(&self) -> Option<Self> {
        let Progress::Working { resume } = &self.progress else { return None };
        let resume = (*resume != Resume::default()).then(Resume::default)?;
        Some(self.then(Progress::Working { resume }))
    }

    /// Returns the prefix of the keys of the current questions, such as `1:`.
    pub(super) fn prefix(&self) -> String {
        format!("{}:", self.round)
    }

    /// Returns the state of a task that asks these questions.
    pub(super) fn asking(&self, questions: InputRequests, request_state: Option<String>) -> Self {
        let open = InputRequests::new();
        let resume = Resume { answers: None, request_state };
        let mut next = Self::new(self.round + 1, Progress::InputRequired { open, resume });
        // The keys of a task must be unique over its life, but each round may use the same keys.
        let prefix = next.prefix();
        if let Progress::InputRequired { open, .. } = &mut next.progress {
            let questions = questions.into_iter();
            open.extend(questions.map(|(key, question)| (format!("{prefix}{key}"), question)));
        }
        next
    }

    /// Returns the state after the given answers. Ignores answers to questions that are not open.
    /// Returns `None` if there are no other answers.
    pub(super) fn answered(&self, given: InputResponses) -> Option<Self> {
        let Progress::InputRequired { open, resume } = &self.progress else { return None };
        let (mut open, mut resume) = (open.clone(), resume.clone());
        let (before, prefix) = (open.len(), self.prefix());
        let answers = resume.answers.get_or_insert_default();
        for (key, answer) in given {
            if open.remove(&key).is_some() {
                answers.insert(key.strip_prefix(&prefix).unwrap_or(&key).to_owned(), answer);
            }
        }
        let is_changed = open.len() < before;
        is_changed.then(|| {
            self.then(match open.is_empty() {
                true => Progress::Working { resume },
                false => Progress::InputRequired { open, resume },
            })
        })
    }
}

// === impl Progress ===

impl Progress {
    /// Returns the progress of a task whose call has this answer, other than questions. An answer
    /// that is nested too deeply becomes an error.
    pub(super) fn of(answer: ToolAnswer) -> Self {
        let progress = match answer {
            ToolAnswer::Result(result) => Self::Completed(object(&result)),
            ToolAnswer::Error(error) => Self::failed(&error),
            ToolAnswer::Refused(refusal) => Self::failed(&refusal.to_error()),
            ToolAnswer::InputRequired(_) | ToolAnswer::Task(_) | ToolAnswer::Invalid => {
                Self::failed(&mismatch(METHOD))
            }
        };
        if progress.is_too_deep() {
            let error = "the result is nested too deeply for a task";
            return Self::failed(&ErrorData::internal_error(error, None));
        }
        progress
    }

    pub(super) fn failed(error: &ErrorData) -> Self {
        Self::Failed(object(error))
    }

    /// Returns `true` if the progress is nested too deeply to be parsed again.
    pub(super) fn is_too_deep(&self) -> bool {
        let is_deep = |value: &Value| is_deeper(value, MAX_DEPTH);
        match self {
            Self::Working { resume } | Self::InputRequired { resume, .. } => {
                resume.answers.iter().flatten().any(|(_, answer)| is_deep(answer))
            }
            Self::Completed(object) | Self::Failed(object) => object.values().any(is_deep),
            Self::Cancelled => false,
        }
    }

    pub(super) const fn is_ended(&self) -> bool {
        matches!(self, Self::Completed(_) | Self::Failed(_) | Self::Cancelled)
    }

    /// Converts the progress to the payload that clients receive.
    pub(super) fn into_payload(self) -> TaskPayload {
        match self {
            Self::Working { .. } => TaskPayload::Working,
            Self::InputRequired { open, .. } => TaskPayload::InputRequired { input_requests: open },
            Self::Completed(result) => TaskPayload::Completed { result },
            Self::Failed(error) => TaskPayload::Failed { error },
            Self::Cancelled => TaskPayload::Cancelled,
        }
    }
}
