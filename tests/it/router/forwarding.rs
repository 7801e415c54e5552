//! Calls, reads and gets that the router forwards to its backends.

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use mcp_composite::{
    adapter::{
        HandlerService,
        router::{Backend, Conflicts, Router},
    },
    message::{BackendErrorKind, ItemKind, Refusal, Reply, Request, Violation},
};
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::{Value, json};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{Service, ServiceExt, limit::ConcurrencyLimit, service_fn, timeout::Timeout};
use tower_test::mock;

use super::{SaysSo, Server, ask, call, error_of, request, router, tools};
use crate::support::Full;

fn bare(conflicts: Conflicts, backends: [Backend; 2]) -> Router {
    let [a, b] = backends;
    Router::builder().conflicts(conflicts).backend(a).backend(b).build().unwrap()
}

async fn read(router: &Router, uri: &str) -> Option<(i32, String)> {
    error_of(router, "resources/read", json!({ "uri": uri })).await
}

#[tokio::test(start_paused = true)]
async fn tool_is_callable_before_any_listing() {
    let (a, ab) = (Server::tools(&["x"]), Server::tools(&["x"]));
    let router = router([a.backend("a"), ab.backend("a_b")]);
    assert_eq!(call(&router, "a_b_x").await, None);
    assert_eq!(call(&router, "a_x").await, None);
    assert_eq!(ab.take_requests(), ["tools/call x"]);
    assert_eq!(a.take_requests(), ["tools/call x"]);
    // The backend's error has its own name of the tool, the client's error has the listed one.
    let unknown = |name: &str| Some((-32602, format!("unknown tool `{name}`")));
    assert_eq!(call(&router, "a_nothing").await, unknown("a_nothing"));
    for nobodys in ["c_x", "x", "a_", "a_b_", ""] {
        assert_eq!(call(&router, nobodys).await, unknown(nobodys), "{nobodys}");
    }
}

#[tokio::test(start_paused = true)]
async fn rejections_use_the_tool_name_of_the_client() {
    let refuse = service_fn(async |request: Request| {
        let tool = request.tool_call().unwrap().name.clone();
        let violations = vec![Violation { path: "/q".into(), message: "no".into() }];
        Ok::<Reply, Infallible>(
            match &*tool {
                "away" => Refusal::Unavailable { kind: ItemKind::Tool, name: tool },
                "nested" => Refusal::Unknown { kind: ItemKind::Tool, name: "inner".into() },
                _ => Refusal::InvalidArguments { tool, violations },
            }
            .into(),
        )
    });
    let router = router([Backend::new("a", refuse)]);
    let refusal = async |tool| call(&router, tool).await.unwrap().1;
    assert_eq!(refusal("a_away").await, "tool `a_away` is not available at the moment");
    assert_eq!(refusal("a_x").await, "invalid arguments for `a_x`: at `/q`: no");
    assert_eq!(refusal("a_nested").await, "unknown tool `a_inner`");
}

#[tokio::test(start_paused = true)]
async fn unprefixed_name_is_looked_up_at_most_once_a_second() {
    for conflicts in [Conflicts::Priority, Conflicts::Manual] {
        let (a, b) = (Server::tools(&["x"]), Server::tools(&["y"]));
        let router = bare(conflicts, [a.backend("a"), b.backend("b")]);
        let calls = (0..5).map(|_| call(&router, "y"));
        assert_eq!(futures::future::join_all(calls).await, vec![None; 5]);
        assert_eq!(a.take_requests(), ["tools/list -"], "all waited for one");
        assert_eq!(b.take_requests().len(), 6);

        let unknown = Some((-32602, "unknown tool `z`".to_owned()));
        assert_eq!(call(&router, "z").await, unknown);
        assert_eq!(a.take_requests(), [""; 0], "a moment ago there was none");
        b.with(|has| has.tools.push(crate::scripted::search_tool("z")));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(call(&router, "z").await, None);
    }
}

#[tokio::test(start_paused = true)]
async fn single_backend_receives_unprefixed_calls_without_listing() {
    let a = Server::tools(&["x"]);
    let builder = Router::builder().conflicts(Conflicts::Manual);
    let router = builder.backend(a.backend("a")).build().unwrap();
    assert_eq!(call(&router, "x").await, None);
    assert_eq!(a.take_requests(), ["tools/call x"]);
}

#[tokio::test(start_paused = true)]
async fn prompts_and_completions_go_to_their_backend() {
    let give = |who: &str| {
        let template = format!("{who}:{{x}}");
        Server::default().set(|has| {
            has.prompts = vec!["p".into()];
            has.templates = vec![template];
        })
    };
    let (a, b) = (give("a"), give("b"));
    let router = router([a.backend("a"), b.backend("b")]);
    let complete = |of: Value| json!({ "ref": of, "argument": { "name": "x", "value": "" } });
    let prompt = complete(json!({ "type": "ref/prompt", "name": "b_p" }));
    let template = complete(json!({ "type": "ref/resource", "uri": "b:{x}" }));

    assert_eq!(error_of(&router, "prompts/get", json!({ "name": "b_p" })).await, None);
    assert_eq!(error_of(&router, "completion/complete", prompt.clone()).await, None);
    assert_eq!(b.take_requests(), ["prompts/get p", "completion/complete p"]);
    assert_eq!(error_of(&router, "completion/complete", template).await, None);
    assert_eq!(b.take_requests().last().unwrap(), "completion/complete b:{x}");

    let unknown = Some((-32602, "unknown prompt `c_p`".to_owned()));
    assert_eq!(error_of(&router, "prompts/get", json!({ "name": "c_p" })).await, unknown);
    let nobodys = complete(json!({ "type": "ref/resource", "uri": "c:{x}" }));
    let unknown = Some((-32602, "unknown resource template `c:{x}`".to_owned()));
    assert_eq!(error_of(&router, "completion/complete", nobodys).await, unknown);
}

#[tokio::test(start_paused = true)]
async fn unsupported_backend_methods_are_hidden_from_the_client() {
    let methods = [
        "tools/call",
        "prompts/get",
        "completion/complete",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
    ];
    for says_so in [SaysSo::Replying, SaysSo::Failing, SaysSo::FailingWithin] {
        let server = Server::default().set(|has| {
            has.lacks.extend(methods);
            has.says_so = says_so;
        });
        let router = router([server.backend("b")]);
        assert_eq!(call(&router, "b_x").await, Some((-32602, "unknown tool `b_x`".into())));
        let unknown = Some((-32602, "unknown prompt `b_p`".to_owned()));
        assert_eq!(error_of(&router, "prompts/get", json!({ "name": "b_p" })).await, unknown);
        let reply = ask(
            &router,
            "completion/complete",
            json!({
                "ref": { "type": "ref/prompt", "name": "b_p" },
                "argument": { "name": "x", "value": "" },
            }),
        )
        .await;
        let nothing = serde_json::to_value(reply.into_result().unwrap()).unwrap();
        assert_eq!(nothing["completion"]["values"], json!([]));
        assert_eq!(read(&router, "x:1").await, Some((-32002, "resource not found".into())));
        for method in ["resources/subscribe", "resources/unsubscribe"] {
            let refused = Some((-32602, "the resource `x:1` cannot be subscribed to".to_owned()));
            assert_eq!(error_of(&router, method, json!({ "uri": "x:1" })).await, refused);
        }
        assert_eq!(server.take_requests().len(), methods.len(), "{says_so:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn resource_is_read_at_the_backend_that_lists_it() {
    let a = Server::default().set(|has| {
        has.resources = vec!["x:1".into(), "y:deep/1".into()];
        has.templates = vec!["y:{any}".into(), "{+all}".into()];
    });
    let b = Server::default().set(|has| {
        has.resources = vec!["x:2".into()];
        has.templates = vec!["y:deep/{one}".into(), "y:deep/{two}/{three}".into()];
    });
    let router = router([a.backend("a"), b.backend("b")]);

    // Found by a new listing, since nothing was listed yet.
    assert_eq!(read(&router, "x:2").await, None);
    for (uri, owner) in
        [("x:1", &a), ("x:2", &b), ("y:deep/1", &a), ("y:deep/2", &a), ("y:flat", &a)]
    {
        a.take_requests();
        b.take_requests();
        assert_eq!(read(&router, uri).await, None);
        assert_eq!(owner.take_requests(), [format!("resources/read {uri}")]);
    }
    let missing = ask(&router, "resources/read", json!({ "uri": "z:1" })).await;
    let error = missing.error().unwrap();
    assert_eq!((error.code.0, &error.data), (-32002, &Some(json!({ "uri": "z:1" }))));

    for method in ["resources/subscribe", "resources/unsubscribe"] {
        b.with(|has| {
            has.lacks.insert(if method.contains("un") { "" } else { "resources/subscribe" })
        });
        b.take_requests();
        let (code, _) = error_of(&router, method, json!({ "uri": "x:2" })).await.unwrap();
        assert_ne!(code, -32601);
        assert_eq!(b.take_requests(), [format!("{method} x:2")]);
    }
}

#[tokio::test(start_paused = true)]
async fn later_backend_does_not_take_resources_of_an_earlier_one() {
    let link = || {
        let link = ContentBlock::ResourceLink(Resource::new("made:1", "made"));
        Some(CallToolResult::success(vec![link]))
    };
    let first = Server::tools(&["make"]).set(|has| {
        has.templates = vec!["db://{table}".into(), "file:///{+path}".into()];
        has.answer = link();
    });
    let second = Server::tools(&["make"]).set(|has| {
        has.resources = vec!["db://users".into(), "file:///home/x".into()];
        has.templates = vec!["db://users/{id}".into()];
        has.answer = link();
    });
    let router = router([first.backend("first"), second.backend("second")]);
    read(&router, "unknown:1").await;
    assert_eq!(call(&router, "first_make").await, None);
    assert_eq!(call(&router, "second_make").await, None);
    for (uri, owner) in [
        ("db://users", &first),
        ("db://users/1", &first),
        ("made:1", &first),
        ("file:///home/x", &first),
        ("file:///home/y", &first),
    ] {
        first.take_requests();
        second.take_requests();
        assert_eq!(read(&router, uri).await, None, "{uri}");
        assert_eq!(owner.take_requests(), [format!("resources/read {uri}")], "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn catch_all_template_owns_no_resource() {
    let any = Server::default().set(|has| has.templates = vec!["{+uri}".into()]);
    let listing = Server::default().set(|has| has.resources = vec!["file:///home/x".into()]);
    let router = router([any.backend("any"), listing.backend("listing")]);
    assert_eq!(read(&router, "file:///home/x").await, None);
    assert_eq!(listing.take_requests().last().unwrap(), "resources/read file:///home/x");
}

#[tokio::test(start_paused = true)]
async fn later_backend_owns_a_resource_until_the_first_is_listed() {
    let give = |has: &mut super::Has| has.resources = vec!["x:1".into()];
    let (first, second) = (Server::default().set(give), Server::default().set(give));
    let first = first.set(|has| has.down = true);
    let router = router([first.backend("first"), second.backend("second")]);
    assert_eq!(read(&router, "x:1").await, None);
    assert_eq!(second.take_requests().last().unwrap(), "resources/read x:1");
    first.with(|has| has.down = false);
    drop(ask(&router, "resources/list", json!({})).await);
    first.take_requests();
    assert_eq!(read(&router, "x:1").await, None);
    assert_eq!(first.take_requests(), ["resources/read x:1"]);
    // The known list stays.
    first.with(|has| has.down = true);
    drop(ask(&router, "resources/list", json!({})).await);
    second.take_requests();
    let read = router.oneshot(request("resources/read", &json!({ "uri": "x:1" })));
    assert_eq!(read.await.unwrap_err().backend(), "first");
    assert_eq!(second.take_requests(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn template_is_completed_by_the_backend_that_lists_it() {
    let first = Server::default().set(|has| has.templates = vec!["db://{table}".into()]);
    let second = Server::default().set(|has| has.templates = vec!["db://users/{id}".into()]);
    let router = router([first.backend("first"), second.backend("second")]);
    drop(ask(&router, "resources/templates/list", json!({})).await);
    for (uri, owner) in
        [("db://{table}", &first), ("db://users/{id}", &second), ("db://{other}", &first)]
    {
        first.take_requests();
        second.take_requests();
        let params = json!({
            "ref": { "type": "ref/resource", "uri": uri },
            "argument": { "name": "id", "value": "" },
        });
        assert_eq!(error_of(&router, "completion/complete", params).await, None, "{uri}");
        assert_eq!(owner.take_requests(), [format!("completion/complete {uri}")], "{uri}");
    }
}

#[tokio::test(start_paused = true)]
async fn resource_returned_by_a_tool_is_read_at_its_backend() {
    let link = Resource::new("made:1", "made");
    let embedded = ResourceContents::text("content", "made:2");
    let made = CallToolResult::success(vec![
        ContentBlock::ResourceLink(link),
        ContentBlock::resource(embedded),
    ]);
    let (a, b) = (Server::default(), Server::tools(&["make"]).set(|has| has.answer = Some(made)));
    let give = |has: &mut super::Has| has.resources = vec!["listed:1".into()];
    let (a, b) = (a.set(give), b.set(give));
    let router = router([a.backend("a"), b.backend("b")]);
    assert_eq!(read(&router, "made:1").await.unwrap().0, -32002);
    assert_eq!(call(&router, "b_make").await, None);
    b.take_requests();
    assert_eq!(read(&router, "made:1").await, None);
    assert_eq!(read(&router, "made:2").await, None);
    assert_eq!(b.take_requests(), ["resources/read made:1", "resources/read made:2"]);
}

#[tokio::test(start_paused = true)]
async fn unlisted_resource_is_read_at_the_only_backend() {
    let a = Server::default().set(|has| has.resources = vec!["x:1".into()]);
    let b = Server::tools(&["x"]);
    let router = router([b.backend("b"), a.backend("a")]);
    assert_eq!(read(&router, "x:other").await, None);
    assert_eq!(a.take_requests().last().unwrap(), "resources/read x:other");
}

#[tokio::test(start_paused = true)]
async fn router_rejects_tasks_and_custom_methods() {
    let router = router([Backend::new("a", HandlerService::new(Full::default()))]);
    for (method, params) in [
        ("tasks/get", json!({ "taskId": "1" })),
        ("tasks/cancel", json!({ "taskId": "1" })),
        ("test/mirror", json!({})),
    ] {
        let error = error_of(&router, method, params).await;
        assert_eq!(error, Some((-32601, method.to_owned())));
    }
    assert_eq!(error_of(&router, "ping", json!({})).await, None);
}

#[tokio::test(start_paused = true)]
async fn handler_service_is_usable_as_a_backend() {
    let full = Full::default();
    let builder = Router::builder().backend(Backend::new("a", HandlerService::new(full.clone())));
    let router = builder.backend(Server::tools(&["x"]).backend("b")).build().unwrap();
    // It always returns the same cursor.
    assert_eq!(tools(&router).await, ["b_x"]);
    assert!(router.problems()[0].to_string().contains("repeats a cursor"));
    let reply = ask(&router, "tools/call", json!({ "name": "a_refuse" })).await;
    assert_eq!((reply.error().unwrap().code.0, &*reply.error().unwrap().message), (7, "not you"));
    assert_eq!(error_of(&router, "prompts/get", json!({ "name": "a_haiku" })).await, None);
    assert!(full.log.has(r#"prompts/get {"name":"haiku"}"#), "{:?}", full.log.lines());
    assert_eq!(read(&router, "full://a").await, None);
}

#[tokio::test(start_paused = true)]
async fn backend_connection_error_is_not_forwarded() {
    let picky = service_fn(async |_| {
        let error = rmcp::model::ErrorData::header_mismatch("secret", None);
        Ok::<Reply, Infallible>(error.into())
    });
    let router = router([Backend::new("a", picky)]);
    let expected = Some((-32603, "backend `a` could not answer".to_owned()));
    assert_eq!(call(&router, "a_x").await, expected);
}

#[tokio::test(start_paused = true)]
async fn service_error_names_its_backend() {
    let server = Server::tools(&["x"]).set(|has| has.delay = Duration::from_secs(3));
    let plain = server.clone();
    let limited = Timeout::new(
        service_fn(move |request| plain.clone().answer(request)),
        Duration::from_secs(1),
    );
    let router = router([Backend::new("a", limited), Server::tools(&["x"]).backend("b")]);
    let error = router.clone().oneshot(Request::call_tool("a_x")).await.unwrap_err();
    assert_eq!((error.backend(), error.kind()), ("a", BackendErrorKind::TimedOut));
    assert_eq!(call(&router, "b_x").await, None);
}

#[tokio::test]
async fn unready_backend_does_not_block_the_others() {
    let (busy, mut handle) = mock::pair::<Request, Reply>();
    handle.allow(0);
    let mut router = router([Backend::new("busy", busy), Server::tools(&["x"]).backend("free")]);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(router.poll_ready(&mut cx).is_ready());

    let mut waiting = task::spawn(router.call(Request::call_tool("busy_x")));
    assert_pending!(waiting.poll());
    assert!(router.poll_ready(&mut cx).is_ready());
    assert_ready_ok!(task::spawn(router.call(Request::call_tool("free_x"))).poll());

    handle.allow(1);
    assert!(waiting.is_woken());
    assert_pending!(waiting.poll());
    let (request, send) = handle.next_request().await.unwrap();
    assert_eq!(request.tool_call().unwrap().name, "x");
    send.send_response(CallToolResult::success(vec![]).into());
    assert_ready_ok!(waiting.poll());
}

#[tokio::test]
async fn broken_backend_fails_only_its_own_calls() {
    let (broken, mut handle) = mock::pair::<Request, Reply>();
    handle.send_error("gone");
    let mut router = router([Backend::new("broken", broken), Server::tools(&["x"]).backend("b")]);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(router.poll_ready(&mut cx), Poll::Ready(Ok(()))));
    let error = assert_ready!(task::spawn(router.call(Request::call_tool("broken_x"))).poll());
    assert_eq!(error.unwrap_err().backend(), "broken");
    assert!(matches!(router.poll_ready(&mut cx), Poll::Ready(Ok(()))));
    assert_ready_ok!(task::spawn(router.call(Request::call_tool("b_x"))).poll());
}

#[tokio::test(start_paused = true)]
async fn router_holds_no_concurrency_permits_between_calls() {
    let server = Server::tools(&["x"]);
    let service = service_fn(move |request| server.clone().answer(request));
    let limited = ConcurrencyLimit::new(service, 1);
    let mut sibling = limited.clone();
    let mut router = router([Backend::new("a", limited)]);
    tools(&router).await;
    let mut held = router.ready().await.unwrap().call(Request::call_tool("a_x"));
    assert!(futures::poll!(&mut held).is_ready());
    let calls = (0..20).map(|_| call(&router, "a_x"));
    assert!(futures::future::join_all(calls).await.iter().all(Option::is_none));
    drop(held);
    let ready = tokio::time::timeout(Duration::from_secs(1), sibling.ready()).await;
    assert!(ready.is_ok(), "a permit");
}

#[tokio::test(start_paused = true)]
async fn dropped_call_is_dropped_at_its_backend() {
    let server = crate::scripted::Server::new().hangs("x");
    let router = router([Backend::new("a", server.clone())]);
    let mut call = Box::pin(router.oneshot(Request::call_tool("a_x")));
    while server.running() == 0 || server.called().is_empty() {
        assert!(futures::poll!(&mut call).is_pending());
    }
    drop(call);
    assert_eq!(server.dropped(), ["x"]);
}

#[tokio::test]
async fn router_is_send_and_sync_with_non_sync_backends() {
    fn check<T: Clone + Send + Sync + 'static>(_: &T) {}
    let server = Server::tools(&["x"]);
    let boxed = tower::util::BoxCloneService::new(service_fn(move |request| {
        server.clone().answer(request)
    }));
    let router = router([Backend::new("a", boxed)]);
    check(&router);
    assert_eq!(tools(&router).await, ["a_x"]);
}

#[test]
fn call_allocates_a_box_and_a_name() {
    let answers: Vec<Reply> = (0..2).map(|_| CallToolResult::success(vec![]).into()).collect();
    let answers = Arc::new(Mutex::new(answers));
    let leaf = service_fn(move |_| {
        let answer = answers.lock().unwrap().pop().expect("an answer");
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let mut router = router([Server::tools(&["x"]).backend("a"), Backend::new("b", leaf)]);
    let mut allocations = || {
        let request = Request::call_tool("b_x".to_owned());
        let mut cx = Context::from_waker(Waker::noop());
        let count = allocation_counter::measure(|| {
            let reply = pin!(router.call(request)).poll(&mut cx);
            assert!(matches!(reply, Poll::Ready(Ok(_))));
        });
        count.count_total
    };
    assert_eq!([allocations(), allocations()], [2, 2]);
}
