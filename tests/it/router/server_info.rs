//! The description of a router, merged from those of its backends.

use std::sync::{Arc, Mutex};

use mcp_composite::adapter::router::Router;
use rmcp::model::{ServerCapabilities, ServerConfig};
use serde_json::json;

use super::{Server, error_of, names, router};

fn described(capabilities: ServerCapabilities, instructions: &str) -> ServerConfig {
    ServerConfig::new(capabilities).with_instructions(instructions)
}

#[test]
fn description_combines_those_of_all_backends() {
    let server = Server::default();
    let tools = ServerCapabilities::builder().enable_tools().enable_tasks().build();
    let others = ServerCapabilities::builder()
        .enable_prompts()
        .enable_resources()
        .enable_resources_subscribe()
        .enable_completions()
        .build();
    let long = format!("{}é", "x".repeat(8 * 1024 - 7)).repeat(2);
    let verbose = described(others, &long);
    let only_tools = described(tools, " Search first.\n");
    let silent = described(ServerCapabilities::default(), " ");
    let router = router([
        server.backend("a").description(move || Some(only_tools.clone())),
        server.backend("b").description(move || Some(silent.clone())),
        server.backend("c").description(move || Some(verbose.clone())),
    ]);

    let base = described(ServerCapabilities::default(), "All in one.");
    let all = router.describe(base);

    assert_eq!(
        serde_json::to_value(&all.capabilities).unwrap(),
        json!({
            "tools": { "listChanged": true },
            "prompts": { "listChanged": true },
            "resources": { "listChanged": true, "subscribe": true },
            "completions": {},
        })
    );
    let instructions = all.instructions.unwrap();
    let beginning = "All in one.\n\n## a\n\nSearch first.\n\n## c\n\nxxx";
    assert!(instructions.starts_with(beginning), "{}", &instructions[..60]);
    assert!(instructions.ends_with("x […]"), "cut where a letter begins");
    assert!(instructions.len() < 8 * 1024 + 60);
}

#[test]
fn router_declares_all_capabilities_of_an_unknown_backend() {
    let late = Arc::new(Mutex::new(None));
    let tools = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    let (known, later) = (tools.clone(), late.clone());
    let router = router([
        Server::default().backend("a").description(move || Some(known.clone())),
        Server::default().backend("b").description(move || later.lock().unwrap().clone()),
    ]);
    let capabilities = || {
        let base = ServerConfig::new(ServerCapabilities::default());
        let all = router.describe(base);
        assert_eq!(all.instructions, None);
        serde_json::to_value(&all.capabilities).unwrap()
    };

    let changing = json!({ "listChanged": true });
    assert_eq!(
        capabilities(),
        json!({
            "tools": changing,
            "prompts": changing,
            "resources": { "listChanged": true, "subscribe": true },
            "completions": {},
        })
    );
    *late.lock().unwrap() = Some(tools);
    assert_eq!(capabilities(), json!({ "tools": changing }));
}

#[tokio::test(start_paused = true)]
async fn backend_is_only_asked_for_its_declared_capabilities() {
    let server = Server::tools(&["x"]).set(|has| has.prompts = vec!["p".into()]);
    let tools = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    let info = Arc::new(Mutex::new(None));
    let says = info.clone();
    let router = router([server.backend("a").description(move || says.lock().unwrap().clone())]);

    assert_eq!(names(&router, "prompts/list").await, ["a_p"]);
    *info.lock().unwrap() = Some(tools);
    assert_eq!(names(&router, "prompts/list").await, [""; 0]);
    assert_eq!(names(&router, "resources/templates/list").await, [""; 0]);
    assert_eq!(names(&router, "tools/list").await, ["a_x"]);
    assert_eq!(server.take_requests(), ["prompts/list -", "tools/list -"]);
    let unknown = error_of(&router, "prompts/get", json!({ "name": "a_q" })).await;
    assert_eq!(unknown, Some((-32602, "unknown prompt `a_q`".into())));
}

/// A request for a log level names no backend.
#[expect(deprecated, reason = "servers before 2026-07-28 log")]
#[tokio::test(start_paused = true)]
async fn log_level_is_set_at_the_only_backend_that_logs() {
    let logging =
        || ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_logging().build());
    let silent = || ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    let declared = |router: &Router| {
        let described = router.describe(ServerConfig::new(ServerCapabilities::default()));
        described.capabilities.logging.is_some()
    };
    let set = async |router: &Router| {
        let error = error_of(router, "logging/setLevel", json!({ "level": "info" })).await;
        error.map(|(code, _)| code)
    };

    let (owner, other) = (Server::default(), Server::default());
    let one = router([
        other.backend("a").description(move || Some(silent())),
        owner.backend("b").description(move || Some(logging())),
    ]);
    assert!(declared(&one));
    assert_eq!(set(&one).await, Some(-32603), "not scripted");
    assert_eq!(owner.take_requests(), ["logging/setLevel -"]);
    assert_eq!(other.take_requests(), [""; 0]);

    let two = router([
        other.backend("a").description(move || Some(logging())),
        owner.backend("b").description(move || Some(logging())),
    ]);
    assert!(!declared(&two));
    assert_eq!(set(&two).await, Some(-32601));
    let unknown = router([other.backend("a")]);
    assert!(!declared(&unknown));
    assert_eq!(set(&unknown).await, Some(-32603), "of a single backend");
}

/// A request for skills names no backend.
#[tokio::test(start_paused = true)]
async fn skill_requests_reach_the_only_backend_with_skills() {
    let skills = || {
        let capabilities = ServerCapabilities::builder().enable_skills_with_directory_read();
        ServerConfig::new(capabilities.build())
    };
    let none = || ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
    let declared = |router: &Router| {
        let described = router.describe(ServerConfig::new(ServerCapabilities::default()));
        described.capabilities.extensions.is_some()
    };
    let requests = [
        ("skills/list", json!({})),
        ("skills/get", json!({ "uri": "skill://a/SKILL.md" })),
        ("resources/directory/read", json!({ "uri": "skill://a" })),
    ];

    let (owner, other) = (Server::default(), Server::default());
    let one = router([
        other.backend("a").description(move || Some(none())),
        owner.backend("b").description(move || Some(skills())),
    ]);
    assert!(declared(&one));
    for (method, params) in &requests {
        let error = error_of(&one, method, params.clone()).await;
        assert_eq!(error, Some((-32603, "not scripted".into())), "{method} reaches its owner");
    }
    assert_eq!(owner.take_requests().len(), requests.len());
    assert_eq!(other.take_requests(), [""; 0]);

    let two = router([
        other.backend("a").description(move || Some(skills())),
        owner.backend("b").description(move || Some(skills())),
    ]);
    let unknown = router([other.backend("a")]);
    assert!(!declared(&two));
    for (method, params) in &requests {
        let error = error_of(&two, method, params.clone()).await;
        assert_eq!(error.map(|(code, _)| code), Some(-32601), "{method}");
        let error = error_of(&unknown, method, params.clone()).await;
        assert_eq!(error.map(|(code, _)| code), Some(-32603), "{method} of a single backend");
    }
}
