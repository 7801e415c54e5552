//! Questions that a client does not answer.

use std::time::Duration;

use axum::body::Bytes;
use mcp_composite::testing::Server as Tools;
use rmcp::model::TaskPayload;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    ports::free_port,
    proxy,
    replica::{APPROVAL, Replica},
    server::Server,
};

/// The lifetime of tasks in this test, in place of at least an hour.
const LIFETIME: Duration = Duration::from_secs(5);

/// Returns whether the task has expired.
async fn is_unknown(replica: &Replica, id: &str) -> bool {
    replica.service.get(id).await.is_err_and(|error| error.message == "unknown task")
}

#[test]
fn task_ends_if_its_question_is_not_answered() {
    let server = Server::start();
    let ingress = proxy::serve(&server, |path, body| {
        if !path.ends_with("/run/send") {
            return Ok(body);
        }
        let mut record: Value = serde_json::from_slice(&body).unwrap();
        record["lifetime_ms"] = json!(LIFETIME.as_secs() * 1000);
        Ok(Bytes::from(record.to_string()))
    });
    let tools = Tools::new().says("after", "after");
    let port = free_port();
    let replica = Replica::start_with_ingress(&server, &ingress, port, APPROVAL, tools.clone());
    let begun = Instant::now();
    let id = replica.block_on(async {
        let id = replica.service.start("approval", json!({})).await;
        let task = replica.service.settled(&id).await;
        assert!(matches!(task, TaskPayload::InputRequired { .. }), "{task:?}");
        id
    });
    replica.kill();

    // The time goes on while no process executes the run.
    let replica = Replica::start_with_ingress(&server, &ingress, port, APPROVAL, tools);
    replica.block_on(async {
        loop {
            match replica.service.settled(&id).await {
                TaskPayload::InputRequired { .. } => sleep(Duration::from_millis(20)).await,
                TaskPayload::Cancelled => break,
                other => panic!("{other:?}"),
            }
        }
        assert!(begun.elapsed() >= LIFETIME, "{:?}", begun.elapsed());
        assert!(replica.tools.called().is_empty());
        // The task itself expires as well.
        while !is_unknown(&replica, &id).await {
            sleep(Duration::from_millis(20)).await;
        }
    });
}
