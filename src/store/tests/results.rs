use std::time::Duration;

use cpu_time::ThreadTime;
use futures::FutureExt;
use tokio::time::advance;

use crate::store::{MemoryStore, PutError, Store, TakeError};

fn put(store: &MemoryStore, result: &[u8], caller: &[u8]) -> Result<String, PutError> {
    store.put(result.to_vec(), caller, Some(caller)).now_or_never().expect("nothing to wait for")
}

fn get(store: &MemoryStore, handle: &str, caller: &[u8]) -> Option<Vec<u8>> {
    match store.get(handle, caller, Some(caller)).now_or_never().expect("nothing to wait for") {
        Ok(result) => Some(result),
        Err(TakeError::Invalid(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn result_can_be_read_repeatedly() {
    let store = MemoryStore::for_results();
    let handle = put(&store, b"all", b"alice").unwrap();
    for _ in 0..3 {
        assert_eq!(get(&store, &handle, b"alice").as_deref(), Some(&b"all"[..]));
    }
}

#[tokio::test]
async fn result_is_returned_to_its_caller_only() {
    let store = MemoryStore::for_results();
    let handle = put(&store, b"all", b"alice").unwrap();
    for other in [&b""[..], b"bob", b"alic", b"alice "] {
        assert_eq!(get(&store, &handle, other), None);
    }
    assert!(get(&store, &handle, b"alice").is_some(), "it stays");
}

#[tokio::test]
async fn invalid_handle_returns_nothing() {
    let store = MemoryStore::for_results();
    let handle = put(&store, b"all", b"").unwrap();
    for text in ["", "x", &handle[1..], &"0".repeat(64), &"0".repeat(1 << 20)] {
        assert_eq!(get(&store, text, b""), None);
    }
}

#[tokio::test(start_paused = true)]
async fn result_expires() {
    let store = MemoryStore::for_results().ttl(Duration::from_secs(10));
    let handle = put(&store, b"all", b"").unwrap();
    advance(Duration::from_secs(9)).await;
    assert!(get(&store, &handle, b"").is_some());
    advance(Duration::from_secs(1)).await;
    assert_eq!(get(&store, &handle, b""), None);
}

#[tokio::test(start_paused = true)]
async fn oldest_result_is_evicted_first() {
    let store = MemoryStore::for_results().max_total_bytes(3 * 1_000);
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(put(&store, &[b'x'; 1_000 - 512], b"").unwrap());
        advance(Duration::from_secs(1)).await;
    }
    let kept: Vec<_> = handles.iter().map(|handle| get(&store, handle, b"").is_some()).collect();
    assert_eq!(kept, [false, true, true, true]);
}

#[tokio::test(start_paused = true)]
async fn result_of_the_caller_with_the_most_bytes_is_evicted() {
    // The store has room for ten results.
    let store = MemoryStore::for_results().max_total_bytes(10 * 1_000);
    let put = async |caller: &[u8]| {
        advance(Duration::from_millis(1)).await;
        // The name of the caller is included twice in the size: as the owner and as the caller.
        put(&store, &vec![b'x'; 1_000 - 512 - 2 * caller.len()], caller).unwrap()
    };
    let bobs = [put(b"bob").await, put(b"bob").await];
    let mut alices = Vec::new();
    for _ in 0..50 {
        alices.push(put(b"alice").await);
    }
    let kept = |handles: &[String], caller: &[u8]| {
        let kept = handles.iter().map(|handle| get(&store, handle, caller).is_some());
        kept.collect::<Vec<_>>()
    };
    assert_eq!(kept(&bobs, b"bob"), [true; 2], "older than all of alice's");
    assert_eq!(kept(&alices, b"alice"), [vec![false; 42], vec![true; 8]].concat());

    let carol = put(b"carol").await;
    assert_eq!(kept(&[carol], b"carol"), [true]);
    assert_eq!(kept(&bobs, b"bob"), [true; 2]);
    assert_eq!(kept(&alices[42..], b"alice"), [false, true, true, true, true, true, true, true]);
}

#[tokio::test(start_paused = true)]
async fn caller_over_its_share_loses_its_own_oldest_result() {
    let share = 2 * (512 + 2 * 5 + 3);
    let store = MemoryStore::for_results().max_caller_bytes(share);
    let bob = put(&store, b"bob", b"bob").unwrap();
    let mut handles = Vec::new();
    for _ in 0..3 {
        advance(Duration::from_secs(1)).await;
        handles.push(put(&store, b"all", b"alice").unwrap());
    }
    let kept = handles.iter().map(|handle| get(&store, handle, b"alice").is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [false, true, true]);
    assert!(get(&store, &bob, b"bob").is_some());

    let refused = put(&store, &[b'x'; 2_000], b"alice");
    assert_eq!(refused, Err(PutError::CallerFull { bytes: 2_522, max: share }));
    assert!(get(&store, &handles[2], b"alice").is_some(), "a refused result evicts nothing");
}

#[tokio::test(start_paused = true)]
async fn oldest_result_is_evicted_among_callers_with_equal_bytes() {
    let store = MemoryStore::for_results().max_total_bytes(3 * 515);
    let mut handles = Vec::new();
    for name in [b"b", b"c", b"a", b"d", b"e"] {
        advance(Duration::from_secs(1)).await;
        handles.push((put(&store, b"x", name).unwrap(), name));
    }
    let kept = handles.iter().map(|(handle, name)| get(&store, handle, *name).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [false, false, true, true, true]);
}

#[tokio::test]
async fn large_result_of_a_new_caller_is_kept() {
    let store = MemoryStore::for_results().max_total_bytes(10_000);
    let [alice, bob] = [b"alice", b"bobby"].map(|name| {
        let handle = put(&store, &[b'x'; 3_000], name).unwrap();
        (name, handle)
    });
    let carol = put(&store, &[b'x'; 5_000], b"carol").unwrap();
    assert!(get(&store, &carol, b"carol").is_some());
    let left = [alice, bob].map(|(name, handle)| get(&store, &handle, name).is_some());
    assert_eq!(left.into_iter().filter(|is_kept| *is_kept).count(), 1);
}

#[tokio::test]
async fn eviction_among_many_callers_is_fast() {
    let store = MemoryStore::for_results().max_total_bytes(20_000 * 530);
    let start = ThreadTime::now();
    for caller in 0_u32..60_000 {
        put(&store, b"", &caller.to_be_bytes()).unwrap();
    }
    // A linear search of all callers would take more than a minute.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[tokio::test]
async fn oversized_result_evicts_no_other() {
    let store = MemoryStore::for_results().max_item_bytes(1_000).max_total_bytes(1_200);
    let handle = put(&store, b"all", b"").unwrap();
    let too_large = put(&store, &[b'x'; 1_001], b"");
    assert_eq!(too_large, Err(PutError::TooLarge { bytes: 1_001, max: 1_000 }));
    let never_room = put(&store, &[b'x'; 900], b"");
    assert!(matches!(never_room, Err(PutError::Full { .. })), "{never_room:?}");
    assert!(get(&store, &handle, b"").is_some());
}

#[tokio::test]
async fn debug_output_hides_results_and_handles() {
    let store = MemoryStore::for_results();
    let handle = put(&store, b"s3cret", b"s3cret").unwrap();
    let printed = format!("{store:?}");
    assert!(!printed.contains("s3cret") && !printed.contains(&handle), "{printed}");
}
