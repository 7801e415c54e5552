//! Cached results that replicas share.

use std::{fs, path::Path, sync::Arc, time::Duration};

use mcp_composite::{
    cache::{Cache, CacheLayer, CacheRule, NO_CACHE, Per},
    message::Request,
    pattern::Selection,
    redis::RedisServer,
};
use rmcp::{
    RoleClient, ServiceExt as _,
    model::{CallToolRequestParams, JsonObject, Tool, ToolAnnotations},
    service::RunningService,
    transport::TokioChildProcess,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    process::Command,
    time::{Instant, sleep},
};
use tower::{Layer, ServiceExt};

use super::{
    replica,
    server::{Gap, Server},
};
use crate::{
    programs::{PROGRAM, example},
    scripted::{Answer, Server as Tools, call},
    support::{soon, until},
};

const HOUR: Duration = Duration::from_secs(60 * 60);

fn reads(description: &'static str) -> Tool {
    let annotations = ToolAnnotations::new().read_only(true);
    Tool::new("look", description, JsonObject::new()).with_annotations(annotations)
}

/// Returns the tools of one replica. The tool `look` returns the name of the replica.
fn tools(name: &str) -> Tools {
    Tools::new().tool_as(reads("Looks"), Answer::text(name))
}

fn rule(server: &RedisServer, ttl: Duration) -> CacheRule {
    CacheRule::new(Selection::default(), ttl).store(Arc::new(server.cache()))
}

/// Returns a replica, whose callers name themselves in the `_meta` of their calls.
fn gateway(rule: CacheRule, tools: &Tools) -> Cache<Tools> {
    let caller = |context: &mcp_composite::message::Context| {
        context.meta().get("caller").and_then(Value::as_str).map(str::to_owned)
    };
    CacheLayer::new().rule(rule).caller(caller).layer(tools.clone())
}

fn look(arguments: Value) -> Request {
    call("look", arguments)
}

fn by(caller: &str) -> Request {
    let mut request = look(json!({}));
    request.context_mut().meta_mut().insert("caller".to_owned(), caller.into());
    request
}

async fn text(gateway: &Cache<Tools>, request: Request) -> String {
    let reply = gateway.clone().oneshot(request).await.unwrap();
    reply.tool_result().unwrap().content[0].as_text().unwrap().text.clone()
}

#[tokio::test]
async fn replicas_share_a_result() {
    let server = Server::start();
    let [one, other] = ["one", "other"].map(tools);
    let [first, second] =
        [&one, &other].map(|tools| gateway(rule(&replica(&server), HOUR).per(Per::All), tools));
    assert_eq!(text(&first, look(json!({ "a": 1, "b": 2 }))).await, "one");
    assert_eq!(text(&second, look(json!({ "b": 2, "a": 1.0 }))).await, "one");
    assert!(other.called().is_empty());
    // The memory of the second replica has the result, too.
    assert!(server.tell("FLUSHALL").contains("OK"));
    assert_eq!(text(&second, look(json!({ "a": 1, "b": 2 }))).await, "one");
    assert_eq!(text(&second, look(json!({ "a": 2 }))).await, "other");
    // Neither arguments nor callers are in the keys.
    let keys = server.keys();
    let [key] = &*keys else { panic!("{keys:?}") };
    let digest = key.strip_prefix("mcp-composite:cache:").unwrap();
    assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{key}");
}

#[tokio::test]
async fn shared_result_expires() {
    let server = Server::start();
    let ttl = Duration::from_secs(2);
    let [one, other] = ["one", "other"].map(tools);
    let [first, second] =
        [&one, &other].map(|tools| gateway(rule(&replica(&server), ttl).per(Per::All), tools));
    let begun = Instant::now();
    text(&first, look(json!({}))).await;
    let left: i64 = server.tell(&format!("PTTL {}", server.keys()[0])).trim()[1..].parse().unwrap();
    assert!((1..=2_000).contains(&left), "{left}");
    sleep(ttl / 2).await;
    let read = text(&second, look(json!({}))).await;
    // On a busy machine, the result may have expired already.
    assert!(read == "one" || begun.elapsed() >= ttl, "{read}");
    // The second replica keeps it only as long as the first one.
    sleep(ttl.saturating_sub(begun.elapsed()) + Duration::from_millis(50)).await;
    assert_eq!(text(&second, look(json!({}))).await, "other");
}

#[tokio::test]
async fn callers_share_results_only_if_the_rule_says_so() {
    let server = Server::start();
    for (per, expected) in [(Per::Caller, ["one", "other", "one"]), (Per::All, ["one"; 3])] {
        assert!(server.tell("FLUSHALL").contains("OK"));
        let [one, other] = ["one", "other"].map(tools);
        let [first, second] =
            [&one, &other].map(|tools| gateway(rule(&replica(&server), HOUR).per(per), tools));
        assert_eq!(text(&first, by("alice")).await, expected[0]);
        assert_eq!(text(&second, by("bob")).await, expected[1]);
        assert_eq!(text(&second, by("alice")).await, expected[2]);
    }
}

#[tokio::test]
async fn other_definitions_prefixes_and_bypasses_share_nothing() {
    let server = Server::start();
    let one = tools("one");
    let first = gateway(rule(&replica(&server), HOUR), &one);
    assert_eq!(text(&first, look(json!({}))).await, "one");

    let changed = Tools::new().tool_as(reads("Looks closely"), Answer::text("changed"));
    let second = gateway(rule(&replica(&server), HOUR), &changed);
    assert_eq!(text(&second, look(json!({}))).await, "changed");
    let prefixed = gateway(rule(&replica(&server).prefix("shop"), HOUR), &tools("prefixed"));
    assert_eq!(text(&prefixed, look(json!({}))).await, "prefixed");

    // A call that bypasses the cache replaces the result of all replicas.
    let newer = gateway(rule(&replica(&server), HOUR), &tools("newer"));
    let mut bypass = look(json!({}));
    bypass.context_mut().meta_mut().insert(NO_CACHE.to_owned(), true.into());
    assert_eq!(text(&newer, bypass).await, "newer");
    let third = gateway(rule(&replica(&server), HOUR), &tools("third"));
    assert_eq!(text(&third, look(json!({}))).await, "newer");
}

#[tokio::test]
async fn failures_and_large_results_are_not_stored() {
    let server = Server::start();
    let large = "x".repeat(4 * 1024 * 1024);
    let answers = Answer::failure("no").times(1).then(Answer::text(large.clone()));
    let tools = Tools::new().tool_as(reads("Looks"), answers);
    let gateway = gateway(rule(&replica(&server), HOUR), &tools);
    assert_eq!(text(&gateway, look(json!({}))).await, "no");
    assert_eq!(text(&gateway, look(json!({}))).await, large);
    assert!(server.keys().is_empty());
    // It is cached in memory.
    assert_eq!(text(&gateway, look(json!({}))).await, large);
    assert_eq!(tools.called().len(), 2);
}

#[tokio::test]
async fn value_that_is_no_result_is_replaced() {
    let server = Server::start();
    let first = gateway(rule(&replica(&server), HOUR), &tools("one"));
    text(&first, look(json!({}))).await;
    let key = server.keys().remove(0);
    for value in ["nonsense", "{}", "[1]"] {
        server.tell(&format!("SET {key} {value} PX 60000"));
        let next = gateway(rule(&replica(&server), HOUR), &tools("next"));
        assert_eq!(text(&next, look(json!({}))).await, "next", "{value}");
    }
    // Without an expiry, it was not stored by this crate.
    server.tell(&format!("PERSIST {key}"));
    let other = gateway(rule(&replica(&server), HOUR), &tools("other"));
    assert_eq!(text(&other, look(json!({}))).await, "other");
}

#[tokio::test]
async fn tools_are_called_without_a_server() {
    let mut server = Server::start();
    let (one, other) = (tools("one"), tools("other"));
    let first = gateway(rule(&replica(&server), HOUR), &one);
    text(&first, look(json!({}))).await;
    server.kill();
    let second = gateway(rule(&replica(&server), HOUR), &other);
    for n in 0..3 {
        assert_eq!(text(&second, look(json!({ "n": n }))).await, "other");
        // The memory still has the results.
        assert_eq!(text(&second, look(json!({ "n": n }))).await, "other");
    }
    assert_eq!(text(&first, look(json!({}))).await, "one");
    assert_eq!((one.called().len(), other.called().len()), (1, 3));
}

#[tokio::test]
async fn unresponsive_server_delays_one_call() {
    let server = Server::start();
    let timeout = Duration::from_millis(500);
    let gap = Gap::before(&server);
    let redis = RedisServer::new(&gap.url()).unwrap().timeout(timeout);
    let other = tools("other");
    let gateway = gateway(rule(&redis, HOUR), &other);
    text(&gateway, look(json!({}))).await;
    server.pause();
    let begun = Instant::now();
    assert_eq!(text(&gateway, look(json!({ "n": 0 }))).await, "other");
    assert!(begun.elapsed() >= timeout, "{:?}", begun.elapsed());
    // If each call waited for the server, they would take more than a minute.
    soon(async {
        for n in 1..200 {
            assert_eq!(text(&gateway, look(json!({ "n": n }))).await, "other");
        }
    })
    .await;
    server.resume();
}

// === Programs ===

/// A gateway as a program, with its client.
struct Program {
    client: RunningService<RoleClient, ()>,
    /// The address of its metrics.
    metrics: String,
}

impl Program {
    async fn start(file: &Path, log: &Path) -> Self {
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(file).args(["--metrics", "127.0.0.1:0"]);
        command.env("SHOP", example("shop")).env_remove("RUST_LOG");
        let log_file = fs::File::create(log).unwrap();
        let (transport, _) = TokioChildProcess::builder(command).stderr(log_file).spawn().unwrap();
        let client = soon(().serve(transport)).await.unwrap();
        let read = || fs::read_to_string(log).unwrap();
        until(async || read().contains("serving metrics at http://")).await;
        let log = read();
        let (_, address) = log.split_once("serving metrics at http://").unwrap();
        let metrics = address.split(['/', '"', '\n']).next().unwrap().to_owned();
        Self { client, metrics }
    }

    async fn offer(&self) -> Value {
        let call = CallToolRequestParams::new("offer")
            .with_arguments(json!({ "article": "b10" }).as_object().unwrap().clone());
        soon(self.client.call_tool(call)).await.unwrap().structured_content.unwrap()
    }

    /// Returns how often its calls were hits, and how often misses.
    async fn cached(&self) -> [u64; 2] {
        let mut stream = TcpStream::connect(&self.metrics).await.unwrap();
        let head =
            format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metrics);
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut text = String::new();
        soon(stream.read_to_string(&mut text)).await.unwrap();
        ["hit", "miss"].map(|how| {
            let name = format!("mcp_composite_cache_calls_total{{mcp_composite_cache=\"{how}\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&name));
            value.map_or(0, |value| value.parse().unwrap())
        })
    }
}

#[tokio::test]
async fn programs_share_results_and_measure_hits() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gateway.toml");
    let example = include_str!("../../examples/hide_the_parts.toml");
    let cache = format!(
        "\n[redis]\nurl = \"{}\"\n\n[[cache]]\ntools = [\"*\"]\nttl = \"1h\"\nper = \"all\"\n\
         store = \"redis\"\n",
        server.url()
    );
    fs::write(&file, format!("{example}{cache}")).unwrap();
    let one = Program::start(&file, &folder.path().join("one.log")).await;
    let offer = one.offer().await;
    assert_eq!(one.cached().await, [0, 3]);
    // From the memory of the process.
    assert_eq!(one.offer().await, offer);
    assert_eq!(one.cached().await, [3, 3]);
    // From Redis.
    let other = Program::start(&file, &folder.path().join("other.log")).await;
    assert_eq!(other.offer().await, offer);
    assert_eq!(other.cached().await, [3, 0]);
    for program in [one, other] {
        soon(program.client.cancel()).await.unwrap();
    }
}
