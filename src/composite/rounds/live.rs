//! Asks a client questions over its connection while the call continues.

use std::{collections::BTreeMap, pin::pin, time::Duration};

use futures::{StreamExt, stream::FuturesUnordered};
use rmcp::model::InputRequest;
use serde_json::json;
use tokio::time::timeout;

use super::Called;
use crate::{
    engine::{
        question::{Question, Response, Responses},
        state::RunState,
    },
    message::client::LiveClient,
    warnings::sanitize::Reason,
};

/// The default time for the answer to a question. It starts when the question is sent to the
/// client.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// The maximum number of unanswered questions that a progress message names.
const MAX_NAMED_QUESTIONS: usize = 3;

// === impl Called ===

impl Called<'_> {
    /// Sends all open questions of `run` to the client. Waits until the client has answered all of
    /// them, or until one answer ends the run. Meanwhile, sends progress notifications at the
    /// heartbeat interval, unless they are disabled.
    pub(super) async fn ask(&self, client: &LiveClient, run: &RunState) -> Responses {
        let plan = &self.compiled.plan;
        let questions = run.questions(plan);
        let waiting = waiting_for(questions.keys().map(String::as_str));
        let is_end = |key: &str, response: &Response| run.is_ended_by(plan, key, response);
        let mut answers = pin!(ask(client, questions, is_end));
        let heartbeat = self.layer.heartbeat;
        let Some(progress) = self.context.progress().filter(|_| !heartbeat.is_zero()) else {
            return answers.await;
        };
        let parts = self.compiled.plan.steps().len();
        loop {
            match timeout(heartbeat, &mut answers).await {
                Ok(answers) => return answers,
                Err(_) => progress.still(parts, waiting.clone()),
            }
        }
    }
}

/// Returns a progress message that names the first few of `keys`, which are the keys of open
/// questions. The keys are escaped, because tools can choose them.
fn waiting_for<'q>(keys: impl ExactSizeIterator<Item = &'q str>) -> String {
    let more = keys.len().saturating_sub(MAX_NAMED_QUESTIONS);
    let named: Vec<_> =
        keys.take(MAX_NAMED_QUESTIONS).map(|key| format!("`{}`", key.escape_debug())).collect();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("waiting for an answer to {}{more}", named.join(", "))
}

/// Sends questions to a client, and waits for the responses. Sends as many questions at the same
/// time as the client allows. Stops waiting if `is_end` returns `true` for a response, which ends
/// the run, and then withdraws the unanswered questions.
async fn ask(
    client: &LiveClient,
    questions: BTreeMap<String, Question>,
    is_end: impl Fn(&str, &Response) -> bool,
) -> Responses {
    let pending = questions.into_iter().map(|(key, question)| async move {
        let left = question.left();
        let is_form = matches!(question.request, InputRequest::Elicitation(_));
        let asking = async {
            let turn = client.turn(&question.request).await.map_err(Response::Refused)?;
            // The time to answer starts when the question is sent. Otherwise, questions that wait
            // for their turn would time out.
            let answer = turn.ask(question.request);
            Ok(timeout(left.unwrap_or(ANSWER_TIMEOUT), answer).await)
        };
        let outcome = match left {
            Some(left) => timeout(left, asking).await.unwrap_or(Err(Response::Late)),
            None => asking.await,
        };
        let response = match outcome {
            Ok(Ok(Ok(answer))) => Response::Answer(answer),
            Ok(Ok(Err(error))) => {
                tracing::debug!(error = %Reason(error), "a client did not answer a question");
                Response::Refused("the client cannot be asked".to_owned())
            }
            Ok(Err(_)) if left.is_some() => Response::Late,
            // If a tool's question is not answered in time, the tool is informed that the user
            // dismissed it.
            Ok(Err(_)) if is_form => Response::Answer(json!({ "action": "cancel" })),
            Ok(Err(_)) => Response::Refused("the client has not answered".to_owned()),
            Err(response) => response,
        };
        (key, response)
    });
    let mut pending: FuturesUnordered<_> = pending.collect();
    let mut responses = Responses::new();
    while let Some((key, response)) = pending.next().await {
        let is_end = is_end(&key, &response);
        responses.insert(key, response);
        if is_end {
            break;
        }
    }
    responses
}
