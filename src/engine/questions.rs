//! The questions of a suspended run, and the user's answers.

use std::{collections::BTreeMap, mem, time::Duration};

use rmcp::model::{
    ElicitRequest, ElicitRequestParams, ElicitationSchema, InputRequest, JsonObject,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    branches::BranchId,
    form,
    outcome::{ErrorKind, StepError},
    plan::{Elicitation, OnRefusal, Plan},
    question::{Question, Response, Responses},
    state::{OWN, PendingQuestion, Resume, RunState},
};
use crate::{
    expr::{Data, Expression},
    message::content_size,
    schema::InputSchema,
    warnings::sanitize::Reason,
};

/// The reply of a tool that asks the user questions before it returns a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Questions {
    /// The questions, indexed by keys of the tool. If empty, the tool only requests to be called
    /// again with its state.
    pub(crate) asked: BTreeMap<String, Question>,
    /// The state of the tool, which the next call sends back together with the answers.
    pub(crate) resume: Resume,
}

/// The user's answers to the questions of a tool. The next call of the tool sends them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answered {
    /// The client's responses. Each key identifies the question.
    pub(crate) responses: Responses,
    pub(crate) resume: Resume,
}

/// The user's response to the question of a step, after validation.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// The user answered the question. The content matches the schema of the form.
    Accept(JsonObject),
    Decline,
    /// The user dismissed the question without an answer.
    Cancel,
    /// The deadline passed before the answer arrived.
    Late,
    /// The answer is invalid, for example because a field is missing. Contains the error message.
    Misfit(String),
    NotYet,
    /// There will be no answer, because the question was not asked or the client did not answer it.
    /// Contains the reason.
    Refused(String),
}

// === impl Said ===

impl Said {
    /// Returns the `action` in the output of the step, such as `decline`.
    pub(super) const fn action(&self) -> &'static str {
        match self {
            Self::Accept(_) => "accept",
            Self::Decline => "decline",
            Self::Late => "timeout",
            _ => "cancel",
        }
    }

    /// Returns the error of a step whose question was declined, dismissed or answered too late.
    /// `timeout` is the time that the user had.
    pub(super) fn error(&self, timeout: Duration) -> StepError {
        match self {
            Self::Decline => StepError::new(ErrorKind::Declined, "the user declined"),
            Self::Late => StepError::new(
                ErrorKind::Timeout,
                format!("the user did not answer within {timeout:?}"),
            ),
            _ => StepError::new(ErrorKind::Dismissed, "the user gave no answer"),
        }
    }
}

// === impl Questions ===

impl Questions {
    /// Returns the size of the questions and of the tool's state, in bytes. It counts toward the
    /// maximum total size of the tool results of the run.
    pub(super) fn size(&self) -> usize {
        let of = |(key, question): (&String, &Question)| {
            let request = serde_json::to_value(&question.request).unwrap_or_default();
            key.len() + content_size::of_value(&request)
        };
        let resume = match &self.resume {
            Resume::Tool(state) => state.as_ref().map_or(0, String::len),
            // The tool results in the state of a nested run were already counted when they arrived.
            Resume::Run(_) => 0,
        };
        self.asked.iter().map(of).sum::<usize>() + resume
    }
}

// === impl Elicitation ===

impl Elicitation {
    /// Creates the question of a step by evaluating its text and its form. `until` is the deadline
    /// of the answer, as Unix time in milliseconds.
    ///
    /// # Errors
    ///
    /// Returns an error if an expression cannot be evaluated, or if the evaluated form is invalid.
    pub(super) fn question(&self, state: &RunState, until: u64) -> Result<Question, StepError> {
        let evaluate = |expression: &Expression, data: &dyn Data| {
            expression.evaluate_in(data).map(Option::unwrap_or_default)
        };
        let message = state.evaluate(|data| evaluate(&self.message, data));
        let message = match message.map_err(|error| error.at("message"))? {
            Value::String(text) => text,
            other => other.to_string(),
        };
        let form = state.evaluate(|data| evaluate(&self.form, data));
        let mut form = form.map_err(|error| error.at("schema"))?;
        if self.is_computed {
            form::complete(&mut form)?;
        }
        let requested_schema: ElicitationSchema = serde_json::from_value(form)
            .map_err(|error| StepError::definition(format!("schema: no form: {error}")))?;
        let params =
            ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema };
        let request = InputRequest::Elicitation(ElicitRequest::new(params));
        Ok(Question { request, until: Some(until) })
    }

    /// Validates the client's answer against the form of this question. If choices or defaults of
    /// the form were computed, uses the form of `sent`, the question that the client received.
    fn read(&self, sent: Option<&Question>, answer: Value) -> Said {
        let Value::Object(mut answer) = answer else {
            return Said::Misfit("the answer is not an object".to_owned());
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
        // If the form is empty, clients may omit the content of the answer.
        let content = answer.remove("content").filter(|content| !content.is_null());
        let mut content = content.unwrap_or_else(|| Map::new().into());
        let sent_schema = sent.filter(|_| self.is_computed).and_then(Question::schema);
        let schema = sent_schema.as_ref().unwrap_or(&self.schema);
        if let Value::Object(content) = &mut content {
            fill_in(schema, content);
        }
        let warn = |error| tracing::warn!(error = %Reason(error), "an answer is not validated: its form is invalid");
        match (schema.fit("the form", &mut content, warn), content) {
            (Ok(()), Value::Object(content)) => Said::Accept(content),
            (Ok(()), _) => Said::Misfit("the answer's `content` is not an object".to_owned()),
            (Err(refusal), _) => Said::Misfit(refusal.reason()),
        }
    }

    /// Returns how the run continues after a response without an answer: `on_decline` if the user
    /// declined, and otherwise `on_cancel`.
    pub(super) const fn on(&self, said: &Said) -> OnRefusal {
        match said {
            Said::Decline => self.on_decline,
            _ => self.on_cancel,
        }
    }
}

/// Adds the defaults of the form `schema` to the answer `content` for fields that the client
/// omitted.
fn fill_in(schema: &InputSchema, content: &mut Map<String, Value>) {
    let properties = schema.schema().get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !content.contains_key(name)
        {
            content.insert(name.clone(), default.clone());
        }
    }
}

// === impl PendingQuestion ===

impl PendingQuestion {
    /// Creates the pending question of a step that asks the user.
    pub(super) fn step(step: usize, started_ms: u64, question: Question) -> Self {
        let id = BranchId { step, element: 0 };
        let questions = BTreeMap::from([(OWN.to_owned(), question)]);
        Self { id, started_ms, questions, ..Self::default() }
    }

    /// Creates the pending questions of a tool, which it sent in reply to a call.
    pub(super) fn call(
        id: BranchId,
        attempts: u32,
        started_ms: u64,
        site: Option<usize>,
        Questions { asked: questions, resume }: Questions,
    ) -> Self {
        Self { id, attempts, started_ms, site, questions, resume: Some(resume), ..Self::default() }
    }

    /// Removes and returns the answers to send with the next call of the tool. Returns `None` if
    /// the client has not answered any question yet.
    pub(super) fn take_answers(&mut self) -> Option<Box<Answered>> {
        if self.responses.is_empty() && !self.questions.is_empty() {
            return None;
        }
        let resume = self.resume.take()?;
        Some(Box::new(Answered { responses: mem::take(&mut self.responses), resume }))
    }

    /// Returns the question of the step, or `None` if a tool asked the questions.
    fn own(&self) -> Option<&Question> {
        self.questions.get(OWN)
    }

    /// Removes and validates the user's response to the question of a step. Returns [`Said::Late`]
    /// if the deadline has passed at the Unix time `unix_ms`, unless the user declined.
    pub(super) fn take_said(&mut self, elicitation: &Elicitation, unix_ms: u64) -> Said {
        let is_late = self.own().is_some_and(|question| question.is_late(unix_ms));
        match self.responses.remove(OWN) {
            Some(Response::Late) => Said::Late,
            Some(Response::Answer(answer)) => match elicitation.read(self.own(), answer) {
                // A late answer is ignored, unless the user has declined.
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

    /// Changes the question of a step to ask it again after an invalid answer. Appends the reason
    /// `why` to its text. `until` is the new deadline, as Unix time in milliseconds.
    pub(super) fn ask_again(&mut self, why: &str, until: u64) {
        self.attempts += 1;
        let Some(question) = self.questions.get_mut(OWN) else { return };
        question.until = Some(until);
        if let InputRequest::Elicitation(request) = &mut question.request
            && let ElicitRequestParams::FormElicitationParams { message, .. } = &mut request.params
        {
            // The text may still contain the reason of the previous repetition.
            let end = message.find(AGAIN).unwrap_or(message.len());
            message.truncate(end);
            message.push_str(AGAIN);
            message.push_str(why);
        }
    }
}

/// Separates the text of a question from the reason why the last answer was invalid.
const AGAIN: &str = "\n\nThe last answer cannot be used: ";

// === impl RunState ===

impl RunState {
    /// Returns all pending questions of the run. The key of a step's question is the name of the
    /// step, such as `confirm`. The key of a tool's question is `name:key`, such as
    /// `search[2]:token`: the name of the step or loop element, and the key from the tool.
    pub(crate) fn questions(&self, plan: &Plan) -> BTreeMap<String, Question> {
        let of = |pending: &PendingQuestion| {
            let branch = branch(plan, pending.id);
            pending
                .questions
                .iter()
                .map(|(key, question)| (full_key(&branch, pending, key), question.clone()))
                .collect::<Vec<_>>()
        };
        self.asked.iter().flat_map(of).collect()
    }

    pub(crate) fn question_count(&self) -> usize {
        self.asked.iter().map(|pending| pending.questions.len()).sum()
    }

    /// Stores the client's responses with the pending questions. Responses with other keys are
    /// ignored.
    pub(crate) fn answer(&mut self, plan: &Plan, mut responses: Responses) {
        for pending in &mut self.asked {
            let branch = branch(plan, pending.id);
            for key in pending.questions.keys() {
                if let Some(response) = responses.remove(&full_key(&branch, pending, key)) {
                    pending.responses.insert(key.clone(), response);
                }
            }
        }
    }

    /// Returns `true` if `response` to the question `key` certainly ends the run, for all possible
    /// responses to the other questions.
    pub(crate) fn is_ended_by(&self, plan: &Plan, key: &str, response: &Response) -> bool {
        let mut pending = self.asked.iter().filter(|pending| !pending.is_call());
        let Some(pending) = pending.find(|pending| &*plan.steps()[pending.id.step].id == key)
        else {
            return false;
        };
        let action = &plan.steps()[pending.id.step].action;
        let Some(elicitation) = action.as_elicitation() else { return false };
        let said = match response {
            Response::Late => Said::Late,
            Response::Answer(answer) => elicitation.read(pending.own(), answer.clone()),
            Response::Refused(_) => return false,
        };
        let is_refusal = !plan.is_final(pending.id.step)
            && matches!(said, Said::Decline | Said::Cancel | Said::Late);
        (is_refusal && elicitation.on(&said) != OnRefusal::Continue)
            || (plan.has_stops()
                && self.question_count() > 1
                && self.is_stopped_by(plan, key, response))
    }

    /// Marks all pending questions as refused. `why` is the reason, which clients may see.
    pub(crate) fn refuse(&mut self, why: &str) {
        for pending in &mut self.asked {
            let refused = |key: &String| (key.clone(), Response::Refused(why.to_owned()));
            pending.responses = pending.questions.keys().map(refused).collect();
        }
    }
}

/// Returns the key of a question for the client, such as `search[2]:token`. `branch` is the name of
/// the step or loop element, and `key` is the key from the tool. The key is unique, because colons
/// in the names of steps are escaped.
fn full_key(branch: &str, pending: &PendingQuestion, key: &str) -> String {
    if pending.is_call() { format!("{branch}:{key}") } else { branch.to_owned() }
}

/// Returns the name of a step, or of a loop element such as `search[2]`. Colons are escaped.
fn branch(plan: &Plan, id: BranchId) -> String {
    let step = &plan.steps()[id.step];
    // Targets are named after their tools, and the names of tools can contain any character.
    let name = step.id.replace('%', "%25").replace(':', "%3A");
    if step.is_loop() { format!("{name}[{}]", id.element) } else { name }
}
