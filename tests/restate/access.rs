//! Requests of foreign callers, and of servers with another identity.

use std::time::Duration;

use mcp_composite::{
    restate::{RestateError, RestateServer},
    testing::{Answer, Server as Tools},
};
use rmcp::model::TaskPayload;
use serde_json::json;
use tokio::time::sleep;

use super::{
    ports::free_port,
    replica::{APPROVAL, Replica},
    server::Server,
};

const WORK: &str = r#"
[[composite_tools]]
name = "work"
description = "Works"
strategy = "workflow"
task = "always"
steps = [{ id = "work", tool = "work" }]
"#;

fn tools() -> Tools {
    Tools::new().says("after", "approved").tool("work", Answer::echo())
}

#[test]
fn foreign_caller_gets_the_error_for_unknown_tasks() {
    let server = Server::start();
    let replica = Replica::start(&server, free_port(), APPROVAL, tools());
    replica.block_on(async {
        let owner = replica.service.of("alice");
        let id = owner.start("approval", json!({})).await;
        let is_open = |task: TaskPayload| matches!(task, TaskPayload::InputRequired { .. });
        assert!(is_open(owner.settled(&id).await));

        let unknown = owner.get(&"0".repeat(48)).await.unwrap_err();
        assert_eq!(unknown.message, "unknown task");
        let yes = json!({ "action": "accept", "content": {} });
        for other in [replica.service.clone(), replica.service.of("mallory")] {
            assert_eq!(other.get(&id).await.unwrap_err(), unknown);
            assert_eq!(other.answer(&id, "1:sure", yes.clone()).await.unwrap_err(), unknown);
            assert_eq!(other.cancel(&id).await.unwrap_err(), unknown);
        }
        assert!(is_open(owner.get(&id).await.unwrap()));

        owner.answer(&id, "1:sure", yes).await.unwrap();
        while is_open(owner.settled(&id).await) {}
        assert_eq!(owner.text(&id).await, "approved");
    });
}

#[test]
fn endpoint_with_an_identity_key_rejects_unsigned_requests() {
    let [unsigned, signed] = [Server::start(), Server::start_with_identity()];
    let port = free_port();
    Replica::start(&unsigned, port, WORK, tools()).kill();
    let starting = Replica::without_endpoint(&unsigned, WORK, tools());
    let id = starting.block_on(starting.service.start("work", json!({})));

    let replica = Replica::start(&signed, port, WORK, tools());
    replica.block_on(async {
        // The server asks the endpoint for its handlers.
        let restate = RestateServer::new(&unsigned.ingress()).unwrap();
        let url = format!("http://127.0.0.1:{port}");
        let rejected = restate.register(&unsigned.admin(), &url).await.unwrap_err();
        assert!(matches!(rejected, RestateError::Status(_)), "{rejected}");
        // It repeats the call of the task every few seconds at most.
        sleep(Duration::from_secs(6)).await;
        assert!(replica.tools.called().is_empty());

        let own = replica.service.start("work", json!({})).await;
        assert_eq!(replica.service.text(&own).await, "{}");
        assert_eq!(replica.tools.called(), ["work"]);
    });
    let error = starting.block_on(starting.service.get(&id)).unwrap_err();
    assert!(error.message.contains("at the moment"), "{error:?}");
}
