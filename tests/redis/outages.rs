//! A server that is unavailable, silent, restarted or misconfigured.

use std::time::Duration;

use mcp_composite::{
    budget::Denied,
    redis::{RedisBudgets, RedisError, RedisServer, WhenAway},
    store::{PutError, Store, TakeError},
};
use tokio::time::Instant;

use super::{
    calls, is_away, is_over, replica, reserve,
    server::{Gap, Server},
};
use crate::support::{soon, until};

/// The timeout of an impatient store.
const TIMEOUT: Duration = Duration::from_secs(2);

fn impatient(server: &Server) -> RedisServer {
    replica(server).timeout(TIMEOUT)
}

/// Waits until all settlements have arrived, and checks the remaining amount.
async fn is_left(server: &Server, store: &RedisBudgets, limit: u64, left: u64) {
    soon(store.flush()).await;
    let remaining = replica(server).budgets().remaining(&calls(limit), None).await;
    assert_eq!(remaining.unwrap(), left);
}

// === Unavailable servers ===

#[tokio::test]
async fn server_unavailable_at_start_is_used_once_it_is_up() {
    let mut server = Server::start();
    server.kill();
    let store = replica(&server).budgets();
    let budget = calls(1);
    assert!(is_away(&reserve(&store, &budget, 1).await));
    server.restart();
    let _held = reserve(&store, &budget, 1).await.unwrap();
    assert!(is_over(&reserve(&store, &budget, 1).await));
}

#[tokio::test]
async fn unreachable_server_is_reported_immediately() {
    let mut server = Server::start();
    let store = replica(&server).timeout(Duration::from_secs(600)).budgets();
    drop(reserve(&store, &calls(1), 1).await.unwrap());
    server.kill();
    for _ in 0..3 {
        assert!(is_away(&soon(reserve(&store, &calls(1), 1)).await));
    }
}

#[tokio::test]
async fn crashed_server_is_used_again_after_a_restart() {
    let mut server = Server::start();
    let store = replica(&server).budgets();
    let held = reserve(&store, &calls(3), 2).await.unwrap();
    server.kill();
    held.settle(2);
    assert!(is_away(&reserve(&store, &calls(3), 1).await));
    server.restart();
    // It has lost the used amounts and the leases.
    is_left(&server, &store, 3, 3).await;
    let _held = reserve(&store, &calls(3), 3).await.unwrap();
    assert!(is_over(&reserve(&store, &calls(3), 1).await));
}

#[tokio::test]
async fn calls_are_admitted_without_a_server_if_configured() {
    let mut server = Server::start();
    let store = replica(&server).budgets().when_away(WhenAway::Admit);
    server.kill();
    for _ in 0..3 {
        reserve(&store, &calls(1), 1).await.unwrap().settle(1);
    }
    server.restart();
    // It is not asked to keep a reservation it did not admit.
    is_left(&server, &store, 1, 1).await;
    let _held = reserve(&store, &calls(1), 1).await.unwrap();
    assert!(is_over(&reserve(&store, &calls(1), 1).await));
}

#[tokio::test]
async fn stores_report_an_unavailable_server() {
    let mut server = Server::start();
    let (states, results) = (replica(&server).runs(), replica(&server).results());
    let handle = states.put(b"state".to_vec(), b"", None).await.unwrap();
    server.kill();
    assert!(matches!(states.put(Vec::new(), b"", None).await, Err(PutError::Unavailable(_))));
    assert!(matches!(states.take(&handle, b"", None).await, Err(TakeError::Unavailable(_))));
    assert!(matches!(results.put(Vec::new(), b"", Some(b"")).await, Err(PutError::Unavailable(_))));
    assert!(matches!(results.get(&handle, b"", Some(b"")).await, Err(TakeError::Unavailable(_))));
    server.restart();
    assert!(matches!(states.take(&handle, b"", None).await, Err(TakeError::Invalid(_))));
    let handle = results.put(b"result".to_vec(), b"", Some(b"")).await.unwrap();
    assert_eq!(results.get(&handle, b"", Some(b"")).await.unwrap(), b"result");
}

// === Silent servers ===

#[tokio::test]
async fn unresponsive_server_denies_calls_and_reserves_nothing() {
    let server = Server::start();
    let store = impatient(&server).budgets();
    let held = reserve(&store, &calls(5), 1).await.unwrap();
    let dropped = reserve(&store, &calls(5), 1).await.unwrap();

    server.pause();
    for _ in 0..2 {
        assert!(is_away(&reserve(&store, &calls(5), 1).await));
    }
    held.settle(1);
    drop(dropped);
    server.resume();

    is_left(&server, &store, 5, 4).await;
}

#[tokio::test]
async fn reservation_arriving_after_its_abort_reserves_nothing() {
    let server = Server::start();
    let gap = Gap::before(&server);
    let store = RedisServer::new(&gap.url()).unwrap().timeout(TIMEOUT).budgets();
    drop(reserve(&store, &calls(5), 1).await.unwrap());
    soon(store.flush()).await;

    let held_up = gap.hold_a_request();
    assert!(is_away(&reserve(&store, &calls(5), 4).await));
    // The abort arrives first, on another connection.
    soon(store.flush()).await;
    let runs = server.runs();
    drop(held_up);
    soon(until(async || server.runs() > runs)).await;

    is_left(&server, &store, 5, 5).await;
}

#[tokio::test]
async fn unresponsive_server_admits_calls_if_configured() {
    let server = Server::start();
    let store = impatient(&server).budgets().when_away(WhenAway::Admit);
    drop(reserve(&store, &calls(1), 1).await.unwrap());
    server.pause();
    let admitted = [reserve(&store, &calls(1), 1).await, reserve(&store, &calls(1), 1).await];
    assert!(admitted.iter().all(Result::is_ok), "{admitted:?}");
    drop(admitted);
    server.resume();
    is_left(&server, &store, 1, 1).await;
}

#[tokio::test]
async fn state_survives_a_take_that_never_reaches_the_server() {
    let server = Server::start();
    let (put, take) = (impatient(&server).runs(), impatient(&server).runs());
    let handle = put.put(b"state".to_vec(), b"", None).await.unwrap();
    server.pause();
    // There is no connection yet for the request.
    assert!(matches!(take.take(&handle, b"", None).await, Err(TakeError::Unavailable(_))));
    server.resume();
    assert_eq!(take.take(&handle, b"", None).await.unwrap(), b"state");
}

#[tokio::test]
async fn unanswered_reservation_fails_after_the_timeout() {
    let server = Server::start();
    let store = impatient(&server).budgets();
    server.pause();
    let start = Instant::now();
    let denied = reserve(&store, &calls(1), 1).await;
    assert!(start.elapsed() >= TIMEOUT, "{denied:?}");
    let Err(Denied::Unavailable(why)) = denied else { panic!("{denied:?}") };
    assert_eq!(why.to_string(), "no answer within 2s");
    server.resume();
}

// === Shutdown ===

#[tokio::test]
async fn last_settlement_is_logged_when_the_store_is_lost() {
    let server = Server::start();
    let store = replica(&server).budgets();
    let mut permits = Vec::new();
    for _ in 0..100 {
        permits.push(reserve(&store, &calls(200), 2).await.unwrap());
    }
    drop(store);
    permits.into_iter().for_each(|permit| permit.settle(1));
    let other = replica(&server).budgets();
    soon(until(async || other.remaining(&calls(200), None).await.unwrap() == 100)).await;
}

#[test]
fn store_works_in_successive_runtimes() {
    let server = Server::start();
    let store = replica(&server).budgets();
    for round in 0..3 {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            reserve(&store, &calls(9), 1).await.unwrap().settle(1);
            is_left(&server, &store, 9, 8 - round).await;
        });
    }
}

// === Other errors ===

#[tokio::test]
async fn scripts_are_loaded_again_after_a_flush() {
    let server = Server::start();
    let store = replica(&server).budgets();
    for left in [2, 1, 0] {
        assert_eq!(server.tell("SCRIPT FLUSH").trim(), "+OK");
        reserve(&store, &calls(3), 1).await.unwrap().settle(1);
        assert_eq!(server.tell("SCRIPT FLUSH").trim(), "+OK");
        is_left(&server, &store, 3, left).await;
    }
}

#[tokio::test]
async fn full_server_rejects_new_states() {
    let server = Server::start_with(&["--maxmemory", "2mb", "--maxmemory-policy", "noeviction"]);
    let states = replica(&server).runs();
    let full = states.put(vec![0; 3 << 20], b"", None).await;
    let full = match full {
        // An exceeded memory limit is detected at the next write.
        Ok(_) => states.put(b"state".to_vec(), b"", None).await,
        full => full,
    };
    let Err(PutError::Unavailable(why)) = full else { panic!("{full:?}") };
    assert!(why.contains("OOM"), "{why}");
}

#[tokio::test]
async fn rejected_settlement_is_not_retried() {
    let server = Server::start();
    let store = replica(&server).budgets();
    let permit = reserve(&store, &calls(3), 1).await.unwrap();
    let keys = server.keys();
    let account = keys.iter().find(|key| key.ends_with('}')).unwrap();
    server.tell(&format!("SET {account} text"));
    permit.settle(1);
    // It would wait until the lease expires.
    soon(store.flush()).await;
    assert!(is_away(&reserve(&store, &calls(3), 1).await));
}

#[tokio::test]
async fn state_can_be_taken_from_a_full_server() {
    let server = Server::start();
    let states = replica(&server).runs();
    let handle = states.put(b"state".to_vec(), b"", None).await.unwrap();
    server.tell("CONFIG SET maxmemory 1");
    assert_eq!(states.take(&handle, b"", None).await.unwrap(), b"state");
    assert!(matches!(states.take(&handle, b"", None).await, Err(TakeError::Invalid(_))));
}

#[tokio::test]
async fn password_is_sent_and_never_logged() {
    let server = Server::start_with(&["--requirepass", "s3cret"]);
    let at = |password: &str| server.url().replace("//", &format!("//:{password}@"));
    let store = RedisServer::new(&at("s3cret")).unwrap().timeout(Duration::from_secs(60));
    let _held = reserve(&store.budgets(), &calls(1), 1).await.unwrap();

    let wrong = RedisServer::new(&at("wr0ng")).unwrap();
    let (budgets, state) = (wrong.budgets(), wrong.runs());
    for _ in 0..2 {
        let denied = reserve(&budgets, &calls(1), 1).await;
        let Err(Denied::Unavailable(why)) = &denied else { panic!("{denied:?}") };
        let refused = state.put(Vec::new(), b"", None).await;
        let output = format!("{wrong:?} {budgets:?} {state:?} {denied:?} {why} {refused:?}");
        assert!(!output.contains("wr0ng") && !output.contains("s3cret"), "{output}");
    }
    assert!(!format!("{store:?} {:?}", store.results()).contains("s3cret"));
}

#[test]
fn invalid_url_is_rejected_without_revealing_it() {
    for url in [
        "",
        "s3cret",
        "http://:s3cret@host",
        "redis://:s3cret@",
        "redis://:s3cret@host:no",
        "redis://:s3cret@host/s3cret",
        "redis://:s3cret@host:99999",
    ] {
        let error = RedisServer::new(url).unwrap_err();
        assert_eq!(error, RedisError::Url, "{url}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{url}");
    }
    let error = RedisServer::new("rediss://:s3cret@host").unwrap_err();
    assert_eq!(error, RedisError::NoTls { scheme: "rediss".to_owned() });
}
