//! The items and calls that a filter allows.

mod nested;

use std::{
    convert::Infallible,
    pin::pin,
    sync::{Arc, Mutex},
    task::Waker,
    time::Duration,
};

use mcp_composite::{
    adapter::HandlerService,
    changes::Epoch,
    composite::{CompositeLayer, CompositeTool},
    filter::FilterLayer,
    message::{Context, ItemKind, Refusal, Reply, Request},
    pattern::Selection,
};
use rmcp::model::*;
use serde_json::{Value, json};
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower::{
    BoxError, Layer, Service, ServiceExt, buffer::Buffer, limit::ConcurrencyLimit, service_fn,
};
use tower_test::mock;

use crate::{
    scripted::{Answer, Server, call, object},
    support::{Full, capture_logs},
};

/// A service that answers everything, and records the methods.
#[derive(Clone, Default)]
struct Library {
    methods: Arc<Mutex<Vec<String>>>,
}

fn deny<const N: usize>(patterns: [&str; N]) -> Selection {
    Selection::default().deny(patterns).expect("good patterns")
}

fn allow<const N: usize>(patterns: [&str; N]) -> Selection {
    Selection::default().allow(patterns).expect("good patterns")
}

/// Denies one item of each kind.
fn denying() -> FilterLayer {
    FilterLayer::new()
        .tools(deny(["secret*"]))
        .prompts(deny(["secret*"]))
        .resources(deny(["file://*"]))
        .resource_templates(deny(["db://{table}"]))
}

fn request(method: &str, params: impl Into<Value>) -> Request {
    let request = json!({ "method": method, "params": params.into() });
    let request: ClientRequest = serde_json::from_value(request).expect("a request");
    Request::new(request, Context::default())
}

fn annotated(name: &str, hints: Value) -> Tool {
    let mut tool = Tool::new(name.to_owned(), "A tool", object(json!({ "type": "object" })));
    tool.annotations = (!hints.is_null()).then(|| serde_json::from_value(hints).expect("hints"));
    tool
}

fn read_only() -> Value {
    json!({ "readOnlyHint": true })
}

/// A server with a read-only tool, and one without annotations.
fn look_and_wipe() -> Server {
    Server::new()
        .tool_as(annotated("look", read_only()), Answer::echo())
        .tool_as(annotated("wipe", Value::Null), Answer::echo())
}

async fn ask<S>(service: &S, request: Request) -> Reply
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: std::fmt::Debug,
{
    service.clone().oneshot(request).await.expect("an answer")
}

async fn is_refused<S>(service: &S, tool: &str) -> bool
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: std::fmt::Debug,
{
    let reply = ask(service, call(tool, json!({}))).await;
    let unknown = Refusal::Unknown { kind: ItemKind::Tool, name: tool.to_owned().into() };
    assert!(reply.refusal().is_none_or(|refusal| *refusal == unknown), "{reply:?}");
    reply.refusal().is_some()
}

async fn listed<S>(service: &S) -> Vec<String>
where
    S: Service<Request, Response = Reply> + Clone,
    S::Error: std::fmt::Debug,
{
    let reply = ask(service, Request::list_tools()).await;
    reply.tools().expect("tools").tools.iter().map(|tool| tool.name.to_string()).collect()
}

/// Returns a skill with these files beside its `SKILL.md`.
fn skill(uri: &str, others: &[&str]) -> Value {
    let file = |uri: &str| json!({ "uri": uri, "digest": format!("sha256:{:064}", 0), "size": 1 });
    let files: Vec<_> = [uri].iter().chain(others).map(|uri| file(uri)).collect();
    json!({
        "uri": uri,
        "frontmatter": { "name": "a", "description": "A skill" },
        "resources": files,
    })
}

/// Returns the result as JSON.
fn result(reply: &Reply) -> Value {
    serde_json::to_value(reply.result().expect("a result")).expect("JSON")
}

// === impl Library ===

impl Library {
    fn methods(&self) -> Vec<String> {
        self.methods.lock().unwrap().clone()
    }

    fn answer(&self, request: &Request) -> Reply {
        self.methods.lock().unwrap().push(request.method().to_owned());
        let result = match request.method() {
            "tools/list" => json!({
                "tools": [
                    { "name": "search", "inputSchema": {} },
                    { "name": "secret_search", "inputSchema": {} },
                ],
                "nextCursor": "more",
                "ttlMs": 7,
                "_meta": { "a": 1 },
            }),
            "prompts/list" => json!({
                "prompts": [{ "name": "haiku" }, { "name": "secret" }], "nextCursor": "",
            }),
            "resources/list" | "resources/directory/read" => json!({
                "resources": [
                    { "uri": "file:///etc/passwd", "name": "haiku" },
                    { "uri": "web://a", "name": "secret" },
                ],
                "nextCursor": "more",
            }),
            "resources/templates/list" => json!({
                "resourceTemplates": [
                    { "uriTemplate": "db://{table}", "name": "t" },
                    { "uriTemplate": "db://{table}/rows", "name": "r" },
                    { "uriTemplate": "file://static", "name": "s" },
                ],
            }),
            "skills/list" => json!({
                "skills": [
                    skill("web://a/SKILL.md", &["file:///a/key"]),
                    skill("file:///b/SKILL.md", &[]),
                ],
            }),
            "skills/get" => json!({ "skill": skill("web://a/SKILL.md", &["file:///a/key"]) }),
            "resources/read" => json!({
                "contents": [{ "uri": "file:///other", "text": "left alone" }],
            }),
            "completion/complete" => json!({
                "completion": { "values": ["public", "secret/x", "a b"], "total": 30, "hasMore": true },
            }),
            "tools/call" => json!({
                "content": [{ "type": "resource_link", "uri": "file:///x", "name": "x" }],
            }),
            _ => json!({}),
        };
        serde_json::from_value::<ServerResult>(result).expect("a result").into()
    }

    fn under(
        &self,
        layer: &FilterLayer,
    ) -> impl Service<Request, Response = Reply, Error = Infallible> + Clone + use<> {
        let library = self.clone();
        layer.layer(service_fn(move |request: Request| {
            std::future::ready(Ok::<_, Infallible>(library.answer(&request)))
        }))
    }
}

#[tokio::test(start_paused = true)]
async fn hidden_item_is_rejected_as_unknown_by_every_method() {
    let completion = json!({ "name": "x", "value": "" });
    let complete = |reference: Value| json!({ "ref": reference, "argument": completion });
    let template = |uri: &str| complete(json!({ "type": "ref/resource", "uri": uri }));
    let prompt = |name: &str| complete(json!({ "type": "ref/prompt", "name": name }));
    for (method, hidden, visible, kind, name) in [
        (
            "tools/call",
            json!({ "name": "secret_x" }),
            json!({ "name": "a" }),
            ItemKind::Tool,
            "secret_x",
        ),
        (
            "prompts/get",
            json!({ "name": "secret" }),
            json!({ "name": "a" }),
            ItemKind::Prompt,
            "secret",
        ),
        (
            "resources/read",
            json!({ "uri": "file:///etc/passwd" }),
            json!({ "uri": "web://a" }),
            ItemKind::Resource,
            "file:///etc/passwd",
        ),
        (
            "resources/directory/read",
            json!({ "uri": "file:///etc" }),
            json!({ "uri": "web://a" }),
            ItemKind::Resource,
            "file:///etc",
        ),
        (
            "skills/get",
            json!({ "uri": "file:///b/SKILL.md" }),
            json!({ "uri": "web://a/SKILL.md" }),
            ItemKind::Resource,
            "file:///b/SKILL.md",
        ),
        (
            "resources/subscribe",
            json!({ "uri": "file:///a" }),
            json!({ "uri": "web://a" }),
            ItemKind::Resource,
            "file:///a",
        ),
        ("completion/complete", prompt("secret"), prompt("haiku"), ItemKind::Prompt, "secret"),
        (
            "completion/complete",
            template("db://{table}"),
            template("db://{table}/rows"),
            ItemKind::ResourceTemplate,
            "db://{table}",
        ),
        (
            "completion/complete",
            template("db://{table}"),
            // No server reads a template as a URI: it is the name of another one.
            template("DB://{table}"),
            ItemKind::ResourceTemplate,
            "db://{table}",
        ),
        (
            "completion/complete",
            template("file:///etc/passwd"),
            template("web://a"),
            ItemKind::ResourceTemplate,
            "file:///etc/passwd",
        ),
    ] {
        let library = Library::default();
        let service = library.under(&denying());

        let refused = ask(&service, request(method, hidden)).await;
        let unknown = Refusal::Unknown { kind, name: name.to_owned().into() };
        assert_eq!(refused.refusal(), Some(&unknown), "{method}");
        assert!(library.methods().is_empty(), "{method} reached the server");

        assert!(ask(&service, request(method, visible)).await.error().is_none(), "{method}");
        assert_eq!(library.methods(), [method]);
    }
}

#[tokio::test]
async fn completions_omit_hidden_resources() {
    let complete = |uri: &str| {
        let reference = json!({ "type": "ref/resource", "uri": uri });
        let argument = json!({ "name": "path", "value": "" });
        let context = json!({ "arguments": { "host": "h" } });
        json!({ "ref": reference, "argument": argument, "context": context })
    };
    let values = async |layer: &FilterLayer, uri: &str| {
        let service = Library::default().under(layer);
        let reply = ask(&service, request("completion/complete", complete(uri))).await;
        result(&reply)["completion"].clone()
    };
    let all = json!({ "values": ["public", "secret/x", "a b"], "total": 30, "hasMore": true });
    let none = json!({ "values": [], "hasMore": true });
    let visible = json!({ "values": ["public", "a b"], "hasMore": true });

    let hides = FilterLayer::new().resources(deny(["docs://h/secret*"]));
    assert_eq!(values(&hides, "docs://{host}/{+path}").await, visible);
    assert_eq!(values(&hides, "docs://h/{path}{?rest}").await, visible);
    let others = json!({ "values": ["public", "secret/x", "a b"], "hasMore": true });
    assert_eq!(values(&hides, "other://{host}/{path}").await, others);
    let shows = FilterLayer::new().resources(allow(["docs://h/public"]));
    let public = json!({ "values": ["public"], "hasMore": true });
    assert_eq!(values(&shows, "docs://h/{path}").await, public);
    // The host may differ from the client's.
    assert_eq!(values(&shows, "docs://{host}/{path}").await, none);
    let shows = FilterLayer::new().resources(allow(["docs://*/public"]));
    assert_eq!(values(&shows, "docs://{host}/{path}").await, public);
    let tools = FilterLayer::new().tools(deny(["secret"]));
    assert_eq!(values(&tools, "docs://h/{path}").await, all);
}

#[tokio::test]
async fn completion_ignores_client_values_of_other_arguments() {
    let contexts = [
        json!({}),
        json!({ "context": {} }),
        json!({ "context": { "arguments": { "host": "other", "dir": "other" } } }),
    ];
    let open = json!(["public", "secret/x", "a b"]);
    for (hidden, template, expected) in [
        ("docs://h/secret*", "docs://{host}/{path}", json!(["public", "a b"])),
        ("docs://h/secret*", "docs://{host}/{+path}", json!(["public", "a b"])),
        ("docs://h/secret*", "docs://{host}:{port}/{path}{?page}", json!(["public", "a b"])),
        ("docs://h/secret/x", "docs://h/{+dir}{path}", json!(["public", "a b"])),
        ("docs://h/a b", "docs://{host}/{path}", json!(["public", "secret/x"])),
        ("docs://h/a%20b", "docs://{host}/{path}", json!(["public", "secret/x"])),
        ("re:docs://h/(public|secret).*", "docs://{host}/{path}", json!(["a b"])),
        ("re:(?m)docs://h/p.*$", "docs://{host}/{path}", json!(["secret/x", "a b"])),
        ("docs://h/*.key", "docs://{host}/{path}", open.clone()),
        ("docs://h/*.key", "docs://{host}/{path}{.format}", json!([])),
        ("docs://h/public/*", "docs://{host}{/dir,path}", json!([])),
        ("docs://h/secret*", "docs://h/{path,dir}", json!(["public", "a b"])),
        ("docs://h/sec", "docs://{host}/{path:3}", json!(["public", "a b"])),
        ("file:///etc/*", "file:///{dir}/{path}", json!([])),
        ("https://h/public", "https://{host}:{port}/{path}", json!(["secret/x", "a b"])),
        // The scheme is unknown.
        ("docs://h/secret*", "{scheme}://h/{path}", json!([])),
        ("docs://h/secret*", "other://{host}/{path}", open),
    ] {
        let layer = FilterLayer::new().resources(deny([hidden]));
        for context in &contexts {
            let mut params = json!({
                "ref": { "type": "ref/resource", "uri": template },
                "argument": { "name": "path", "value": "" },
            });
            params.as_object_mut().unwrap().extend(object(context.clone()));
            let service = Library::default().under(&layer);
            let reply = ask(&service, request("completion/complete", params)).await;
            let values = &result(&reply)["completion"]["values"];
            assert_eq!(*values, expected, "{hidden} {template} {context}");
        }
    }
}

#[tokio::test]
async fn unparsable_uri_is_forwarded_if_resources_are_unfiltered() {
    let service = Library::default().under(&FilterLayer::new().tools(deny(["secret"])));
    let read = request("resources/read", json!({ "uri": "web://a\tb" }));
    assert!(ask(&service, read).await.refusal().is_none());
}

#[tokio::test]
async fn unsubscribe_is_always_allowed() {
    let library = Library::default();
    let service = library.under(&denying());
    let unsubscribe = request("resources/unsubscribe", json!({ "uri": "file:///a" }));
    assert!(ask(&service, unsubscribe).await.error().is_none());
    assert_eq!(library.methods(), ["resources/unsubscribe"]);
}

#[tokio::test]
async fn lists_omit_hidden_items_and_keep_the_rest() {
    for (method, params, expected) in [
        (
            "tools/list",
            json!({}),
            json!({
                "tools": [{ "name": "search", "inputSchema": {} }],
                "nextCursor": "more",
                "ttlMs": 7,
                "_meta": { "a": 1 },
            }),
        ),
        ("prompts/list", json!({}), json!({ "prompts": [{ "name": "haiku" }], "nextCursor": "" })),
        (
            "resources/list",
            json!({}),
            json!({ "resources": [{ "uri": "web://a", "name": "secret" }], "nextCursor": "more" }),
        ),
        (
            "resources/directory/read",
            json!({ "uri": "web://d" }),
            json!({ "resources": [{ "uri": "web://a", "name": "secret" }], "nextCursor": "more" }),
        ),
        (
            "resources/templates/list",
            json!({}),
            json!({ "resourceTemplates": [{ "uriTemplate": "db://{table}/rows", "name": "r" }] }),
        ),
        ("skills/list", json!({}), json!({ "skills": [skill("web://a/SKILL.md", &[])] })),
        (
            "skills/get",
            json!({ "uri": "web://a/SKILL.md" }),
            json!({ "skill": skill("web://a/SKILL.md", &[]) }),
        ),
    ] {
        let service = Library::default().under(&denying());
        let mut found = result(&ask(&service, request(method, params)).await);
        found.as_object_mut().unwrap().retain(|key, _| expected.get(key).is_some());
        assert_eq!(found, expected, "{method}");
    }
}

#[tokio::test]
async fn tool_patterns_do_not_filter_prompts() {
    let service = Library::default().under(&FilterLayer::new().tools(allow(["nothing"])));
    assert!(listed(&service).await.is_empty());
    let prompts = result(&ask(&service, request("prompts/list", json!({}))).await);
    assert_eq!(prompts["prompts"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn resource_contents_and_links_are_not_filtered() {
    let service = Library::default().under(&denying());
    let read = result(&ask(&service, request("resources/read", json!({ "uri": "web://a" }))).await);
    assert_eq!(read["contents"][0]["text"], "left alone");
    let called = result(&ask(&service, request("tools/call", json!({ "name": "a" }))).await);
    assert_eq!(called["content"][0]["uri"], "file:///x");
}

#[tokio::test]
async fn other_methods_are_forwarded() {
    for (method, params) in [
        ("ping", json!({})),
        ("logging/setLevel", json!({ "level": "info" })),
        ("tasks/get", json!({ "taskId": "secret" })),
        ("tasks/cancel", json!({ "taskId": "secret" })),
        ("skills/list", json!({})),
        ("skills/get", json!({ "uri": "secret" })),
        ("custom/secret", json!({ "name": "secret" })),
    ] {
        let library = Library::default();
        let service = library.under(&denying().read_only_only(true));
        ask(&service, request(method, params)).await;
        assert_eq!(library.methods(), [method]);
    }
}

#[tokio::test]
async fn malformed_list_is_rejected_by_an_active_filter() {
    let odd = |_: Request| async {
        let odd = json!({ "tools": [{ "name": "secret" }, { "name": 1 }] });
        Ok::<Reply, Infallible>(ServerResult::CustomResult(CustomResult::new(odd)).into())
    };
    for filter in [denying(), FilterLayer::new().hide_destructive(true)] {
        let reply = ask(&filter.layer(service_fn(odd)), Request::list_tools()).await;
        let error = reply.error().expect("an error").into_owned();
        assert_eq!(
            (error.code.0, &*error.message),
            (-32603, "the server returned something other than a list of tools")
        );
    }
    let free = ask(&FilterLayer::new().layer(service_fn(odd)), Request::list_tools()).await;
    assert!(free.error().is_none());
}

#[tokio::test]
async fn malformed_list_is_forwarded_if_nothing_is_hidden() {
    let odd = |_: Request| async {
        let odd = CustomResult::new(json!({ "odd": 1 }));
        Ok::<Reply, Infallible>(ServerResult::CustomResult(odd).into())
    };
    let filter = FilterLayer::new()
        .tools(deny(["secret"]))
        .hide_destructive(true)
        .resources(deny(["secret"]));
    let reply = ask(&filter.layer(service_fn(odd)), request("prompts/list", json!({}))).await;
    assert_eq!(result(&reply), json!({ "odd": 1 }));
}

#[tokio::test]
async fn list_error_of_the_server_is_forwarded() {
    let refuses = |_: Request| async {
        Ok::<Reply, Infallible>(ErrorData::internal_error("not today", None).into())
    };
    let reply = ask(&denying().layer(service_fn(refuses)), Request::list_tools()).await;
    assert_eq!(reply.error().expect("an error").message, "not today");
}

#[tokio::test]
async fn percent_encoded_tool_name_is_a_different_name() {
    let filter = FilterLayer::new().tools(deny(["ab"]));
    assert!(!is_refused(&Library::default().under(&filter), "a%62").await);
}

#[tokio::test]
async fn resource_patterns_do_not_hide_templates() {
    let filter = FilterLayer::new().resources(deny(["db://*", "file:///secret"]));
    let service = Library::default().under(&filter);
    let list = result(&ask(&service, request("resources/templates/list", json!({}))).await);
    assert_eq!(list["resourceTemplates"][0]["uriTemplate"], "db://{table}");
    // However a brace got into its URI.
    let read = request("resources/read", json!({ "uri": "file:///{a}/../secret" }));
    assert!(ask(&service, read).await.refusal().is_some());
}

#[tokio::test(start_paused = true)]
async fn tool_hidden_by_annotations_is_neither_listed_nor_called() {
    for (hints, is_read_only, is_harmless) in [
        (Value::Null, false, false),
        (json!({}), false, false),
        (json!({ "title": "x", "idempotentHint": true }), false, false),
        (json!({ "readOnlyHint": false }), false, false),
        (json!({ "destructiveHint": true }), false, false),
        (json!({ "destructiveHint": false }), false, true),
        (json!({ "readOnlyHint": false, "destructiveHint": false }), false, true),
        (json!({ "readOnlyHint": true }), true, true),
        (json!({ "readOnlyHint": true, "destructiveHint": true }), true, true),
    ] {
        for (layer, is_let_through) in [
            (FilterLayer::new().read_only_only(true), is_read_only),
            (FilterLayer::new().hide_destructive(true), is_harmless),
            (FilterLayer::new().read_only_only(true).hide_destructive(true), is_read_only),
            (FilterLayer::new().read_only_only(true).tools(deny(["t"])), false),
            (FilterLayer::new().read_only_only(false).hide_destructive(false), true),
        ] {
            let server = Server::new().tool_as(annotated("t", hints.clone()), Answer::echo());
            let service = layer.layer(server.clone());
            let context = format!("{hints} {layer:?}");
            assert_eq!(is_refused(&service, "t").await, !is_let_through, "{context}");
            assert_eq!(listed(&service).await.len(), usize::from(is_let_through), "{context}");
            assert_eq!(server.called().len(), usize::from(is_let_through), "{context}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn composite_cannot_call_hidden_tools() {
    let server = look_and_wipe();
    let composite = CompositeTool::fan_out("both", "Both", ["look", "wipe"]);
    let wiping = CompositeTool::fan_out("wiping", "One", ["wipe"]);
    let filtered = FilterLayer::new().hide_destructive(true).layer(server.clone());
    let service = CompositeLayer::new([composite, wiping]).unwrap().layer(filtered);
    for name in ["both", "wiping"] {
        assert!(ask(&service, call(name, json!({}))).await.error().is_some(), "{name}");
    }
    assert_eq!(listed(&service).await, ["look"]);
    assert!(server.called().is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_filter_of_a_stack_applies() {
    let server = Server::new().says("fs/x", "1").says("fs/sub/x", "2").says("fs/y", "3");
    let inner = FilterLayer::new().tools(deny(["*/sub/*"])).layer(server);
    let service = FilterLayer::new().tools(deny(["fs/y"])).layer(inner);
    assert_eq!(listed(&service).await, ["fs/x"]);
    for (name, expected) in [("fs/x", false), ("fs/sub/x", true), ("fs/y", true)] {
        assert_eq!(is_refused(&service, name).await, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn name_denied_by_a_pattern_needs_no_request() {
    let server = look_and_wipe();
    let service =
        FilterLayer::new().tools(deny(["wipe"])).read_only_only(true).layer(server.clone());
    assert!(is_refused(&service, "wipe").await);
    assert_eq!(server.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn pattern_filter_sends_no_list_request() {
    let server = look_and_wipe();
    let service = FilterLayer::new().tools(deny(["x"])).layer(server.clone());
    assert!(!is_refused(&service, "wipe").await);
    assert_eq!(server.lists(), 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_tool_is_looked_up_at_most_once_a_second() {
    let server = look_and_wipe();
    let service = FilterLayer::new().read_only_only(true).layer(server.clone());
    assert!(is_refused(&service, "new").await);
    server.add(annotated("new", read_only()), Answer::echo());
    assert!(is_refused(&service, "new").await, "it is looked for at most once a second");
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!is_refused(&service, "new").await);
    assert_eq!(server.called(), ["new"]);
}

#[tokio::test(start_paused = true)]
async fn calls_are_rejected_while_listing_fails() {
    let server = look_and_wipe();
    server.break_list("connection refused");
    let service = FilterLayer::new().read_only_only(true).layer(server.clone());
    assert!(is_refused(&service, "look").await);
    assert!(is_refused(&service, "look").await);
    assert!(server.called().is_empty());
    server.mend_list();
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!is_refused(&service, "look").await);
}

#[tokio::test(start_paused = true)]
async fn changed_annotations_apply_to_the_next_call() {
    let server = look_and_wipe();
    let epoch = Epoch::default();
    let layer = FilterLayer::new().read_only_only(true).epoch(epoch.clone());
    let service = layer.layer(server.clone());
    assert!(!is_refused(&service, "look").await);

    server.add(annotated("look", Value::Null), Answer::echo());
    server.add(annotated("wipe", read_only()), Answer::echo());
    epoch.bump();

    assert!(is_refused(&service, "look").await, "the very next call");
    assert!(!is_refused(&service, "wipe").await);
    assert_eq!(server.lists(), 2);
}

#[tokio::test(start_paused = true)]
async fn duplicate_tool_is_callable_only_if_all_are_permitted() {
    let twice = |hints: [Value; 2]| {
        let called = Arc::new(Mutex::new(0));
        let counted = called.clone();
        let server = service_fn(move |request: Request| {
            let tools = hints.clone().map(|hints| annotated("look", hints));
            let second = request.message().method() == "tools/list" && !request.lists_first_tools();
            if request.tool_call().is_some() {
                *counted.lock().unwrap() += 1;
                return std::future::ready(Ok::<Reply, BoxError>(
                    CallToolResult::success(vec![]).into(),
                ));
            }
            let mut page =
                ListToolsResult::with_all_items(vec![tools[usize::from(second)].clone()]);
            page.next_cursor = (!second).then(|| "second".to_owned());
            std::future::ready(Ok(page.into()))
        });
        (FilterLayer::new().read_only_only(true).layer(server), called)
    };
    let titled = json!({ "readOnlyHint": true, "title": "Look" });
    for (hints, expected) in [
        ([read_only(), Value::Null], true),
        ([Value::Null, read_only()], true),
        ([read_only(), titled], false),
    ] {
        let (service, called) = twice(hints.clone());
        assert_eq!(is_refused(&service, "look").await, expected, "{hints:?}");
        assert_eq!(*called.lock().unwrap(), i32::from(!expected), "{hints:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_with_different_tools_have_separate_catalogs() {
    let server = |request: Request| async move {
        let is_admin = request.context().extensions().get::<&str>() == Some(&"admin");
        if request.tool_call().is_some() {
            return Ok::<Reply, BoxError>(CallToolResult::success(vec![]).into());
        }
        let hints = if is_admin { read_only() } else { Value::Null };
        Ok(ListToolsResult::with_all_items(vec![annotated("t", hints)]).into())
    };
    let service = FilterLayer::new()
        .read_only_only(true)
        .vary_by(|context| context.extensions().get::<&str>().map(|role| (*role).to_owned()))
        .layer(service_fn(server));
    for (role, expected) in [("admin", false), ("guest", true), ("admin", false)] {
        let mut request = call("t", json!({}));
        request.context_mut().extensions_mut().insert(role);
        assert_eq!(ask(&service, request).await.refusal().is_some(), expected, "{role}");
    }
}

#[tokio::test(start_paused = true)]
async fn tools_are_listed_once_for_all_calls() {
    let server = look_and_wipe();
    let service = FilterLayer::new().read_only_only(true).layer(server.clone());
    let calls = (0..50).map(|_| is_refused(&service, "look"));
    assert!(futures::future::join_all(calls).await.iter().all(|refused| !refused));
    assert_eq!(server.lists(), 1);
}

#[tokio::test(start_paused = true)]
async fn filter_releases_its_permit_before_it_lists() {
    let layer = FilterLayer::new().read_only_only(true);
    for name in ["look", "wipe"] {
        let soon = |work| tokio::time::timeout(Duration::from_secs(1), work);
        let limited = layer.layer(ConcurrencyLimit::new(look_and_wipe(), 1));
        let refused = soon(is_refused(&limited, name)).await.expect("it waits for itself");
        assert_eq!(refused, name == "wipe");
    }
    let buffered = layer.layer(Buffer::new(look_and_wipe(), 1));
    assert!(!is_refused(&buffered, "look").await);
}

#[tokio::test]
async fn filter_is_ready_when_its_inner_service_is_ready() {
    for layer in [FilterLayer::new(), denying()] {
        let (mut service, mut handle) = mock::spawn_layer::<Request, Reply, _>(layer);
        handle.allow(0);
        assert_pending!(service.poll_ready());
        handle.allow(1);
        assert!(service.is_woken());
        assert_ready_ok!(service.poll_ready());
        let mut reply = task::spawn(service.call(Request::call_tool("a")));
        assert_pending!(reply.poll());
        let (_, send) = handle.next_request().await.expect("a request");
        send.send_response(CallToolResult::success(vec![]).into());
        assert_ready_ok!(reply.poll());
        assert_pending!(service.poll_ready());
    }
}

/// Returns the allocations of a request through a filter, including its reply.
fn allocations(layer: &FilterLayer, request: Request, reply: Reply) -> u64 {
    let reply = Arc::new(Mutex::new(Some(reply)));
    let mut service = layer.layer(service_fn(move |_: Request| {
        let reply = reply.lock().unwrap().take().expect("one request");
        std::future::ready(Ok::<_, Infallible>(reply))
    }));
    let mut cx = std::task::Context::from_waker(Waker::noop());
    let counted = allocation_counter::measure(|| {
        assert!(service.poll_ready(&mut cx).is_ready());
        assert!(pin!(service.call(request)).poll(&mut cx).is_ready());
    });
    counted.count_total
}

#[test]
fn filter_that_hides_nothing_allocates_nothing() {
    let page = || {
        let mut page = ListToolsResult::with_all_items(vec![annotated("t", Value::Null)]);
        page.next_cursor = Some("more".to_owned());
        page
    };
    let second = || Request::list_tools_from(Some("second".to_owned()));
    for layer in [FilterLayer::new(), FilterLayer::new().of("mine").tools(deny([]))] {
        let called = CallToolResult::success(vec![]);
        assert_eq!(allocations(&layer, Request::call_tool("t"), called.into()), 0);
        assert_eq!(allocations(&layer, second(), page().into()), 0);
    }
    let exact = FilterLayer::new().tools(deny(["x"]));
    let called = CallToolResult::success(vec![]);
    assert_eq!(allocations(&exact, Request::call_tool("t"), called.into()), 0);
    assert_eq!(allocations(&exact, second(), page().into()), 0);
    assert!(allocations(&exact, Request::list_tools(), page().into()) > 0, "it looks for `x`");
}

#[test]
fn filters_need_no_runtime() {
    let server = |request: Request| async move {
        Ok::<Reply, Infallible>(match request.lists_tools() {
            true => ListToolsResult::with_all_items(vec![annotated("a", read_only())]).into(),
            false => CallToolResult::success(vec![]).into(),
        })
    };
    for layer in [denying(), FilterLayer::new().read_only_only(true)] {
        let service = layer.layer(service_fn(server));
        futures::executor::block_on(async {
            assert_eq!(listed(&service).await, ["a"]);
            assert!(!is_refused(&service, "a").await);
            assert!(is_refused(&service, "secret_b").await);
        });
    }
}

#[tokio::test(start_paused = true)]
async fn filters_work_above_a_server_of_rmcp() {
    use rmcp::{
        ServerHandler, handler::server::router::tool::ToolRouter, tool, tool_handler, tool_router,
    };

    #[derive(Clone)]
    struct Shop(ToolRouter<Self>);

    #[tool_router]
    impl Shop {
        #[tool(description = "The price", annotations(read_only_hint = true))]
        fn price(&self) -> String {
            "5 €".into()
        }

        #[tool(description = "Sells everything")]
        fn sell(&self) -> String {
            "gone".into()
        }
    }

    #[tool_handler(router = self.0)]
    impl ServerHandler for Shop {}

    let shop = HandlerService::new(Shop(Shop::tool_router()));
    let service = FilterLayer::new().hide_destructive(true).layer(shop);
    assert!(is_refused(&service, "sell").await);
    assert!(!is_refused(&service, "price").await);
    assert_eq!(listed(&service).await, ["price"]);

    let full = Full::default();
    let resources = FilterLayer::new().resources(deny(["full://s*"]));
    let service = resources.layer(HandlerService::new(full.clone()));
    for (uri, expected) in [("full://secret", true), ("full://a", false)] {
        let reply = ask(&service, request("resources/read", json!({ "uri": uri }))).await;
        assert_eq!(reply.refusal().is_some(), expected, "{uri}");
        assert!(!full.log.has("resources/read") || !expected);
    }
}

#[tokio::test(start_paused = true)]
async fn unmatched_pattern_is_reported_once() {
    let (log, _guard) = capture_logs();
    let server =
        ["search_code", "get_issue", "list"].iter().fold(Server::new(), |s, t| s.says(t, "x"));
    let tools = Selection::default()
        .allow(["search_code", "get_isue", "*"])
        .and_then(|tools| tools.deny(["serch_*", "re:serch_.*", "zzz"]))
        .unwrap();
    let layer = FilterLayer::new().tools(tools).of("backend `github`");
    let service = layer.layer(server.page_size(2));
    for (cursor, count) in [(None, 0), (Some("2"), 4), (None, 4), (Some("2"), 4)] {
        ask(&service, Request::list_tools_from(cursor.map(str::to_owned))).await;
        assert_eq!(layer.warnings().len(), count, "{:?}", layer.warnings());
    }
    let expected = [
        "`get_isue` in `expose_tools` of backend `github` matches no tool: did you mean `get_issue`?",
        "`serch_*` in `hide_tools` of backend `github` matches no tool: did you mean `search_code`?",
        "`re:serch_.*` in `hide_tools` of backend `github` matches no tool",
        "`zzz` in `hide_tools` of backend `github` matches no tool",
    ];
    assert_eq!(layer.warnings(), expected);
    for warning in expected {
        assert_eq!(log.text().matches(warning).count(), 1, "{warning}");
    }
}

#[tokio::test]
async fn warnings_name_the_setting_of_each_item_kind() {
    let layer = FilterLayer::new()
        .tools(deny(["x1"]))
        .prompts(allow(["x2"]))
        .resources(deny(["x3"]))
        .resource_templates(deny(["x4"]));
    let server = Full::default();
    let service = layer.layer(HandlerService::new(server));
    for method in ["prompts/list", "resources/list", "resources/templates/list"] {
        ask(&service, request(method, json!({}))).await;
    }
    assert_eq!(
        layer.warnings(),
        [
            "`x2` in `expose_prompts` matches no prompt",
            "`x3` in `hide_resources` matches no resource",
            "`x4` in `hide_resource_templates` matches no resource template",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn only_complete_nonempty_lists_report_unmatched_patterns() {
    let layer = FilterLayer::new().tools(deny(["x"]));
    let empty = layer.layer(Server::new());
    ask(&empty, Request::list_tools()).await;
    let server = ["a", "b", "c"].iter().fold(Server::new(), |s, t| s.says(t, "1")).page_size(1);
    let service = layer.layer(server);
    for cursor in [Some("2"), Some("1"), Some("2"), None, Some("2")] {
        ask(&service, Request::list_tools_from(cursor.map(str::to_owned))).await;
    }
    assert!(layer.warnings().is_empty(), "{:?}", layer.warnings());
    ask(&service, Request::list_tools_from(Some("1".to_owned()))).await;
    ask(&service, Request::list_tools_from(Some("2".to_owned()))).await;
    assert_eq!(layer.warnings(), ["`x` in `hide_tools` matches no tool"]);
}

#[tokio::test(start_paused = true)]
async fn pattern_that_matched_once_is_not_reported() {
    let server = Server::new().says("a", "1").says("b", "2");
    let layer = FilterLayer::new().tools(deny(["a", "b*", "c"]));
    let service = layer.layer(server.clone().page_size(1));
    ask(&service, Request::list_tools()).await;
    server.remove("a");
    server.add(annotated("c", Value::Null), Answer::echo());
    for cursor in [None, Some("1".to_owned())] {
        ask(&service, Request::list_tools_from(cursor)).await;
    }
    assert!(layer.warnings().is_empty(), "{:?}", layer.warnings());
}

#[tokio::test(start_paused = true)]
async fn list_requested_for_a_call_also_reports_unmatched_patterns() {
    let layer = FilterLayer::new().tools(deny(["lok"])).read_only_only(true);
    let service = layer.layer(look_and_wipe());
    assert!(!is_refused(&service, "look").await);
    assert_eq!(layer.warnings(), ["`lok` in `hide_tools` matches no tool: did you mean `look`?"]);
}

#[tokio::test(start_paused = true)]
async fn filters_are_clone_send_and_sync() {
    fn check<T: Clone + Send + Sync + std::fmt::Debug + 'static>(_: &T) {}
    check(&denying());
    check(&denying().layer(HandlerService::new(Full::default())));
}
