use std::{
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use cpu_time::ThreadTime;
use futures::FutureExt;
use proptest::prelude::*;
use tokio::time::{Instant, advance};

mod results;
#[cfg(feature = "sealed")]
mod sealed;
mod stateless;

#[cfg(feature = "sealed")]
use super::SealedStore;
use super::{KeyError, MemoryStore, PutError, SignedStore, Store, TakeError, caller_key};

const KEY: &str = "a key of at least thirty-two bytes";
const OTHER_KEY: &str = "another key of at least 32 bytes.";

fn signed() -> SignedStore {
    SignedStore::new(KEY).unwrap()
}

#[cfg(feature = "sealed")]
fn sealed() -> SealedStore {
    SealedStore::new(KEY).unwrap()
}

/// Returns a store of each kind, with default settings.
fn stores() -> Vec<Box<dyn Store>> {
    vec![
        Box::new(signed()),
        Box::new(MemoryStore::for_runs()),
        Box::new(Arc::new(SignedStore::ephemeral())),
        #[cfg(feature = "sealed")]
        Box::new(sealed()),
        #[cfg(feature = "sealed")]
        Box::new(Arc::new(SealedStore::ephemeral())),
    ]
}

fn put(store: &dyn Store, state: &[u8], binding: &[u8]) -> Result<String, PutError> {
    store.put(state.to_vec(), binding, None).now_or_never().expect("nothing to wait for")
}

fn put_for(store: &dyn Store, state: &[u8], caller: &[u8]) -> Result<String, PutError> {
    store.put(state.to_vec(), b"", Some(caller)).now_or_never().expect("nothing to wait for")
}

fn take(store: &dyn Store, text: &str, binding: &[u8]) -> Result<Vec<u8>, TakeError> {
    store.take(text, binding, None).now_or_never().expect("nothing to wait for")
}

fn is_invalid(taken: &Result<Vec<u8>, TakeError>) -> bool {
    matches!(taken, Err(TakeError::Invalid(_)))
}

// === Every store ===

#[test]
fn state_is_returned_unchanged() {
    for store in stores() {
        for state in [&b""[..], b"{}", &[0, 255, 0], &[b'x'; 40_000]] {
            for binding in [&b""[..], b"b", &[7; 100]] {
                let text = put(&*store, state, binding).unwrap();
                assert_eq!(take(&*store, &text, binding).as_deref(), Ok(state), "{store:?}");
            }
        }
    }
}

#[test]
fn state_above_max_bytes_is_always_rejected() {
    let small = |bytes: usize| -> [(Box<dyn Store>, usize); 3] {
        [
            (Box::new(signed().max_item_bytes(bytes)), bytes * 3 / 4),
            (Box::new(MemoryStore::for_runs().max_item_bytes(bytes)), bytes),
            (Box::new(Arc::new(MemoryStore::for_runs().max_total_bytes(bytes))), bytes),
        ]
    };
    for bytes in [1_001, 4_002, 64 * 1024] {
        for (store, least) in small(bytes) {
            let max = store.max_bytes().unwrap();
            assert!((least..least + 4).contains(&max), "{max}: {store:?}");
            assert!(put(&*store, &vec![b'x'; max + 1], b"").is_err(), "{store:?}");
        }
    }
}

#[test]
fn state_requires_the_same_binding() {
    for store in stores() {
        let text = put(&*store, b"state", b"call of alice").unwrap();
        for other in [&b""[..], b"call of bob", b"call of alic", b"call of alice "] {
            assert!(is_invalid(&take(&*store, &text, other)), "{store:?}");
        }
        assert_eq!(take(&*store, &text, b"call of alice").unwrap(), b"state", "{store:?}");
    }
}

#[test]
fn text_with_a_changed_bit_is_rejected() {
    for store in stores() {
        let text = put(&*store, b"{\"steps\":[]}", b"b").unwrap();
        for at in 0..text.len() {
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                let changed = String::from_utf8(bytes).unwrap();
                assert!(is_invalid(&take(&*store, &changed, b"b")), "{changed}: {store:?}");
            }
        }
        assert!(take(&*store, &text, b"b").is_ok(), "{store:?}");
    }
}

#[test]
fn shortened_or_lengthened_text_is_rejected() {
    for store in stores() {
        let text = put(&*store, b"state", b"").unwrap();
        for at in 0..text.len() {
            assert!(is_invalid(&take(&*store, &text[..at], b"")), "{at}: {store:?}");
        }
        for longer in [format!("{text}A"), format!("{text}="), format!("{text}.{text}")] {
            assert!(is_invalid(&take(&*store, &longer, b"")), "{longer}: {store:?}");
        }
    }
}

#[test]
fn text_of_another_store_is_rejected() {
    let texts = stores().into_iter().map(|store| put(&*store, b"state", b"").unwrap());
    for text in texts {
        for store in [
            Box::new(SignedStore::new(OTHER_KEY).unwrap()) as Box<dyn Store>,
            Box::new(MemoryStore::for_runs()),
            #[cfg(feature = "sealed")]
            Box::new(SealedStore::new(OTHER_KEY).unwrap()),
        ] {
            assert!(is_invalid(&take(&*store, &text, b"")), "{text}: {store:?}");
        }
    }
}

#[test]
fn huge_garbage_is_rejected_quickly() {
    for store in stores() {
        for garbage in [
            format!("rs2.ZGVmYXVsdA.{}.{}", "A".repeat(32 << 20), "A".repeat(43)),
            format!("es1.ZGVmYXVsdA.{}", "A".repeat(32 << 20)),
        ] {
            let start = ThreadTime::now();
            assert!(is_invalid(&take(&*store, &garbage, b"")), "{store:?}");
            let elapsed = start.elapsed();
            let start = ThreadTime::now();
            assert!(garbage.bytes().all(|byte| std::hint::black_box(byte).is_ascii()));
            let whole = start.elapsed();
            assert!(elapsed < whole / 2, "{elapsed:?}, and {whole:?} to read the whole handle");
        }
    }
}

proptest! {
    #[test]
    fn garbage_is_rejected(
        text in any::<String>(),
        key in "(ZGVmYXVsdA|[A-Za-z0-9_-]{0,12})",
        body in "[A-Za-z0-9_.=-]{0,200}",
    ) {
        let [rs1, rs2, es1] =
            [format!("rs1.{body}"), format!("rs2.{key}.{body}"), format!("es1.{key}.{body}")];
        for store in stores() {
            for text in [&text, &rs1, &rs2, &es1, &body] {
                prop_assert!(is_invalid(&take(&*store, text, b"")));
            }
        }
    }
}

#[test]
fn store_serves_a_hundred_threads_at_once() {
    for store in stores() {
        thread::scope(|scope| {
            for thread in 0..100_u8 {
                let store = &store;
                scope.spawn(move || {
                    for round in 0..20 {
                        let state = [thread, round];
                        let text = put(&**store, &state, &[thread]).unwrap();
                        assert!(is_invalid(&take(&**store, &text, &[thread + 1])));
                        assert_eq!(take(&**store, &text, &[thread]).unwrap(), state);
                    }
                });
            }
        });
    }
}

#[test]
fn debug_output_hides_secrets() {
    let stored = MemoryStore::for_runs();
    let handle = put(&stored, b"s3cret", b"s3cret").unwrap();
    let printed = format!("{:?} {stored:?}", signed());
    for secret in [KEY, "s3cret", "115, 51, 99", "97, 32, 107", &*handle] {
        assert!(!printed.contains(secret), "{printed}");
    }
}

// === MemoryStore ===

#[test]
fn stored_state_is_returned_only_once() {
    let store = MemoryStore::for_runs();
    let text = put(&store, b"state", b"").unwrap();
    assert!(take(&store, &text, b"").is_ok());
    assert!(is_invalid(&take(&store, &text, b"")));
}

#[test]
fn concurrent_takes_return_a_state_only_once() {
    let store = MemoryStore::for_runs();
    for _ in 0..50 {
        let text = put(&store, b"state", b"").unwrap();
        let barrier = Barrier::new(8);
        let taken = thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        take(&store, &text, b"").is_ok()
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).filter(|ok| *ok).count()
        });
        assert_eq!(taken, 1);
    }
}

#[test]
fn handles_are_unique_and_equally_long() {
    let store = MemoryStore::for_runs();
    let mut handles: Vec<_> = (0..1_000).map(|_| put(&store, b"s", b"").unwrap()).collect();
    handles.sort();
    handles.dedup();
    assert_eq!(handles.len(), 1_000);
    assert!(handles.iter().all(|handle| handle.len() == 64));
}

#[tokio::test(start_paused = true)]
async fn stored_state_is_rejected_after_expiry() {
    let store = MemoryStore::for_runs().ttl(Duration::from_secs(10));
    let [early, late] = [b"1", b"2"].map(|state| put(&store, state, b"").unwrap());
    advance(Duration::from_secs(9)).await;
    assert!(take(&store, &early, b"").is_ok());
    advance(Duration::from_secs(1)).await;
    assert!(is_invalid(&take(&store, &late, b"")));
}

#[tokio::test(start_paused = true)]
async fn full_store_rejects_states_until_one_is_taken_or_expires() {
    // The store has room for two states.
    let store = MemoryStore::for_runs().ttl(Duration::from_secs(10)).max_total_bytes(3_500);
    let put = || put(&store, &[b'x'; 1_000], b"");
    let full = PutError::Full { bytes: 3 * (1_000 + 512), max: 3_500 };

    let first = put().unwrap();
    advance(Duration::from_secs(5)).await;
    let second = put().unwrap();
    assert_eq!(put(), Err(full.clone()));
    assert!(full.to_string().ends_with("more than 3500 bytes (`max_total_bytes`)"), "{full}");

    assert!(take(&store, &first, b"").is_ok());
    put().unwrap();
    assert_eq!(put(), Err(full.clone()));

    advance(Duration::from_millis(9_999)).await;
    assert_eq!(put(), Err(full), "nothing that lives makes room");
    advance(Duration::from_millis(1)).await;
    put().unwrap();
    assert!(is_invalid(&take(&store, &second, b"")));
}

#[test]
fn full_store_error_hides_the_used_bytes() {
    let store = MemoryStore::for_runs().max_total_bytes(3_500);
    put(&store, &[0; 1_000], b"").unwrap();
    let full = put(&store, &[0; 2_000], b"").unwrap_err();
    assert!(matches!(full, PutError::Full { bytes: 4_024, max: 3_500 }), "{full:?}");
    assert!(!full.to_string().contains("4024"), "{full}");
}

#[test]
fn caller_with_a_full_share_leaves_room_for_others() {
    let store: Arc<dyn Store> = Arc::new(
        // Each caller's share has room for two states.
        MemoryStore::for_runs().max_total_bytes(100_000).max_caller_bytes(3_200),
    );
    let state = [b'x'; 1_000];
    // Uses the store through an `Arc`, which must forward the caller.
    let put_for = |caller| put_for(&store, &state, caller);
    for _ in 0..2 {
        put_for(b"alice").unwrap();
    }
    let refused = put_for(b"alice").unwrap_err();
    assert_eq!(refused, PutError::CallerFull { bytes: 1_000 + 5 + 512, max: 3_200 });
    let message = refused.to_string();
    assert!(message.contains("takes 1517 bytes") && message.contains("3200 (`max_caller_bytes`)"));
    for caller in [&b"bob"[..], b"", b"alic"] {
        put_for(caller).unwrap();
        put_for(caller).unwrap();
        assert!(matches!(put_for(caller), Err(PutError::CallerFull { .. })));
    }
    // A state without a caller is not charged to any caller's share.
    for _ in 0..4 {
        put(&store, &state, b"").unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn taken_and_expired_states_free_the_share() {
    let store = MemoryStore::for_runs().ttl(Duration::from_secs(10)).max_caller_bytes(3_200);
    let put = || put_for(&store, &[b'x'; 1_000], b"alice");
    let first = put().unwrap();
    advance(Duration::from_secs(5)).await;
    put().unwrap();
    assert!(matches!(put(), Err(PutError::CallerFull { .. })));

    assert!(take(&store, &first, b"").is_ok());
    put().unwrap();
    assert!(matches!(put(), Err(PutError::CallerFull { .. })));

    advance(Duration::from_secs(10)).await;
    put().unwrap();
    put().unwrap();
    assert!(matches!(put(), Err(PutError::CallerFull { .. })));
}

#[test]
fn share_of_a_caller_defaults_to_a_quarter() {
    let store = MemoryStore::for_runs().max_total_bytes(8 * (512 + 1));
    let put = |caller| put_for(&store, b"", caller);
    for caller in [b"a", b"b", b"c", b"d"] {
        put(caller).unwrap();
        put(caller).unwrap();
        let refused = put(caller).unwrap_err();
        if caller == b"d" {
            assert!(matches!(refused, PutError::Full { .. }), "{refused:?}");
        } else {
            assert_eq!(refused, PutError::CallerFull { bytes: 513, max: 2 * 513 });
        }
    }
}

#[test]
fn small_states_and_large_bindings_count_too() {
    let store = MemoryStore::for_runs().max_total_bytes(10 * 512);
    let many = (0..100).take_while(|_| put(&store, b"", b"").is_ok()).count();
    assert_eq!(many, 10);

    let store = MemoryStore::for_runs().max_total_bytes(1_000);
    assert!(matches!(put(&store, b"", &[0; 1_000]), Err(PutError::Full { bytes: 1_512, .. })));
}

#[test]
fn oversized_state_is_rejected() {
    let store = MemoryStore::for_runs().max_item_bytes(10);
    assert!(put(&store, &[0; 10], b"").is_ok());
    assert_eq!(put(&store, &[0; 11], b""), Err(PutError::TooLarge { bytes: 11, max: 10 }));
}

#[test]
fn unknown_caller_differs_from_every_name() {
    for name in ["", "anybody", "caller "] {
        assert_ne!(caller_key(None), caller_key(Some(name)));
    }
}
