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
use crate::message::{Context, ToolResult};

/// Calls one tool: all that the engine knows of the world.
///
/// Any closure that takes a [`Call`] and returns a future is one.
pub(crate) trait Caller: Send {
    /// Makes evaluated arguments fit for the tool of a site, once for all
    /// attempts to call it.
    ///
    /// # Errors
    ///
    /// Returns why the tool cannot be called with them.
    fn prepare(&mut self, site: usize, arguments: JsonObject) -> Result<JsonObject, StepError> {
        let _ = site;
        Ok(arguments)
    }

    /// Whether a run is made for the tool of a site, and it is asked of no server.
    fn is_nested(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Whether the tool of a site changes nothing, so that it may be called also
    /// where a person who must be asked later cannot be.
    fn is_read_only(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// The steps whose tools have to ask a person, as far as that is known before, and
    /// without which the run fails.
    fn asking(&self) -> StepSet {
        StepSet::default()
    }

    /// Starts to call a tool; the future does all that has to be waited for.
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

/// What a tool answers.
pub(crate) type Called = Result<ToolReply, StepError>;

/// What a tool answers that can be called.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolReply {
    /// It has run; it may have failed (`isError`).
    Result(ToolResult),
    /// It wants to know something first.
    Asks(Box<Questions>),
}

/// One call of a tool that a plan makes.
#[derive(Debug)]
pub(crate) struct Call {
    /// Which place of the plan it is made at.
    pub(crate) site: usize,
    /// The tool, by the name that the plan knows.
    pub(crate) tool: Arc<str>,
    /// The arguments, evaluated and prepared.
    pub(crate) arguments: JsonObject,
    /// The context of this branch.
    pub(crate) context: Context,
    /// What a run within this branch may still use.
    pub(crate) scope: Scope,
    /// If the tool has asked before: what it wanted to know.
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
