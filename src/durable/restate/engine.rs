//! Starts tasks in Restate, and requests their states.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use serde_json::{Value, json};

use super::{
    RestateError,
    calls::{Calls, unix_ns},
    client::{Client, json},
    status::{Phase, StoredTask},
};
use crate::tasks::{EngineStatus, EngineTask, Found, TaskEngine, TaskStoreError};

/// The tasks in a Restate server.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) client: Client,
    pub(super) calls: Arc<Calls>,
}

// === impl Engine ===

impl Engine {
    async fn task(&self, key: &str) -> Result<Option<StoredTask>, RestateError> {
        json(&self.client.call(key, "task", Vec::new()).await?)
    }
}

impl TaskEngine for Engine {
    fn start(&self, key: String, call: Vec<u8>) -> BoxFuture<'_, Result<(), TaskStoreError>> {
        async move {
            match self.client.call(&key, "run/send", call).await {
                // The first request has started the task, and its response was lost.
                Err(RestateError::Status(409)) => Ok(()),
                started => Ok(started.map(drop)?),
            }
        }
        .boxed()
    }

    fn get(&self, key: String) -> BoxFuture<'_, Result<Found, TaskStoreError>> {
        async move {
            let Some(StoredTask { call, status }) = self.task(&key).await? else {
                let exists = self.client.exists(&key).await?;
                return Ok(if exists { Found::Waiting } else { Found::Unknown });
            };
            let updated_ms = status.updated_ms;
            let status = match status.phase {
                Phase::Working => EngineStatus::Working,
                Phase::Asks { questions, .. } => EngineStatus::Asks(questions),
                Phase::Ended(outcome) => EngineStatus::Ended(outcome.into_bytes()),
                Phase::Refused => EngineStatus::Refused,
                Phase::Cancelled => EngineStatus::Cancelled,
            };
            Ok(Found::Task(EngineTask { call: call.into_bytes(), updated_ms, status }))
        }
        .boxed()
    }

    fn answer(
        &self,
        key: String,
        question: String,
        answer: Value,
    ) -> BoxFuture<'_, Result<(), TaskStoreError>> {
        async move {
            let Some(StoredTask { status, .. }) = self.task(&key).await? else { return Ok(()) };
            let Phase::Asks { awakeables, .. } = status.phase else { return Ok(()) };
            let Some(awakeable) = awakeables.get(&question) else { return Ok(()) };
            let body = json!({ "at": unix_ns(), "output": answer }).to_string();
            Ok(self.client.resolve(awakeable, body.into_bytes()).await?)
        }
        .boxed()
    }

    fn cancel(&self, key: String) -> BoxFuture<'_, Result<(), TaskStoreError>> {
        async move { Ok(self.client.call(&key, "cancel", Vec::new()).await.map(drop)?) }.boxed()
    }

    fn finished(&self) -> BoxFuture<'_, ()> {
        self.calls.finished().boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.calls.close().boxed()
    }
}
