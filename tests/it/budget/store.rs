//! Budgets in a custom store.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use mcp_composite::budget::{BudgetPermit, BudgetStore, Denied, ReserveReply, Settle};
use tokio::sync::oneshot;
use tower::limit::ConcurrencyLimitLayer;

use super::*;
use crate::support::capture_logs;

/// A store that answers when the test says so, and records its calls.
#[derive(Clone, Debug, Default)]
struct TestStore(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    pending: VecDeque<oneshot::Sender<Result<(), Denied>>>,
    reserved: Vec<String>,
    settled: Vec<u64>,
    given_back: usize,
}

struct TestPermit(TestStore, Option<u64>);

impl TestStore {
    fn answer(&self, answer: Result<(), Denied>) {
        let pending = self.0.lock().unwrap().pending.pop_front().expect("a pending request");
        pending.send(answer).expect("somebody waits");
    }

    fn settled(&self) -> Vec<u64> {
        self.0.lock().unwrap().settled.clone()
    }

    fn given_back(&self) -> usize {
        self.0.lock().unwrap().given_back
    }

    fn reserved(&self) -> Vec<String> {
        self.0.lock().unwrap().reserved.clone()
    }
}

impl BudgetStore for TestStore {
    fn reserve(&self, budget: &Budget, caller: Option<&str>, amount: u64) -> ReserveReply {
        let (answer, answered) = oneshot::channel();
        let mut record = self.0.lock().unwrap();
        record.pending.push_back(answer);
        record.reserved.push(format!("{amount} of {} for {caller:?}", budget.name()));
        let store = self.clone();
        ReserveReply::Pending(Box::pin(async move {
            answered.await.expect("the test answers")?;
            Ok(BudgetPermit::new(TestPermit(store, None)))
        }))
    }
}

impl Settle for TestPermit {
    fn settle(mut self: Box<Self>, actual: u64) {
        self.1 = Some(actual);
    }
}

impl Drop for TestPermit {
    fn drop(&mut self) {
        let mut record = self.0.0.lock().unwrap();
        match self.1 {
            Some(actual) => record.settled.push(actual),
            None => record.given_back += 1,
        }
    }
}

/// Two budgets in that store: one per caller, and one for all.
fn two_budgets() -> (BudgetLayer, TestStore) {
    let store = TestStore::default();
    let layer = BudgetLayer::new()
        .budget(Budget::new("all", Unit::Bytes, 9))
        .budget(Budget::new("mine", Unit::Calls, 9).per(Per::Caller))
        .caller(|_| Some("ann".to_owned()))
        .store(store.clone());
    (layer, store)
}

#[tokio::test(start_paused = true)]
async fn budgets_are_reserved_in_sequence_before_the_call() {
    let (layer, store) = two_budgets();
    let server = Server::new().says("t", "12345678");
    let mut running = task::spawn(layer.layer(server.clone()).oneshot(call("t", json!(null))));
    assert_pending!(running.poll());
    assert_eq!(store.reserved(), ["1 of mine for Some(\"ann\")"]);
    store.answer(Ok(()));
    assert_pending!(running.poll());
    assert_eq!(store.reserved()[1..], ["0 of all for None"]);
    assert!(server.calls().is_empty());
    store.answer(Ok(()));
    soon(running).await.unwrap();
    assert_eq!(store.settled(), [1, 8]);
    assert_eq!(store.given_back(), 0);
}

#[tokio::test]
async fn denial_releases_earlier_reservations_and_the_readiness() {
    let (layer, store) = two_budgets();
    let limited = ConcurrencyLimitLayer::new(1).layer(Server::new().says("t", "done"));
    let mut sibling = limited.clone();
    let mut sibling = task::spawn(sibling.ready());
    let mut service = layer.layer(limited);
    let mut running = task::spawn(service.ready().await.unwrap().call(call("t", json!(null))));
    assert_pending!(running.poll());
    store.answer(Ok(()));
    assert_pending!(running.poll());
    assert_pending!(sibling.poll(), "the slot is kept for the call");
    store.answer(Err(Denied::Over { retry_after: Some(Duration::from_secs(5)) }));
    let reply = assert_ready_ok!(running.poll());
    let message = "the budget `all` is used up; try again in 5 s";
    assert_eq!(reply.error().unwrap().message, message);
    assert_eq!((store.given_back(), store.settled().len()), (1, 0));
    assert!(sibling.poll().is_ready());
}

#[tokio::test]
async fn call_dropped_during_a_reservation_releases_everything() {
    let (layer, store) = two_budgets();
    let limited = ConcurrencyLimitLayer::new(1).layer(Server::new().says("t", "done"));
    let mut sibling = limited.clone();
    let mut sibling = task::spawn(sibling.ready());
    let mut running = task::spawn(layer.layer(limited).oneshot(call("t", json!(null))));
    assert_pending!(running.poll());
    store.answer(Ok(()));
    assert_pending!(running.poll());
    assert_pending!(sibling.poll());
    drop(running);
    assert_eq!(store.given_back(), 1);
    assert!(sibling.poll().is_ready());
}

#[tokio::test(start_paused = true)]
async fn calls_waiting_for_a_store_do_not_block_each_other() {
    let store = TestStore::default();
    let layer = BudgetLayer::new().budget(calls(9)).store(store.clone());
    let service = layer.layer(Server::new().says("t", "done"));
    let mut first = task::spawn(service.clone().oneshot(call("t", json!(null))));
    let mut second = task::spawn(service.oneshot(call("t", json!(null))));
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    let first_answer = store.0.lock().unwrap().pending.pop_front();
    store.answer(Ok(()));
    soon(second).await.unwrap();
    assert_pending!(first.poll());
    drop(first_answer);
}

#[tokio::test]
async fn store_error_is_logged_and_hidden_from_the_client() {
    let (logged, _guard) = capture_logs();
    let (layer, store) = two_budgets();
    let mut running =
        task::spawn(layer.layer(Server::new().says("t", "done")).oneshot(call("t", json!(null))));
    assert_pending!(running.poll());
    store.answer(Err(Denied::Unavailable("no route to 10.0.0.7".into())));
    let reply = assert_ready_ok!(running.poll());
    assert_eq!(reply.error().unwrap().message, "tool `t` is not available at the moment");
    let logged = logged.text();
    assert!(logged.contains("mine") && logged.contains("no route to 10.0.0.7"), "{logged}");
}

#[tokio::test]
async fn free_permit_of_a_store_admits_the_call() {
    #[derive(Debug)]
    struct FreeStore;
    impl BudgetStore for FreeStore {
        fn reserve(&self, _: &Budget, _: Option<&str>, _: u64) -> ReserveReply {
            ReserveReply::Ready(Ok(BudgetPermit::free()))
        }
    }
    let layer = BudgetLayer::new().budget(calls(0)).store(FreeStore);
    assert!(!is_refused(&layer.layer(Server::new().says("t", "done")), "t").await);
}
