//! Runs a call as a task.

use futures::future::BoxFuture;
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ErrorData, InputRequiredResult, TaskPayload,
};
use tower::ServiceExt;
use tower_service::Service;

use super::{registry::TaskHandle, state::object, tool::METHOD};
use crate::{
    adapter::failure::{caught, failure, mismatch},
    json_size::json_bytes,
    message::{Context, Reply, Request, ToolAnswer, ToolService},
};

/// A call that runs as a task.
pub(super) struct Call<S> {
    pub(super) inner: S,
    pub(super) params: CallToolRequestParams,
    pub(super) context: Context,
}

/// The future of a reply of the service `S`.
pub(super) type ReplyFuture<S> = BoxFuture<'static, Result<Reply, <S as Service<Request>>::Error>>;

// === impl Call ===

impl<S> Call<S>
where
    S: ToolService,
{
    pub(super) fn request(&self) -> Request {
        Request::of_tool_call(self.params.clone(), self.context.clone())
    }

    /// Runs the call to its end, and records its outcome in the task. `first` is the future of the
    /// first reply.
    pub(super) async fn run(self, task: TaskHandle, first: ReplyFuture<S>) {
        let ended = match caught(METHOD, self.answer(&task, first)).await.unwrap_or_else(Err) {
            Ok(result) => TaskPayload::Completed { result: object(&result) },
            Err(error) => TaskPayload::Failed { error: object(&error) },
        };
        let bytes = match &ended {
            TaskPayload::Completed { result: object } | TaskPayload::Failed { error: object } => {
                json_bytes(object)
            }
            _ => 0,
        };
        task.end(ended, bytes);
    }

    /// Returns the result of the call. While the call asks the user questions, waits for the
    /// answers and repeats the call with them.
    async fn answer(
        mut self,
        task: &TaskHandle,
        first: ReplyFuture<S>,
    ) -> Result<CallToolResult, ErrorData> {
        let mut reply = first.await;
        for round in 1_u64.. {
            let answered = reply.map_err(|error| failure(METHOD, &*error.into()))?;
            let result = match answered.into_tool_answer() {
                ToolAnswer::Result(result) => return Ok(result),
                ToolAnswer::Error(error) => return Err(error),
                ToolAnswer::Refused(refusal) => return Err(refusal.to_error()),
                ToolAnswer::InputRequired(result) => result,
                ToolAnswer::Task(_) | ToolAnswer::Invalid => break,
            };
            self.ask(task, round, result).await?;
            reply = self.inner.clone().oneshot(self.request()).await;
        }
        Err(mismatch(METHOD))
    }

    /// Waits until the client has answered the questions, and adds the answers to the parameters of
    /// the call.
    async fn ask(
        &mut self,
        task: &TaskHandle,
        round: u64,
        result: InputRequiredResult,
    ) -> Result<(), ErrorData> {
        self.params.request_state = result.request_state;
        self.params.input_responses = None;
        let questions = result.input_requests.unwrap_or_default();
        if questions.is_empty() {
            return Ok(());
        }
        // The keys of a task must be unique over its life, but each round may use the same keys.
        let prefix = format!("{round}:");
        let questions = questions.into_iter();
        let questions = questions.map(|(key, question)| (format!("{prefix}{key}"), question));
        let answers = task.ask(questions.collect())?.await;
        // The sender is dropped only if the task was cancelled, which also drops this future.
        let answers = answers.unwrap_or_default().into_iter();
        let answers = answers.map(|(key, answer)| match key.strip_prefix(&prefix) {
            Some(key) => (key.to_owned(), answer),
            None => (key, answer),
        });
        self.params.input_responses = Some(answers.collect());
        Ok(())
    }
}
