//! A store without data on the server: each handle contains the signed state of a run.

use std::mem;

use rmcp::model::{RequestStateCodec, RequestStateError, SealOptions};

use super::{
    PutError, TakeError,
    stateless::{Keys, Limits, SEALED, stateless_store, unknown_key},
};

/// A store without data on the server. The handle, which the client keeps, contains the state of
/// the run and a signature that prevents changes.
///
/// The handle of a signed state contains the state in base64, the expiry time, and a signature
/// (HMAC-SHA256, created by rmcp's [`RequestStateCodec`]). Any process with the same key can resume
/// a suspended run.
///
/// A `SignedStore` does not encrypt states: *clients can read them*, including the results of all
/// tools that were called so far. To hide states from clients, use a
/// [`SealedStore`](super::SealedStore).
///
/// A signed state can be used any number of times until it expires. A client can therefore return
/// to a question and answer it differently. To allow only one answer, use a
/// [`MemoryStore`](super::MemoryStore).
///
/// # Keys
///
/// The key of a `SignedStore` is any secret of at least 32 bytes, such as the output of `openssl
/// rand -base64 32`. Processes that resume each other's runs need the same key. A store with
/// several [keys](Self::ring) signs new states with its first key, and accepts states that were
/// signed with any of its keys. This allows replacing a key in three steps. Complete each step in
/// all processes before you begin the next step:
/// 1. Add the new key after the old key.
/// 2. Put the new key first.
/// 3. When all states that were signed with the old key have expired, remove the old key.
///
/// # Examples
///
/// ```
/// use mcp_composite::store::{SignedStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (old, new) = ("the old key, of at least 32 bytes", "the new key, of at least 32 bytes");
/// let before = SignedStore::ring([("2026-10", old), ("2026-11", new)])?;
/// let after = SignedStore::ring([("2026-11", new), ("2026-10", old)])?;
///
/// for (here, there) in [(&before, &after), (&after, &before)] {
///     let text = here.put(b"half done".to_vec(), b"", None).await?;
///     assert_eq!(there.take(&text, b"", None).await?, b"half done");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SignedStore {
    codec: RequestStateCodec,
    limits: Limits,
}

stateless_store!(SignedStore);

// === impl SignedStore ===

impl SignedStore {
    fn with_keys(keys: Keys) -> Self {
        let first = keys.first_id().to_owned();
        // The codec overwrites the keys in memory when it is dropped.
        let keys = keys.into_iter().map(|mut key| (key.id, mem::take(&mut *key.secret)));
        let codec = RequestStateCodec::new_with_keyring(first, keys);
        let codec = codec.expect("the keys were checked");
        Self { codec, limits: Limits::default() }
    }

    /// Signs a state. Returns its handle.
    pub(crate) fn seal(&self, state: &[u8], owner: &[u8]) -> Result<String, PutError> {
        // Rejects a state that exceeds the limit even without a signature, before it is signed.
        self.limits.put(state.len())?;
        let options = SealOptions::new().associated_data(owner).ttl(self.limits.ttl);
        let text = self.codec.seal_with(state, &options);
        self.limits.put(text.len())?;
        Ok(text)
    }

    /// Returns the state in a handle.
    pub(crate) fn open(&self, text: &str, owner: &[u8]) -> Result<Vec<u8>, TakeError> {
        self.limits.take(text)?;
        self.codec.open_with(text, owner).map_err(|error| match error {
            RequestStateError::IntegrityCheckFailed => TakeError::NOT_AUTHENTIC,
            RequestStateError::Expired => TakeError::EXPIRED,
            RequestStateError::UnknownKeyId => unknown_key(text),
            _ if text.split('.').next() == Some(SEALED) => TakeError::SEALED,
            _ => TakeError::MALFORMED,
        })
    }

    /// Returns an upper bound for the size of a state, in bytes. The handle of a larger state would
    /// be too long.
    const fn max_state(&self) -> usize {
        // In base64, four characters encode three bytes.
        let max = self.limits.max_item_bytes;
        max / 4 * 3 + max % 4
    }
}
