use std::sync::Arc;

use rmcp::model::{CallToolResult, JsonObject};

use super::{limits::Scope, outcome::StepError};
use crate::message::Context;

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

    /// Starts to call a tool; the future does all that has to be waited for.
    fn call(
        &mut self,
        call: Call,
    ) -> impl Future<Output = Result<CallToolResult, StepError>> + Send + 'static;
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
}

impl<F, R> Caller for F
where
    F: FnMut(Call) -> R + Send,
    R: Future<Output = Result<CallToolResult, StepError>> + Send + 'static,
{
    fn call(
        &mut self,
        call: Call,
    ) -> impl Future<Output = Result<CallToolResult, StepError>> + Send + 'static {
        self(call)
    }
}
