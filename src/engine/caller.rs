//! The trait through which runs call their tools.

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

/// Makes the tool calls of a run. The engine reaches backends and other composites only through
/// this trait.
///
/// Implemented for closures that take a [`Call`] and return a future of the tool's reply.
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

    /// Returns `true` if the tool at the call site `site` is another composite, so that calling it
    /// starts a nested run.
    fn is_nested(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Returns `true` if the tool at the call site `site` is read-only. If a later question of the
    /// run is certain to fail, only read-only tools may still be called, because they change
    /// nothing.
    fn is_read_only(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Returns `true` if the tool at the call site `site` may be called again if it is unknown
    /// whether it was called: another call with the same arguments has no further effect.
    fn is_repeatable(&self, site: usize) -> bool {
        let _ = site;
        false
    }

    /// Returns the kinds of questions that tools may ask the client. The default implementation
    /// reads them from `context`, the context of the run.
    fn abilities(&self, context: &Context) -> Abilities {
        context.abilities()
    }

    /// Returns the steps that are known to ask the user a question, directly or in a nested run.
    /// Excludes steps whose failure does not fail the run.
    fn asking(&self) -> StepSet {
        StepSet::default()
    }

    /// Starts a tool call. Returns a future that resolves to the reply of the tool.
    fn call(&mut self, call: Call) -> impl Future<Output = Called> + Send + 'static;

    /// Starts a tool call and polls it once.
    ///
    /// Most calls to tools in the same process end at this first poll. Such calls do not clone
    /// `scope`, because it is passed by reference. The context is a separate parameter, because it
    /// is large and moving it into a [`Call`] would be slow.
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
    /// The tool has not replied yet. The caller must poll the future again, because the first poll
    /// registered no waker.
    Waits(BoxFuture<'static, Called>),
}

/// The outcome of a tool call: the reply of the tool, or an error if the call failed without a
/// reply.
pub(crate) type Called = Result<ToolReply, StepError>;

/// The reply of a tool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolReply {
    /// The tool returned a result, which may be an error result (`isError`).
    Result(ToolResult),
    /// The tool asks the client questions. After the client has answered them, the tool must be
    /// called again with the answers.
    Asks(Box<Questions>),
}

/// A tool call that a run makes.
#[derive(Debug)]
pub(crate) struct Call {
    /// The index of the call site in the plan's list of call sites.
    pub(crate) site: usize,
    /// The name of the tool, as the definition of the composite writes it.
    pub(crate) tool: Arc<str>,
    /// The arguments of the call, after [`Caller::prepare`].
    pub(crate) arguments: JsonObject,
    /// The request context of the step or loop element that makes the call.
    pub(crate) context: Context,
    /// The deadline, limits and observers of the nested run, if the tool is a composite.
    pub(crate) scope: Scope,
    /// The client's answers to the questions that the tool asked in its previous reply. `None` if
    /// the tool has not asked questions.
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
    /// Adds the size of a tool's reply to the total size of the run's tool results, which is
    /// limited.
    ///
    /// # Errors
    ///
    /// Returns an error if the reply would exceed the limit of this run or of an outer run.
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
