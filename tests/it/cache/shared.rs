//! Concurrent calls that share one call of the tool.

use std::{panic::AssertUnwindSafe, sync::OnceLock};

use futures::{FutureExt, future::join_all};
use mcp_composite::{
    functions::{ToolSet, tool_fn},
    testing::Status,
};
use tokio::sync::Notify;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::limit::ConcurrencyLimit;

use super::*;
use crate::support::soon;

const SECOND: Duration = Duration::from_secs(1);

/// Returns a cache of a tool that takes a second, and its server.
fn slow(answer: Answer) -> (Cache<Server>, Server) {
    let server = Server::new().tool_as(reads("count"), answer.after(SECOND));
    (cache().layer(server.clone()), server)
}

fn look() -> Request {
    request("count", json!({}))
}

#[tokio::test(start_paused = true)]
async fn concurrent_calls_share_one_call() {
    let (service, server) = slow(counts());
    let calls = (0..100).map(|_| count(&service, look()));
    assert_eq!(join_all(calls).await, ["1"; 100]);
    let different = (0..3).map(|n| count(&service, request("count", json!({ "n": n }))));
    assert_eq!(join_all(different).await, ["2", "3", "4"]);
    assert_eq!(server.called().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_calls_share_one_call_on_several_threads() {
    for _ in 0..50 {
        let server =
            Server::new().tool_as(reads("count"), counts().after(Duration::from_millis(20)));
        let service = cache().layer(server.clone());
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let service = service.clone();
            calls.spawn(async move { count(&service, look()).await });
        }
        assert_eq!(calls.join_all().await, ["1"; 20]);
        assert_eq!(server.called().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn call_continues_after_its_first_caller_is_dropped() {
    let (service, server) = slow(counts());
    count(&service, request("count", json!({ "warm": true }))).await;
    let mut first = task::spawn(service.clone().oneshot(look()));
    let mut second = task::spawn(service.clone().oneshot(look()));
    let mut third = task::spawn(service.clone().oneshot(look()));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    assert_pending!(third.poll());
    drop(first);
    advance(SECOND / 2).await;
    drop(third);
    advance(SECOND).await;
    assert!(second.is_woken());
    let reply = assert_ready_ok!(second.poll());
    assert_eq!(text(reply.tool_result().unwrap()), "2");
    assert!(server.dropped().is_empty());
    assert_eq!(count(&service, look()).await, "2");
}

#[tokio::test(start_paused = true)]
async fn call_continues_if_its_first_caller_never_polled_it() {
    let (service, server) = slow(counts());
    count(&service, request("count", json!({ "warm": true }))).await;
    let mut service = service;
    let first = service.ready().await.unwrap().call(look());
    let mut second = task::spawn(service.clone().oneshot(look()));
    assert_pending!(second.poll());
    drop(first);
    advance(SECOND).await;
    assert_eq!(text(second.await.unwrap().tool_result().unwrap()), "2");
    assert_eq!(server.called().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn call_is_canceled_when_all_callers_are_dropped() {
    let (service, server) = slow(Answer::never());
    server.add(reads("warm"), Answer::text("warm"));
    testing::call(&service, "warm", json!({})).await;
    let mut callers: Vec<_> =
        (0..5).map(|_| task::spawn(service.clone().oneshot(look()))).collect();
    for caller in &mut callers {
        assert_pending!(caller.poll());
    }
    while callers.pop().is_some() {
        let is_last = callers.is_empty();
        assert_eq!(server.calls()[1].status() == Status::Dropped, is_last);
    }
    assert_eq!(server.running(), 0);

    // The next call is not affected.
    server.add(reads("count"), Answer::text("new"));
    assert_eq!(count(&service, look()).await, "new");
    assert_eq!(server.called(), ["warm", "count", "count"]);
}

#[tokio::test(start_paused = true)]
async fn error_of_the_first_caller_reaches_no_other() {
    let failures = [
        Answer::failure("no"),
        Answer::error(-32603, "no"),
        Answer::unavailable("no"),
        Answer::asks("who", "Who?"),
    ];
    for failure in failures {
        let (service, server) = slow(failure.then(counts()));
        server.add(reads("warm"), Answer::text("warm"));
        testing::call(&service, "warm", json!({})).await;
        let first = service.clone().oneshot(look());
        let others = join_all((0..3).map(|_| count(&service, look())));
        let (first, others) = tokio::join!(first, others);
        let is_success =
            |reply: &Reply| reply.tool_result().is_some_and(|result| result.is_error != Some(true));
        assert!(!first.as_ref().is_ok_and(is_success), "{first:?}");
        let mut others = others;
        others.sort_unstable();
        assert_eq!(others, ["1", "2", "3"]);
        assert_eq!(server.called().len(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn panic_of_a_tool_reaches_only_the_first_caller() {
    let (service, server) = slow(Answer::panic("broken").then(Answer::text("mended")));
    server.add(reads("warm"), Answer::text("warm"));
    testing::call(&service, "warm", json!({})).await;
    let first = AssertUnwindSafe(service.clone().oneshot(look())).catch_unwind();
    let (first, other) = tokio::join!(first, count(&service, look()));
    let panic = first.expect_err("the tool panics");
    assert!(panic.downcast_ref::<String>().is_some_and(|text| text.contains("broken")));
    assert_eq!(other, "mended");
}

#[tokio::test(start_paused = true)]
async fn bypassing_call_replaces_a_running_one() {
    let gate = Arc::new(Notify::new());
    let calls = Arc::new(AtomicUsize::new(0));
    let answer = Answer::from_fn({
        let (gate, calls) = (gate.clone(), calls.clone());
        move |_| {
            let (gate, number) = (gate.clone(), calls.fetch_add(1, Ordering::Relaxed) + 1);
            async move {
                // The older call takes longer.
                if number == 1 {
                    gate.notified().await;
                }
                Answer::text(number.to_string())
            }
        }
    });
    let server = Server::new().tool_as(reads("count"), answer).says("warm", "warm");
    let service = cache().layer(server);
    testing::call(&service, "warm", json!({})).await;
    let mut older = task::spawn(service.clone().oneshot(look()));
    while calls.load(Ordering::Relaxed) == 0 {
        assert_pending!(older.poll());
        tokio::task::yield_now().await;
    }
    assert_eq!(count(&service, fresh(look())).await, "2");
    gate.notify_one();
    assert_eq!(text(older.await.unwrap().tool_result().unwrap()), "1");
    // The result of the older call does not replace the newer one.
    assert_eq!(count(&service, look()).await, "2");
}

#[tokio::test(start_paused = true)]
async fn waiting_caller_and_hit_hold_no_slot_of_the_service() {
    let server =
        Server::new().tool_as(reads("count"), counts().after(SECOND)).says("other", "done");
    let service = cache().layer(ConcurrencyLimit::new(server, 2));
    testing::call(&service, "other", json!({})).await;
    let mut first = task::spawn(service.clone().oneshot(look()));
    let mut waiting: Vec<_> =
        (0..5).map(|_| task::spawn(service.clone().oneshot(look()))).collect();
    assert_pending!(first.poll());
    for caller in &mut waiting {
        assert_pending!(caller.poll());
    }
    // The second slot is free.
    testing::call(&service, "other", json!({})).await;
    advance(SECOND).await;
    for caller in waiting {
        caller.await.unwrap();
    }
    first.await.unwrap();
    // A hit releases its slot, also if the caller keeps the future.
    let mut hits = Vec::new();
    for _ in 0..5 {
        let mut service = service.clone();
        hits.push((service.ready().await.unwrap().call(look()), service));
    }
    testing::call(&service, "other", json!({})).await;
}

#[tokio::test(start_paused = true)]
async fn tool_that_calls_itself_does_not_wait_for_its_own_call() {
    let (service, reloader) = Reload::new(cache().layer(Server::new()));
    let depth = Arc::new(AtomicUsize::new(0));
    let answer = Answer::from_fn({
        // Answers are `Sync`, and this service is not.
        let service = Mutex::new(service.clone());
        move |call| {
            let (service, depth) = (service.lock().unwrap().clone(), depth.clone());
            async move {
                if depth.fetch_add(1, Ordering::Relaxed) == 1 {
                    return Answer::text("the end");
                }
                let inner = look().within(call.request().context());
                let reply = service.oneshot(inner).await.unwrap();
                Answer::text(format!("inner: {}", text(reply.tool_result().unwrap())))
            }
        }
    });
    let server = Server::new().tool_as(reads("count"), answer);
    reloader.replace(cache().layer(server.clone()));
    assert_eq!(count(&service, look()).await, "inner: the end");
    assert_eq!(count(&service, look()).await, "inner: the end");
    assert_eq!(server.called().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn function_that_calls_itself_in_its_own_task_does_not_wait_for_its_own_call() {
    let stack = Arc::new(OnceLock::<Cache<ToolSet>>::new());
    let calls = Arc::new(AtomicUsize::new(0));
    let (to_call, called) = (stack.clone(), calls.clone());
    let function = tool_fn(reads("count"), move |_: JsonObject, _| {
        let (service, called) = (to_call.get().unwrap().clone(), called.clone());
        async move {
            if called.fetch_add(1, Ordering::Relaxed) == 1 {
                return Ok::<_, String>("the end".to_owned());
            }
            // Not made within the context of the call.
            Ok(format!("inner: {}", count(&service, look()).await))
        }
    });
    let service = cache().layer(ToolSet::new([function]).unwrap());
    let service = stack.get_or_init(|| service);
    assert_eq!(soon(count(service, look())).await, "inner: the end");
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}
