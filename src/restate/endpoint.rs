//! The handlers that a Restate server calls.

#![allow(missing_docs, unreachable_pub, reason = "the macro makes the generated clients public")]

use std::{sync::Arc, time::Duration};

use restate_sdk::prelude::*;

use super::{
    RestateError,
    calls::{Calls, unix_ns},
    drive::Driver,
    journal::RunJournal,
    status::{CALL, INVOCATION, Phase, STATUS, Status, StoredTask},
};
use crate::tasks::TaskRuns;

/// The time after which Restate suspends a run without events. A suspension drops the future of the
/// run.
const INACTIVITY: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for which Restate keeps the state of a task that has ended.
const RETENTION: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum time until Restate executes a run again whose process has stopped.
const MAX_RETRY: Duration = Duration::from_secs(5);

/// The workflow that runs a task.
pub(super) struct Tasks {
    pub(super) runs: TaskRuns,
    pub(super) calls: Arc<Calls>,
}

#[restate_sdk::workflow(name = "McpCompositeTask")]
impl Tasks {
    /// Runs the task with the record `call`.
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>, call: Vec<u8>) -> HandlerResult<()> {
        let begin = || async { Ok(Json((unix_ns(), fastrand::u64(..)))) };
        let Json((begun, seed)) = ctx.run(begin).name("begin").await?;
        let journal = Arc::new(RunJournal::new(begun, seed));
        let Some(run) = self.runs.run(&call, journal.clone()) else {
            // Restate tries again, perhaps with a replica that has the composite.
            return Err(std::io::Error::other("this process does not have the composite").into());
        };
        ctx.set(CALL, call);
        ctx.set(INVOCATION, ctx.invocation_id().to_owned());
        Status::set(&ctx, &*journal, Phase::Working);
        let driver = Driver::new(&ctx, self.calls.clone(), journal.clone(), run.lifetime);
        let phase = driver.drive(run).await;
        Status::set(&ctx, &*journal, phase);
        Ok(())
    }

    /// Returns the task. Returns `null` if it has not begun.
    #[handler]
    async fn task(
        &self,
        ctx: SharedWorkflowContext<'_>,
    ) -> HandlerResult<Json<Option<StoredTask>>> {
        let call = ctx.get::<Vec<u8>>(CALL).await?;
        let status = ctx.get::<Json<Status>>(STATUS).await?;
        let stored = call.zip(status).map(|(call, Json(status))| {
            let call = String::from_utf8(call).unwrap_or_default();
            StoredTask { call, status }
        });
        Ok(Json(stored))
    }

    /// Cancels the task.
    #[handler]
    async fn cancel(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<()> {
        if let Some(invocation) = ctx.get::<String>(INVOCATION).await? {
            ctx.invocation_handle(invocation).cancel();
        }
        Ok(())
    }
}

/// Returns the endpoint that serves the handlers. With `identity_key`, it accepts only requests of
/// the Restate server with this key.
pub(super) fn endpoint(
    runs: TaskRuns,
    calls: Arc<Calls>,
    identity_key: Option<&str>,
) -> Result<Endpoint, RestateError> {
    let options = ServiceOptions::new()
        .inactivity_timeout(INACTIVITY)
        .retry_policy_max_interval(MAX_RETRY)
        .handler("run", HandlerOptions::new().workflow_retention(RETENTION));
    let tasks = Tasks { runs, calls }.into_service_definition().options(options);
    let mut builder = Endpoint::builder().bind(tasks);
    if let Some(key) = identity_key {
        builder = builder.identity_key(key).map_err(|_| RestateError::IdentityKey)?;
    }
    Ok(builder.build())
}
