use std::{convert::Infallible, sync::Arc, time::Duration};

use mcp_composite::{
    adapter::router::{Backend, Router},
    composite::{CompositeLayer, CompositeTool},
    message::{Reply, Request},
};
use serde_json::json;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};

use super::{Server, ask, call, names, problems, router, tools};
use crate::{
    scripted::search_tool,
    support::{capture_logs, soon},
};

const SECOND: Duration = Duration::from_secs(1);

fn slow(names: &[&str], seconds: u32) -> Server {
    Server::tools(names).set(|has| has.delay = SECOND * seconds)
}

/// How long a list takes.
async fn time_of(router: &Router) -> Duration {
    let before = Instant::now();
    tools(router).await;
    before.elapsed()
}

#[tokio::test(start_paused = true)]
async fn tools_of_a_backend_that_fails_stay_known() {
    let (logged, _guard) = capture_logs();
    let (a, b) = (Server::tools(&["x"]), Server::tools(&["y"]));
    let router = router([a.backend("a"), b.backend("b")]);
    assert_eq!(tools(&router).await, ["a_x", "b_y"]);

    a.with(|has| has.down = true);
    for _ in 0..3 {
        assert_eq!(tools(&router).await, ["a_x", "b_y"]);
    }

    let told = "backend `a` does not list its tools: connection to 10.0.0.7 refused";
    assert_eq!(problems(&router), [told]);
    assert_eq!(logged.text().matches(told).count(), 1, "{}", logged.text());
    assert_eq!(call(&router, "b_y").await, None);
    let request = Request::call_tool("a_x");
    let error = router.clone().oneshot(request).await.unwrap_err();
    assert_eq!(error.to_string(), "backend `a` could not answer");

    a.with(|has| has.down = false);
    tools(&router).await;
    assert_eq!(problems(&router), [""; 0]);
    a.with(|has| has.down = true);
    tools(&router).await;
    assert_eq!(logged.text().matches(told).count(), 2, "it is another outage");
}

#[tokio::test(start_paused = true)]
async fn a_list_with_a_part_that_may_be_old_is_not_to_be_kept() {
    let (a, b) = (Server::tools(&["x"]), Server::tools(&["y"]).set(|has| has.down = true));
    let router = router([a.backend("a"), b.backend("b")]);
    let reply = ask(&router, "tools/list", json!({})).await;
    assert_eq!(reply.tools().unwrap().ttl_ms, None);
}

#[tokio::test(start_paused = true)]
async fn an_error_that_a_backend_answers_with_is_an_outage_too() {
    let a = Server::tools(&["x"]);
    let router = router([a.backend("a")]);
    tools(&router).await;
    a.with(|has| has.refuses = true);
    assert_eq!(tools(&router).await, ["a_x"]);
    let told = "backend `a` does not list its tools: it answered with an error: not now";
    assert_eq!(problems(&router), [told]);
}

#[tokio::test(start_paused = true)]
async fn a_list_waits_for_slow_backends_once_and_tells_when_they_come() {
    let (logged, _guard) = capture_logs();
    let (fast, late) = (Server::tools(&["x"]), slow(&["y"], 20));
    let router = router([fast.backend("fast"), late.backend("late")]);
    let mut changed = router.changes().tools().watch();

    assert_eq!(time_of(&router).await, SECOND * 5);
    assert_eq!(time_of(&router).await, Duration::ZERO);
    assert_eq!(tools(&router).await, ["fast_x"]);
    let told = "backend `late` does not list its tools: it did not answer within 5s";
    assert_eq!(problems(&router), [told]);
    assert_eq!(logged.text().matches(told).count(), 1, "{}", logged.text());
    assert_eq!(late.asked().len(), 1, "it was asked once");

    soon(changed.bumped()).await;
    assert_eq!(problems(&router), [""; 0]);
    late.with(|has| has.delay = Duration::ZERO);
    assert_eq!(tools(&router).await, ["fast_x", "late_y"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_of_what_comes_late_but_is_the_same() {
    let late = slow(&["y"], 1);
    let router = router([late.backend("late")]);
    assert_eq!(tools(&router).await, ["late_y"]);
    late.with(|has| has.delay = SECOND * 8);
    assert_eq!(tools(&router).await, ["late_y"]);
    let mut changed = router.changes().tools().watch();
    let waited = tokio::time::timeout(SECOND * 60, changed.bumped()).await;
    assert!(waited.is_err(), "nothing has changed");
    assert_eq!(problems(&router), [""; 0], "it has answered");

    // Something else is told.
    late.with(|has| has.tools.push(search_tool("z")));
    assert_eq!(tools(&router).await, ["late_y"]);
    soon(changed.bumped()).await;
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_never_answers_is_asked_again_in_the_background() {
    let late = slow(&["y"], 3_600);
    let router = router([late.backend("late")]);
    assert_eq!(time_of(&router).await, SECOND * 5);
    tokio::time::sleep(SECOND * 61).await;
    late.with(|has| has.delay = SECOND);
    assert_eq!(time_of(&router).await, Duration::ZERO);
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(tools(&router).await, ["late_y"]);
    assert_eq!(late.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_waited_for_in_the_background_ends_with_the_router() {
    let alive = Arc::new(());
    let held = alive.clone();
    let service = tower::service_fn(move |_: Request| {
        let held = held.clone();
        async move {
            let _held = held;
            std::future::pending::<Result<_, Infallible>>().await
        }
    });
    let router = router([Backend::new("late", service)]);
    tools(&router).await;
    assert_eq!(Arc::strong_count(&alive), 3);
    drop(router);
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[tokio::test(start_paused = true)]
async fn a_backend_that_panics_while_it_lists_spoils_nothing() {
    let service = tower::service_fn(async |request: Request| {
        assert!(!request.lists_tools(), "the password is hunter2");
        Ok::<_, Infallible>(Reply::method_not_found("x"))
    });
    let router = router([Backend::new("a", service), Server::tools(&["y"]).backend("b")]);
    assert_eq!(tools(&router).await, ["b_y"]);
    assert_eq!(problems(&router), ["backend `a` does not list its tools: it panicked"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_dropped_drops_its_questions() {
    let late = slow(&["y"], 3);
    let router = router([late.backend("late")]);
    let mut list = Box::pin(router.clone().oneshot(Request::list_tools()));
    assert!(futures::poll!(&mut list).is_pending());
    drop(list);
    assert_eq!(tools(&router).await, ["late_y"]);
    assert_eq!(late.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn kinds_fail_apart() {
    let a = Server::tools(&["x"]).set(|has| has.prompts = vec!["p".into()]);
    let router = router([a.backend("a")]);
    assert_eq!(names(&router, "prompts/list").await, ["a_p"]);
    a.with(|has| has.down = true);
    assert_eq!(names(&router, "prompts/list").await, ["a_p"]);
    a.with(|has| has.down = false);
    assert_eq!(tools(&router).await, ["a_x"]);
    assert_eq!(problems(&router).len(), 1, "nobody has asked for prompts since");
}

#[tokio::test(start_paused = true)]
async fn a_composite_whose_target_is_down_stays_listed() {
    let (a, b) = (Server::tools(&["x"]), Server::tools(&["y"]));
    let router = router([a.backend("a"), b.backend("b")]);
    let composite = CompositeTool::fan_out("both", "Both", ["a_x", "b_y"]);
    let layer = CompositeLayer::new([composite]).unwrap().epoch(router.changes().tools().clone());
    let stack = layer.layer(router.clone());
    let listed = async || {
        let reply = stack.clone().oneshot(Request::list_tools()).await.unwrap();
        reply.tools().unwrap().tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(listed().await, ["a_x", "b_y", "both"]);

    b.with(|has| has.down = true);
    router.changes().tools().bump();
    assert_eq!(listed().await, ["a_x", "b_y", "both"]);
    tokio::time::advance(SECOND * 120).await;
    assert_eq!(listed().await, ["a_x", "b_y", "both"]);

    let reply = stack.clone().oneshot(Request::call_tool("both")).await.unwrap();
    let result = reply.tool_result().unwrap();
    let branches = &result.structured_content.as_ref().unwrap()["branches"];
    assert_eq!(branches["a_x"]["status"], "completed");
    assert_eq!(branches["b_y"]["error"]["message"], "backend `b` could not answer");
}
