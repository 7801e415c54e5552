//! The handlers that a Restate server calls.

#![allow(missing_docs, unreachable_pub, reason = "the macro makes the generated clients public")]

use std::{future::pending, io, sync::Arc, time::Duration};

use jiff::Timestamp;
use restate_sdk::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    RestateError,
    calls::{Calls, unix_ns},
    client::Client,
    drive::Driver,
    journal::RunJournal,
    status::{CALL, INVOCATION, Phase, REFUSED, STATUS, Status, StoredTask},
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
    pub(super) client: Client,
}

/// The values that a run receives when it begins.
#[derive(Serialize, Deserialize)]
struct Begin {
    /// The start of the run, as Unix time in nanoseconds.
    unix_ns: u64,
    /// The seed of the random numbers of the run.
    seed: u64,
    /// The fingerprint of the definition of the composite.
    definition: String,
}

#[restate_sdk::workflow(name = "McpCompositeTask")]
impl Tasks {
    /// Runs the task with the record `call`.
    #[handler]
    async fn run(&self, ctx: WorkflowContext<'_>, call: Vec<u8>) -> HandlerResult<()> {
        // Restate tries again, perhaps with a replica that has the composite.
        let missing = || io::Error::other("this process does not have the composite");
        let definition = self.runs.definition(&call).ok_or_else(missing)?.to_string();
        let begin = {
            let definition = definition.clone();
            || async { Ok(Json(Begin { unix_ns: unix_ns(), seed: fastrand::u64(..), definition })) }
        };
        let Json(begun) = ctx.run(begin).name("begin").await?;
        if begun.definition != definition {
            // The run cannot end here, because its journal has other entries.
            self.client.call(ctx.key(), "refuse", Vec::new()).await?;
            return pending().await;
        }
        let journal = Arc::new(RunJournal::new(begun.unix_ns, begun.seed));
        let run = self.runs.run(ctx.key(), &call, journal.clone()).ok_or_else(missing)?;
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
        let status = match ctx.peek_promise::<Json<i64>>(REFUSED).await? {
            Some(Json(updated_ms)) => Some(Json(Status { updated_ms, phase: Phase::Refused })),
            None => ctx.get::<Json<Status>>(STATUS).await?,
        };
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

    /// Ends the task with an error, because the definition of its composite has changed. Does
    /// nothing if the task has ended.
    #[handler]
    async fn refuse(&self, ctx: SharedWorkflowContext<'_>) -> HandlerResult<()> {
        let status = ctx.get::<Json<Status>>(STATUS).await?;
        if status.is_some_and(|Json(status)| status.phase.is_ended()) {
            return Ok(());
        }
        let now = || async { Ok(Json(Timestamp::now().as_millisecond())) };
        let now = ctx.run(now).name("now").await?;
        ctx.resolve_promise(REFUSED, now);
        // If a process with the old definition receives the run, it makes no further calls.
        self.cancel(ctx).await
    }
}

/// Returns the endpoint that serves the handlers. With `identity_key`, it accepts only requests of
/// the Restate server with this key.
pub(super) fn endpoint(tasks: Tasks, identity_key: Option<&str>) -> Result<Endpoint, RestateError> {
    let options = ServiceOptions::new()
        .inactivity_timeout(INACTIVITY)
        .retry_policy_max_interval(MAX_RETRY)
        .handler("run", HandlerOptions::new().workflow_retention(RETENTION));
    let tasks = tasks.into_service_definition().options(options);
    let mut builder = Endpoint::builder().bind(tasks);
    if let Some(key) = identity_key {
        builder = builder.identity_key(key).map_err(|_| RestateError::IdentityKey)?;
    }
    Ok(builder.build())
}
