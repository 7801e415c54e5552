//! Tasks that a real Restate server executes.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]
#![expect(clippy::too_many_lines, reason = "a case has many expectations")]

mod access;
mod balancer;
#[path = "../it/workflows/case.rs"]
mod case;
mod corpus;
mod definitions;
mod expiry;
mod listener;
mod ports;
mod program;
#[expect(dead_code, reason = "some of it is for other tests")]
#[path = "../it/programs.rs"]
mod programs;
mod proxy;
mod rejections;
mod replica;
mod server;

use std::{pin::pin, sync::Arc, thread, time::Duration};

use futures::poll;
use mcp_composite::testing::{Answer, Server as Tools};
use rmcp::model::{TaskPayload, Tool, ToolAnnotations};
use serde_json::json;
use tokio::{
    sync::{Semaphore, oneshot},
    time::sleep,
};

use self::{balancer::Balancer, ports::free_port, replica::Replica, server::Server};

const FILE: &str = r#"
[[composite_tools]]
name = "report"
description = "Calls tools in parallel and in sequence"
strategy = "workflow"
task = "always"
steps = [
    { id = "one", tool = "fast" },
    { id = "two", tool = "slow" },
    { id = "three", tool = "flaky", on_error = { action = "retry", retry_count = 3, delay = "50ms" } },
    { id = "last", tool = "echo", depends_on = ["one", "two", "three"], arguments = { text = "{{steps.one.output}} {{steps.two.output}} {{steps.three.output}}" } },
]

[[composite_tools]]
name = "late"
description = "Calls a tool that does not answer in time"
strategy = "workflow"
task = "always"
steps = [{ id = "never", tool = "hangs", timeout = "300ms" }]

[[composite_tools]]
name = "approval"
description = "Asks"
strategy = "workflow"
task = "always"
steps = [
    { id = "before", tool = "fast" },
    { id = "sure", type = "elicitation", message = "Sure?", schema = {}, depends_on = ["before"] },
    { id = "after", tool = "fast", depends_on = ["sure"] },
]

[[composite_tools]]
name = "cleanup"
description = "Cleans up"
strategy = "workflow"
task = "always"
steps = [
    { id = "work", tool = "hangs" },
    { id = "clean", tool = "fast", finally = { on_cancel = true } },
]

[[composite_tools]]
name = "writes"
description = "Calls a tool that may not be called again"
strategy = "workflow"
task = "always"
steps = [{ id = "first", tool = "fast" }, { id = "write", tool = "hangs", depends_on = ["first"] }]

[[composite_tools]]
name = "reads"
description = "Calls a tool that may be called again"
strategy = "workflow"
task = "always"
steps = [{ id = "first", tool = "fast" }, { id = "read", tool = "read", depends_on = ["first"] }]

[[composite_tools]]
name = "reads_twice"
description = "Calls a tool twice that may be called again"
strategy = "pipeline"
task = "always"
steps = [{ id = "first", tool = "read" }, { id = "second", tool = "read" }]
"#;

fn tools() -> Tools {
    tools_with(Answer::text("read").after(Duration::from_secs(2)))
}

/// Returns the tools, with these answers of the tool that may be called again.
fn tools_with(answers: Answer) -> Tools {
    let schema = json!({ "type": "object" }).as_object().cloned().unwrap();
    let read = Tool::new("read", "Reads", schema)
        .with_annotations(ToolAnnotations::new().read_only(true).open_world(false));
    Tools::new()
        .says("fast", "fast")
        .tool("slow", Answer::text("slow").after(Duration::from_millis(300)))
        .tool("flaky", Answer::failure("busy").times(2).then(Answer::text("flaky")))
        .tool("echo", Answer::echo())
        .hangs("hangs")
        .tool_as(read, answers)
}

fn start(server: &Server, port: u16) -> Replica {
    Replica::start(server, port, FILE, tools())
}

/// Waits until a tool was called this often.
async fn called(tools: &Tools, tool: &str, times: usize) {
    while tools.called().iter().filter(|name| **name == tool).count() < times {
        sleep(Duration::from_millis(5)).await;
    }
}

/// Starts a task, and waits until its run has called a tool this often. Returns the ID of the task.
async fn start_until(replica: &Replica, composite: &str, tool: &str, times: usize) -> String {
    let id = replica.service.start(composite, json!({})).await;
    called(&replica.tools, tool, times).await;
    id
}

/// Starts a task in a process that crashes during a call of a tool, which is the call with this
/// number. Returns the ID of the task.
fn crash_during(server: &Server, port: u16, composite: &str, tool: &str, call: usize) -> String {
    // The last call does not end before the crash.
    let answers = match call {
        1 => Answer::never(),
        call => Answer::text("read").times(call - 1).then(Answer::never()),
    };
    let replica = Replica::start(server, port, FILE, tools_with(answers));
    let id = replica.block_on(start_until(&replica, composite, tool, call));
    replica.kill();
    id
}

#[test]
fn task_completes_with_parallel_steps_and_retries() {
    let server = Server::start();
    let replica = start(&server, free_port());
    replica.block_on(async {
        let id = replica.service.start("report", json!({})).await;
        let text = replica.service.text(&id).await;
        let texts = ["fast", "slow", "flaky"].map(|text| text.to_owned() + r#"\"}"#);
        assert!(texts.iter().all(|part| text.contains(part)), "{text}");
        let mut called = replica.tools.called();
        called.sort_unstable();
        assert_eq!(called, ["echo", "fast", "flaky", "flaky", "flaky", "slow"]);
        // The result stays available.
        assert_eq!(replica.service.text(&id).await, text);
    });
}

#[test]
fn timeout_of_a_step_is_a_timer() {
    let server = Server::start();
    let replica = start(&server, free_port());
    replica.block_on(async {
        let id = replica.service.start("late", json!({})).await;
        let text = replica.service.text(&id).await;
        assert!(text.contains("no answer within 300ms"), "{text}");
    });
}

#[test]
fn question_waits_for_its_answer_in_another_process() {
    let server = Server::start();
    let port = free_port();
    let replica = start(&server, port);
    let id = replica.block_on(async {
        let id = replica.service.start("approval", json!({})).await;
        let TaskPayload::InputRequired { input_requests } = replica.service.settled(&id).await
        else {
            panic!("no question")
        };
        assert_eq!(input_requests.keys().collect::<Vec<_>>(), ["1:sure"]);
        id
    });
    replica.kill();

    let other = start(&server, port);
    other.block_on(async {
        // Another key is ignored.
        let yes = json!({ "action": "accept", "content": {} });
        other.service.answer(&id, "1:other", yes.clone()).await.unwrap();
        assert!(matches!(other.service.settled(&id).await, TaskPayload::InputRequired { .. }));
        other.service.answer(&id, "1:sure", yes).await.unwrap();
        loop {
            match other.service.settled(&id).await {
                TaskPayload::InputRequired { .. } => sleep(Duration::from_millis(20)).await,
                TaskPayload::Completed { .. } => break,
                other => panic!("{other:?}"),
            }
        }
        // The step before the question is not called again.
        assert_eq!(other.tools.called(), ["fast"]);
    });
}

#[test]
fn cancellation_runs_finally_steps() {
    let server = Server::start();
    let replica = start(&server, free_port());
    replica.block_on(async {
        let id = start_until(&replica, "cleanup", "hangs", 1).await;
        replica.service.cancel(&id).await.unwrap();
        assert!(matches!(replica.service.settled(&id).await, TaskPayload::Cancelled));
        assert_eq!(replica.tools.called(), ["hangs", "fast"]);
        // The end is final.
        replica.service.cancel(&id).await.unwrap();
        assert!(matches!(replica.service.settled(&id).await, TaskPayload::Cancelled));
    });
}

#[test]
fn read_only_tool_is_called_again_after_a_crash() {
    let server = Server::start();
    let port = free_port();
    let id = crash_during(&server, port, "reads", "read", 1);

    let other = start(&server, port);
    other.block_on(async {
        assert_eq!(other.service.text(&id).await, "read");
        assert_eq!(other.tools.called(), ["read"]);
    });
}

#[test]
fn ended_calls_are_not_made_again_after_a_crash() {
    let server = Server::start();
    let port = free_port();
    let id = crash_during(&server, port, "reads_twice", "read", 2);

    let other = start(&server, port);
    other.block_on(async {
        assert_eq!(other.service.text(&id).await, "read");
        // A tool that may be repeated, and whose result is stored, is not called again either.
        assert_eq!(other.tools.called(), ["read"]);
    });
}

#[test]
fn other_tool_is_lost_after_a_crash() {
    let server = Server::start();
    let port = free_port();
    let id = crash_during(&server, port, "writes", "hangs", 1);

    let other = start(&server, port);
    other.block_on(async {
        let text = other.service.text(&id).await;
        assert!(text.contains("the server stopped while `write` ran"), "{text}");
        assert!(other.tools.called().is_empty(), "{:?}", other.tools.called());
    });
}

#[test]
fn calls_go_on_while_the_server_restarts() {
    let mut server = Server::start();
    let replica = start(&server, free_port());
    let id = replica.block_on(start_until(&replica, "reads", "read", 1));
    server.crash();
    replica.block_on(async {
        assert_eq!(replica.service.text(&id).await, "read");
        assert_eq!(replica.tools.called(), ["fast", "read"]);
    });
}

#[test]
fn call_of_a_process_out_of_reach_is_not_lost() {
    let server = Server::start();
    let balancer = Balancer::start();
    let go = Arc::new(Semaphore::new(0));
    let start = || {
        let go = go.clone();
        let written = Answer::from_fn(move |_| {
            let go = go.clone();
            async move {
                go.acquire().await.unwrap().forget();
                Answer::text("written")
            }
        });
        Replica::start_behind(&server, &balancer, FILE, tools().tool("hangs", written))
    };
    let first = start();
    let id = first.block_on(start_until(&first, "writes", "hangs", 1));

    let other = start();
    go.add_permits(1);
    thread::scope(|scope| {
        let (ended, end) = oneshot::channel::<()>();
        // The first process works until the task has ended.
        let first = scope.spawn(|| first.block_on(async { drop(end.await) }));
        assert_eq!(other.block_on(other.service.text(&id)), "written");
        drop(ended);
        first.join().unwrap();
    });
    assert_eq!(first.tools.called(), ["fast", "hangs"]);
    assert!(other.tools.called().is_empty(), "{:?}", other.tools.called());
}

#[test]
fn shutdown_waits_for_calls_and_starts_no_others() {
    let server = Server::start();
    let port = free_port();
    let go = Arc::new(Semaphore::new(0));
    let waits = go.clone();
    let slow = Answer::from_fn(move |_| {
        let go = waits.clone();
        async move {
            go.acquire().await.unwrap().forget();
            Answer::text("slow")
        }
    });
    let replica = Replica::start(&server, port, FILE, tools().tool("slow", slow));
    let id = replica.block_on(async {
        let id = start_until(&replica, "report", "slow", 1).await;
        let mut finished = pin!(replica.registry.finished());
        assert!(poll!(&mut finished).is_pending());
        go.add_permits(1);
        finished.await;
        id
    });
    let mut first = replica.tools.called();
    replica.kill();
    assert!(!first.contains(&"echo".to_owned()), "{first:?}");

    // The first process may have made some of the four attempts.
    let other = Replica::start(&server, port, FILE, tools().says("flaky", "steady"));
    other.block_on(async {
        let text = other.service.text(&id).await;
        assert!(text.contains("slow") && !text.contains("failed"), "{text}");
        let again = other.tools.called();
        assert!(!again.iter().any(|tool| tool == "slow" || tool == "fast"), "{again:?}");
        first.extend(again);
        assert_eq!(first.iter().filter(|tool| *tool == "echo").count(), 1, "{first:?}");
    });
}

#[test]
fn closed_process_stores_no_results_of_calls() {
    let server = Server::start();
    let port = free_port();
    let replica = start(&server, port);
    let id = replica.block_on(async {
        let id = start_until(&replica, "reads", "read", 1).await;
        replica.registry.close().await;
        id
    });
    replica.kill();

    let other = start(&server, port);
    other.block_on(async { assert_eq!(other.service.text(&id).await, "read") });
}

#[test]
fn task_that_has_not_begun_is_not_unknown() {
    let server = Server::start();
    let port = free_port();
    start(&server, port).kill();
    // The server has accepted the task, but no process can run it.
    let starting = Replica::without_endpoint(&server, FILE, tools());
    let id = starting.block_on(async {
        let id = starting.service.start("reads", json!({})).await;
        let error = starting.service.get(&id).await.unwrap_err();
        assert!(error.message.contains("at the moment"), "{error:?}");
        let error = starting.service.cancel(&id).await.unwrap_err();
        assert!(error.message.contains("at the moment"), "{error:?}");
        id
    });
    let replica = start(&server, port);
    replica.block_on(async { assert_eq!(replica.service.text(&id).await, "read") });
}

#[test]
fn unknown_ids_are_rejected() {
    let server = Server::start();
    let replica = start(&server, free_port());
    replica.block_on(async {
        for id in ["", "x", "../admin", &"0".repeat(48), &"f".repeat(48)] {
            let error = replica.service.get(id).await.unwrap_err();
            assert_eq!(error.message, "unknown task", "{id}");
            assert!(replica.service.cancel(id).await.is_err());
            assert!(replica.service.answer(id, "1:sure", json!({})).await.is_err());
        }
    });
}
