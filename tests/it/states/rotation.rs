//! Replacing the key of several replicas while clients answer questions.

use std::sync::{
    RwLock,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::{task::JoinSet, time::timeout};

use super::*;

const OLD: (&str, &str) = ("old", KEY);
const NEW: (&str, &str) = ("new", "another key of at least 32 bytes.");
/// The number of concurrent clients.
const CLIENTS: usize = 6;
/// The number of questions that each client answers after each change of a replica.
const ANSWERS: usize = 10;

/// Starts three replicas with the first store, and replaces their stores by the other ones, one
/// replica after the other. Meanwhile, each client is asked by one replica and answers to another.
async fn rotate(stores: Vec<Arc<dyn Store>>) {
    let server = server();
    let replica = |store: &Arc<dyn Store>| service(composites(), store.clone(), &server);
    let replicas: Arc<Vec<_>> =
        Arc::new((0..3).map(|_| RwLock::new(replica(&stores[0]))).collect());
    let answered: Arc<[AtomicUsize; CLIENTS]> = Arc::default();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (replicas, answered) = (replicas.clone(), answered.clone());
        clients.spawn(async move {
            for round in client.. {
                let replica = |at: usize| replicas[at % 3].read().unwrap().clone();
                let state = release().state(&replica(round)).await;
                tokio::task::yield_now().await;
                let result = release().again(state).result(&replica(round / 3)).await;
                assert_eq!(result.is_error, Some(false), "{result:?}");
                answered[client].fetch_add(1, SeqCst);
            }
        });
    }
    // All states that were created before have been answered when each client has answered again.
    let wait = async |clients: &mut JoinSet<()>| {
        let before = answered.each_ref().map(|answered| answered.load(SeqCst));
        let is_behind =
            |(answered, before): (&AtomicUsize, usize)| answered.load(SeqCst) < before + ANSWERS;
        while answered.iter().zip(before).any(is_behind) {
            if let Ok(Some(ended)) = timeout(Duration::from_millis(1), clients.join_next()).await {
                panic!("a client has failed: {ended:?}");
            }
        }
    };
    wait(&mut clients).await;
    for store in &stores[1..] {
        for place in replicas.iter() {
            *place.write().unwrap() = replica(store);
            wait(&mut clients).await;
        }
    }
    clients.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn keys_are_rotated_under_load_without_a_rejected_answer() {
    let rings = [vec![OLD], vec![OLD, NEW], vec![NEW, OLD], vec![NEW]];
    let signed = |ring| -> Arc<dyn Store> { Arc::new(SignedStore::ring(ring).unwrap()) };
    rotate(rings.clone().map(signed).into()).await;
    #[cfg(feature = "sealed")]
    {
        let sealed = |ring| -> Arc<dyn Store> { Arc::new(SealedStore::ring(ring).unwrap()) };
        rotate(rings.map(sealed).into()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[should_panic(expected = "a client has failed")]
async fn replacing_a_key_in_one_step_rejects_answers() {
    let signed = |ring| -> Arc<dyn Store> { Arc::new(SignedStore::ring([ring]).unwrap()) };
    rotate([OLD, NEW].map(signed).into()).await;
}
