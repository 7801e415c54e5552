//! The interface through which runs call tools.

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
use crate::message::{Context, ToolResult, content_size};

/// Calls tools for the engine; its only connection to services.
///
/// Implemented by any closure that takes a [`Call`] and returns a future.
pub(crate) trait Caller: Send {
    /// Prepares evaluated arguments for the tool of a site, once for all attempts.
    ///
    /// # Errors
    ///
    /// Returns an error if the tool cannot be called with them.
    fn prepare(&mut self, site: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        let _ = site;
        Ok(arguments)
    }

    /// Returns `true` if the tool of a site is a nested run rather than a tool of a server.
    fn is_nested(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Returns `true` if the tool of a site is read-only, so that it may be called even if the user
    /// cannot be asked later.
    fn is_read_only(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Returns the steps that are known to ask the user, and without which the run fails.
    fn asking(&self) -> StepSet {
        StepSet::default()
    }

    /// Starts a call of a tool; the returned future does all waiting.
    fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static;

    /// Starts to call a tool and polls the call once.
    ///
    /// Most calls of tools in the same process end here. The scope is cloned only for a call
    /// that waits. The context is not in a [`Call`], since it is large and would be copied.
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

/// The result of the first poll of a call.
pub(crate) enum FirstPoll {
    Ended(Called),
    /// The call waits. It has no waker yet, so it must be polled again.
    Waits(BoxFuture<'static, Called>),
}

/// The reply of a tool, or an error.
pub(crate) type Called = Result<ToolReply, StepError>;

/// The reply of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolReply {
    /// A result; it may be an error (`isError`).
    Result(ToolResult),
    /// Questions that the tool asks first.
    Asks(Box<Questions>),
}

/// One call of a tool that a plan makes.
#[derive(Debug)]
pub(crate) struct Call {
    /// The index of the call site in the plan.
    pub(crate) site: usize,
    /// The name of the tool in the plan.
    pub(crate) tool: Arc<str>,
    /// The arguments, evaluated and prepared.
    pub(crate) arguments: JsonObject,
    /// The context of this branch.
    pub(crate) context: Context,
    /// The scope for a nested run.
    pub(crate) scope: Scope,
    /// The answers to the tool's previous questions, if it has asked.
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
    /// Counts the answer of a tool against the limits of the run.
    ///
    /// # Errors
    ///
    /// Returns an error if the answer exceeds a limit.
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
