//! Tests of the encryption of sealed states.

use std::{collections::HashSet, fmt::Write};

use base64::{
    Engine,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use chacha20poly1305::XChaCha20Poly1305;
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::ZeroizeOnDrop;

use super::{stateless::with_part, *};

/// Returns the sealed state of a handle, decoded.
fn body(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text.split('.').nth(2).unwrap()).unwrap()
}

fn random_bytes(random: &mut fastrand::Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| random.u8(..)).collect()
}

/// Returns `true` if a handle contains the beginning or the end of the state, also in base64.
fn contains_part(text: &str, state: &[u8]) -> bool {
    let parts = [&state[..6], &state[state.len() - 6..]];
    let body = body(text);
    let mut windows = body.windows(6).chain(text.as_bytes().windows(6));
    let mut engines = [URL_SAFE_NO_PAD, STANDARD_NO_PAD].into_iter();
    windows.any(|part| parts.contains(&part))
        || engines.any(|engine| {
            // The state may begin at any of three places in a group of four characters.
            (0..3).any(|offset| text.contains(&engine.encode(&state[offset..])[..8]))
        })
}

#[test]
fn sealed_texts_contain_no_part_of_random_states() {
    let (sealed, mut random) = (sealed(), fastrand::Rng::with_seed(1));
    for _ in 0..10_000 {
        let length = random.usize(16..300);
        let state = random_bytes(&mut random, length);
        let text = put(&sealed, &state, b"owner").unwrap();
        assert!(!contains_part(&text, &state), "{text}: {state:?}");
    }
    // The check detects a state that is not encrypted.
    let state = random_bytes(&mut random, 50);
    let text = put(&signed(), &state, b"owner").unwrap();
    assert!(contains_part(&text, &state));
}

#[test]
fn states_of_equal_length_have_texts_of_equal_length() {
    let mut random = fastrand::Rng::with_seed(2);
    for length in [0, 1, 100, 239, 240, 241, 4_000] {
        let texts = [
            vec![0; length],
            vec![b'a'; length],
            random_bytes(&mut random, length),
            random_bytes(&mut random, length),
        ];
        let lengths = texts.map(|state| put(&sealed(), &state, b"owner").unwrap().len());
        assert!(lengths.iter().all(|other| *other == lengths[0]), "{lengths:?}");
    }
}

#[test]
fn length_of_a_sealed_text_grows_in_steps_of_256_bytes() {
    for (length, padded) in [(0, 256), (1, 256), (240, 256), (241, 512), (496, 512), (497, 768)] {
        let text = put(&sealed(), &vec![b'x'; length], b"").unwrap();
        // Also a nonce of 24 bytes and a tag of 16.
        assert_eq!(body(&text).len(), 24 + padded + 16, "{length}");
    }
}

#[test]
fn same_state_is_sealed_differently_each_time() {
    let seal = |_| body(&put(&sealed(), b"state", b"owner").unwrap());
    let bodies: Vec<_> = (0..1_000).map(seal).collect();
    let nonces: HashSet<_> = bodies.iter().map(|body| &body[..24]).collect();
    assert_eq!(nonces.len(), bodies.len());
    // Of the same encrypted byte, each value occurs about four times.
    for at in 24..bodies[0].len() {
        let mut counts = [0; 256];
        bodies.iter().for_each(|body| counts[usize::from(body[at])] += 1);
        assert!(counts.iter().all(|count| *count < 30), "{at}: {counts:?}");
    }
}

#[test]
fn parts_of_two_sealed_states_cannot_be_combined() {
    let store = sealed();
    let [one, two] = [b"one", b"two"].map(|state| put(&store, state, b"owner").unwrap());
    let bodies = [body(&one), body(&two)];
    let tag = bodies[0].len() - 16;
    for (begin, end) in [(0, 24), (24, tag), (tag, tag + 16), (0, tag), (24, tag + 16), (24, 88)] {
        let mut combined = bodies[0].clone();
        combined[begin..end].copy_from_slice(&bodies[1][begin..end]);
        let text = with_part(&one, 2, &URL_SAFE_NO_PAD.encode(combined));
        assert!(is_invalid(&take(&store, &text, b"owner")), "{begin}..{end}");
    }
    // Blocks of the cipher cannot be exchanged, removed or repeated.
    let mut exchanged = bodies[0].clone();
    exchanged[24..152].rotate_left(64);
    let shortened = [&bodies[0][..24], &bodies[0][88..]].concat();
    let repeated = [&bodies[0][..88], &bodies[0][24..]].concat();
    for body in [exchanged, shortened, repeated] {
        let text = with_part(&one, 2, &URL_SAFE_NO_PAD.encode(body));
        assert!(is_invalid(&take(&store, &text, b"owner")), "{text}");
    }
    assert_eq!(take(&store, &one, b"owner").unwrap(), b"one");
}

#[test]
fn each_state_has_only_one_sealed_text() {
    let store = sealed();
    let text = put(&store, b"state", b"").unwrap();
    // The last character of each part in base64 has unused bits.
    for at in [1, 2] {
        let part = text.split('.').nth(at).unwrap();
        let (rest, last) = part.split_at(part.len() - 1);
        for other in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=".chars() {
            if !last.contains(other) {
                let changed = with_part(&text, at, &format!("{rest}{other}"));
                assert!(is_invalid(&take(&store, &changed, b"")), "{changed}");
            }
        }
    }
    for changed in [text.replacen("es1", "es2", 1), text.replacen("es1", "ES1", 1)] {
        assert!(is_invalid(&take(&store, &changed, b"")), "{changed}");
    }
}

#[test]
fn sealed_state_has_the_documented_format() {
    // Created with libsodium, from the description of the format.
    let text = "es1.MjAyNi0xMQ.AAECAwQFBgcICQoLDA0ODxAREhMUFRYXDZlO1Xxsm3aDF-2ApHv-u3Js4gSU6wVxx\
                whNCXk2UoM81Yhlo41Sk3LbGJu6sMi6OY-iuJxz0PJF10OxPMmbFNISkZweMepQ_iTymfcu_eCs71Naz\
                njaeYQHYvTT-FvhwhMEIaKPu2HWD2zzW6pZIdI6oh0OUYq5INvlfTE2HbV2ddBlg7fDebG6CX1icJJI8\
                uipaZmR-ayZZmPoYjpFnl6C0FkarJRlj36JX90HEJhOgQgcAlbTAjhjH7KvyU3dYxGxascT4_II-aiHC\
                McDSC6iG0Fjnoy-iDABc_nUkyjJ4s0H4ersXqmxbxLhbMdzGYPNeYYNUZaeFTm1xs3WbA4ZEf8NoI30M\
                5EmnFKpoRI";
    let store = SealedStore::ring([("2026-11", KEY)]).unwrap();
    assert_eq!(take(&store, text, b"search of alice").unwrap(), b"half done");
    assert!(is_invalid(&take(&store, text, b"search of bob")));
}

#[test]
fn sealed_state_of_maximum_size_fits_exactly() {
    for max in [0, 100, 409, 410, 1_000, 1_001, 1_002, 1_003, 5_000, 64 * 1024] {
        let store = sealed().max_item_bytes(max);
        let bytes = store.max_bytes().unwrap();
        let text = put(&store, &vec![b'x'; bytes], b"");
        if max < 410 {
            assert_eq!(bytes, 0);
            assert!(matches!(text, Err(PutError::TooLarge { .. })), "{max}");
            continue;
        }
        let text = text.unwrap();
        assert!(text.len() <= max && take(&store, &text, b"").is_ok(), "{max}");
        let error = put(&store, &vec![b'x'; bytes + 1], b"").unwrap_err();
        assert!(matches!(error, PutError::TooLarge { bytes, .. } if bytes > max), "{error}");
    }
    assert!(sealed().max_item_bytes(usize::MAX).max_bytes().unwrap() > usize::MAX / 4 * 3 - 1_000);
}

#[test]
fn signed_and_sealed_states_are_rejected_by_the_other_store() {
    let [signed_text, sealed_text] =
        [&signed() as &dyn Store, &sealed()].map(|store| put(store, b"state", b"").unwrap());
    let message = take(&sealed(), &signed_text, b"").unwrap_err().to_string();
    assert!(message.contains("signed, not encrypted"), "{message}");
    assert!(message.contains("by an earlier version or with `store = \"signed\"`"), "{message}");
    let message = take(&signed(), &sealed_text, b"").unwrap_err().to_string();
    assert!(message.contains("created with `store = \"sealed\"`"), "{message}");
}

#[test]
fn derived_keys_are_never_printed() {
    let store = SealedStore::ring([("2026-11", KEY)]).unwrap();
    let ephemeral = SealedStore::ephemeral();
    let texts = [&store, &ephemeral].map(|store| put(store, b"s3cret", b"owner").unwrap());
    let mut printed = format!("{store:?} {store:#?} {ephemeral:?}");
    for text in texts {
        let errors = [
            take(&store, &text, b"other").unwrap_err(),
            take(&SealedStore::new(OTHER_KEY).unwrap(), &text, b"owner").unwrap_err(),
        ];
        write!(printed, "{errors:?} {} {}", errors[0], errors[1]).unwrap();
    }
    let mut derived = [0; 32];
    let label = b"mcp-composite/sealed-state/1";
    Hkdf::<Sha256>::new(None, KEY.as_bytes()).expand(label, &mut derived).unwrap();
    for key in [KEY.as_bytes(), &derived] {
        let numbers = format!("{:?}", &key[..6]);
        for secret in [numbers.trim_matches(['[', ']']), &crate::random::hex(&key[..6])] {
            assert!(!printed.contains(secret), "{printed}");
        }
    }
    assert!(!printed.contains(KEY) && !printed.contains("s3cret"), "{printed}");
}

#[test]
fn cipher_overwrites_its_key_when_dropped() {
    // Compiles only with the feature `zeroize` of the cipher.
    const fn is_overwritten(_: Option<&impl ZeroizeOnDrop>) -> bool {
        true
    }
    const { assert!(is_overwritten(None::<&XChaCha20Poly1305>)) }
}
