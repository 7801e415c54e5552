//! Hidden items cannot be reached; `bypass.rs` tries more requests, with all rules.

use std::{
    convert::Infallible,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use mcp_composite::{
    advertise::AdvertiseLayer,
    alias::{AliasLayer, PromptAlias, ResourceAlias, ToolAlias},
    composite::{Composite, CompositeLayer, CompositeTool, Elicitation, Step},
    filter::{Filter, FilterLayer},
    functions::{FunctionsLayer, ToolSet, tool_fn},
    message::{Context, Reply, Request, Subject},
    pattern::Selection,
    reload::{Reload, Reloader},
    store::SignedStore,
    testing::{self, Server},
};
use rmcp::model::{ClientRequest, CustomResult, ErrorData, ServerResult};
use serde_json::{Value, json};
use tower::{Layer, ServiceExt, service_fn};

use crate::{
    scripted::{call, can_be_asked},
    support::tool,
};

type Stack = Composite<Filter<Server>>;

/// Returns names that look like another, or that a careless server would confuse with it.
fn like(name: &str) -> Vec<String> {
    let mut capital = name.to_owned();
    capital[..1].make_ascii_uppercase();
    vec![
        capital,
        name.to_uppercase(),
        format!(" {name}"),
        format!("{name} "),
        format!("{name}\0"),
        format!("{name}\u{200b}"),
        format!("\u{feff}{name}"),
        // Cyrillic, full width, and with a combining mark.
        name.replace('e', "\u{435}"),
        name.replace('w', "\u{ff57}"),
        name.replacen('e', "e\u{301}", 1),
        name.replace('_', "-"),
        name.replace('_', "%5f"),
        format!("./{name}"),
        format!("{name}/../{name}"),
        format!("{name}\n"),
    ]
}

#[tokio::test]
async fn lookalike_tool_names_are_rejected_as_unknown() {
    let allow = |name: &str| Selection::default().allow([name]).unwrap();
    let server = || Server::new().says("wipe_all", "wiped").says("peek", "peeked");
    let alias = || AliasLayer::new().tools([ToolAlias::new("wipe_all").name("clean_we")]).unwrap();
    for name in like("wipe_all").iter().chain(&like("clean_we")) {
        let behind = server();
        let filter = FilterLayer::new().tools(allow("peek")).layer(behind.clone());
        let advertise = AdvertiseLayer::new().tools(allow("peek")).layer(behind.clone());
        let renamed =
            alias().layer(FilterLayer::new().tools(allow("wipe_all")).layer(behind.clone()));
        let errors = [
            testing::refused(&filter, name, json!({})).await,
            testing::refused(&advertise, name, json!({})).await,
            testing::refused(&renamed, name, json!({})).await,
        ];
        // The same error as for missing items, and for hidden ones.
        for error in errors {
            assert_eq!(error.message, format!("unknown tool `{name}`"));
        }
        assert_eq!(behind.called(), [""; 0], "{name:?}");
    }
    let hidden = FilterLayer::new().tools(allow("peek")).layer(server());
    for name in ["wipe_all", "never_was"] {
        let error = testing::refused(&hidden, name, json!({})).await;
        assert_eq!(error.message, format!("unknown tool `{name}`"));
    }
}

#[tokio::test]
async fn resource_rules_apply_to_every_spelling_of_a_uri() {
    let allow = Selection::default().allow(["file:///open/*"]).unwrap();
    let deny = Selection::default().deny(["file:///secret*"]).unwrap();
    for (selection, rule) in [(allow, "allow"), (deny, "deny")] {
        let reads = Arc::new(AtomicUsize::new(0));
        let server = {
            let reads = reads.clone();
            service_fn(move |_: Request| {
                reads.fetch_add(1, Ordering::Relaxed);
                ready(Ok::<Reply, Infallible>(ServerResult::empty(()).into()))
            })
        };
        let service = FilterLayer::new().resources(selection).layer(server);
        let read = async |method: &str, params: Value| {
            let message = json!({ "method": method, "params": params });
            let message: ClientRequest = serde_json::from_value(message).unwrap();
            let reply = service.clone().oneshot(Request::new(message, Context::default())).await;
            reply.unwrap().error().map(|error| error.message.to_string())
        };
        for uri in [
            "file:///secret",
            "file:///open/../secret",
            "file:///open/%2e%2e/secret",
            "file:///open/..%2Fsecret",
            "file:///open/..\\secret",
            "FILE:///%73ecret",
            "file:///./secret",
            "file:///open//../secret",
            "file:///open/?/../../secret",
            "file:///open/.\t./secret",
            "file:///open/.\r\n./secret",
            "file:///sec\tret",
            " file:///secret",
            "\u{1}file:///secret",
            "file:/secret",
            "file:////secret",
            "file://localhost/secret",
            "file:///secre%74#open",
            "file:///secret/",
            "file:///secret/.",
            "file:///secret//",
        ] {
            let subject = json!({ "uri": uri });
            let argument = json!({ "name": "a", "value": "" });
            let completion =
                json!({ "ref": { "type": "ref/resource", "uri": uri }, "argument": argument });
            for (method, params) in [
                ("resources/read", subject.clone()),
                ("resources/subscribe", subject),
                ("completion/complete", completion),
            ] {
                let error = read(method, params).await;
                assert!(error.is_some(), "{rule}: `{method}` of `{uri}` passes");
            }
        }
        assert_eq!(reads.load(Ordering::Relaxed), 0);
        for uri in ["file:///open/a", "file:///open/a/../b", "file:///open/a%20b"] {
            assert_eq!(read("resources/read", json!({ "uri": uri })).await, None, "{rule}: {uri}");
        }
    }
}

#[tokio::test]
async fn denied_resource_is_unreachable_by_equivalent_uris() {
    let denied = [
        "docs://h/%C3%A9",
        "docs://h/a b",
        "https://h/*",
        "docs://127.0.0.1:/x/",
        "https://127.0.0.1:443/y",
        "https://[::1]/z",
    ];
    let filter = FilterLayer::new().resources(Selection::default().deny(denied).unwrap());
    let service = filter.layer(service_fn(|_: Request| {
        ready(Ok::<Reply, Infallible>(ServerResult::empty(()).into()))
    }));
    let passes = async |uri: &str| {
        let message = json!({ "method": "resources/read", "params": { "uri": uri } });
        let message: ClientRequest = serde_json::from_value(message).unwrap();
        let reply = service.clone().oneshot(Request::new(message, Context::default())).await;
        reply.unwrap().error().is_none()
    };
    for uri in [
        "docs://h/%c3%a9",
        "docs://h/é",
        "docs://H/é",
        "docs://h/%C3%A9#1",
        "docs://h/a%20b",
        "docs://h/%61%20b",
        "https://H/x",
        "https:/h/x",
        "https://h:443/x",
        "https://me@h/x",
        "https://h",
        "https://h:/x",
        "https://h:0443/x",
        "https://h./x",
        "https://h.:00443//x/./",
        "docs://h/%C3%A9/",
        "docs://h//%C3%A9",
        "docs://h./%C3%A9/.",
        "docs://h:/a b",
        "docs://127.0.0.1/x",
        "https://2130706433/y",
        "https://[0:0:0:0::1]/z/",
    ] {
        assert!(!passes(uri).await, "{uri}");
    }
    for uri in [
        "docs://h/e",
        "docs://h/%C3%A8",
        "docs://h/a+b",
        "https://h.h/x",
        "db://H/x",
        "https://h:8443/x",
        "docs://h/a b/c",
        "https://127.0.0.2/y",
    ] {
        assert!(passes(uri).await, "{uri}");
    }
}

#[tokio::test]
async fn renamed_resource_is_unreachable_by_original_uri_variants() {
    let aliases = [
        ResourceAlias::new("file:///secret").uri("docs://public"),
        ResourceAlias::new("docs://h/%7Eme").uri("docs://me"),
        ResourceAlias::new("file:///t/{+x}").uri("docs://t/{+x}"),
        ResourceAlias::new("file:///same").name("the same"),
    ];
    let server = |request: Request| {
        let Subject::Item(_, uri) = request.subject() else { panic!("{request:?}") };
        // Returns the requested name in its error.
        ready(Ok::<Reply, Infallible>(ErrorData::internal_error(uri.to_owned(), None).into()))
    };
    let service = AliasLayer::new().resources(aliases).unwrap().layer(service_fn(server));
    let read = async |uri: &str| {
        let message = json!({ "method": "resources/read", "params": { "uri": uri } });
        let message: ClientRequest = serde_json::from_value(message).unwrap();
        let reply = service.clone().oneshot(Request::new(message, Context::default())).await;
        reply.unwrap().error().unwrap().message.to_string()
    };
    for uri in [
        "file:///secret",
        "file:///%73ecret",
        "file:///t/../secret",
        "file:///sec\tret",
        "file://localhost/secret",
        "docs://t/../secret",
        "docs://t/%2e%2e/secret",
        "docs://t/a\tb",
        "docs://h/%7eme",
        "docs://h/~me",
        "file:///%74/a",
        "file:///secret/",
        "file:////secret/.",
        "docs://h:/~me",
        "docs://h.//~me/",
        "file:///a/../t/b",
    ] {
        assert_eq!(read(uri).await, "resource not found", "{uri}");
    }
    for (uri, original) in [
        ("docs://public", "file:///secret"),
        ("docs://me", "docs://h/%7Eme"),
        ("docs://t/a%20b/../c", "file:///t/a%20b/../c"),
        ("docs://public%20", "docs://public%20"),
        ("file:///s%61me", "file:///s%61me"),
        ("file:///a/../secrets", "file:///a/../secrets"),
    ] {
        assert_eq!(read(uri).await, original);
    }
}

/// Returns a stack over a server in which a run asks before it wipes, and that hides these tools.
fn stack(server: &Server, hide: &[&str]) -> Stack {
    let steps = [
        Step::new("look", "peek"),
        Step::new("sure", Elicitation::new("Sure?", json!({}))).depends_on(["look"]),
        Step::new("wipe", "wipe_all").depends_on(["sure"]),
    ];
    let composite = CompositeTool::workflow("clean", "Cleans", steps);
    let key = "a secret of at least 32 bytes, shared by replicas";
    let layer = CompositeLayer::new([composite]).unwrap().state(SignedStore::new(key).unwrap());
    let hidden = Selection::default().deny(hide.iter().copied()).unwrap();
    layer.layer(FilterLayer::new().tools(hidden).layer(server.clone()))
}

#[tokio::test(start_paused = true)]
async fn resumed_run_cannot_reach_newly_hidden_tools() {
    for hidden_meanwhile in [false, true] {
        let server = Server::new().says("wipe_all", "wiped").says("peek", "peeked");
        let (service, reloader): (Reload<Stack>, Reloader<_>) = Reload::new(stack(&server, &[]));
        let mut request = call("clean", json!({}));
        *request.context_mut().meta_mut() = can_be_asked();
        let question =
            service.clone().oneshot(request.clone()).await.unwrap().into_result().unwrap();
        let ServerResult::InputRequiredResult(question) = question else { panic!("{question:?}") };

        let hide: &[&str] = if hidden_meanwhile { &["wipe_*"] } else { &[] };
        reloader.replace(stack(&server, hide));
        let params = request.tool_call_mut().unwrap();
        params.request_state = question.request_state;
        let yes = json!({ "sure": { "action": "accept", "content": {} } });
        params.input_responses = serde_json::from_value(yes).unwrap();
        let reply = service.oneshot(request).await.unwrap();

        let called = server.called();
        if hidden_meanwhile {
            assert_eq!(called, ["peek"]);
            let text = format!("{reply:?}");
            assert!(!text.contains("wiped"), "{text}");
        } else {
            assert_eq!(called, ["peek", "wipe_all"]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn malformed_list_is_not_forwarded_by_hiding_layers() {
    // An invalid tool makes the list unreadable for rmcp.
    let odd = |_: Request| {
        let odd = json!({ "tools": [{ "name": "secret" }, { "name": 1 }] });
        let odd = ServerResult::CustomResult(CustomResult::new(odd));
        ready(Ok::<_, Infallible>(Reply::from(odd)))
    };
    let denied = || Selection::default().deny(["secret"]).unwrap();
    let stands_for = |name| CompositeTool::fan_out(name, "Looks", ["look"]);
    let function = tool_fn(tool("secret"), |_: Value, _| async { "seen".to_owned() });
    let server = service_fn(odd);
    let filtered = FilterLayer::new().tools(denied()).layer(server);
    let advertised = AdvertiseLayer::new().tools(denied()).layer(server);
    let composite = CompositeLayer::new([stands_for("secret")]).unwrap().layer(server);
    let renamed = ToolAlias::new("secret").name("shown");
    let aliased = AliasLayer::new().tools([renamed]).unwrap().layer(server);
    let beside = FunctionsLayer::new(ToolSet::new([function]).unwrap()).layer(server);
    let list = Request::list_tools;
    let replies = [
        filtered.oneshot(list()).await.unwrap(),
        advertised.oneshot(list()).await.unwrap(),
        composite.oneshot(list()).await.unwrap(),
        aliased.oneshot(list()).await.unwrap(),
        beside.oneshot(list()).await.unwrap(),
    ];
    for (position, reply) in replies.iter().enumerate() {
        let error = reply.error().unwrap_or_else(|| panic!("{position}: {reply:?}"));
        let found = (error.code.0, &*error.message);
        assert_eq!(
            found,
            (-32603, "the server returned something other than a list of tools"),
            "{position}"
        );
    }

    // Without hidden tools it is forwarded.
    let nothing = CompositeLayer::new([]).unwrap().layer(AdvertiseLayer::new().layer(server));
    assert!(nothing.oneshot(list()).await.unwrap().error().is_none());
    let prompts = AliasLayer::new().prompts([PromptAlias::new("a").name("b")]).unwrap();
    assert!(prompts.layer(server).oneshot(list()).await.unwrap().error().is_none());
}
