use std::time::Duration;

use futures::FutureExt;
use tokio::time::advance;

use super::{PutError, ResultStore, StoredResults, TakeError};

fn put(store: &StoredResults, result: &[u8], caller: &[u8]) -> Result<String, PutError> {
    store.put(result.to_vec(), caller).now_or_never().expect("nothing to wait for")
}

fn get(store: &StoredResults, handle: &str, caller: &[u8]) -> Option<Vec<u8>> {
    match store.get(handle, caller).now_or_never().expect("nothing to wait for") {
        Ok(result) => Some(result),
        Err(TakeError::Invalid(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn a_result_is_read_as_often_as_its_caller_likes() {
    let store = StoredResults::new();
    let handle = put(&store, b"all", b"alice").unwrap();
    for _ in 0..3 {
        assert_eq!(get(&store, &handle, b"alice").as_deref(), Some(&b"all"[..]));
    }
}

#[tokio::test]
async fn only_the_same_caller_reads_it() {
    let store = StoredResults::new();
    let handle = put(&store, b"all", b"alice").unwrap();
    for other in [&b""[..], b"bob", b"alic", b"alice "] {
        assert_eq!(get(&store, &handle, other), None);
    }
    assert!(get(&store, &handle, b"alice").is_some(), "it stays");
}

#[tokio::test]
async fn a_text_that_is_no_handle_gives_nothing() {
    let store = StoredResults::new();
    let handle = put(&store, b"all", b"").unwrap();
    for text in ["", "x", &handle[1..], &"0".repeat(64), &"0".repeat(1 << 20)] {
        assert_eq!(get(&store, text, b""), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_result_expires() {
    let store = StoredResults::new().ttl(Duration::from_secs(10));
    let handle = put(&store, b"all", b"").unwrap();
    advance(Duration::from_secs(9)).await;
    assert!(get(&store, &handle, b"").is_some());
    advance(Duration::from_secs(1)).await;
    assert_eq!(get(&store, &handle, b""), None);
}

#[tokio::test(start_paused = true)]
async fn the_oldest_make_room() {
    let store = StoredResults::new().max_total_bytes(3 * 1_000);
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(put(&store, &[b'x'; 1_000 - 512], b"").unwrap());
        advance(Duration::from_secs(1)).await;
    }
    let kept: Vec<_> = handles.iter().map(|handle| get(&store, handle, b"").is_some()).collect();
    assert_eq!(kept, [false, true, true, true]);
}

#[tokio::test]
async fn a_result_that_is_too_large_puts_nobody_out() {
    let store = StoredResults::new().max_result_bytes(1_000).max_total_bytes(1_200);
    let handle = put(&store, b"all", b"").unwrap();
    let too_large = put(&store, &[b'x'; 1_001], b"");
    assert_eq!(too_large, Err(PutError::TooLarge { bytes: 1_001, max: 1_000 }));
    let never_room = put(&store, &[b'x'; 900], b"");
    assert!(matches!(never_room, Err(PutError::Full { .. })), "{never_room:?}");
    assert!(get(&store, &handle, b"").is_some());
}

#[tokio::test]
async fn no_result_and_no_handle_is_printed() {
    let store = StoredResults::new();
    let handle = put(&store, b"s3cret", b"s3cret").unwrap();
    let printed = format!("{store:?}");
    assert!(!printed.contains("s3cret") && !printed.contains(&handle), "{printed}");
}
