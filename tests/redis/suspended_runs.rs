//! Suspended runs, and stored results.

use std::time::Duration;

use mcp_composite::{
    composite::{Composite, CompositeLayer, CompositeTool, Elicitation, Step, ToolCall},
    message::{Context, ToolAnswer},
    redis::{RedisServer, RedisStore},
    store::{PutError, Store, TakeError},
};
use serde_json::json;
use tower::{Layer, ServiceExt};

use super::{
    replica,
    server::{Gap, Server},
};
use crate::{
    scripted::{Server as Tools, call, can_be_asked},
    support::{soon, until},
};

fn is_invalid(taken: &Result<Vec<u8>, TakeError>) -> bool {
    matches!(taken, Err(TakeError::Invalid(_)))
}

// === States ===

#[tokio::test]
async fn state_of_one_replica_is_taken_once_by_another() {
    let server = Server::start();
    let [one, other] = [(); 2].map(|()| replica(&server).runs());
    for state in [&b""[..], b"{}", &[0, 255, 13, 10, 0], &[b'x'; 4 << 20]] {
        for binding in [&b""[..], b"b", &[7; 100]] {
            let handle = one.put(state.to_vec(), binding, None).await.unwrap();
            assert_eq!(other.take(&handle, binding, None).await.as_deref(), Ok(state));
            assert!(is_invalid(&one.take(&handle, binding, None).await));
        }
    }
    // The replica that took one can take it again for a minute, and then it is gone.
    for key in server.keys() {
        let left = server.tell(&format!("TTL {key}"));
        let left: i64 = left.trim().strip_prefix(':').unwrap().parse().unwrap();
        assert!((0..=60).contains(&left), "{left}");
    }
}

#[tokio::test]
async fn state_with_a_lost_reply_is_returned_only_to_its_taker() {
    let server = Server::start();
    let gap = Gap::before(&server);
    let states = RedisServer::new(&gap.url()).unwrap().timeout(Duration::from_secs(60)).runs();
    let [first, handle] = [
        states.put(b"".to_vec(), b"", None).await.unwrap(),
        states.put(b"state".to_vec(), b"", None).await.unwrap(),
    ];
    // The server knows the script from now on.
    states.take(&first, b"", None).await.unwrap();

    gap.lose_an_answer();
    assert_eq!(states.take(&handle, b"", None).await.unwrap(), b"state");
    assert!(gap.has_lost());
    for other in [&states, &replica(&server).runs()] {
        assert!(is_invalid(&other.take(&handle, b"", None).await));
    }
}

#[tokio::test]
async fn concurrent_takes_of_a_state_succeed_once() {
    let server = Server::start();
    let [one, other] = [(); 2].map(|()| replica(&server).runs());
    for round in 0..100 {
        let handle = one.put(b"state".to_vec(), b"b", None).await.unwrap();
        let both = tokio::join!(one.take(&handle, b"b", None), other.take(&handle, b"b", None));
        assert_eq!(u8::from(both.0.is_ok()) + u8::from(both.1.is_ok()), 1, "{round}: {both:?}");
    }
}

#[tokio::test]
async fn state_is_kept_when_another_caller_requests_it() {
    let server = Server::start();
    let states = replica(&server).runs();
    let handle = states.put(b"state".to_vec(), b"call of alice", None).await.unwrap();
    for other in [&b""[..], b"call of bob", b"call of alic", b"call of alice "] {
        assert!(is_invalid(&states.take(&handle, other, None).await));
    }
    assert_eq!(states.take(&handle, b"call of alice", None).await.unwrap(), b"state");
}

#[tokio::test]
async fn oversized_state_is_not_taken() {
    let server = Server::start();
    let large = replica(&server).runs().put(vec![b'x'; 10_001], b"", None).await.unwrap();
    let states = replica(&server).runs().max_item_bytes(10_000);
    assert!(is_invalid(&states.take(&large, b"", None).await));
    let fits = states.put(vec![b'x'; 10_000], b"", None).await.unwrap();
    assert_eq!(states.take(&fits, b"", None).await.map(|state| state.len()), Ok(10_000));
}

#[tokio::test]
async fn malformed_handle_is_rejected() {
    let server = Server::start();
    let states = replica(&server).runs();
    let handle = states.put(b"state".to_vec(), b"", None).await.unwrap();
    let key = server.keys().remove(0);
    let changed = format!("{}{}", &handle[..63], if handle.ends_with('0') { '1' } else { '0' });
    let huge = "A".repeat(32 << 20);
    let unicode = "健".repeat(64);
    let long = format!("{handle}0");
    for garbage in
        ["", " ", "*", "\0", &handle[1..], &long, &changed, &key, &key[20..], &huge, &unicode]
    {
        assert!(is_invalid(&states.take(garbage, b"", None).await), "{garbage:.80}");
    }
    assert!(states.take(&handle, b"", None).await.is_ok());
}

#[tokio::test]
async fn expired_state_is_deleted() {
    let server = Server::start();
    let states = replica(&server).runs().ttl(Duration::from_millis(50));
    let handle = states.put(b"state".to_vec(), b"", None).await.unwrap();
    soon(until(async || server.keys().is_empty())).await;
    assert!(is_invalid(&states.take(&handle, b"", None).await));
    // Every duration is accepted.
    for ttl in [Duration::ZERO, Duration::MAX] {
        assert!(
            replica(&server).runs().ttl(ttl).put(Vec::new(), b"", None).await.is_ok(),
            "{ttl:?}"
        );
    }
}

#[tokio::test]
async fn handle_and_binding_are_not_stored() {
    let server = Server::start();
    let states = replica(&server).prefix("shop").runs();
    let handle = states.put(b"half done".to_vec(), b"call of alice", None).await.unwrap();
    let keys = server.keys();
    let id = keys[0].strip_prefix("shop:state:").unwrap();
    assert!(keys.len() == 1 && id.len() == 64 && id != handle, "{keys:?}");
    let kept = server.tell(&format!("GET {}", keys[0]));
    assert!(kept.contains("half done") && !kept.contains("alice"), "{kept}");
}

#[tokio::test]
async fn oversized_item_is_not_sent() {
    let server = Server::start();
    let states = replica(&server).runs().max_item_bytes(10);
    let results = replica(&server).results().max_item_bytes(10);
    let error = PutError::TooLarge { bytes: 11, max: 10 };
    assert_eq!(states.put(vec![0; 11], b"", None).await, Err(error.clone()));
    assert_eq!(results.put(vec![0; 11], b"", Some(b"")).await, Err(error));
    assert!(states.put(vec![0; 10], b"", None).await.is_ok());
    assert!(results.put(vec![0; 10], b"", Some(b"")).await.is_ok());
}

// === Results ===

#[tokio::test]
async fn result_is_returned_to_its_caller_until_it_expires() {
    let server = Server::start();
    let [one, other] = [(); 2].map(|()| replica(&server).results().ttl(Duration::from_secs(2)));
    let handle = one.put(b"whole".to_vec(), b"alice", Some(b"alice")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(other.get(&handle, b"alice", Some(b"alice")).await.unwrap(), b"whole");
        assert!(is_invalid(&other.get(&handle, b"bob", Some(b"bob")).await));
    }
    soon(until(async || is_invalid(&other.get(&handle, b"alice", Some(b"alice")).await))).await;
}

#[tokio::test]
async fn states_and_results_are_not_interchangeable() {
    let server = Server::start();
    let (states, results) = (replica(&server).runs(), replica(&server).results());
    let state = states.put(b"state".to_vec(), b"", None).await.unwrap();
    let result = results.put(b"result".to_vec(), b"", Some(b"")).await.unwrap();
    assert!(is_invalid(&results.get(&state, b"", Some(b"")).await));
    assert!(is_invalid(&states.take(&result, b"", None).await));
}

// === Composites ===

fn gateway(state: RedisStore, tools: &Tools) -> Composite<Tools> {
    let steps = [
        Step::new("details", "details"),
        Step::new("approve", Elicitation::new("Sure?", json!({}))).depends_on(["details"]),
        Step::new(
            "deploy",
            ToolCall::new("deploy")
                .arguments(json!({ "version": "$steps.details.output.version" })),
        )
        .depends_on(["approve"]),
    ];
    let release = CompositeTool::workflow("release", "Deploys if a person says so", steps);
    let caller = |_: &Context| Some("alice".to_owned());
    CompositeLayer::new([release]).unwrap().state(state).caller(caller).layer(tools.clone())
}

async fn release(gateway: &Composite<Tools>, state: Option<String>) -> ToolAnswer {
    let mut request = call("release", json!({}));
    *request.context_mut().meta_mut() = can_be_asked();
    let params = request.tool_call_mut().unwrap();
    let yes = json!({ "approve": { "action": "accept", "content": {} } });
    params.input_responses = state.is_some().then(|| serde_json::from_value(yes).unwrap());
    params.request_state = state;
    gateway.clone().oneshot(request).await.unwrap().into_tool_answer()
}

#[tokio::test]
async fn suspended_run_resumes_once_at_another_gateway() {
    let server = Server::start();
    let tools = Tools::new().gives("details", json!({ "version": "1.4.0" })).echoes("deploy");
    let [one, other] = [(); 2].map(|()| gateway(replica(&server).runs(), &tools));

    let ToolAnswer::InputRequired(asks) = release(&one, None).await else { panic!("no question") };
    let state = asks.request_state.unwrap();
    let answered = release(&other, Some(state.clone())).await;
    let again = release(&one, Some(state)).await;

    let ToolAnswer::Result(result) = answered else { panic!("{answered:?}") };
    assert_eq!(result.structured_content, Some(json!({ "version": "1.4.0" })));
    let ToolAnswer::Error(error) = again else { panic!("{again:?}") };
    assert_eq!((error.code.0, &*error.message), (-32602, "invalid `requestState`"));
    assert_eq!(tools.called(), ["details", "deploy"]);
}

// === Shares of callers ===

async fn put_for(states: &RedisStore, bytes: usize, caller: &[u8]) -> Result<String, PutError> {
    states.put(vec![b'x'; bytes], b"", Some(caller)).await
}

/// Returns the maximum time in milliseconds for which items of the only caller count.
fn longest_share(server: &Server) -> f64 {
    let key = server.keys().into_iter().find(|key| key.contains(":caller:")).expect("a caller");
    let score = |range: &str| {
        let reply = server.tell(&format!("{range} {key} (0 +inf WITHSCORES"));
        reply.lines().filter_map(|line| line.parse::<f64>().ok()).fold(0.0, f64::max)
    };
    let time = server.tell("TIME");
    let seconds: f64 = time.lines().nth(2).unwrap().parse().unwrap();
    score("ZRANGEBYSCORE") - seconds * 1_000.0
}

#[tokio::test]
async fn caller_with_a_full_share_is_rejected_at_every_replica() {
    let server = Server::start();
    // Space for two states of each caller.
    let [one, other] = [(); 2].map(|()| replica(&server).runs().max_caller_bytes(4_000));
    put_for(&one, 1_000, b"alice").await.unwrap();
    put_for(&other, 1_000, b"alice").await.unwrap();
    let full = PutError::CallerFull { bytes: 1_000 + 32 + 512, max: 4_000 };
    for states in [&one, &other] {
        assert_eq!(put_for(states, 1_000, b"alice").await, Err(full.clone()));
        put_for(states, 1_000, b"bob").await.unwrap();
    }
    assert_eq!(put_for(&one, 1_000, b"bob").await, Err(full));
    let alone = put_for(&one, 4_000, b"carol").await;
    assert_eq!(alone, Err(PutError::CallerFull { bytes: 4_544, max: 4_000 }));
    // A state without a caller counts against no share, and no key contains a name.
    one.put(vec![0; 5_000], b"", None).await.unwrap();
    assert!(server.keys().iter().all(|key| !key.contains("alice")));
}

#[tokio::test]
async fn expired_states_release_the_callers_share() {
    let server = Server::start();
    let short = replica(&server).runs().max_caller_bytes(4_000).ttl(Duration::from_millis(50));
    let long = replica(&server).runs().max_caller_bytes(4_000);
    put_for(&short, 1_000, b"alice").await.unwrap();
    put_for(&long, 1_000, b"alice").await.unwrap();
    soon(until(async || put_for(&long, 1_000, b"alice").await.is_ok())).await;
    assert!(put_for(&long, 1_000, b"alice").await.is_err());
}

#[tokio::test]
async fn taken_state_releases_the_share_when_it_expires() {
    let server = Server::start();
    let states = replica(&server).runs().max_caller_bytes(2_000);
    let handle = put_for(&states, 1_000, b"alice").await.unwrap();
    assert!(longest_share(&server) > 3_000_000.0);
    assert!(states.take(&handle, b"", Some(b"alice")).await.is_ok());
    let left = longest_share(&server);
    assert!((1.0..=61_000.0).contains(&left), "{left}");

    // An item that expires sooner does not count for longer.
    let brief = states.ttl(Duration::from_millis(200));
    let handle = put_for(&brief, 1_000, b"bob").await.unwrap();
    assert!(brief.take(&handle, b"", Some(b"bob")).await.is_ok());
    soon(until(async || put_for(&brief, 1_000, b"bob").await.is_ok())).await;
}

#[tokio::test]
async fn state_with_a_lost_reply_is_counted_once() {
    let server = Server::start();
    let gap = Gap::before(&server);
    let store = RedisServer::new(&gap.url()).unwrap().timeout(Duration::from_secs(60));
    let states = store.runs().max_caller_bytes(5_000);
    // The server knows the script from now on.
    put_for(&states, 1_000, b"alice").await.unwrap();
    gap.lose_an_answer();
    put_for(&states, 1_000, b"alice").await.unwrap();
    assert!(gap.has_lost());
    put_for(&states, 1_000, b"alice").await.unwrap();
    assert!(put_for(&states, 1_000, b"alice").await.is_err());
}

#[tokio::test]
async fn caller_over_its_share_loses_its_own_oldest_result_in_redis() {
    let server = Server::start();
    let results = replica(&server).results().max_caller_bytes(3_500);
    let bob = results.put(vec![b'x'; 1_000], b"bob", Some(b"bob")).await.unwrap();
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(results.put(vec![b'x'; 1_000], b"alice", Some(b"alice")).await.unwrap());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let mut kept = Vec::new();
    for handle in &handles {
        kept.push(results.get(handle, b"alice", Some(b"alice")).await.is_ok());
    }
    assert_eq!(kept, [false, false, true, true]);
    assert!(results.get(&bob, b"bob", Some(b"bob")).await.is_ok());
    let values = server.keys().into_iter().filter(|key| !key.contains(":caller:"));
    assert_eq!(values.count(), 3, "evicted results are deleted");

    let refused = results.put(vec![b'x'; 4_000], b"alice", Some(b"alice")).await;
    assert_eq!(refused, Err(PutError::CallerFull { bytes: 4_544, max: 3_500 }));
    assert!(results.get(&handles[3], b"alice", Some(b"alice")).await.is_ok());
}

#[tokio::test]
async fn composite_counts_suspended_runs_against_the_share_in_redis() {
    let server = Server::start();
    let tools = Tools::new().gives("details", json!({ "version": "1.4.0" })).echoes("deploy");
    let gateway = gateway(replica(&server).runs().max_caller_bytes(1), &tools);
    let ToolAnswer::Result(result) = release(&gateway, None).await else { panic!("a question") };
    let text = &result.content[0].as_text().unwrap().text;
    assert!(text.ends_with("at most 1 (`max_caller_bytes`)"), "{text}");
}
