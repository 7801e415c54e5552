//! Hashes names for Redis keys, so that the keys have a fixed length and do not disclose the names.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 digest of a sequence of byte strings. Different sequences have different
/// digests, even if their concatenations are equal.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        // The length is included so that `["ab", "c"]` and `["a", "bc"]` have different digests.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}
