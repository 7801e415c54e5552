//! Hashes names for Redis keys. Such keys have a fixed length and do not disclose the names.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 digest of a sequence of byte strings. For example, `["ab", "c"]` and `["a",
/// "bc"]` have different digests.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        // The length is included so that `["ab", "c"]` and `["a", "bc"]` have different digests.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}
