//! `Reload`, which replaces the service behind all its clones.

use std::{convert::Infallible, future, sync::Arc};

use mcp_composite::{
    changes::Epoch,
    composite::{CompositeLayer, CompositeTool},
    message::{Reply, Request},
    reload::Reload,
};
use rmcp::model::{CallToolResult, ContentBlock, ListToolsResult};
use tokio::{sync::Semaphore, task::JoinSet};
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower::{
    Layer, Service, ServiceExt, limit::ConcurrencyLimit, service_fn, util::BoxCloneService,
};
use tower_test::mock;

use crate::support::tool;

type Server = BoxCloneService<Request, Reply, Infallible>;

/// A server that lists one tool, and answers every call with its own name.
fn server(name: &'static str) -> Server {
    BoxCloneService::new(service_fn(move |request: Request| async move {
        Ok(match request.lists_tools() {
            true => ListToolsResult::with_all_items(vec![tool(name)]).into(),
            false => CallToolResult::success(vec![ContentBlock::text(name)]).into(),
        })
    }))
}

fn text(reply: &Reply) -> &str {
    &reply.tool_result().unwrap().content[0].as_text().unwrap().text
}

async fn call(service: impl Service<Request, Response = Reply, Error = Infallible>) -> String {
    let reply = service.oneshot(Request::call_tool("x")).await.unwrap();
    text(&reply).to_owned()
}

#[tokio::test]
async fn uncalled_clones_are_replaced_too() {
    let (service, reloader) = Reload::new(server("old"));
    let (before, used) = (service.clone(), service.clone());
    assert_eq!(call(used.clone()).await, "old");
    reloader.replace(server("new"));
    for service in [service.clone(), before, used, service] {
        assert_eq!(call(service).await, "new");
    }
}

#[tokio::test]
async fn service_outlives_its_reloader() {
    let (service, reloader) = Reload::new(server("old"));
    reloader.clone().replace(server("new"));
    drop(reloader);
    assert_eq!(call(service.clone()).await, "new");
    assert_eq!(call(service).await, "new");
}

#[tokio::test]
async fn running_call_finishes_on_the_old_service() {
    let (mock, mut handle) = mock::pair::<Request, Reply>();
    let (mut service, reloader) = Reload::new(mock);
    handle.allow(1);
    let mut running = task::spawn(service.ready().await.unwrap().call(Request::call_tool("x")));
    assert_pending!(running.poll());

    let (new, _new) = mock::pair::<Request, Reply>();
    reloader.replace(new);
    let (_, answer) = handle.next_request().await.unwrap();
    answer.send_response(CallToolResult::success(vec![ContentBlock::text("old")]).into());
    assert_eq!(text(&assert_ready_ok!(running.poll())), "old");
}

#[tokio::test]
async fn ready_service_is_called_even_after_replacement() {
    let (old, mut old_handle) = mock::pair::<Request, Reply>();
    let (new, mut new_handle) = mock::pair::<Request, Reply>();
    let (service, reloader) = Reload::new(old);
    let mut service = mock::Spawn::new(service);
    old_handle.allow(1);
    new_handle.allow(1);
    assert_ready_ok!(service.poll_ready());
    reloader.replace(new);
    let _call = service.call(Request::call_tool("x"));
    assert_ready!(task::spawn(old_handle.next_request()).poll());

    assert_ready_ok!(service.poll_ready());
    let _call = service.call(Request::call_tool("x"));
    assert_ready!(task::spawn(new_handle.next_request()).poll());
}

#[tokio::test]
async fn waiting_callers_are_woken_by_the_new_service() {
    let (old, mut old_handle) = mock::pair::<Request, Reply>();
    old_handle.allow(0);
    let (new, mut new_handle) = mock::pair::<Request, Reply>();
    new_handle.allow(1);
    let (service, reloader) = Reload::new(old);
    let mut service = mock::Spawn::new(service);
    assert_pending!(service.poll_ready());
    assert_pending!(service.poll_ready());
    reloader.replace(new);
    assert!(service.is_woken());
    assert_ready_ok!(service.poll_ready());
}

#[tokio::test]
async fn replaced_service_releases_its_permit() {
    let slots = Arc::new(Semaphore::new(1));
    let limited = |name| ConcurrencyLimit::with_semaphore(server(name), slots.clone());
    let (mut service, reloader) = Reload::new(limited("old"));
    // Ready, with the only slot, and not called.
    service.ready().await.unwrap();
    reloader.replace(limited("new"));
    assert_eq!(call(&mut service).await, "new");
    assert_eq!(slots.available_permits(), 1);
}

#[tokio::test]
async fn idle_clone_releases_the_old_service() {
    let life = Arc::new(());
    let of_old = life.clone();
    let old = service_fn(move |_: Request| {
        let _held = &of_old;
        future::ready(Ok::<Reply, Infallible>(CallToolResult::success(vec![]).into()))
    });
    let (idle, reloader) = Reload::new(BoxCloneService::new(old));
    let mut used = idle.clone();
    used.ready().await.unwrap().call(Request::call_tool("x")).await.unwrap();
    assert_eq!(Arc::strong_count(&life), 2);
    reloader.replace(server("new"));
    assert_eq!(Arc::strong_count(&life), 1);
    assert_eq!(call(used).await, "new");
    drop(idle);
}

#[tokio::test]
async fn errors_of_the_service_are_forwarded() {
    let (mock, mut handle) = mock::pair::<Request, Reply>();
    let (service, reloader) = Reload::new(mock);
    handle.send_error("broken");
    let error = service.clone().oneshot(Request::call_tool("x")).await.unwrap_err();
    assert_eq!(error.to_string(), "broken");
    // A service that has failed permanently can be replaced.
    let (mock, mut handle) = mock::pair::<Request, Reply>();
    reloader.replace(mock);
    handle.allow(1);
    let mut service = service;
    service.ready().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn request_runs_entirely_on_one_service() {
    let stack = |name| {
        let all = CompositeTool::fan_out("all", "All", [name, name]);
        CompositeLayer::new([all]).unwrap().epoch(Epoch::default()).layer(server(name))
    };
    let (service, reloader) = Reload::new(stack("a"));
    let mut calls = JoinSet::new();
    for round in 0..200 {
        let (service, reloader) = (service.clone(), reloader.clone());
        let next = stack(if round % 2 == 0 { "b" } else { "a" });
        calls.spawn(async move {
            if round % 5 == 0 {
                reloader.replace(next);
            }
            let reply = service.oneshot(Request::call_tool("all")).await.unwrap();
            let result = reply.tool_result().unwrap();
            let texts = result.content.iter().map(|block| block.as_text().unwrap().text.clone());
            texts.collect::<Vec<_>>()
        });
    }
    let mut seen = std::collections::BTreeSet::new();
    for texts in calls.join_all().await {
        // Each text is below the label of its branch.
        assert_eq!(texts.len(), 4);
        assert_eq!(texts[1], texts[3]);
        seen.insert(texts[1].clone());
    }
    assert_eq!(seen.len(), 2, "both were called");
}
