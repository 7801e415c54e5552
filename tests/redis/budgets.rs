//! Budgets that several replicas share.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures::future::join_all;
use mcp_composite::{
    budget::{BudgetStore, Denied, Refill},
    config::Config,
    redis::{RedisBudgets, RedisServer},
    testing,
};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};

use super::{
    calls, is_over, replica, replicas, reserve, reserve_for,
    server::{Gap, Server},
};
use crate::support::{soon, until};

// === Shared budgets ===

#[tokio::test]
async fn replicas_share_a_budget_exactly() {
    let server = Server::start();
    let replicas = replicas::<3>(&server);
    let budget = calls(100);

    let asking = (0..300).map(|at| reserve(&replicas[at % 3], &budget, 1));
    let reserved = soon(join_all(asking)).await;

    let (held, over): (Vec<_>, Vec<_>) = reserved.into_iter().partition(Result::is_ok);
    assert_eq!((held.len(), over.iter().filter(|over| is_over(over)).count()), (100, 200));
    for (at, permit) in held.into_iter().flatten().enumerate() {
        // Every other permit is dropped without being settled.
        if at % 2 == 0 {
            permit.settle(1);
        }
    }
    soon(join_all(replicas.iter().map(RedisBudgets::flush))).await;
    assert_eq!(replicas[0].remaining(&budget, None).await.unwrap(), 50);
}

#[tokio::test]
async fn shutdown_waits_until_usage_is_settled() {
    let server = Server::start();
    let [one, other] = replicas(&server);
    reserve(&one, &calls(9), 4).await.unwrap().settle(3);
    let store: &dyn BudgetStore = &one;
    soon(store.flush()).await;
    assert_eq!(other.remaining(&calls(9), None).await.unwrap(), 6);
}

#[tokio::test]
async fn budget_of_one_admits_one_of_two_concurrent_calls() {
    let server = Server::start();
    let [one, other] = replicas(&server);
    let budget = calls(1);
    for round in 0..100 {
        let both = tokio::join!(reserve(&one, &budget, 1), reserve(&other, &budget, 1));
        assert_eq!(u8::from(both.0.is_ok()) + u8::from(both.1.is_ok()), 1, "{round}");
        drop(both);
        soon(futures::future::join(one.flush(), other.flush())).await;
    }
}

#[tokio::test]
async fn concurrent_settles_drops_and_cancels_keep_the_balance() {
    const LIMIT: u64 = 50;
    let server = Server::start();
    let replicas = replicas::<3>(&server);
    let budget = calls(LIMIT);
    let (held, charged) = (AtomicU64::new(0), AtomicU64::new(0));

    let work = (0..60_u64).map(|at| {
        let (store, budget, held, charged) = (&replicas[at as usize % 3], &budget, &held, &charged);
        let mut random = fastrand::Rng::with_seed(at);
        async move {
            for _ in 0..20 {
                let amount = random.u64(0..=4);
                let asking = reserve(store, budget, amount);
                if random.u8(0..5) == 0 {
                    // The caller has given up.
                    let _ = tokio::time::timeout(Duration::from_micros(300), asking).await;
                    continue;
                }
                let Ok(permit) = asking.await else { continue };
                let all = held.fetch_add(amount, Ordering::Relaxed) + amount;
                assert!(all + charged.load(Ordering::Relaxed) <= LIMIT, "{all} are held");
                sleep(Duration::from_millis(random.u64(0..3))).await;
                held.fetch_sub(amount, Ordering::Relaxed);
                if random.u8(0..40) == 0 {
                    charged.fetch_add(amount, Ordering::Relaxed);
                    permit.settle(amount);
                }
            }
        }
    });
    soon(join_all(work)).await;

    soon(join_all(replicas.iter().map(RedisBudgets::flush))).await;
    let left = LIMIT - charged.load(Ordering::Relaxed);
    assert_eq!(replicas[0].remaining(&budget, None).await.unwrap(), left);
}

// === Leases ===

#[tokio::test]
async fn reservation_of_a_killed_process_expires_with_its_lease() {
    const LEASE: Duration = Duration::from_millis(300);
    let server = Server::start();
    let [killed, other] = [(); 2].map(|()| replica(&server).budgets().lease(LEASE));
    let budget = calls(1);

    let start = Instant::now();
    // It is never settled.
    std::mem::forget(reserve(&killed, &budget, 1).await.unwrap());
    soon(until(async || reserve(&other, &budget, 1).await.is_ok())).await;
    assert!(start.elapsed() >= LEASE, "{:?}", start.elapsed());
}

#[tokio::test]
async fn permit_settled_after_its_lease_is_charged_once() {
    let server = Server::start();
    let store = replica(&server).budgets().lease(Duration::from_millis(50));
    let budget = calls(10);

    let permit = reserve(&store, &budget, 4).await.unwrap();
    soon(until(async || store.remaining(&budget, None).await.unwrap() == 10)).await;
    permit.settle(3);
    store.flush().await;
    assert_eq!(store.remaining(&budget, None).await.unwrap(), 7);
}

#[tokio::test]
async fn reservation_of_a_dropped_call_is_released() {
    let server = Server::start();
    let store = replica(&server).budgets();
    let budget = calls(10);
    reserve(&store, &budget, 1).await.unwrap().settle(1);
    for micros in (0..1_000).step_by(20) {
        let asking = reserve(&store, &budget, 1);
        let _ = tokio::time::timeout(Duration::from_micros(micros), asking).await;
    }
    soon(store.flush()).await;
    assert_eq!(store.remaining(&budget, None).await.unwrap(), 9);
}

// === Lost answers ===

#[tokio::test]
async fn reservation_with_a_lost_reply_is_made_once() {
    let server = Server::start();
    let gap = Gap::before(&server);
    let store = RedisServer::new(&gap.url()).unwrap().timeout(Duration::from_secs(60)).budgets();
    let budget = calls(10);
    reserve(&store, &budget, 1).await.unwrap().settle(1);
    store.flush().await;

    gap.lose_an_answer();
    let _held = reserve(&store, &budget, 4).await.unwrap();
    assert!(gap.has_lost());
    assert_eq!(store.remaining(&budget, None).await.unwrap(), 5);
}

#[tokio::test]
async fn settlement_with_a_lost_reply_is_charged_once() {
    let server = Server::start();
    let gap = Gap::before(&server);
    let store = RedisServer::new(&gap.url()).unwrap().timeout(Duration::from_secs(60)).budgets();
    let budget = calls(10);
    reserve(&store, &budget, 1).await.unwrap().settle(1);
    store.flush().await;

    let permit = reserve(&store, &budget, 4).await.unwrap();
    gap.lose_an_answer();
    permit.settle(3);
    soon(store.flush()).await;
    assert!(gap.has_lost());
    assert_eq!(store.remaining(&budget, None).await.unwrap(), 6);
}

#[tokio::test]
async fn repeated_reservation_after_settlement_reserves_nothing() {
    let server = Server::start();
    let gap = Gap::before(&server);
    let store = RedisServer::new(&gap.url()).unwrap().timeout(Duration::from_secs(60)).budgets();
    let budget = calls(10);
    reserve(&store, &budget, 1).await.unwrap().settle(1);
    store.flush().await;

    let held_up = gap.hold_a_request_and_hang_up();
    reserve(&store, &budget, 4).await.unwrap().settle(3);
    soon(store.flush()).await;
    let runs = server.runs();
    drop(held_up);
    soon(until(async || server.runs() > runs)).await;
    assert_eq!(store.remaining(&budget, None).await.unwrap(), 6);
}

// === Refills ===

#[tokio::test]
async fn error_contains_the_refill_time() {
    let server = Server::start();
    let store = replica(&server).budgets();
    let budget = calls(4).refill(Refill::new(2, Duration::from_secs(100)));
    reserve(&store, &budget, 4).await.unwrap().settle(4);
    store.flush().await;
    for (amount, ticks) in [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)] {
        let denied = reserve(&store, &budget, amount).await;
        let Err(Denied::Over { retry_after: Some(retry_after) }) = denied else {
            panic!("{denied:?}")
        };
        let expected = Duration::from_secs(100 * ticks);
        assert!(retry_after <= expected, "{amount}: {retry_after:?}");
        assert!(retry_after > expected - Duration::from_secs(50), "{amount}: {retry_after:?}");
    }
    for hopeless in [calls(4), calls(3).refill(Refill::new(2, Duration::from_secs(100)))] {
        let denied = reserve(&store, &hopeless, 4).await;
        assert!(matches!(denied, Err(Denied::Over { retry_after: None })), "{denied:?}");
    }
}

#[tokio::test]
async fn changed_refill_applies_from_now_on() {
    let server = Server::start();
    let store = replica(&server).budgets();
    let (never, slow) = (calls(9), calls(9).refill(Refill::new(1, Duration::from_secs(1_000))));
    let fast = calls(9).refill(Refill::new(1, Duration::from_millis(1)));
    reserve(&store, &never, 9).await.unwrap().settle(9);
    store.flush().await;
    for budget in [&slow, &never, &slow] {
        assert_eq!(store.remaining(budget, None).await.unwrap(), 0, "{budget:?}");
    }
    // The time under the old refill does not count for the new one, except for one tick.
    sleep(Duration::from_millis(50)).await;
    assert!(store.remaining(&fast, None).await.unwrap() <= 1);
    soon(until(async || store.remaining(&fast, None).await.unwrap() == 9)).await;
}

#[tokio::test]
async fn maximum_timeout_and_lease_are_accepted() {
    let server = Server::start();
    let store = replica(&server).timeout(Duration::MAX).budgets().lease(Duration::MAX);
    reserve(&store, &calls(9), 1).await.unwrap().settle(1);
    store.flush().await;
    assert_eq!(store.remaining(&calls(9), None).await.unwrap(), 8);
}

// === Stored keys ===

#[tokio::test]
async fn keys_expire_when_a_budget_is_full_again() {
    let server = Server::start();
    let store = replica(&server).budgets();
    let budget = calls(3).refill(Refill::new(3, Duration::from_secs(1)));
    reserve(&store, &budget, 3).await.unwrap().settle(3);
    store.flush().await;
    assert!(!server.keys().is_empty());
    soon(until(async || server.keys().is_empty())).await;
}

#[tokio::test]
async fn usage_without_a_refill_never_expires() {
    let server = Server::start();
    let store = replica(&server).budgets();
    reserve(&store, &calls(3), 2).await.unwrap().settle(1);
    store.flush().await;
    let keys = server.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert_eq!(server.tell(&format!("TTL {}", keys[0])).trim(), ":-1");
    let read = server.tell(&format!("HMGET {} name used reserved", keys[0]));
    let read: Vec<_> = read.lines().filter(|line| !line.starts_with(['*', '$'])).collect();
    assert_eq!(read, ["calls", "1", "0"]);
}

#[tokio::test]
async fn fully_released_budget_leaves_no_key() {
    let server = Server::start();
    let store = replica(&server).budgets();
    drop(reserve(&store, &calls(3), 2).await.unwrap());
    store.flush().await;
    soon(until(async || server.keys().is_empty())).await;
}

#[tokio::test]
async fn keys_contain_no_caller_names_and_share_a_hash_slot() {
    let server = Server::start();
    let store = replica(&server).prefix("shop").budgets();
    let caller = format!("alice{{}} {}", "x".repeat(1 << 16));
    let lapsed = replica(&server).prefix("shop").budgets().lease(Duration::from_millis(1));
    std::mem::forget(reserve_for(&lapsed, &calls(9), Some(&caller), 1).await);
    sleep(Duration::from_millis(5)).await;
    let _held = reserve_for(&store, &calls(9), Some(&caller), 1).await.unwrap();
    let mut keys = server.keys();
    keys.sort();
    let id = keys[0].strip_prefix("shop:budget:{").unwrap().strip_suffix('}').unwrap();
    assert!(id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let [account, leases, ended] =
        ["", ":leases", ":ended"].map(|end| format!("shop:budget:{{{id}}}{end}"));
    assert_eq!(keys, [account.clone(), ended, leases]);
    assert!(!server.tell(&format!("HGETALL {account}")).contains("alice"));
}

#[tokio::test]
async fn budgets_of_different_prefixes_are_separate() {
    let server = Server::start();
    let [one, other] = ["one", "other"].map(|prefix| replica(&server).prefix(prefix).budgets());
    let _held = reserve(&one, &calls(1), 1).await.unwrap();
    assert!(reserve(&other, &calls(1), 1).await.is_ok());
}

#[tokio::test]
async fn budget_of_a_view_is_separate_and_shared_by_replicas() {
    let server = Server::start();
    let file = format!(
        "redis = {{ url = '{}', timeout = '60s' }}\n\
         budget = {{ store = 'redis', limits = [{{ name = 'calls', limit = 1 }}] }}\n\
         [[views]]\npath = '/inherits'\n\
         [[views]]\npath = '/own'\n\
         budget = {{ store = 'redis', limits = [{{ name = 'calls', limit = 1 }}] }}\n",
        server.url()
    );
    let [one, other] = [(); 2].map(|()| Config::from_toml_str(&file).unwrap());
    let is_admitted = async |config: &Config| {
        let tools = testing::Server::new().says("search", "found");
        let stack = config.stack_layer().layer(tools);
        let reply = soon(stack.oneshot(testing::request("search", json!({})))).await.unwrap();
        reply.tool_result().is_some_and(|result| result.is_error != Some(true))
    };
    assert!(is_admitted(&one).await);
    assert!(!is_admitted(&one.view("/inherits").unwrap()).await);
    assert!(is_admitted(&one.view("/own").unwrap()).await);
    assert!(!is_admitted(&other.view("/own").unwrap()).await);
    let keys = server.keys();
    assert_eq!(keys.iter().filter(|key| key.contains("mcp-composite:/own:budget:")).count(), 1);
}
