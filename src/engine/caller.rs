//! The trait through which runs call their tools.

use std::{
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use rmcp::model::{CallToolResult, JsonObject};
use serde::{Deserialize, Serialize};

use super::{
    outcome::StepError,
    plan::{CallSite, StepSet},
    questions::{Answered, Questions},
    scope::Scope,
};
use crate::message::{Context, ToolResult, client::Abilities, content_size};

/// Makes the tool calls of a run. The engine has no other way to reach backends and other
/// composites.
///
/// Implemented for closures that take a [`Call`] and return a future of the tool's reply.
pub(crate) trait Caller: Send {
    /// Prepares the arguments of a tool call, for example by coercing them to the tool's input
    /// schema. Retries reuse the prepared arguments.
    ///
    /// # Errors
    ///
    /// Returns an error if the tool cannot be called with these arguments.
    fn prepare(&mut self, _site: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        Ok(arguments)
    }

    /// Returns `true` if the tool at the call site `site` is another composite. Calling it starts a
    /// nested run.
    fn is_nested(&self, _site: usize) -> bool {
        false
    }

    /// Returns `true` if the tool at the call site `site` is read-only. A run that will certainly
    /// fail at a later question calls only such tools.
    fn is_read_only(&self, _site: usize) -> bool {
        false
    }

    /// Returns `true` if it is safe to call the tool at the call site `site` twice with the same
    /// arguments. After a process has stopped, another process may repeat such calls, although it
    /// does not know whether they were already made.
    fn is_repeatable(&self, _site: usize) -> bool {
        false
    }

    /// Returns the kinds of questions that the client can answer. By default, reads them from
    /// `context`, the request context of the run.
    fn abilities(&self, context: &Context) -> Abilities {
        context.abilities()
    }

    /// Returns the steps that certainly ask the user a question, directly or in a nested run.
    /// Excludes steps whose failure does not fail the run.
    fn asking(&self) -> StepSet {
        StepSet::default()
    }

    /// Starts a tool call. Returns a future that resolves to the reply of the tool.
    fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static;

    /// Starts a tool call and polls it once.
    ///
    /// Most calls to tools in the same process end at this first poll. To keep them fast, `scope`
    /// is passed by reference, and the large context is not moved into a [`Call`].
    fn call_here(
        &mut self,
        site: &CallSite,
        arguments: JsonObject,
        context: Context,
        scope: &Scope,
        cx: &mut TaskContext<'_>,
    ) -> FirstPoll {
        let (tool, scope) = (site.tool.clone(), scope.clone());
        let call = Call { site: site.site, tool, arguments, context, scope, answered: None };
        let mut called = self.call(call).boxed();
        match called.poll_unpin(cx) {
            Poll::Ready(answer) => FirstPoll::Ended(answer),
            Poll::Pending => FirstPoll::Waits(called),
        }
    }
}

/// The state of a tool call after its first poll.
pub(crate) enum FirstPoll {
    Ended(Called),
    /// The tool has not replied yet. The future must be polled again, because no waker was
    /// registered.
    Waits(BoxFuture<'static, Called>),
}

/// The reply of a tool, or the error of a call without a reply.
pub(crate) type Called = Result<ToolReply, StepError>;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ToolReply {
    /// A tool result, which may be an error result (`isError`).
    Result(ToolResult),
    /// Questions to the user. After the client has answered them, the tool must be called again
    /// with the answers.
    Asks(Box<Questions>),
}

/// A tool call that a run makes.
#[derive(Debug)]
pub(crate) struct Call {
    /// The index of the call site in the list of all call sites of the plan.
    pub(crate) site: usize,
    /// The name of the tool in the definition of the composite.
    pub(crate) tool: Arc<str>,
    /// The arguments of the call, after [`Caller::prepare`].
    pub(crate) arguments: JsonObject,
    pub(crate) context: Context,
    /// The deadline, limits and observers for the nested run, if the tool is a composite.
    pub(crate) scope: Scope,
    /// The user's answers to the questions that the tool asked in its previous reply. `None` if the
    /// tool has not asked questions.
    pub(crate) answered: Option<Box<Answered>>,
}

impl<F, R, T> Caller for F
where
    F: FnMut(Call) -> R + Send,
    R: Future<Output = Result<T, StepError>> + Send + 'static,
    T: Into<ToolReply>,
{
    fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static {
        self(call).map(|called| called.map(Into::into))
    }
}

impl From<CallToolResult> for ToolReply {
    fn from(result: CallToolResult) -> Self {
        Self::Result(result.into())
    }
}

// === impl Scope ===

impl Scope {
    /// Adds the size of a tool's reply to the total size of the tool results of the run.
    ///
    /// # Errors
    ///
    /// Returns an error if the total size would exceed the limit of this run or of an outer run.
    pub(crate) fn keep(&self, answer: &Called) -> Result<(), StepError> {
        let bytes = match answer {
            Ok(ToolReply::Result(result)) => content_size::of_result(result),
            Ok(ToolReply::Asks(questions)) => questions.size(),
            Err(error) => {
                error.message.len() + error.data.as_ref().map_or(0, content_size::of_value)
            }
        };
        self.keep_answer(bytes)
    }
}
