//! Tests of the stores whose handles contain the state.

use std::sync::{
    RwLock,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use super::*;

/// Defines the tests of a store whose handles contain the state.
macro_rules! tests_of {
    ($module:ident, $Store:ident) => {
        mod $module {
            use super::*;

            fn store() -> $Store {
                $Store::new(KEY).unwrap()
            }

            #[test]
            fn state_can_be_taken_repeatedly() {
                let text = put(&store(), b"state", b"").unwrap();
                for _ in 0..3 {
                    assert_eq!(take(&store(), &text, b"").unwrap(), b"state");
                }
            }

            #[test]
            fn state_is_rejected_after_expiry() {
                let store = store().ttl(Duration::from_millis(1));
                let text = put(&store, b"state", b"").unwrap();
                // Waits in real time, because the store uses the system time, which a test cannot
                // advance.
                let start = Instant::now();
                while take(&store, &text, b"").is_ok() {
                    assert!(start.elapsed() < Duration::from_secs(60), "it does not expire");
                }
                let expired = Err(TakeError::Invalid("it has expired".into()));
                assert_eq!(take(&store, &text, b""), expired);
            }

            #[test]
            fn longest_lifetime_does_not_overflow() {
                let store = store().ttl(Duration::MAX);
                let text = put(&store, b"state", b"").unwrap();
                assert_eq!(take(&store, &text, b"").unwrap(), b"state");
            }

            #[test]
            fn first_key_is_used_and_all_keys_are_accepted() {
                let old = $Store::ring([("old", KEY)]).unwrap();
                let both = $Store::ring([("old", KEY), ("new", OTHER_KEY)]).unwrap();
                let promoted = $Store::ring([("new", OTHER_KEY), ("old", KEY)]).unwrap();
                let new = $Store::ring([("new", OTHER_KEY)]).unwrap();
                for (from, to, is_taken) in [
                    (&old, &both, true),
                    (&both, &old, true),
                    (&both, &promoted, true),
                    (&promoted, &both, true),
                    (&promoted, &new, true),
                    (&new, &promoted, true),
                    (&promoted, &old, false),
                    (&both, &new, false),
                ] {
                    let text = put(from, b"state", b"").unwrap();
                    assert_eq!(take(to, &text, b"").is_ok(), is_taken);
                }
            }

            #[test]
            fn single_key_has_the_id_default() {
                let ring = $Store::ring([("new", OTHER_KEY), ("default", KEY)]).unwrap();
                let text = put(&store(), b"state", b"").unwrap();
                assert_eq!(take(&ring, &text, b"").unwrap(), b"state");
            }

            #[test]
            fn key_id_is_authenticated() {
                // Both IDs have the same key.
                let ring = $Store::ring([("a", KEY), ("b", KEY)]).unwrap();
                let text = put(&ring, b"state", b"").unwrap();
                let other = with_part(&text, 1, &URL_SAFE_NO_PAD.encode("b"));
                assert!(is_invalid(&take(&ring, &other, b"")));
                // The end of an ID is not the beginning of an owner.
                let ring = $Store::ring([("a", KEY), ("ab", KEY)]).unwrap();
                let text = put(&ring, b"state", b"bc").unwrap();
                let other = with_part(&text, 1, &URL_SAFE_NO_PAD.encode("ab"));
                assert!(is_invalid(&take(&ring, &other, b"c")));
            }

            #[test]
            fn invalid_keys_are_rejected() {
                let long = "i".repeat(256);
                for (keys, error) in [
                    (&[][..], KeyError::None),
                    (&[("a", "short")], KeyError::TooShort { id: "a".into(), bytes: 5, min: 32 }),
                    (
                        &[("a", KEY), ("b", &KEY[..31])],
                        KeyError::TooShort { id: "b".into(), bytes: 31, min: 32 },
                    ),
                    (&[("a", KEY), ("a", OTHER_KEY)], KeyError::DuplicateId { id: "a".into() }),
                    (&[("", KEY)], KeyError::IllegalId { bytes: 0, max: 255 }),
                    (&[(&long, KEY)], KeyError::IllegalId { bytes: 256, max: 255 }),
                ] {
                    let refused = $Store::ring(keys.iter().copied()).unwrap_err();
                    assert_eq!(refused, error);
                    assert!(!refused.to_string().contains("short"), "{refused}");
                }
                assert!($Store::new(&KEY[..32]).is_ok());
            }

            #[test]
            fn ephemeral_stores_share_the_key_of_the_process() {
                let text = put(&$Store::ephemeral(), b"state", b"").unwrap();
                assert_eq!(take(&$Store::ephemeral(), &text, b"").unwrap(), b"state");
            }

            #[test]
            fn state_of_another_process_is_rejected_with_a_hint() {
                let other = URL_SAFE_NO_PAD.encode("ephemeral-0123456789abcdef");
                for store in [$Store::ephemeral(), store()] {
                    let text = put(&store, b"state", b"").unwrap();
                    let refused = take(&store, &with_part(&text, 1, &other), b"").unwrap_err();
                    let message = refused.to_string();
                    assert!(message.contains("created by another process, or before a restart"));
                    assert!(message.contains("set the same `[state] keys`"), "{message}");
                }
            }

            #[test]
            fn unknown_key_is_named() {
                let other = $Store::ring([("2026-11", OTHER_KEY)]).unwrap();
                let text = put(&other, b"state", b"").unwrap();
                let message = take(&store(), &text, b"").unwrap_err().to_string();
                assert!(message.contains("its key \"2026-11\" is unknown"), "{message}");
            }

            #[test]
            fn state_with_an_oversized_text_is_rejected() {
                let store = store().max_item_bytes(1_000);
                let fits = put(&store, &[b'x'; 450], b"").unwrap();
                assert!(fits.len() <= 1_000 && take(&store, &fits, b"").is_ok());
                for bytes in [720, 1_001, 100_000] {
                    let error = put(&store, &vec![b'x'; bytes], b"").unwrap_err();
                    let PutError::TooLarge { bytes, max } = error else { panic!("{error}") };
                    assert!(bytes > 1_000 && max == 1_000, "{error}");
                    let message = error.to_string();
                    assert!(message.contains("at most 1000 (`max_state_bytes`)"), "{message}");
                }
            }

            #[test]
            fn keys_are_rotated_under_load_without_a_rejected_state() {
                rotate_under_load(
                    &$Store::ring([("old", KEY)]).unwrap(),
                    [
                        $Store::ring([("old", KEY), ("new", OTHER_KEY)]).unwrap(),
                        $Store::ring([("new", OTHER_KEY), ("old", KEY)]).unwrap(),
                        $Store::ring([("new", OTHER_KEY)]).unwrap(),
                    ],
                );
            }
        }
    };
}

tests_of!(signed, SignedStore);
#[cfg(feature = "sealed")]
tests_of!(sealed, SealedStore);

/// Returns a handle with one of its parts replaced.
pub(super) fn with_part(text: &str, at: usize, part: &str) -> String {
    let mut parts: Vec<_> = text.split('.').collect();
    parts[at] = part;
    parts.join(".")
}

/// Replaces the stores of three replicas, one replica after the other, while threads put states at
/// one replica and take them at another. No state may be rejected.
fn rotate_under_load<S: Store + Clone>(before: &S, steps: [S; 3]) {
    /// The number of threads.
    const THREADS: usize = 4;
    /// The number of states of each thread after each replacement. Nine of them pass through each
    /// pair of replicas.
    const STATES: usize = 30;
    let replicas = [(); 3].map(|()| RwLock::new(before.clone()));
    let replica = |at: usize| replicas[at % 3].read().unwrap().clone();
    let taken = [(); THREADS].map(|()| AtomicUsize::new(0));
    let is_done = AtomicBool::new(false);
    // Waits until all earlier states were taken, and each thread has put and taken new ones.
    let wait = || {
        let before = taken.each_ref().map(|taken| taken.load(SeqCst));
        while taken.iter().zip(before).any(|(taken, before)| taken.load(SeqCst) < before + STATES) {
            assert!(!is_done.load(SeqCst), "a state was rejected");
            thread::yield_now();
        }
    };
    thread::scope(|scope| {
        for (thread, taken) in taken.iter().enumerate() {
            let (replica, is_done) = (&replica, &is_done);
            scope.spawn(move || {
                for round in thread.. {
                    if is_done.load(SeqCst) {
                        break;
                    }
                    let state = round.to_string();
                    let text = put(&replica(round), state.as_bytes(), b"owner").unwrap();
                    thread::yield_now();
                    let answered = take(&replica(round / 3), &text, b"owner");
                    if answered.as_deref() != Ok(state.as_bytes()) {
                        is_done.store(true, SeqCst);
                        break;
                    }
                    taken.fetch_add(1, SeqCst);
                }
            });
        }
        wait();
        for step in steps {
            for replica in &replicas {
                *replica.write().unwrap() = step.clone();
                wait();
            }
        }
        assert!(!is_done.swap(true, SeqCst), "a state was rejected");
    });
}

#[test]
#[should_panic(expected = "a state was rejected")]
fn rotation_without_the_first_step_rejects_states() {
    let ring = |keys: &[(&str, &str)]| SignedStore::ring(keys.iter().copied()).unwrap();
    let (old, new) = (ring(&[("old", KEY)]), ring(&[("new", OTHER_KEY)]));
    rotate_under_load(&old, [new.clone(), new.clone(), new]);
}
