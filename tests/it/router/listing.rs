//! Lists of a router, merged from those of its backends.

use std::{
    collections::HashSet,
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use mcp_composite::{
    adapter::router::{Backend, Router},
    message::{Reply, Request},
};
use rmcp::model::{CacheScope, ListToolsResult};
use serde_json::json;
use tower::{ServiceExt, service_fn};

use super::{SaysSo, Server, ask, error_of, names, problems, router, tools};
use crate::{scripted::search_tool, support::capture_logs};

/// Lists all pages, and returns the names on each.
async fn pages(router: &Router) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut params = json!({});
    loop {
        let reply = ask(router, "tools/list", params).await;
        let list = reply.tools().expect("tools");
        pages.push(list.tools.iter().map(|tool| tool.name.to_string()).collect());
        match &list.next_cursor {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => return pages,
        }
    }
}

fn many(count: usize) -> Server {
    let tools = (0..count).map(|n| search_tool(&format!("t{n}"))).collect();
    Server::default().set(|has| has.tools = tools)
}

#[tokio::test(start_paused = true)]
async fn pages_of_all_backends_are_concatenated_in_order() {
    let servers = [3, 0, 5, 2].map(|count| many(count).set(|has| has.page_size = Some(2)));
    let router = router(["a", "b", "c", "d"].iter().zip(&servers).map(|(n, s)| s.backend(n)));

    let all = "a_t0 a_t1 a_t2 c_t0 c_t1 c_t2 c_t3 c_t4 d_t0 d_t1";
    assert_eq!(tools(&router).await, all.split(' ').collect::<Vec<_>>());

    let once = ask(&router, "tools/list", json!({})).await.into_result().unwrap();
    let again = ask(&router, "tools/list", json!({})).await.into_result().unwrap();
    let bytes = |list| serde_json::to_string(list).unwrap();
    assert_eq!(bytes(&once), bytes(&again));
    assert_eq!(servers[2].take_requests()[..3], ["tools/list -", "tools/list 2", "tools/list 4"]);
}

#[tokio::test(start_paused = true)]
async fn combined_list_is_split_into_pages_of_1000() {
    let (a, b) = (many(1_500).set(|has| has.page_size = Some(7)), many(1_000));
    let router = router([a.backend("a"), b.backend("b")]);

    let listed = pages(&router).await;

    assert_eq!(listed.iter().map(Vec::len).collect::<Vec<_>>(), [1_000, 1_000, 500]);
    let all: HashSet<_> = listed.iter().flatten().collect();
    assert_eq!(all.len(), 2_500, "nothing is listed twice");
    // Further pages are served without requests to backends.
    assert_eq!(b.take_requests(), ["tools/list -"]);
}

#[tokio::test(start_paused = true)]
async fn invalid_cursor_is_rejected() {
    let router = router([many(1_001).backend("a")]);
    let reply = ask(&router, "tools/list", json!({})).await;
    let cursor = reply.tools().unwrap().next_cursor.clone().unwrap();
    let refused = Some((-32602, "invalid cursor".to_owned()));
    let (fingerprint, _) = cursor.split_once('.').unwrap();
    let beyond = [".0", ".1", ".2000", ".999999999999999999999"]
        .map(|start| format!("{fingerprint}{start}"));
    for cursor in
        beyond.iter().map(String::as_str).chain(["", "1000", "x", ".", "0000000000000000.1000"])
    {
        let error = error_of(&router, "tools/list", json!({ "cursor": cursor })).await;
        assert_eq!(error, refused, "{cursor}");
    }
    assert_eq!(error_of(&router, "tools/list", json!({ "cursor": cursor })).await, None);
}

#[tokio::test(start_paused = true)]
async fn cursor_is_valid_on_every_replica_with_the_same_list() {
    let server = many(1_001);
    let one = router([server.backend("a")]);
    let other = router([server.backend("a")]);
    let reply = ask(&one, "tools/list", json!({})).await;
    let cursor = json!({ "cursor": reply.tools().unwrap().next_cursor });
    let reply = ask(&other, "tools/list", cursor.clone()).await;
    assert_eq!(reply.tools().unwrap().tools[0].name, "a_t1000");

    // A client that began to read a list reads that version to its end; for others the tool is
    // gone.
    server.with(|has| has.tools.remove(0));
    tools(&one).await;
    let reply = ask(&one, "tools/list", cursor.clone()).await;
    assert_eq!(reply.tools().unwrap().tools[0].name, "a_t1000");
    let third = router([server.backend("a")]);
    let error = error_of(&third, "tools/list", cursor).await;
    assert_eq!(error, Some((-32602, "invalid cursor".into())));
}

#[tokio::test(start_paused = true)]
async fn list_takes_the_strictest_cache_hints_of_its_parts() {
    let says = |ttl: Option<u64>, scope: CacheScope| {
        let list = ListToolsResult { ttl_ms: ttl, cache_scope: Some(scope), ..Default::default() };
        service_fn(move |_| {
            let list = list.clone();
            async { Ok::<Reply, Infallible>(list.into()) }
        })
    };
    let listed = async |parts: [(Option<u64>, CacheScope); 2]| {
        let [a, b] = parts.map(|(ttl, scope)| says(ttl, scope));
        let backend = Backend::new("a", a);
        let other = Backend::new("b", b);
        let reply = ask(&router([backend, other]), "tools/list", json!({})).await;
        let list = reply.tools().unwrap();
        (list.ttl_ms, list.cache_scope.unwrap())
    };
    use CacheScope::{Private, Public};
    assert_eq!(listed([(Some(5), Public), (Some(3), Public)]).await, (Some(3), Public));
    assert_eq!(listed([(Some(5), Private), (None, Public)]).await, (None, Private));
}

#[tokio::test(start_paused = true)]
async fn prompts_resources_and_templates_are_concatenated() {
    let give = |who: &str| {
        let who = who.to_owned();
        Server::default().set(move |has| {
            has.prompts = ["p", "q", "r"].map(str::to_owned).into();
            has.page_size = Some(2);
            has.resources = vec![format!("{who}:1")];
            has.templates = vec![format!("{who}:{{x}}")];
        })
    };
    let (a, b) = (give("a"), give("b"));
    let router = router([a.backend("a"), b.backend("b")]);
    let prompts = ["a_p", "a_q", "a_r", "b_p", "b_q", "b_r"];
    assert_eq!(names(&router, "prompts/list").await, prompts);
    assert_eq!(names(&router, "resources/list").await, ["a:1", "b:1"]);
    assert_eq!(names(&router, "resources/templates/list").await, ["a:{x}", "b:{x}"]);
    assert_eq!(tools(&router).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn backend_without_a_list_is_asked_again_after_a_change() {
    for says_so in [SaysSo::Replying, SaysSo::Failing, SaysSo::FailingWithin] {
        let (logged, _guard) = capture_logs();
        let a = Server::tools(&["x"]).set(|has| {
            has.prompts = vec!["p".into()];
            has.lacks.insert("prompts/list");
            has.says_so = says_so;
        });
        let router = router([
            a.backend("a"),
            Server::default().set(|has| has.prompts = vec!["q".into()]).backend("b"),
        ]);
        for _ in 0..3 {
            let reply = ask(&router, "prompts/list", json!({})).await;
            let list = serde_json::to_value(reply.into_result().unwrap()).unwrap();
            assert_eq!(list["prompts"][0]["name"], "b_q");
            assert_eq!(list["prompts"].as_array().unwrap().len(), 1);
        }
        assert_eq!(a.take_requests(), ["prompts/list -"], "{says_so:?}");
        assert_eq!(problems(&router), [""; 0]);
        assert!(!logged.text().contains("WARN"), "{}", logged.text());

        a.with(|has| has.lacks.clear());
        router.changes().prompts().bump();
        assert_eq!(names(&router, "prompts/list").await, ["a_p", "b_q"]);
    }
}

#[tokio::test(start_paused = true)]
async fn endless_list_affects_only_its_backend() {
    let forever = |next: fn(usize) -> String, tool: fn(usize) -> String| {
        let pages = Arc::new(AtomicUsize::new(0));
        service_fn(move |_| {
            let page = pages.fetch_add(1, Ordering::Relaxed);
            let mut list = ListToolsResult::with_all_items(vec![search_tool(&tool(page))]);
            list.next_cursor = Some(next(page));
            async { Ok::<Reply, Infallible>(list.into()) }
        })
    };
    let router = router([
        Backend::new("counting", forever(|n| n.to_string(), |n| format!("t{n}"))),
        Backend::new("circling", forever(|n| (n % 3).to_string(), |n| format!("t{n}"))),
        Backend::new("huge", forever(|n| n.to_string(), |_| "x".repeat(1 << 20))),
        many(1).backend("fine"),
    ]);
    assert_eq!(tools(&router).await, ["fine_t0"]);
    let problems = problems(&router);
    assert_eq!(problems.len(), 3);
    for (problem, why) in
        problems.iter().zip(["after 1000 pages", "repeats a cursor", "larger than"])
    {
        assert!(problem.contains(why), "{problem}");
    }
}

#[test]
fn lists_and_calls_need_no_runtime() {
    let router = router([many(2).backend("a"), many(1).backend("b")]);
    futures::executor::block_on(async {
        assert_eq!(tools(&router).await, ["a_t0", "a_t1", "b_t0"]);
        assert_eq!(super::call(&router, "b_t0").await, None);
    });
}

#[tokio::test(start_paused = true)]
async fn list_request_keeps_the_caller_but_not_its_connection() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let saw = seen.clone();
    let server = service_fn(move |request: Request| {
        let context = request.context();
        let caller = context.extensions().get::<u8>().copied();
        let meta = serde_json::to_value(context.meta()).unwrap();
        saw.lock().unwrap().push((caller, meta, context.cancellation().is_some()));
        let list = ListToolsResult::with_all_items(vec![]);
        async { Ok::<Reply, Infallible>(list.into()) }
    });
    let router = router([Backend::new("a", server)]);
    let mut request = Request::list_tools();
    let context = request.context_mut();
    context.extensions_mut().insert(7_u8);
    context.set_cancellation(Default::default());
    context.meta_mut().insert("traceparent".into(), "00-1-2-03".into());
    context.meta_mut().insert("progressToken".into(), "mine".into());
    router.oneshot(request).await.unwrap();
    let expected = (Some(7), json!({ "traceparent": "00-1-2-03" }), false);
    assert_eq!(*seen.lock().unwrap(), [expected]);
}

#[tokio::test(start_paused = true)]
async fn memory_for_invalid_tool_names_is_bounded() {
    let lists = Arc::new(AtomicUsize::new(0));
    let server = service_fn(move |_| {
        let name = format!("{} {}", lists.fetch_add(1, Ordering::Relaxed), "x".repeat(1 << 20));
        let list = ListToolsResult::with_all_items(vec![search_tool(&name)]);
        async { Ok::<Reply, Infallible>(list.into()) }
    });
    let router = router([Backend::new("a", server)]);
    let list = || drop(futures::executor::block_on(ask(&router, "tools/list", json!({}))));
    list();
    let left = allocation_counter::measure(|| (0..50).for_each(|_| list())).bytes_current;
    // The current list is known and may allocate.
    assert!(left < 5 << 20, "{left}");
    assert!(problems(&router)[0].contains("the tool `a_50 xxx"), "{:?}", problems(&router));
}
