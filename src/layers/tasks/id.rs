//! The IDs of tasks.

use sha2::{Digest, Sha256};

use crate::random;

/// The number of random bytes in the ID of a task.
const ID: usize = 24;

/// Returns a new random ID.
pub(super) fn new_id() -> Option<String> {
    let id = random::text::<ID>();
    id.inspect_err(|error| tracing::error!(%error, "the system has no random numbers")).ok()
}

/// Returns `true` if a task of this crate can have this ID.
pub(super) fn is_id(id: &str) -> bool {
    id.len() == 2 * ID && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the key of the task in a shared store, which is a digest of its ID. A person who sees
/// the key in the store cannot compute the ID from it.
pub(super) fn key_of(id: &str) -> String {
    random::hex(&Sha256::digest(id))
}
