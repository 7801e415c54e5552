use std::{
    convert::Infallible,
    sync::atomic::{AtomicBool, Ordering},
};

use rmcp::model::CallToolResult;
use serde_json::json;
use tower::{Layer, ServiceExt, service_fn};

use super::*;
use crate::{
    composite::{CompositeLayer, CompositeTool, TaskMode},
    message::{Context, Request},
    tasks::{TaskLayer, TaskRegistry},
};

/// An engine whose responses are lost, except for those about a task that works since this time.
#[derive(Debug, Default)]
struct Lossy {
    working: Option<Timestamp>,
}

fn owner() -> Owner {
    Owner { view: None, caller: None }
}

fn lost<T: Send + 'static>() -> BoxFuture<'static, Result<T, TaskStoreError>> {
    async { Err(TaskStoreError::Unavailable("the connection was closed".into())) }.boxed()
}

impl TaskEngine for Lossy {
    fn start(&self, _: String, _: Vec<u8>) -> BoxFuture<'_, Result<(), TaskStoreError>> {
        lost()
    }

    fn get(&self, _: String) -> BoxFuture<'_, Result<Found, TaskStoreError>> {
        let Some(since) = self.working else { return lost() };
        let params = CallToolRequestParams::new("work");
        let call = Call::new(owner(), params, RequestMetaObject::default(), LIFETIME);
        let (call, updated_ms) = (record::format(&call), since.as_millisecond());
        let task = EngineTask { call, updated_ms, status: EngineStatus::Working };
        async { Ok(Found::Task(task)) }.boxed()
    }

    fn answer(&self, _: String, _: String, _: Value) -> BoxFuture<'_, Result<(), TaskStoreError>> {
        lost()
    }

    fn cancel(&self, _: String) -> BoxFuture<'_, Result<(), TaskStoreError>> {
        lost()
    }

    fn finished(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn composite_is_not_called_if_the_engine_may_have_started_it() {
    for mode in [TaskMode::Optional, TaskMode::Always] {
        let was_called = Arc::new(AtomicBool::new(false));
        let called = was_called.clone();
        let inner = service_fn(move |_: Request| {
            called.store(true, Ordering::Relaxed);
            async { Ok::<_, Infallible>(Reply::from(CallToolResult::success(Vec::new()))) }
        });
        let composite = CompositeTool::fan_out("work", "Works", ["first"]).task(mode);
        let layer = TaskLayer::new()
            .composites(&CompositeLayer::new([composite]).unwrap())
            .registry(TaskRegistry::with_engine(Arc::<Lossy>::default(), TaskRuns::default()));
        let mut context = Context::default();
        let tasks = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        let capabilities = "io.modelcontextprotocol/clientCapabilities";
        context.meta_mut().insert(capabilities.to_owned(), tasks);
        let request = Request::of_tool_call(CallToolRequestParams::new("work"), context);
        let reply = layer.layer(inner).oneshot(request).await.unwrap();
        assert!(reply.error().is_some(), "{mode:?}: {reply:?}");
        assert!(!was_called.load(Ordering::Relaxed), "{mode:?}");
    }
}

#[tokio::test]
async fn task_that_no_process_continues_expires() {
    for (age, is_known) in [(LIFETIME, true), (3 * LIFETIME, false)] {
        let working = Some(Timestamp::now() - age);
        let tasks = DurableTasks::new(Arc::new(Lossy { working }), TaskRuns::default());
        let found = tasks.get(&new_id().unwrap(), &owner()).await;
        assert_eq!(found.is_ok(), is_known, "{age:?}: {found:?}");
    }
}
