//! The questions of a suspended run and their answers.

use std::{
    collections::BTreeMap,
    mem,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, InputRequests, JsonObject,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    attempts::milliseconds,
    branches::BranchId,
    for_each::LoopState,
    outcome::{ErrorKind, StepError},
    plan::{Action, Elicitation, OnRefusal, Plan},
    state::RunState,
};
use crate::{
    expr::{Data, Expression},
    message::size,
    warnings::sanitize::Reason,
};

/// The key of the only question that a step asks.
const OWN: &str = "";

/// The reply of a tool that requires input first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Questions {
    /// The questions by their keys; empty if the tool only wants to be called again.
    pub(crate) asked: BTreeMap<String, Question>,
    /// The state to return to the tool together with the answers.
    pub(crate) resume: Resume,
}

/// A question to a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) request: InputRequest,
    /// The deadline of the answer, in milliseconds of Unix time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    until: Option<u64>,
}

/// The state to return to the tool or run that asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resume {
    /// A tool: the state that it sent, if any.
    Tool(Option<String>),
    /// A composite: the state of its run.
    Run(Box<RunState>),
}

/// The responses to questions by their keys.
pub(crate) type Responses = BTreeMap<String, Response>;

/// The response to a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Response {
    /// The result of the request, unchecked.
    Answer(Value),
    /// No answer in time.
    Late,
    /// The client did not ask; with a reason that may be shown to it.
    Refused(String),
}

/// The answers for the next call of a tool that has asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answered {
    /// By the keys of the questions.
    pub(crate) responses: Responses,
    pub(crate) resume: Resume,
}

/// A call or a step of a run that waits for answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingQuestion {
    pub(super) id: BranchId,
    /// The number of calls of its tool, or of invalid answers of the user.
    pub(super) attempts: u32,
    /// The start time, in milliseconds after that of the run.
    pub(super) started_ms: u64,
    /// The called site, if the step has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) site: Option<usize>,
    /// The questions by their keys.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    questions: BTreeMap<String, Question>,
    /// The state to return to a tool; `None` for the question of a step.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    resume: Option<Resume>,
    /// The responses since then.
    #[serde(skip)]
    responses: Responses,
}

/// The user's response to the question of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// The completed form, valid for its schema.
    Accept(JsonObject),
    /// The user declined.
    Decline,
    /// The user gave no answer.
    Cancel,
    /// No answer in time.
    Late,
    /// An answer that does not match the form, with the reason.
    Misfit(String),
    /// No answer yet.
    NotYet,
    /// The client did not ask.
    Refused(String),
}

// === impl Said ===

impl Said {
    /// Returns the action as outputs show it.
    pub(super) const fn action(&self) -> &'static str {
        match self {
            Self::Accept(_) => "accept",
            Self::Decline => "decline",
            Self::Late => "timeout",
            _ => "cancel",
        }
    }

    /// Returns the error of a step that requires an answer within `timeout`.
    pub(super) fn error(&self, timeout: Duration) -> StepError {
        match self {
            Self::Decline => StepError::new(ErrorKind::Declined, "the person declined"),
            Self::Late => {
                StepError::new(ErrorKind::Timeout, format!("nobody answered within {timeout:?}"))
            }
            _ => StepError::new(ErrorKind::Dismissed, "the person gave no answer"),
        }
    }
}

// === impl Questions ===

impl Questions {
    /// Returns the memory that they take in a run, in bytes of their texts and values.
    pub(super) fn size(&self) -> usize {
        let of = |(key, question): (&String, &Question)| {
            let request = serde_json::to_value(&question.request).unwrap_or_default();
            key.len() + size::of_value(&request)
        };
        let resume = match &self.resume {
            Resume::Tool(state) => state.as_ref().map_or(0, String::len),
            // Already counted when the answer arrived.
            Resume::Run(_) => 0,
        };
        self.asked.iter().map(of).sum::<usize>() + resume
    }
}

// === impl Question ===
impl Question {
    /// Creates a question without a deadline.
    pub(crate) const fn new(request: InputRequest) -> Self {
        Self { request, until: None }
    }

    /// Returns the time left to answer, if it is limited.
    pub(crate) fn left(&self) -> Option<Duration> {
        let until = self.until?;
        Some(Duration::from_millis(until.saturating_sub(unix_ms())))
    }

    fn is_late(&self) -> bool {
        self.until.is_some_and(|until| until <= unix_ms())
    }
}

// === impl Elicitation ===

impl Elicitation {
    /// Evaluates the question, to be answered within `timeout`.
    ///
    /// # Errors
    ///
    /// Returns an error if a referenced value does not exist.
    pub(super) fn question(
        &self,
        state: &mut RunState,
        timeout: Duration,
    ) -> Result<Question, StepError> {
        let evaluate = |expression: &Expression, data: &Arc<dyn Data>| {
            expression.evaluate_in(data).map(Option::unwrap_or_default)
        };
        let message = state.lend(|data| evaluate(&self.message, data));
        let message = match message.map_err(|error| error.at("message"))? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let form = state.lend(|data| evaluate(&self.form, data));
        let form = form.map_err(|error| error.at("schema"))?;
        let requested_schema: ElicitationSchema = serde_json::from_value(form)
            .map_err(|error| StepError::definition(format!("schema: no form: {error}")))?;
        let params =
            ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let until = unix_ms().saturating_add(milliseconds(timeout));
        let request = InputRequest::Elicitation(ElicitRequest::new(params));
        Ok(Question { request, until: Some(until) })
    }

    /// Parses an answer to this question.
    fn read(&self, answer: Value) -> Said {
        let Value::Object(mut answer) = answer else {
            return Said::Misfit("the answer is no object".to_owned());
        };
        match answer.get("action").and_then(Value::as_str) {
            Some("decline") => return Said::Decline,
            Some("cancel") => return Said::Cancel,
            Some("accept") => (),
            _ => {
                let expected = "the answer's `action` is none of `accept`, `decline`, `cancel`";
                return Said::Misfit(expected.to_owned());
            }
        }
        // An empty form can be answered without content.
        let content = answer.remove("content").filter(|content| !content.is_null());
        let mut content = content.unwrap_or_else(|| Map::new().into());
        if let Value::Object(content) = &mut content {
            self.fill_in(content);
        }
        let told = |error| tracing::warn!(error = %Reason(error), "an answer is not checked: its form cannot be used");
        match (self.schema.fit("the form", &mut content, told), content) {
            (Ok(()), Value::Object(content)) => Said::Accept(content),
            (Ok(()), _) => Said::Misfit("the answer's `content` is no object".to_owned()),
            (Err(refusal), _) => Said::Misfit(refusal.reason()),
        }
    }

    /// Adds the defaults of the form for members that the answer lacks: clients need not show them.
    fn fill_in(&self, content: &mut Map<String, Value>) {
        let properties = self.schema.schema().get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            if let Some(default) = property.get("default")
                && !content.contains_key(name)
            {
                content.insert(name.clone(), default.clone());
            }
        }
    }

    /// Returns the outcome of the run for this response.
    pub(super) const fn on(&self, said: &Said) -> OnRefusal {
        match said {
            Said::Decline => self.on_decline,
            _ => self.on_cancel,
        }
    }
}

// === impl PendingQuestion ===

impl PendingQuestion {
    /// Creates the question of a step.
    pub(super) fn step(step: usize, started_ms: u64, question: Question) -> Self {
        Self {
            id: BranchId { step, element: 0 },
            attempts: 0,
            started_ms,
            site: None,
            questions: BTreeMap::from([(OWN.to_owned(), question)]),
            resume: None,
            responses: Responses::new(),
        }
    }

    /// Creates the question of a call.
    pub(super) fn call(
        id: BranchId,
        attempts: u32,
        started_ms: u64,
        site: Option<usize>,
        Questions { asked: questions, resume }: Questions,
    ) -> Self {
        let (resume, responses) = (Some(resume), Responses::new());
        Self { id, attempts, started_ms, site, questions, resume, responses }
    }

    /// Returns the waiting run, if a composite asks.
    pub(super) fn run_mut(&mut self) -> Option<&mut RunState> {
        match &mut self.resume {
            Some(Resume::Run(run)) => Some(run),
            _ => None,
        }
    }

    /// Returns `true` if the question can wait in a run of this plan with these loops.
    pub(super) fn fits(&self, plan: &Plan, loops: &[LoopState]) -> bool {
        let BranchId { step, element } = self.id;
        let Some(definition) = plan.steps().get(step) else { return false };
        let has_site = |site| definition.action.sites().any(|call| call.site == site);
        let each = || loops.iter().find(|each| each.step == step);
        let is_alone = element == 0;
        match &definition.action {
            Action::Elicit(_) => is_alone && !self.is_call() && self.questions.contains_key(OWN),
            Action::Call(_) => is_alone && self.is_call(),
            Action::Switch(_) => is_alone && self.is_call() && self.site.is_some_and(has_site),
            Action::ForEach(_) => {
                self.is_call() && each().is_some_and(|each| each.is_running(element))
            }
        }
    }

    /// Returns `true` if a tool waits rather than a step.
    pub(super) const fn is_call(&self) -> bool {
        self.resume.is_some()
    }

    /// Returns the answers for the next call of a tool, or `None` if it has asked and there is no
    /// response yet.
    pub(super) fn take_answers(&mut self) -> Option<Box<Answered>> {
        if self.responses.is_empty() && !self.questions.is_empty() {
            return None;
        }
        let resume = self.resume.take()?;
        Some(Box::new(Answered { responses: mem::take(&mut self.responses), resume }))
    }

    /// Returns the user's response to the question of a step.
    pub(super) fn take_said(&mut self, elicitation: &Elicitation) -> Said {
        let is_late = self.questions.get(OWN).is_some_and(Question::is_late);
        match self.responses.remove(OWN) {
            Some(Response::Late) => Said::Late,
            Some(Response::Answer(answer)) => match elicitation.read(answer) {
                // A declined question counts even if it is late.
                Said::Decline => Said::Decline,
                _ if is_late => Said::Late,
                said => said,
            },
            _ if is_late => Said::Late,
            Some(Response::Refused(why)) => Said::Refused(why),
            None => Said::NotYet,
        }
    }

    #[cfg(test)]
    pub(super) const fn responses(&self) -> &Responses {
        &self.responses
    }

    #[cfg(test)]
    pub(super) fn set_responses(&mut self, responses: Responses) {
        self.responses = responses;
    }

    /// Asks again, with the reason.
    pub(super) fn ask_again(&mut self, why: &str, timeout: Duration) {
        self.attempts += 1;
        let Some(question) = self.questions.get_mut(OWN) else { return };
        question.until = Some(unix_ms().saturating_add(milliseconds(timeout)));
        if let InputRequest::Elicitation(request) = &mut question.request
            && let ElicitRequestParams::FormElicitationParams { message, .. } = &mut request.params
        {
            // Removes the reason of the previous time.
            let asked = message.find(AGAIN).unwrap_or(message.len());
            message.truncate(asked);
            message.push_str(AGAIN);
            message.push_str(why);
        }
    }
}

/// The text between a question and the reason why it is asked again.
const AGAIN: &str = "\n\nThe last answer cannot be used: ";

// === impl RunState ===

impl RunState {
    /// Returns all questions: that of a step by the step's id, that of a tool by `branch:key`.
    pub(crate) fn questions(&self, plan: &Plan) -> BTreeMap<String, Question> {
        let of = |asked: &PendingQuestion| {
            let branch = branch(plan, asked.id);
            asked
                .questions
                .iter()
                .map(|(key, question)| (full_key(&branch, asked, key), question.clone()))
                .collect::<Vec<_>>()
        };
        self.asked.iter().flat_map(of).collect()
    }

    /// Returns the number of questions.
    pub(crate) fn question_count(&self) -> usize {
        self.asked.iter().map(|asked| asked.questions.len()).sum()
    }

    /// Stores the responses of pending questions; ignores the others.
    pub(crate) fn answer(&mut self, plan: &Plan, mut responses: Responses) {
        for asked in &mut self.asked {
            let branch = branch(plan, asked.id);
            for key in asked.questions.keys() {
                if let Some(response) = responses.remove(&full_key(&branch, asked, key)) {
                    asked.responses.insert(key.clone(), response);
                }
            }
        }
    }

    /// Returns `true` if this response ends the run, whatever the other responses are.
    pub(crate) fn is_ended_by(&self, plan: &Plan, key: &str, response: &Response) -> bool {
        let mut asked = self.asked.iter().filter(|asked| !asked.is_call());
        let Some(asked) = asked.find(|asked| &*plan.steps()[asked.id.step].id == key) else {
            return false;
        };
        let Action::Elicit(elicitation) = &plan.steps()[asked.id.step].action else { return false };
        let said = match response {
            Response::Late => Said::Late,
            Response::Answer(answer) => elicitation.read(answer.clone()),
            Response::Refused(_) => return false,
        };
        let is_refusal = matches!(said, Said::Decline | Said::Cancel | Said::Late);
        is_refusal && elicitation.on(&said) != OnRefusal::Continue
    }

    /// Records that no question will be answered, with a reason that may be shown to the client.
    pub(crate) fn refuse(&mut self, why: &str) {
        for asked in &mut self.asked {
            let refused = |key: &String| (key.clone(), Response::Refused(why.to_owned()));
            asked.responses = asked.questions.keys().map(refused).collect();
        }
    }

    /// Returns the running time, without the time spent waiting for the user.
    pub(crate) const fn active(&self) -> Duration {
        Duration::from_millis(self.active_ms)
    }
}

/// Returns the client's key of a branch's question.
///
/// Keys are unique, since the names of branches contain no colon.
fn full_key(branch: &str, asked: &PendingQuestion, key: &str) -> String {
    if asked.is_call() { format!("{branch}:{key}") } else { branch.to_owned() }
}

/// Returns the name of a branch in keys.
fn branch(plan: &Plan, id: BranchId) -> String {
    let step = &plan.steps()[id.step];
    // Targets are named after tools, whose names can contain any character.
    let name = step.id.replace('%', "%25").replace(':', "%3A");
    if step.is_loop() { format!("{name}[{}]", id.element) } else { name }
}

/// Returns the questions in the form in which they are sent.
pub(crate) fn requests(questions: BTreeMap<String, Question>) -> InputRequests {
    questions.into_iter().map(|(key, question)| (key, question.request)).collect()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    milliseconds(since)
}
