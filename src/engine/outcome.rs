use rmcp::model::{CallToolResult, ErrorData};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    ask::Asked,
    branches::BranchId,
    for_each::LoopState,
    meter::Reached,
    plan::{Plan, StepSet},
    record::Record,
    scope::Spent,
    watching::Suspended,
};
use crate::spans::End;

/// More calls than any run makes for what it puts away, and few enough to count on.
const MAX_ATTEMPTS: u64 = 1 << 30;

/// All that a run knows: what it was given and what has finished.
///
/// It is a plain value, so that a run can be put away and taken up elsewhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RunState {
    /// What the run was called with, checked; null once nothing needs it.
    pub(crate) input: Value,
    /// What became of each step, in the order of the plan.
    ///
    /// Boxed, since together they would be an allocation large enough to make
    /// the system's allocator tidy up, which takes longer than the boxes do.
    pub(crate) outcomes: Vec<Option<Box<Outcome>>>,
    /// The steps that have finished, in the order they did.
    pub(crate) finished: Vec<usize>,
    /// The step that made the run fail, if one did.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) failed: Option<usize>,
    /// Whether the run took too long.
    #[serde(skip_serializing_if = "is_false", default)]
    pub(crate) timed_out: bool,
    /// The step at which a person ended the run before the other steps.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) ended_by: Option<usize>,
    /// The limit that ended the run before the other steps; what waits for a person
    /// then waits no longer, so that it is never put away.
    #[serde(skip)]
    pub(crate) reached: Option<Reached>,
    /// The elements of loops that did not begin because of that.
    #[serde(skip)]
    pub(crate) skipped_elements: Vec<BranchId>,
    /// What waits for a person, in the order of the plan.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(crate) asked: Vec<Asked>,
    /// The loops that are not done.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub(super) loops: Vec<LoopState>,
    /// How long it has run, in milliseconds, without the time that it waited for
    /// a person.
    #[serde(skip_serializing_if = "is_zero", default)]
    pub(super) active_ms: u64,
    /// What it has used of its own limits, while it waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) spent: Option<Box<Spent>>,
    /// What those call it who watch it, while it waits.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) watched: Option<u64>,
    /// What they are told if it never goes on, after those within it that wait too.
    #[serde(skip)]
    pub(super) suspended: Suspended,
    /// The id and the name of the run, if the plan refers to them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) name: Option<String>,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) status: Status,
    /// What the tool answered, as long as it may be the answer of the run; with
    /// [`Answer::Outcomes`](super::plan::Answer::Outcomes) always, and also of a
    /// tool that failed (`isError`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) result: Option<CallToolResult>,
    /// What is read of it, as long as it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) record: Option<Box<Record>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) error: Option<StepError>,
    /// Which of its sites a step was called at that has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) site: Option<usize>,
    /// How often a tool was called.
    pub(crate) attempts: u32,
    /// When the step started, in milliseconds after the run; 0 if it never did.
    pub(crate) started_ms: u64,
    /// How long it took, in milliseconds.
    pub(crate) duration_ms: u64,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Status {
    /// The tool answered and did not fail.
    Completed,
    /// It failed.
    Failed,
    /// It did not answer in time.
    TimedOut,
    /// It was never started: the run had ended, or its condition did not hold.
    Skipped,
    /// It was stopped, because another one had already succeeded, or had failed.
    Cancelled,
}

/// Why a step did not complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StepError {
    pub(crate) kind: ErrorKind,
    /// In words, fit for a client.
    pub(crate) message: String,
    /// The code of a JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) code: Option<i32>,
    /// The data of a JSON-RPC error.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) data: Option<Value>,
    /// Whether a limit of a run refused it: that ends the run, and does not fail it.
    #[serde(skip)]
    pub(crate) ends_run: bool,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorKind {
    /// The tool said so (`isError`).
    Tool,
    /// It was answered with a JSON-RPC error.
    Protocol,
    /// Its service could not answer.
    Service,
    /// It panicked.
    Panic,
    /// It took too long.
    Timeout,
    /// A limit of the run was hit.
    Limit,
    /// The definition asks for what is not there.
    Definition,
    /// A person said no.
    Declined,
    /// A person did not answer.
    Dismissed,
}

// === impl RunState ===

impl RunState {
    /// The state of a run that has not begun.
    pub(crate) fn new(input: Value, steps: usize) -> Self {
        Self {
            input,
            outcomes: vec![None; steps],
            finished: Vec::with_capacity(steps),
            ..Self::default()
        }
    }

    /// Whether it can be the state of a run of this plan that was put away, or has
    /// not begun.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let steps = plan.steps().len();
        let Some(finished) = set(&self.finished, steps) else { return false };
        let loops: Vec<_> = self.loops.iter().map(|each| each.step).collect();
        let Some(loops) = set(&loops, steps) else { return false };
        let mut asked: Vec<_> = self.asked.iter().map(|asked| asked.id).collect();
        asked.sort_unstable();
        asked.dedup();
        let mut began = self.asked.iter().map(|asked| asked.id.step).chain(loops);
        self.outcomes.len() == steps
            && (0..steps).all(|step| self.outcomes[step].is_some() == finished.contains(step))
            && [self.failed, self.ended_by]
                .into_iter()
                .flatten()
                .all(|step| finished.contains(step))
            && asked.len() == self.asked.len()
            && self.asked.iter().all(|asked| asked.fits(plan, &self.loops))
            && self.loops.iter().all(|each| each.fits(plan, &self.asked))
            && { began }
                .all(|step| !finished.contains(step) && plan.needs(step).is_subset(finished))
            && self.attempts() <= MAX_ATTEMPTS
    }

    /// Takes it that somebody else goes on with the run, and with those within it that
    /// wait too: nobody is told here that they have ended.
    pub(crate) fn hand_over(&mut self) {
        self.suspended.release();
        self.asked.iter_mut().filter_map(Asked::run_mut).for_each(Self::hand_over);
    }

    /// How many calls were made for what has not ended.
    fn attempts(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.attempts);
        asked.chain(self.loops.iter().map(|each| each.attempts)).map(u64::from).sum()
    }

    /// The last step, in the order of the plan, that completed.
    pub(crate) fn last_completed(&self) -> Option<usize> {
        let completed = |outcome: &Option<Box<Outcome>>| {
            outcome.as_ref().is_some_and(|outcome| outcome.is_success())
        };
        self.outcomes.iter().rposition(completed)
    }
}

// === impl Outcome ===

impl Outcome {
    /// How it has ended, as spans and metrics tell it.
    pub(crate) fn end(&self) -> End {
        let error = self.error.as_ref().filter(|_| self.status != Status::Cancelled);
        let code = error.and_then(|error| error.code);
        let error = error.map(|error| match (error.kind, code) {
            (ErrorKind::Tool, _) => "tool_error".into(),
            (_, Some(code)) => End::of_code(code),
            (kind, None) => kind.name().into(),
        });
        End { status: self.status.name(), error, code }
    }

    pub(crate) const fn is_success(&self) -> bool {
        matches!(self.status, Status::Completed)
    }

    /// A step that was never started.
    pub(super) const fn skipped() -> Self {
        Self {
            status: Status::Skipped,
            result: None,
            record: None,
            error: None,
            site: None,
            attempts: 0,
            started_ms: 0,
            duration_ms: 0,
        }
    }

    /// Whether a limit of a run refused it.
    pub(crate) fn is_refused(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.ends_run)
    }
}

// === impl Status ===

impl Status {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }
}

// === impl StepError ===

impl StepError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), code: None, data: None, ends_run: false }
    }

    pub(crate) fn protocol(error: ErrorData) -> Self {
        Self {
            kind: ErrorKind::Protocol,
            message: error.message.into_owned(),
            code: Some(error.code.0),
            data: error.data,
            ends_run: false,
        }
    }

    /// Something that the definition asks for is not there.
    pub(super) fn definition(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Definition, message)
    }

    /// The same error, told with the place where it was met.
    pub(super) fn at(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    pub(super) const fn status(&self) -> Status {
        match self.kind {
            ErrorKind::Timeout => Status::TimedOut,
            _ => Status::Failed,
        }
    }

    /// As references and reports show it.
    pub(crate) fn to_value(&self) -> Value {
        let mut value = Map::with_capacity(2);
        value.insert("kind".to_owned(), self.kind.name().into());
        value.insert("message".to_owned(), self.message.as_str().into());
        if let Some(code) = self.code {
            value.insert("code".to_owned(), code.into());
        }
        if let Some(data) = &self.data {
            value.insert("data".to_owned(), data.clone());
        }
        Value::Object(value)
    }
}

// === impl ErrorKind ===

impl ErrorKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Protocol => "protocol",
            Self::Service => "service",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Definition => "definition",
            Self::Declined => "declined",
            Self::Dismissed => "dismissed",
        }
    }
}

/// These steps of so many as a set, if each is there and stands once.
fn set(steps: &[usize], count: usize) -> Option<StepSet> {
    if steps.iter().any(|&step| step >= count) {
        return None;
    }
    let set: StepSet = steps.iter().copied().collect();
    (set.len() == steps.len()).then_some(set)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_false(truth: &bool) -> bool {
    !*truth
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}
