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

/// An engine whose responses are lost.
#[derive(Debug)]
struct Lossy;

fn lost<T: Send + 'static>() -> BoxFuture<'static, Result<T, TaskStoreError>> {
    async { Err(TaskStoreError::Unavailable("the connection was closed".into())) }.boxed()
}

impl TaskEngine for Lossy {
    fn start(&self, _: String, _: Vec<u8>) -> BoxFuture<'_, Result<(), TaskStoreError>> {
        lost()
    }

    fn get(&self, _: String) -> BoxFuture<'_, Result<Found, TaskStoreError>> {
        lost()
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
            .registry(TaskRegistry::with_engine(Arc::new(Lossy), TaskRuns::default()));
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
