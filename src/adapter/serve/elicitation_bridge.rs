//! Supports `InputRequired` results for clients with protocol version 2025-11-25 or older, by
//! sending them the questions as separate requests.

use futures::{
    FutureExt,
    future::{BoxFuture, try_join_all},
};
use rmcp::model::{ClientRequest, ErrorData, InputRequiredResult, InputResponses, ServerResult};

use super::service::Shared;
use crate::message::{
    Request, ToolService,
    client::{LiveClient, MAX_QUESTIONS},
};

/// The maximum number of times that the client is asked for input during one request.
const MAX_REQUEST_ROUNDS: usize = 10;

impl<S> Shared<S>
where
    S: ToolService,
{
    /// Answers a client's request. If the service returns `InputRequired`, sends the service's
    /// questions to the client, whose request is still pending. Then calls the service again with
    /// the client's answers.
    ///
    /// The future is boxed to keep the task of every request small.
    pub(super) fn answer_asking<'a>(
        &'a self,
        method: &'a str,
        mut request: Request,
        client: LiveClient,
    ) -> BoxFuture<'a, Result<ServerResult, ErrorData>> {
        async move {
            for _ in 0..MAX_REQUEST_ROUNDS {
                let suspended = match self.answer(method, request.clone()).await? {
                    ServerResult::InputRequiredResult(suspended) => suspended,
                    result => return Ok(result),
                };
                let InputRequiredResult { input_requests, request_state, .. } = suspended;
                let questions = input_requests.unwrap_or_default();
                if questions.len() > MAX_QUESTIONS {
                    let message = format!("`{method}` asks too many questions at once");
                    return Err(ErrorData::internal_error(message, None));
                }
                let client = &client;
                let answers =
                    try_join_all(questions.into_iter().map(|(key, request)| async move {
                        let answer = client.relay(request).await;
                        let answer = answer.map_err(|error| error.message.into_owned())?;
                        let answer =
                            serde_json::to_value(answer).map_err(|error| error.to_string())?;
                        Ok((key, answer))
                    }));
                let answers = answers.await.map_err(|reason: String| {
                    let message = format!("`{method}` needs user input: {reason}");
                    ErrorData::invalid_request(message, None)
                })?;
                answer(&mut request, answers.into_iter().collect(), request_state);
            }
            match self.answer(method, request).await? {
                ServerResult::InputRequiredResult(_) => Err(ErrorData::internal_error(
                    format!("`{method}` asked for input again after {MAX_REQUEST_ROUNDS} answers"),
                    None,
                )),
                result => Ok(result),
            }
        }
        .boxed()
    }
}

/// Adds the client's answers to a request, which is then sent to the service again. `state` is the
/// request state that the service has returned with its questions, if any.
fn answer(request: &mut Request, answers: InputResponses, state: Option<String>) {
    let (responses, request_state) = match request.message_mut() {
        ClientRequest::CallToolRequest(call) => {
            (&mut call.params.input_responses, &mut call.params.request_state)
        }
        ClientRequest::GetPromptRequest(get) => {
            (&mut get.params.input_responses, &mut get.params.request_state)
        }
        ClientRequest::ReadResourceRequest(read) => {
            (&mut read.params.input_responses, &mut read.params.request_state)
        }
        _ => return,
    };
    *responses = Some(answers);
    *request_state = state;
}
