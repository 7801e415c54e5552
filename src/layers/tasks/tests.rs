use std::time::Duration;

use rmcp::model::{JsonObject, TaskPayload};
use tokio::task::yield_now;

use super::{
    error::LimitReached,
    limits::MAX_TASKS,
    registry::{TaskHandle, TaskRegistry},
};

#[tokio::test(start_paused = true)]
async fn number_of_all_tasks_is_limited() {
    let registry = TaskRegistry::new();
    let start = || -> Result<(), LimitReached> {
        let run = |task: TaskHandle| async move {
            task.end(TaskPayload::Completed { result: JsonObject::new() }, 2);
        };
        registry.reserve(0)?.start(Vec::new(), Duration::ZERO, run);
        Ok(())
    };
    for _ in 0..MAX_TASKS {
        start().expect("the earlier tasks have ended");
        yield_now().await;
    }
    assert!(matches!(start(), Err(LimitReached::Tasks { max: MAX_TASKS })));
}
