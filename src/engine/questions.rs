//! What a run asks before it goes on, and how it is answered.

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

/// The key of the one question that a step asks.
const OWN: &str = "";

/// What a tool answers that wants to know something first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Questions {
    /// By the keys of whoever asks; none if it only wants to be called again.
    pub(crate) asked: BTreeMap<String, Question>,
    /// What it wants back together with the answers.
    pub(crate) resume: Resume,
}

/// Something that a client is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Question {
    pub(crate) request: InputRequest,
    /// When the time to answer is over, in milliseconds of Unix time.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    until: Option<u64>,
}

/// What whoever asked wants back.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Resume {
    /// A tool: the state that it gave, if it did.
    Tool(Option<String>),
    /// A composite: its run as it stood.
    Run(Box<RunState>),
}

/// What became of questions, by their keys.
pub(crate) type Responses = BTreeMap<String, Response>;

/// What became of a question.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Response {
    /// The result of the request, which may be anything.
    Answer(Value),
    /// There was none in time.
    Late,
    /// The client did not ask; why, in words that are fit for it.
    Refused(String),
}

/// With what a tool is called again that has asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answered {
    /// By the keys of whoever asked.
    pub(crate) responses: Responses,
    pub(crate) resume: Resume,
}

/// A call or a step of a run that waits for answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PendingQuestion {
    pub(super) id: BranchId,
    /// How often its tool was called, or the person asked in vain.
    pub(super) attempts: u32,
    /// When it began, in milliseconds after the run.
    pub(super) started_ms: u64,
    /// Which of its sites is called, if it has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) site: Option<usize>,
    /// What is asked, by the keys of whoever asks.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    questions: BTreeMap<String, Question>,
    /// What a tool wants back; nothing of a question that a step asks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    resume: Option<Resume>,
    /// What became of them since.
    #[serde(skip)]
    responses: Responses,
}

/// What a person said to the question of a step.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// The form, filled in as it must be.
    Accept(JsonObject),
    /// Nothing, on purpose.
    Decline,
    /// Nothing.
    Cancel,
    /// Nothing in time.
    Late,
    /// Something that does not fit the form: why.
    Misfit(String),
    /// Nothing yet.
    NotYet,
    /// The client did not ask.
    Refused(String),
}

// === impl Said ===

impl Said {
    /// As outputs show it.
    pub(super) const fn action(&self) -> &'static str {
        match self {
            Self::Accept(_) => "accept",
            Self::Decline => "decline",
            Self::Late => "timeout",
            _ => "cancel",
        }
    }

    /// Why a step failed that needs an answer within this time.
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
    /// How much of a run's memory they take, in bytes of their texts and values.
    pub(super) fn size(&self) -> usize {
        let of = |(key, question): (&String, &Question)| {
            let request = serde_json::to_value(&question.request).unwrap_or_default();
            key.len() + size::of_value(&request)
        };
        let resume = match &self.resume {
            Resume::Tool(state) => state.as_ref().map_or(0, String::len),
            // It was counted as it came in.
            Resume::Run(_) => 0,
        };
        self.asked.iter().map(of).sum::<usize>() + resume
    }
}

// === impl Question ===
impl Question {
    /// A question that can be answered at any time.
    pub(crate) const fn new(request: InputRequest) -> Self {
        Self { request, until: None }
    }

    /// How long there still is to answer, if that is limited.
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
    /// The question as it is asked now, to be answered within `timeout`.
    ///
    /// # Errors
    ///
    /// Returns why it cannot be asked: something that it refers to is not there.
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

    /// What a person said, if it is an answer to this.
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
        // An empty form can be answered with nothing.
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

    /// Adds the defaults of the form where an answer has nothing: clients need not show
    /// them.
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

    /// What becomes of the run if the person said this.
    pub(super) const fn on(&self, said: &Said) -> OnRefusal {
        match said {
            Said::Decline => self.on_decline,
            _ => self.on_cancel,
        }
    }
}

// === impl PendingQuestion ===

impl PendingQuestion {
    /// A step that asks.
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

    /// A call whose tool asks.
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

    /// The run that waits, if it is a composite that asks.
    pub(super) fn run_mut(&mut self) -> Option<&mut RunState> {
        match &mut self.resume {
            Some(Resume::Run(run)) => Some(run),
            _ => None,
        }
    }

    /// Whether it can wait in a run of this plan with these loops.
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

    /// Whether a tool waits, and not a step.
    pub(super) const fn is_call(&self) -> bool {
        self.resume.is_some()
    }

    /// With what a tool is called again, if it can be: there is an answer, or it
    /// asked nothing.
    pub(super) fn take_answers(&mut self) -> Option<Box<Answered>> {
        if self.responses.is_empty() && !self.questions.is_empty() {
            return None;
        }
        let resume = self.resume.take()?;
        Some(Box::new(Answered { responses: mem::take(&mut self.responses), resume }))
    }

    /// What the person said to the question of a step.
    pub(super) fn take_said(&mut self, elicitation: &Elicitation) -> Said {
        let is_late = self.questions.get(OWN).is_some_and(Question::is_late);
        match self.responses.remove(OWN) {
            Some(Response::Late) => Said::Late,
            Some(Response::Answer(answer)) => match elicitation.read(answer) {
                // A no is a no whenever it comes.
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

    /// Asks once more, and says why.
    pub(super) fn ask_again(&mut self, why: &str, timeout: Duration) {
        self.attempts += 1;
        let Some(question) = self.questions.get_mut(OWN) else { return };
        question.until = Some(unix_ms().saturating_add(milliseconds(timeout)));
        if let InputRequest::Elicitation(request) = &mut question.request
            && let ElicitRequestParams::FormElicitationParams { message, .. } = &mut request.params
        {
            // What was told the last time goes.
            let asked = message.find(AGAIN).unwrap_or(message.len());
            message.truncate(asked);
            message.push_str(AGAIN);
            message.push_str(why);
        }
    }
}

/// What stands between a question and why it is asked again.
const AGAIN: &str = "\n\nThe last answer cannot be used: ";

// === impl RunState ===

impl RunState {
    /// All that is asked: a question of a step by the step's id, one of a tool by
    /// `branch:key`.
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

    /// How many questions are asked.
    pub(crate) fn question_count(&self) -> usize {
        self.asked.iter().map(|asked| asked.questions.len()).sum()
    }

    /// Takes up what became of questions; who asked nothing like it is not told.
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

    /// Whether this ends the run, whatever becomes of the other questions.
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

    /// Takes it that nothing of what is asked will be answered; why, in words that are
    /// fit for a client.
    pub(crate) fn refuse(&mut self, why: &str) {
        for asked in &mut self.asked {
            let refused = |key: &String| (key.clone(), Response::Refused(why.to_owned()));
            asked.responses = asked.questions.keys().map(refused).collect();
        }
    }

    /// How long it has run, without the time that it waited for a person.
    pub(crate) const fn active(&self) -> Duration {
        Duration::from_millis(self.active_ms)
    }
}

/// What a question of a branch is called by the client.
///
/// No two are called the same: what branches are called has no colon.
fn full_key(branch: &str, asked: &PendingQuestion, key: &str) -> String {
    if asked.is_call() { format!("{branch}:{key}") } else { branch.to_owned() }
}

/// What a branch is called in keys.
fn branch(plan: &Plan, id: BranchId) -> String {
    let step = &plan.steps()[id.step];
    // Targets are called after tools, which can be called anything.
    let name = step.id.replace('%', "%25").replace(':', "%3A");
    if step.is_loop() { format!("{name}[{}]", id.element) } else { name }
}

/// The questions as they are sent.
pub(crate) fn requests(questions: BTreeMap<String, Question>) -> InputRequests {
    questions.into_iter().map(|(key, question)| (key, question.request)).collect()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    milliseconds(since)
}
