//! Backends of a router that fail, hang or come back.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    adapter::router::{Backend, Router},
    composite::{CompositeLayer, CompositeTool, Retry, Target},
    message::{BackendError, BackendErrorKind, Reply, Request},
};
use rmcp::model::{ListToolsResult, Tool};
use serde_json::json;
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt, service_fn, timeout::Timeout};

use super::{Server, ask, call, names, problems, router, tools};
use crate::{
    scripted::search_tool,
    support::{capture_logs, soon},
};

const SECOND: Duration = Duration::from_secs(1);

fn slow(names: &[&str], seconds: u32) -> Server {
    Server::tools(names).set(|has| has.delay = SECOND * seconds)
}

/// Returns a backend that answers the n-th list request with these tools after this delay.
///
/// Also returns the number of its requests.
fn script<F>(name: &str, says: F) -> (Backend, Arc<AtomicUsize>)
where
    F: Fn(usize) -> (u64, Option<Vec<Tool>>) + Clone + Send + Sync + 'static,
{
    let requests = Arc::new(AtomicUsize::new(0));
    let count = requests.clone();
    let service = service_fn(move |_: Request| {
        let (delay, tools) = says(count.fetch_add(1, Ordering::Relaxed));
        async move {
            tokio::time::sleep(Duration::from_millis(delay)).await;
            let tools = tools.ok_or("connection refused")?;
            Ok::<Reply, BoxError>(ListToolsResult::with_all_items(tools).into())
        }
    });
    (Backend::new(name, service), requests)
}

fn tools_named(names: &[&str]) -> Option<Vec<Tool>> {
    Some(names.iter().map(|name| search_tool(name)).collect())
}

/// Returns how often clients are notified within ten minutes, if they list again each time.
async fn notification_count(router: &Router) -> usize {
    let mut changed = router.changes().tools().watch();
    let mut count = 0;
    tools(router).await;
    let _ = tokio::time::timeout(SECOND * 600, async {
        loop {
            changed.bumped().await;
            count += 1;
            tools(router).await;
        }
    })
    .await;
    count
}

/// Returns the duration of a list.
async fn time_of(router: &Router) -> Duration {
    let before = Instant::now();
    tools(router).await;
    before.elapsed()
}

#[tokio::test(start_paused = true)]
async fn tools_of_a_failing_backend_stay_listed() {
    let (logged, _guard) = capture_logs();
    let (a, b) = (Server::tools(&["x"]), Server::tools(&["y"]));
    let router = router([a.backend("a"), b.backend("b")]);
    assert_eq!(tools(&router).await, ["a_x", "b_y"]);

    a.with(|has| has.down = true);
    for _ in 0..3 {
        assert_eq!(tools(&router).await, ["a_x", "b_y"]);
    }

    let problem = "failed to list the tools of backend `a`: connection to 10.0.0.7 refused";
    assert_eq!(problems(&router), [problem]);
    assert_eq!(logged.text().matches(problem).count(), 1, "{}", logged.text());
    assert_eq!(call(&router, "b_y").await, None);
    let request = Request::call_tool("a_x");
    let error = router.clone().oneshot(request).await.unwrap_err();
    assert_eq!(error.to_string(), "backend `a` could not answer");

    a.with(|has| has.down = false);
    tools(&router).await;
    assert_eq!(problems(&router), [""; 0]);
    a.with(|has| has.down = true);
    tools(&router).await;
    assert_eq!(logged.text().matches(problem).count(), 2, "it is another outage");
}

#[tokio::test(start_paused = true)]
async fn list_with_a_possibly_stale_part_has_no_ttl() {
    let (a, b) = (Server::tools(&["x"]), Server::tools(&["y"]).set(|has| has.down = true));
    let router = router([a.backend("a"), b.backend("b")]);
    let reply = ask(&router, "tools/list", json!({})).await;
    assert_eq!(reply.tools().unwrap().ttl_ms, None);
}

#[tokio::test(start_paused = true)]
async fn error_reply_to_a_list_counts_as_an_outage() {
    let a = Server::tools(&["x"]);
    let router = router([a.backend("a")]);
    tools(&router).await;
    a.with(|has| has.refuses = true);
    assert_eq!(tools(&router).await, ["a_x"]);
    let problem = "failed to list the tools of backend `a`: it answered with an error: not now";
    assert_eq!(problems(&router), [problem]);
}

#[tokio::test(start_paused = true)]
async fn slow_backends_delay_one_list_and_are_announced_later() {
    let (logged, _guard) = capture_logs();
    let (fast, late) = (Server::tools(&["x"]), slow(&["y"], 20));
    let router = router([fast.backend("fast"), late.backend("late")]);
    let mut changed = router.changes().tools().watch();

    assert_eq!(time_of(&router).await, SECOND * 5);
    assert_eq!(time_of(&router).await, Duration::ZERO);
    assert_eq!(tools(&router).await, ["fast_x"]);
    let problem = "failed to list the tools of backend `late`: it did not answer within 5s";
    assert_eq!(problems(&router), [problem]);
    assert_eq!(logged.text().matches(problem).count(), 1, "{}", logged.text());
    assert_eq!(late.take_requests().len(), 1, "it was asked once");

    soon(changed.bumped()).await;
    assert_eq!(problems(&router), [""; 0]);
    late.with(|has| has.delay = Duration::ZERO);
    assert_eq!(tools(&router).await, ["fast_x", "late_y"]);
}

#[tokio::test(start_paused = true)]
async fn unchanged_late_list_is_not_announced() {
    let late = slow(&["y"], 1);
    let router = router([late.backend("late")]);
    assert_eq!(tools(&router).await, ["late_y"]);
    late.with(|has| has.delay = SECOND * 8);
    assert_eq!(tools(&router).await, ["late_y"]);
    let mut changed = router.changes().tools().watch();
    let waited = tokio::time::timeout(SECOND * 60, changed.bumped()).await;
    assert!(waited.is_err(), "nothing has changed");
    assert_eq!(problems(&router), [""; 0], "it has answered");

    // A different list is notified.
    late.with(|has| has.tools.push(search_tool("z")));
    assert_eq!(tools(&router).await, ["late_y"]);
    soon(changed.bumped()).await;
}

#[tokio::test(start_paused = true)]
async fn silent_backend_is_retried_in_the_background() {
    let late = slow(&["y"], 3_600);
    let router = router([late.backend("late")]);
    assert_eq!(time_of(&router).await, SECOND * 5);
    tokio::time::sleep(SECOND * 61).await;
    late.with(|has| has.delay = SECOND);
    assert_eq!(time_of(&router).await, Duration::ZERO);
    tokio::time::sleep(SECOND * 2).await;
    assert_eq!(tools(&router).await, ["late_y"]);
    assert_eq!(late.take_requests().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn change_during_a_pending_list_is_not_lost() {
    let (late, requests) = script("a", |count| match count {
        0 => (0, tools_named(&["v1"])),
        1 => (8_000, tools_named(&["v1"])),
        2 => (1_000, tools_named(&["v2"])),
        _ => (0, tools_named(&["v2"])),
    });
    let router = router([late]);
    assert_eq!(tools(&router).await, ["a_v1"]);
    assert_eq!(time_of(&router).await, SECOND * 5);

    tokio::time::sleep(SECOND).await;
    router.changes().tools().bump();
    assert_eq!(tools(&router).await, ["a_v1"], "the client lists again, and gets what is known");
    let mut changed = router.changes().tools().watch();
    soon(changed.bumped()).await;
    assert_eq!(tools(&router).await, ["a_v2"]);
    assert_eq!(requests.load(Ordering::Relaxed), 4);
    assert_eq!(problems(&router), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn change_before_a_pending_list_fails_is_not_lost() {
    let (late, _) = script("a", |count| match count {
        0 => (8_000, None),
        _ => (1_000, tools_named(&["v2"])),
    });
    let router = router([late]);
    assert_eq!(time_of(&router).await, SECOND * 5);
    router.changes().tools().bump();
    assert_eq!(tools(&router).await, [""; 0]);
    let mut changed = router.changes().tools().watch();
    soon(changed.bumped()).await;
    assert_eq!(tools(&router).await, ["a_v2"]);
}

#[tokio::test(start_paused = true)]
async fn several_late_backends_stop_announcing_changes() {
    let late = |name: &str, delay| {
        let own = format!("{name}1");
        script(name, move |_| (delay, tools_named(&[&own])))
    };
    let ((a, requests_a), (b, requests_b)) = (late("a", 7_000), late("b", 8_000));
    let router = router([a, b]);
    let mut changed = router.changes().tools().watch();
    tools(&router).await;
    // Until no backend is late, lists are refreshed only in the background.
    while !problems(&router).is_empty() {
        if tokio::time::timeout(SECOND, changed.bumped()).await.is_ok() {
            tools(&router).await;
        }
    }
    let (a, b) = (requests_a.load(Ordering::Relaxed), requests_b.load(Ordering::Relaxed));
    assert!(a <= 5 && b <= 5, "{a} and {b}");
    assert!(notification_count(&router).await <= 1);
}

#[tokio::test(start_paused = true)]
async fn older_list_does_not_replace_a_newer_one() {
    let (slow, _) = script("a", |count| match count {
        0 => (4_000, tools_named(&["v1"])),
        1 => (1_000, tools_named(&["v2"])),
        _ => (0, None),
    });
    let router = router([slow]);
    let newer = async {
        tokio::time::sleep(SECOND).await;
        router.changes().tools().bump();
        tools(&router).await
    };
    let (older, newer) = futures::join!(tools(&router), newer);
    assert_eq!(newer, ["a_v2"]);
    assert_eq!(older, ["a_v2"], "it is known by then");
    assert_eq!(tools(&router).await, ["a_v2"], "it stays known");
}

#[tokio::test(start_paused = true)]
async fn backend_with_a_newer_reply_is_not_late() {
    let (slow, requests) = script("a", |count| match count {
        0 => (8_000, tools_named(&["v1"])),
        _ => (1_000, tools_named(&["v2"])),
    });
    let router = router([slow]);
    let newer = async {
        tokio::time::sleep(SECOND).await;
        router.changes().tools().bump();
        tools(&router).await
    };
    let (older, newer) = futures::join!(tools(&router), newer);
    assert_eq!([older, newer], [["a_v2"], ["a_v2"]]);
    assert_eq!(problems(&router), [""; 0]);
    assert_eq!(time_of(&router).await, SECOND);
    tokio::time::sleep(SECOND * 10).await;
    assert_eq!(tools(&router).await, ["a_v2"]);
    assert_eq!(requests.load(Ordering::Relaxed), 4);
}

#[tokio::test(start_paused = true)]
async fn reordered_late_list_is_not_announced() {
    let (late, _) = script("a", |count| {
        let names = if count.is_multiple_of(2) { ["x", "y"] } else { ["y", "x"] };
        (5_500, tools_named(&names))
    });
    let router = router([late]);
    assert_eq!(notification_count(&router).await, 1);
    // A changed tool is a change.
    let (late, _) = script("a", |count| {
        let mut tools = tools_named(&["x"]).unwrap();
        tools[0].description = Some(if count == 0 { "old" } else { "new" }.into());
        (5_500, Some(tools))
    });
    let router = super::router([late]);
    assert_eq!(notification_count(&router).await, 2);
}

#[tokio::test(start_paused = true)]
async fn changing_late_backend_is_announced_at_growing_intervals() {
    let says = |count: usize| (5_500, tools_named(&[&format!("t{count}")]));
    let (late, requests) = script("a", says);
    let router = router([late]);
    let count = notification_count(&router).await;
    assert!((8..20).contains(&count), "{count} times");
    // A delayed notification is sent in the end.
    let mut changed = router.changes().tools().watch();
    let _ = tokio::time::timeout(SECOND * 120, changed.bumped()).await;
    tools(&router).await;
    assert!(requests.load(Ordering::Relaxed) >= count);
}

#[tokio::test(start_paused = true)]
async fn list_does_not_wait_again_for_a_late_backend() {
    let (logged, _guard) = capture_logs();
    let (late, requests) = script("a", |count| match count {
        0 | 1 => (30_000, None),
        _ => (10_000, tools_named(&["x"])),
    });
    let router = router([late]);
    assert_eq!(time_of(&router).await, SECOND * 5);
    tokio::time::sleep(SECOND * 26).await;
    let problem = "failed to list the tools of backend `a`: connection refused";
    assert_eq!(problems(&router), [problem], "the better of two reasons");
    assert_eq!(logged.text().matches(problem).count(), 1, "{}", logged.text());

    assert_eq!(time_of(&router).await, Duration::ZERO);
    assert_eq!(problems(&router), [problem]);
    tokio::time::sleep(SECOND * 31).await;
    assert_eq!(requests.load(Ordering::Relaxed), 2);
    let mut changed = router.changes().tools().watch();
    assert_eq!(time_of(&router).await, Duration::ZERO);
    soon(changed.bumped()).await;
    assert_eq!(problems(&router), [""; 0]);
    assert_eq!(logged.text().matches("failed to list").count(), 2, "{}", logged.text());
}

#[tokio::test(start_paused = true)]
async fn reason_of_an_outage_is_logged_once() {
    #[derive(Debug, thiserror::Error)]
    #[error("{0}: connection refused")]
    struct Outer(String, #[source] Inner);
    #[derive(Debug, thiserror::Error)]
    #[error("connection refused")]
    struct Inner;

    let service = service_fn(async |_: Request| {
        let request = format!("error sending request for url (http://{}/mcp)", "a".repeat(200));
        let error = BackendError::new("far", BackendErrorKind::NotConnected);
        Err::<Reply, _>(error.with_source(Outer(request, Inner)))
    });
    let router = router([Backend::new("far", service)]);
    tools(&router).await;
    let problem = problems(&router).remove(0);
    assert!(problem.starts_with("failed to list the tools of backend `far`: backend `far` is not"));
    assert!(problem.ends_with("/mcp): connection refused"), "{problem}");
    assert_eq!(problem.matches("connection refused").count(), 1, "{problem}");

    let endless = service_fn(async |_: Request| Err::<Reply, _>("x".repeat(1_000)));
    let router = super::router([Backend::new("far", endless)]);
    tools(&router).await;
    let problem = problems(&router).remove(0);
    assert!(problem.ends_with(&format!(": {}…", "x".repeat(512))), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn list_after_a_cancelled_one_returns_immediately() {
    let (fast, late) = (Server::tools(&["x"]), slow(&["y"], 20));
    let router = router([fast.backend("fast"), late.backend("late")]);
    let mut changed = router.changes().tools().watch();
    let hasty = Timeout::new(router.clone(), SECOND * 3);
    assert!(hasty.clone().oneshot(Request::list_tools()).await.is_err());
    let problem = "failed to list the tools of backend `late`: it did not answer before the client cancelled the request";
    assert_eq!(problems(&router), [problem]);

    assert_eq!(time_of(&router).await, Duration::ZERO);
    let reply = hasty.oneshot(Request::list_tools()).await.unwrap();
    assert_eq!(reply.tools().unwrap().tools.len(), 1);
    soon(changed.bumped()).await;
    assert_eq!(late.take_requests().len(), 1, "it is still the first question");
    late.with(|has| has.delay = Duration::ZERO);
    assert_eq!(tools(&router).await, ["fast_x", "late_y"]);
}

#[tokio::test(start_paused = true)]
async fn background_requests_end_with_the_router() {
    let alive = Arc::new(());
    let held = alive.clone();
    let service = service_fn(move |_: Request| {
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
async fn panic_during_a_list_affects_only_its_backend() {
    let service = service_fn(async |request: Request| {
        assert!(!request.lists_tools(), "the password is hunter2");
        Ok::<_, Infallible>(Reply::method_not_found("x"))
    });
    let router = router([Backend::new("a", service), Server::tools(&["y"]).backend("b")]);
    assert_eq!(tools(&router).await, ["b_y"]);
    assert_eq!(problems(&router), ["failed to list the tools of backend `a`: it panicked"]);
}

#[tokio::test(start_paused = true)]
async fn dropped_list_drops_its_backend_requests() {
    let late = slow(&["y"], 3);
    let router = router([late.backend("late")]);
    let mut list = Box::pin(router.clone().oneshot(Request::list_tools()));
    assert!(futures::poll!(&mut list).is_pending());
    drop(list);
    assert_eq!(tools(&router).await, ["late_y"]);
    assert_eq!(late.take_requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn outage_is_recorded_per_kind_of_list() {
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
async fn composite_stays_listed_while_its_target_is_down() {
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

#[tokio::test(start_paused = true)]
async fn target_at_an_unconnected_backend_fails_like_a_direct_call() {
    let calls = Arc::new(AtomicUsize::new(0));
    let count = calls.clone();
    let away = service_fn(move |request: Request| {
        count.fetch_add(usize::from(request.tool_call().is_some()), Ordering::Relaxed);
        async { Err::<Reply, _>(BackendError::new("b", BackendErrorKind::NotConnected)) }
    });
    let router = router([Server::tools(&["x"]).backend("a"), Backend::new("b", away)]);
    let direct = router.clone().oneshot(Request::call_tool("b_y")).await.unwrap_err();
    assert_eq!(direct.to_string(), "backend `b` is not connected");
    assert_eq!(calls.swap(0, Ordering::Relaxed), 1);

    let target = Target::new("b_y").optional(true).retry(Retry::times(2));
    let both = CompositeTool::fan_out("both", "Both", ["a_x".into(), target]);
    let service = CompositeLayer::new([both]).unwrap().layer(router);
    let reply = service.oneshot(Request::call_tool("both")).await.unwrap();
    let report = reply.tool_result().unwrap().structured_content.clone().unwrap();
    let error = json!({ "kind": "service", "message": direct.to_string() });
    assert_eq!(report["branches"]["b_y"]["error"], error);
    assert_eq!(calls.load(Ordering::Relaxed), 3, "two of them are retries");
}
