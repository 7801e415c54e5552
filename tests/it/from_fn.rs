//! Async hooks around tool calls.

use std::sync::{Arc, Mutex};

use mcp_composite::{
    intercept::{self, Next},
    message::{Refusal, Reply, Request},
};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::json;
use tokio::sync::oneshot;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{
    BoxError, Layer, Service, ServiceExt,
    buffer::Buffer,
    limit::{ConcurrencyLimit, ConcurrencyLimitLayer},
};
use tower_test::mock;

use crate::scripted::{Server, call};

type Answer = Result<Reply, BoxError>;

async fn pass(request: Request, next: Next) -> Answer {
    next.run(request).await
}

fn done() -> Reply {
    CallToolResult::success(vec![]).into()
}

fn text_of(reply: &Reply) -> &str {
    &reply.tool_result().expect("a result").content[0].as_text().expect("a text").text
}

#[tokio::test]
async fn ready_service_is_the_one_that_is_called() {
    let (mut service, mut handle) =
        mock::spawn_layer::<Request, Reply, _>(intercept::from_fn(pass));
    for name in ["first", "second"] {
        handle.allow(0);
        assert_pending!(service.poll_ready());
        handle.allow(1);
        assert!(service.is_woken(), "the inner's readiness wakes whoever waits");
        assert_ready_ok!(service.poll_ready());
        let mut reply = task::spawn(service.call(Request::call_tool(name)));
        assert_pending!(reply.poll());
        let (request, send) = handle.next_request().await.expect("a request");
        assert_eq!(request.tool_call().expect("a call").name, name);
        send.send_response(done());
        assert_ready_ok!(reply.poll());
    }
    // The clone that is left behind does not inherit the readiness of the called one.
    assert_pending!(service.poll_ready());
}

#[tokio::test]
async fn requests_other_than_tool_calls_bypass_the_hook() {
    let hook = |_: Request, _: Next| async { panic!("it is asked about tool calls only") };
    let (mut service, mut handle) =
        mock::spawn_layer::<Request, Reply, _>(intercept::from_fn(hook));
    assert_ready_ok!(service.poll_ready());
    let mut reply = task::spawn(service.call(Request::list_tools()));
    assert_pending!(reply.poll());
    let (request, send) = handle.next_request().await.expect("a request");
    assert!(request.lists_tools());
    send.send_response(done());
    assert_ready_ok!(reply.poll());
}

#[test]
fn requests_other_than_tool_calls_allocate_nothing() {
    async fn never(_: Request) -> Result<Reply, std::convert::Infallible> {
        std::future::pending().await
    }
    let mut service = intercept::from_fn(pass).layer(tower::service_fn(never));
    let request = Request::list_tools();
    let mut reply = None;
    let measured = allocation_counter::measure(|| reply = Some(service.call(request)));
    assert_eq!(measured.count_total, 0);
}

#[tokio::test]
async fn hook_forwards_rewrites_answers_rejects_and_edits_replies() {
    let server = Server::new().echoes("echo").says("say", "it");
    let hook = async |mut request: Request, next: Next| -> Answer {
        let call = request.tool_call_mut().expect("a call");
        let name = call.name.to_string();
        match &*name {
            "answer" => Ok(CallToolResult::success(vec![ContentBlock::text("mine")]).into()),
            "unknown" => Ok(Reply::unknown_tool(name)),
            "refuse" => {
                let (unit, setting) = ("calls", "calls_per_day");
                Ok(Refusal::OverLimit { unit, limit: 3, setting }.into())
            }
            "fail" => Err("the policy is away".into()),
            _ => {
                call.arguments.get_or_insert_default().insert("tenant".into(), "acme".into());
                let mut reply = next.run(request).await?;
                if let Some(result) = reply.tool_result_mut() {
                    result.content.push(ContentBlock::text("seen"));
                }
                Ok(reply)
            }
        }
    };
    let service = intercept::from_fn(hook).layer(server.clone());
    let ask = |name: &'static str| service.clone().oneshot(call(name, json!({ "q": 1 })));

    let reply = ask("echo").await.unwrap();
    assert_eq!(server.arguments("echo"), Some(json!({ "q": 1, "tenant": "acme" })));
    let blocks = &reply.tool_result().unwrap().content;
    assert_eq!(blocks.last().unwrap().as_text().unwrap().text, "seen");

    assert_eq!(text_of(&ask("answer").await.unwrap()), "mine");
    let refused = ask("unknown").await.unwrap();
    assert_eq!(refused.error().unwrap().message, "unknown tool `unknown`");
    let refused = ask("refuse").await.unwrap();
    let message = "the request has more than 3 calls (`calls_per_day`)";
    assert_eq!(refused.error().unwrap().message, message);
    assert_eq!(ask("fail").await.unwrap_err().to_string(), "the policy is away");
    assert_eq!(server.called(), ["echo"]);
}

#[tokio::test]
async fn errors_of_the_inner_service_keep_their_type() {
    #[derive(Debug, thiserror::Error, PartialEq)]
    #[error("mine")]
    struct Mine;
    let inner = tower::service_fn(|_: Request| async { Err::<Reply, Mine>(Mine) });
    let service = intercept::from_fn(pass).layer(inner);
    for request in [Request::call_tool("t"), Request::list_tools()] {
        let error = service.clone().oneshot(request).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Mine));
    }
}

#[tokio::test(start_paused = true)]
async fn hooks_work_above_a_concurrency_limit_and_a_buffer() {
    let server = Server::new().says("t", "1");
    let limited = intercept::from_fn(pass).layer(ConcurrencyLimit::new(server.clone(), 1));
    let calls = (0..5).map(|_| limited.clone().oneshot(Request::call_tool("t")));
    let replies = tokio::time::timeout(
        std::time::Duration::from_secs(1),
        futures::future::try_join_all(calls),
    );
    assert_eq!(replies.await.expect("no hook waits for itself").unwrap().len(), 5);
    let buffered = intercept::from_fn(pass).layer(Buffer::new(server, 1));
    buffered.oneshot(Request::call_tool("t")).await.unwrap();
}

/// A hook that waits for a command of the test, above a service with one slot, and a sibling that
/// waits for the slot.
fn waiting() -> (
    impl Future<Output = Answer> + Unpin,
    oneshot::Sender<bool>,
    task::Spawn<impl Future<Output = ()>>,
) {
    let (decide, decision) = oneshot::channel();
    let decision = Arc::new(Mutex::new(Some(decision)));
    let hook = move |request: Request, next: Next| {
        let decision = decision.lock().unwrap().take().expect("one call");
        async move {
            if decision.await.unwrap_or(false) {
                next.run(request).await
            } else {
                drop(next);
                std::future::pending().await
            }
        }
    };
    let limited = ConcurrencyLimitLayer::new(1).layer(Server::new().hangs("t"));
    let mut sibling = limited.clone();
    let running =
        Box::pin(intercept::from_fn(hook).layer(limited).oneshot(Request::call_tool("t")));
    let sibling = task::spawn(async move { drop(sibling.ready().await) });
    (running, decide, sibling)
}

#[tokio::test]
async fn hook_holds_its_permit_until_next_is_dropped() {
    let (mut running, decide, mut sibling) = waiting();
    assert!(futures::poll!(&mut running).is_pending());
    assert_pending!(sibling.poll());
    decide.send(false).unwrap();
    assert!(futures::poll!(&mut running).is_pending());
    assert!(sibling.is_woken());
    assert_ready!(sibling.poll());
}

#[tokio::test]
async fn dropping_the_future_drops_the_hook_and_the_call() {
    for decided in [None, Some(true)] {
        let (mut running, decide, mut sibling) = waiting();
        let mut decide = Some(decide);
        if let Some(decision) = decided {
            decide.take().unwrap().send(decision).unwrap();
        }
        assert!(futures::poll!(&mut running).is_pending());
        assert_pending!(sibling.poll());
        drop(running);
        assert_ready!(sibling.poll());
        assert!(decide.is_none_or(|decide| decide.is_closed()), "nobody waits for it");
    }
}

#[tokio::test]
async fn hooks_are_clone_send_and_sync() {
    fn check<T: Clone + Send + Sync + 'static>(_: &T) {}
    fn send<T: Send + 'static>(work: T) -> T {
        work
    }
    let service = intercept::from_fn(pass).layer(Server::new().says("t", "1"));
    check(&service);
    check(&intercept::from_fn(pass));
    let reply = send(service.oneshot(Request::call_tool("t"))).await;
    assert_eq!(text_of(&reply.unwrap()), "1");
    // A service that is not `Sync` is accepted.
    let boxed = tower::util::BoxCloneService::new(Server::new().says("t", "1"));
    let reply = intercept::from_fn(pass).layer(boxed).oneshot(Request::call_tool("t")).await;
    assert_eq!(text_of(&reply.unwrap()), "1");
}
