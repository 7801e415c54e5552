//! The IDs of tasks.

use sha2::{Digest, Sha256};

use crate::random;

/// The number of random bytes in the ID of a task.
const ID: usize = 24;
/// The number of bytes of the digest in the key of a task. A store contains the key several times.
const KEY: usize = 16;

/// Returns a new random task ID. Returns `None` if the system provides no random numbers.
pub(super) fn new_id() -> Option<String> {
    let id = random::text::<ID>();
    id.inspect_err(|error| tracing::error!(%error, "the system has no random numbers")).ok()
}

/// Returns `true` if `id` has the form of an ID that [`new_id`] creates: 48 hexadecimal digits.
pub(super) fn is_id(id: &str) -> bool {
    id.len() == 2 * ID && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the key of a task in a shared store: the first half of the SHA-256 digest of the task's
/// ID. A person who can read the keys in the store cannot derive the IDs from them.
pub(super) fn key_of(id: &str) -> String {
    random::hex(&Sha256::digest(id)[..KEY])
}
