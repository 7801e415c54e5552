//! The interface through which runs call their tools.

use std::{
    sync::Arc,
    task::{Context as TaskContext, Poll},
};

use futures::{FutureExt, future::BoxFuture};
use rmcp::model::{CallToolResult, JsonObject};

use super::{
    outcome::StepError,
    plan::{CallSite, StepSet},
    questions::{Answered, Questions},
    scope::Scope,
};
use crate::message::{Context, ToolResult, client::Abilities, content_size};

/// Calls tools for the engine. This trait is the engine's only connection to services.
///
/// It is implemented for closures that take a [`Call`] and return a future with the reply of the
/// tool.
pub(crate) trait Caller: Send {
    /// Prepares the evaluated arguments of a tool call, for example by coercing them to the tool's
    /// input schema. Called once per call, and not again before retries.
    ///
    /// # Errors
    ///
    /// Returns an error if the tool cannot be called with these arguments.
    fn prepare(&mut self, site: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        let _ = site;
        Ok(arguments)
    }

    /// Returns `true` if the tool at the call site `site` is another composite. The call is then a
    /// nested run.
    fn is_nested(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Returns `true` if the tool at the call site `site` is read-only. A read-only tool may be
    /// called even if a later question to the user is certain to fail, because the call changes
    /// nothing.
    fn is_read_only(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Returns the kinds of questions that the tools may ask the client. `context` is the context
    /// of the run. An implementation that knows the answer by itself ignores `context`.
    fn abilities(&self, context: &Context) -> Abilities {
        context.abilities()
    }

    /// Returns the steps that are known to ask the user, either directly or in a nested run.
    /// Excludes steps whose failure does not fail the run.
    fn asking(&self) -> StepSet {
        StepSet::default()
    }

    /// Starts a tool call without waiting for it. The returned future waits for the reply.
    fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static;

    /// Starts a tool call and polls it once.
    ///
    /// Most calls to tools in the same process end at this first poll. The scope is passed by
    /// reference, so that such calls need no clone of it. The context is a separate parameter, and
    /// not part of a [`Call`], because it is large, and moving it into a [`Call`] would copy it
    /// once more.
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

/// The result of polling a tool call for the first time.
pub(crate) enum FirstPoll {
    Ended(Called),
    /// The call is pending. It must be polled again, because the first poll registered no waker.
    Waits(BoxFuture<'static, Called>),
}

/// The reply of a tool, or the error of a tool call that failed.
pub(crate) type Called = Result<ToolReply, StepError>;

/// The reply of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolReply {
    /// A tool result, which may be an error (`isError`).
    Result(ToolResult),
    /// Questions. The tool returns a result only after they are answered.
    Asks(Box<Questions>),
}

/// A tool call that a plan makes.
#[derive(Debug)]
pub(crate) struct Call {
    /// The index of the call site in the plan.
    pub(crate) site: usize,
    /// The name of the tool in the plan.
    pub(crate) tool: Arc<str>,
    /// The arguments, evaluated and prepared.
    pub(crate) arguments: JsonObject,
    /// The context of the branch that makes the call.
    pub(crate) context: Context,
    /// The deadline, limits and observers of the nested run, if the tool is a composite.
    pub(crate) scope: Scope,
    /// The client's answers to the questions in the tool's previous reply. `None` if the tool has
    /// not asked questions.
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
    /// Counts the size of a tool reply toward the limits of the run.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply exceeds a limit.
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
