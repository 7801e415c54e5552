//! Hashing of names for keys.

use sha2::{Digest, Sha256};

/// Returns a digest of the parts, of fixed length, that does not reveal them.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        // The length prevents collisions of differently split parts.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}
