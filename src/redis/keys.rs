use sha2::{Digest, Sha256};

/// What tells texts apart, of whatever length they are, and does not say them.
pub(super) fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        // Else the end of one could be the beginning of the next.
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}
