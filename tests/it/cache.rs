//! The cache of the results of read-only tools.

mod clients;
mod equivalence;
mod shared;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mcp_composite::{
    budget::{Budget, BudgetLayer, Unit},
    cache::{Cache, CacheLayer, CacheRule, NO_CACHE, Per},
    changes::Epoch,
    composite::{CompositeLayer, CompositeTool, Step},
    filter::FilterLayer,
    message::{Reply, Request},
    observe::{Event, Observer, What},
    pattern::Selection,
    redact::{RedactLayer, Redaction},
    reload::Reload,
    stack::StackLayer,
    testing::{self, Answer, Server, request},
};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};
use tokio::time::advance;
use tower::{Layer, Service, ServiceExt};

use crate::support::capture_logs;

const MINUTE: Duration = Duration::from_secs(60);

/// Returns the definition of a read-only tool.
fn reads(name: &'static str) -> Tool {
    let annotations = ToolAnnotations::new().read_only(true);
    Tool::new(name, "Looks", JsonObject::new()).with_annotations(annotations)
}

/// Returns a rule that caches all tools for a minute.
fn all() -> CacheRule {
    CacheRule::new(Selection::default(), MINUTE)
}

fn cache() -> CacheLayer {
    CacheLayer::new().rule(all())
}

/// Returns an answer with the number of calls so far.
fn counts() -> Answer {
    let calls = Arc::new(AtomicUsize::new(0));
    Answer::from_fn(move |_| {
        let calls = calls.clone();
        async move {
            let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
            Answer::text(number.to_string())
        }
    })
}

fn text(result: &CallToolResult) -> &str {
    &result.content[0].as_text().unwrap().text
}

/// Returns the text that a call of the tool `count` returns.
async fn count<S>(service: &S, request: Request) -> String
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: std::fmt::Debug,
{
    let reply = service.clone().oneshot(request).await.unwrap();
    text(reply.tool_result().unwrap()).to_owned()
}

fn counting() -> (Cache<Server>, Server) {
    let server = Server::new().tool_as(reads("count"), counts());
    (cache().layer(server.clone()), server)
}

fn fresh(mut request: Request) -> Request {
    request.context_mut().meta_mut().insert(NO_CACHE.to_owned(), json!(true));
    request
}

fn called_by(name: &str, mut request: Request) -> Request {
    request.context_mut().extensions_mut().insert(name.to_owned());
    request
}

#[tokio::test(start_paused = true)]
async fn result_is_cached_until_it_expires() {
    let (service, _) = counting();
    assert_eq!(count(&service, request("count", json!({}))).await, "1");
    advance(MINUTE - Duration::from_millis(1)).await;
    assert_eq!(count(&service, request("count", json!({}))).await, "1");
    advance(Duration::from_millis(1)).await;
    assert_eq!(count(&service, request("count", json!({}))).await, "2");
    advance(MINUTE / 2).await;
    assert_eq!(count(&service, request("count", json!({}))).await, "2");
}

#[tokio::test(start_paused = true)]
async fn results_belong_to_tool_and_arguments() {
    let server = Server::new().tool_as(reads("one"), counts()).tool_as(reads("other"), counts());
    let service = cache().layer(server.clone());
    let calls = [
        ("one", json!({ "a": 1, "b": [true] })),
        ("one", json!({ "a": 1, "b": [false] })),
        ("one", json!({ "a": 2, "b": [true] })),
        ("one", json!({})),
        ("other", json!({})),
    ];
    for _ in 0..2 {
        for (tool, arguments) in &calls {
            testing::call(&service, tool, arguments.clone()).await;
        }
    }
    assert_eq!(server.calls(), calls);

    let same = serde_json::from_str(r#"{ "b": [true], "a": 1.0 }"#).unwrap();
    testing::call(&service, "one", same).await;
    service.clone().oneshot(Request::call_tool("one")).await.unwrap();
    assert_eq!(server.calls().len(), calls.len());
}

#[tokio::test(start_paused = true)]
async fn only_selected_read_only_tools_are_cached() {
    let writes = ToolAnnotations::new().read_only(false);
    let server = Server::new()
        .tool_as(reads("read"), Answer::text("r"))
        .tool_as(reads("other"), Answer::text("o"))
        .tool_as(reads("hidden"), Answer::text("h"))
        .tool_as(reads("write").with_annotations(writes), Answer::text("w"))
        .says("unknown", "u");
    server.unlist("hidden");
    let tools = Selection::default().deny(["other"]).unwrap();
    let service = CacheLayer::new().rule(CacheRule::new(tools, MINUTE)).layer(server.clone());
    for tool in ["read", "other", "hidden", "write", "unknown"] {
        for _ in 0..2 {
            testing::call(&service, tool, json!({})).await;
        }
    }
    let called = ["read", "other", "other", "hidden", "hidden", "write", "write"];
    assert_eq!(server.called(), [&called[..], &["unknown", "unknown"]].concat());
}

#[tokio::test(start_paused = true)]
async fn first_rule_that_selects_a_tool_is_used() {
    let server = Server::new().tool_as(reads("a"), counts()).tool_as(reads("b"), counts());
    let only = |tool| Selection::default().allow([tool]).unwrap();
    let service = CacheLayer::new()
        .rule(CacheRule::new(only("a"), MINUTE))
        .rule(CacheRule::new(Selection::default(), MINUTE * 2))
        .layer(server);
    for (after, a, b) in [(0, "1", "1"), (60, "2", "1"), (60, "3", "2")] {
        advance(Duration::from_secs(after)).await;
        assert_eq!(count(&service, request("a", json!({}))).await, a);
        assert_eq!(count(&service, request("b", json!({}))).await, b);
    }
}

#[tokio::test(start_paused = true)]
async fn failures_are_not_cached() {
    let answers = Answer::failure("no")
        .then(Answer::error(-32603, "no"))
        .then(Answer::unavailable("no"))
        .then(Answer::asks("who", "Who?"))
        .then(Answer::text("yes"));
    let server = Server::new().tool_as(reads("look"), answers);
    let service = cache().layer(server.clone());
    let call = || service.clone().oneshot(request("look", json!({})));

    assert_eq!(call().await.unwrap().tool_result().unwrap().is_error, Some(true));
    assert_eq!(call().await.unwrap().error().unwrap().message, "no");
    assert!(call().await.unwrap_err().to_string().contains("no"));
    assert!(call().await.unwrap().tool_result().is_none());
    for _ in 0..2 {
        assert_eq!(text(call().await.unwrap().tool_result().unwrap()), "yes");
    }
    assert_eq!(server.called().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn answers_to_questions_reach_the_tool() {
    let (service, server) = counting();
    assert_eq!(count(&service, request("count", json!({}))).await, "1");
    let mut later = request("count", json!({}));
    later.tool_call_mut().unwrap().request_state = Some("asked".to_owned());
    assert_eq!(count(&service, later).await, "2");
    assert_eq!(server.calls()[1].state(), Some("asked"));
    assert_eq!(count(&service, request("count", json!({}))).await, "1");
}

#[tokio::test(start_paused = true)]
async fn client_bypasses_the_cache_and_refreshes_the_result() {
    let (service, _) = counting();
    assert_eq!(count(&service, request("count", json!({}))).await, "1");
    assert_eq!(count(&service, fresh(request("count", json!({})))).await, "2");
    assert_eq!(count(&service, request("count", json!({}))).await, "2");

    let mut no = request("count", json!({}));
    no.context_mut().meta_mut().insert(NO_CACHE.to_owned(), json!("yes"));
    assert_eq!(count(&service, no).await, "2");
}

#[tokio::test(start_paused = true)]
async fn callers_share_results_only_if_the_rule_says_so() {
    for (per, expected) in [(Per::Caller, ["1", "2", "1", "2", "3", "3"]), (Per::All, ["1"; 6])] {
        let server = Server::new().tool_as(reads("count"), counts());
        let service = CacheLayer::new()
            .rule(all().per(per))
            .caller(|context| context.extensions().get::<String>().cloned())
            .layer(server);
        let anonymous = || request("count", json!({}));
        let calls = [
            called_by("alice", anonymous()),
            called_by("bob", anonymous()),
            called_by("alice", anonymous()),
            called_by("bob", anonymous()),
            anonymous(),
            anonymous(),
        ];
        for (call, expected) in calls.into_iter().zip(expected) {
            assert_eq!(count(&service, call).await, expected, "{per:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn services_of_a_layer_do_not_share_results() {
    let server = Server::new().tool_as(reads("count"), counts());
    let layer = cache();
    let (one, other) = (layer.layer(server.clone()), layer.layer(server));
    for (service, expected) in [(&one, "1"), (&other, "2"), (&one.clone(), "1"), (&other, "2")] {
        assert_eq!(count(service, request("count", json!({}))).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn reload_starts_with_an_empty_cache() {
    let server = Server::new().tool_as(reads("count"), counts());
    let (service, reloader) = Reload::new(cache().layer(server.clone()));
    assert_eq!(count(&service, request("count", json!({}))).await, "1");
    assert_eq!(count(&service, request("count", json!({}))).await, "1");
    reloader.replace(cache().layer(server));
    assert_eq!(count(&service, request("count", json!({}))).await, "2");
}

#[tokio::test(start_paused = true)]
async fn changed_definition_discards_the_results() {
    let epoch = Epoch::default();
    let server = Server::new().tool_as(reads("count"), counts());
    let service = cache().epoch(epoch.clone()).layer(server.clone());
    let call = async || count(&service, request("count", json!({}))).await;
    assert_eq!([call().await, call().await], ["1", "1"]);

    // Another bump without a change keeps the results.
    epoch.bump();
    assert_eq!(call().await, "1");

    let mut described = reads("count");
    described.description = Some("Looks elsewhere".into());
    server.add(described, Answer::text("changed"));
    epoch.bump();
    assert_eq!(call().await, "changed");

    // The first definition is back, but its results are not.
    server.add(reads("count"), Answer::text("back"));
    epoch.bump();
    assert_eq!(call().await, "back");
}

#[tokio::test(start_paused = true)]
async fn tool_that_is_no_longer_read_only_is_called_at_once() {
    for is_reported in [true, false] {
        let epoch = Epoch::default();
        let server = Server::new().tool_as(reads("count"), counts());
        let service = cache().epoch(epoch.clone()).layer(server.clone());
        assert_eq!(count(&service, request("count", json!({}))).await, "1");

        let writes = ToolAnnotations::new().read_only(false);
        server.add(reads("count").with_annotations(writes), counts());
        if is_reported {
            epoch.bump();
        } else {
            // A hostile server does not report the change, but a client lists its tools.
            testing::listed(&service).await;
        }
        for expected in ["1", "2", "3"] {
            assert_eq!(count(&service, request("count", json!({}))).await, expected);
        }

        // Results from before are not used either if the tool is read-only again.
        server.add(reads("count"), Answer::text("again"));
        testing::listed(&service).await;
        epoch.bump();
        assert_eq!(count(&service, request("count", json!({}))).await, "again");
    }
}

#[tokio::test(start_paused = true)]
async fn tool_with_two_definitions_is_not_cached() {
    let server = tower::service_fn(async |request: Request| {
        Ok::<Reply, std::convert::Infallible>(match request.lists_tools() {
            true => rmcp::model::ListToolsResult::with_all_items(vec![
                reads("count"),
                Tool::new("count", "Writes", JsonObject::new()),
            ])
            .into(),
            false => CallToolResult::success(vec![ContentBlock::text("called")]).into(),
        })
    });
    let called = Arc::new(AtomicUsize::new(0));
    let counted = tower::ServiceBuilder::new()
        .map_request({
            let called = called.clone();
            move |request: Request| {
                let calls = usize::from(request.tool_call().is_some());
                called.fetch_add(calls, Ordering::Relaxed);
                request
            }
        })
        .service(server);
    let service = cache().layer(counted);
    for _ in 0..2 {
        assert_eq!(count(&service, request("count", json!({}))).await, "called");
    }
    assert_eq!(called.load(Ordering::Relaxed), 2);
}

#[tokio::test(start_paused = true)]
async fn calls_are_forwarded_while_tools_cannot_be_listed() {
    let (service, server) = counting();
    server.break_list("down");
    for expected in ["1", "2"] {
        assert_eq!(count(&service, request("count", json!({}))).await, expected);
    }
    server.mend_list();
    advance(Duration::from_secs(1)).await;
    for expected in ["3", "3"] {
        assert_eq!(count(&service, request("count", json!({}))).await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn composite_gets_cached_results_for_its_targets() {
    let server = Server::new().tool_as(reads("near"), counts()).says("far", "a port");
    let look = CompositeTool::fan_out("look", "Looks", ["near", "far"]);
    let stack = StackLayer::new()
        .cache(cache())
        .composite(CompositeLayer::new([look]).unwrap())
        .layer(server.clone());
    for _ in 0..2 {
        let result = testing::call(&stack, "look", json!({})).await;
        let branches = &result.structured_content.unwrap()["branches"];
        assert_eq!([&branches["near"]["output"], &branches["far"]["output"]], ["1", "a port"]);
    }
    assert_eq!(testing::call(&stack, "near", json!({})).await.content.len(), 1);
    assert_eq!(server.called().iter().filter(|tool| *tool == "near").count(), 1);

    // The client bypasses the cache for all targets.
    let reply = stack.clone().oneshot(fresh(request("look", json!({})))).await.unwrap();
    let content = reply.tool_result().unwrap().structured_content.clone().unwrap();
    assert_eq!(content["branches"]["near"]["output"], "2");
}

#[tokio::test(start_paused = true)]
async fn stack_checks_access_before_the_cache_and_charges_after_it() {
    let server = Server::new()
        .tool_as(reads("look"), Answer::structured(json!({ "open": 1, "secret": "key" })))
        .tool_as(reads("hidden"), Answer::text("hidden"));
    let redact = Redaction::new(Selection::default(), ["/secret"]).unwrap();
    let stack = StackLayer::new()
        .cache(cache())
        .filter(FilterLayer::new().tools(Selection::default().deny(["hidden"]).unwrap()))
        .redact(RedactLayer::new().redaction(redact))
        .budget(BudgetLayer::new().budget(Budget::new("calls", Unit::Calls, 1)))
        .layer(server.clone());
    for _ in 0..3 {
        let result = testing::call(&stack, "look", json!({})).await;
        let redacted = json!({ "open": 1, "secret": "[redacted]" });
        assert_eq!(result.structured_content, Some(redacted));
        testing::refused(&stack, "hidden", json!({})).await;
    }
    assert_eq!(server.called(), ["look"]);
    let refused = testing::refused(&stack, "look", json!({ "at": "sea" })).await;
    assert_eq!(refused.message, "the budget `calls` is used up");
}

#[tokio::test(start_paused = true)]
async fn result_larger_than_all_results_may_be_is_not_cached() {
    let server = Server::new().tool_as(reads("look"), Answer::text("x".repeat(10_000)));
    let small = CacheLayer::new().rule(all().max_bytes(10_000)).layer(server.clone());
    let large = CacheLayer::new().rule(all().max_bytes(20_000)).layer(server.clone());
    for (service, calls) in [(&small, 2), (&large, 3)] {
        for _ in 0..2 {
            testing::call(service, "look", json!({})).await;
        }
        assert_eq!(server.called().len(), calls);
    }
}

/// An observer that collects the branches that have finished.
#[derive(Clone, Default)]
struct Finished(Arc<Mutex<Vec<(String, bool)>>>);

impl Observer for Finished {
    fn on_event(&self, event: &Event<'_>) {
        if let What::BranchFinished { branch, cached, .. } = event.what {
            self.0.lock().unwrap().push((branch.to_string(), cached));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn observers_and_spans_show_which_results_were_cached() {
    let (log, _guard) = capture_logs();
    let finished = Finished::default();
    let server = Server::new().tool_as(reads("near"), counts()).says("far", "a port");
    let look =
        CompositeTool::pipeline("look", "Looks", ["near", "far"].map(|tool| Step::new(tool, tool)));
    let stack = StackLayer::new()
        .cache(cache())
        .composite(CompositeLayer::new([look]).unwrap())
        .observer(finished.clone())
        .layer(server);
    for _ in 0..2 {
        testing::call(&stack, "look", json!({})).await;
    }
    let near = |cached| ("near".to_owned(), cached);
    let far = ("far".to_owned(), false);
    assert_eq!(*finished.0.lock().unwrap(), [near(false), far.clone(), near(true), far]);

    testing::call(&stack, "near", json!({})).await;
    stack.clone().oneshot(fresh(request("near", json!({})))).await.unwrap();
    tokio::join!(
        count(&stack, request("near", json!({ "at": "sea" }))),
        count(&stack, request("near", json!({ "at": "sea" }))),
    );
    let text = log.text();
    let spans = |kind: &str, used: &str| {
        let field = format!("mcp_composite.cache=\"{used}\"");
        let is_closed = |line: &&str| line.contains(kind) && line.contains(" close ");
        text.lines().filter(is_closed).filter(|line| line.contains(&field)).count()
    };
    let used = ["miss", "hit", "joined", "bypass"];
    // A span that encloses another one is printed with it.
    assert_eq!(used.map(|used| spans("mcp.client{", used)), [1, 1, 0, 0], "{text}");
    let requests = used.map(|used| spans("mcp.server{", used) - spans("mcp.client{", used));
    assert_eq!(requests, [1, 1, 1, 1], "{text}");
}

#[tokio::test(start_paused = true)]
async fn hit_shares_the_result_with_the_cache() {
    let (service, _) = counting();
    let mut texts = Vec::new();
    for _ in 0..3 {
        let reply = service.clone().oneshot(request("count", json!({}))).await.unwrap();
        let text = reply.tool_result().unwrap().content[0].as_text().unwrap();
        texts.push(text.text.as_ptr());
        // A changed reply is a copy.
        let mut changed = reply.clone();
        changed.tool_result_mut().unwrap().content.clear();
        assert_eq!(reply.tool_result().unwrap().content.len(), 1);
    }
    assert_eq!(texts[0], texts[1]);
    assert_eq!(texts[1], texts[2]);
}

#[tokio::test]
async fn malformed_calls_are_rejected() {
    let (service, server) = counting();
    let params: Option<Value> = Some(json!({ "name": 1 }));
    let custom = rmcp::model::CustomRequest::new("tools/call", params);
    let malformed = Request::new(custom, mcp_composite::message::Context::default());
    let reply = service.oneshot(malformed).await.unwrap();
    assert_eq!(reply.error().unwrap().message, "malformed `tools/call`");
    assert!(server.calls().is_empty());
}
