//! Runs whose composites change while the runs wait.

use mcp_composite::testing::{Answer, Server as Tools};
use rmcp::model::TaskPayload;
use serde_json::json;

use super::{ports::free_port, replica::Replica, server::Server};

const FILE: &str = r#"
[[composite_tools]]
name = "approval"
description = "Asks before it calls"
strategy = "workflow"
task = "always"
steps = [
    { id = "before", tool = "echo", arguments = { text = "before" } },
    { id = "sure", type = "elicitation", message = "Sure?", schema = {}, depends_on = ["before"] },
    { id = "after", tool = "echo", arguments = { text = "after" }, depends_on = ["sure"] },
]
"#;

fn tools() -> Tools {
    Tools::new().tool("echo", Answer::echo())
}

/// Starts a task in a process that stops while the task asks its question. Returns the ID.
fn start_until_question(server: &Server, port: u16) -> String {
    let replica = Replica::start(server, port, FILE, tools());
    let id = replica.block_on(async {
        let id = replica.service.start("approval", json!({})).await;
        let task = replica.service.settled(&id).await;
        assert!(matches!(task, TaskPayload::InputRequired { .. }), "{task:?}");
        id
    });
    replica.kill();
    id
}

/// Answers the question of a task. Waits until the task has ended, and returns its first text.
async fn answer(replica: &Replica, id: &str) -> String {
    let yes = json!({ "action": "accept", "content": {} });
    replica.service.answer(id, "1:sure", yes).await.unwrap();
    loop {
        if let TaskPayload::Completed { .. } = replica.service.settled(id).await {
            return replica.service.text(id).await;
        }
    }
}

#[test]
fn run_continues_after_a_change_that_does_not_affect_it() {
    let server = Server::start();
    let port = free_port();
    let id = start_until_question(&server, port);

    let other = "[[composite_tools]]\nname = 'other'\ndescription = 'New'\nstrategy = 'parallel'\n\
                 tools = ['echo']\n";
    let file = FILE.replace("Asks before it calls", "Asks first") + other;
    let replica = Replica::start(&server, port, &file, tools());
    replica.block_on(async {
        assert!(answer(&replica, &id).await.contains("after"));
        assert_eq!(replica.tools.called(), ["echo"]);
    });
}

#[test]
fn run_is_refused_after_another_change() {
    let refused = "the run cannot continue: the definition of `approval` has changed since it \
                   started";
    for (from, to) in [
        // The journal of the run has the entries that the new definition expects.
        (r#"text = "after""#, r#"text = "other""#),
        // The journal has other entries.
        (r#"tool = "echo", arguments = { text = "before" }"#, r#"type = "value", value = 1"#),
    ] {
        let server = Server::start();
        let port = free_port();
        let id = start_until_question(&server, port);

        let file = FILE.replace(from, to);
        assert_ne!(file, FILE);
        let replica = Replica::start(&server, port, &file, tools());
        replica.block_on(async {
            let text = answer(&replica, &id).await;
            assert_eq!(text, refused);
            replica.service.cancel(&id).await.unwrap();
            assert_eq!(replica.service.text(&id).await, refused, "the end is final");
            assert!(replica.tools.called().is_empty(), "{:?}", replica.tools.called());
        });
        replica.kill();

        // A process with the old definition does not continue the run.
        let replica = Replica::start(&server, port, FILE, tools());
        replica.block_on(async {
            assert_eq!(replica.service.text(&id).await, refused);
            let id = replica.service.start("approval", json!({})).await;
            replica.service.settled(&id).await;
            assert_eq!(replica.tools.called(), ["echo"], "only the new task has called a tool");
        });
    }
}
