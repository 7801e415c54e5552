//! Signed states that clients keep.

use std::{collections::HashSet, fmt, sync::OnceLock, time::Duration};

use futures::future::BoxFuture;
use rmcp::model::{RequestStateCodec, RequestStateError, SealOptions};

use super::{KeyError, PutError, Store, TakeError};

/// The minimum size of a key in bytes.
pub(crate) const MIN_KEY: usize = RequestStateCodec::MIN_KEY_LENGTH;
/// The maximum size of the id of a key in bytes.
pub(crate) const MAX_KEY_ID: usize = 255;
/// The default time after which a state expires.
pub(crate) const STATE_TTL: Duration = Duration::from_secs(60 * 60);
/// The default maximum length of the text of a state.
const MAX_SIGNED_BYTES: usize = 64 * 1024;

/// The id of a key without one of its own.
const DEFAULT_ID: &str = "default";
/// The id of the key that only this process has.
const EPHEMERAL_ID: &str = "ephemeral";

/// States that clients keep, signed to prevent changes.
///
/// The text is the state in base64 with its time and its signature (HMAC-SHA256, by rmcp's
/// [`RequestStateCodec`]), so any process that has the key can take it, and the server stores
/// nothing.
///
/// It is signed and not encrypted: *a client can read it*, including the answers of the tools
/// called so far. It can also be used more than once until it expires, so a client can go back to a
/// question and answer it differently. To prevent that, use a [`MemoryStore`](super::MemoryStore).
///
/// # Keys
///
/// A key is any secret of at least 32 bytes, the same in each process that takes the states of the
/// others; `openssl rand -base64 32` generates one. With several [keys](Self::ring), the first one
/// signs, and all are accepted. So a key is replaced in three steps, each in all processes before
/// the next:
///
/// 1. add the new one behind the old one;
/// 2. put the new one first;
/// 3. when the states signed with the old one have expired, remove the old one.
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
    ttl: Duration,
    max_item_bytes: usize,
}

// === impl SignedStore ===

impl SignedStore {
    /// Creates a store that signs with one key, which has the id `default`.
    ///
    /// # Errors
    ///
    /// Returns an error if the key has less than 32 bytes.
    pub fn new(key: impl Into<Vec<u8>>) -> Result<Self, KeyError> {
        Self::ring([(DEFAULT_ID, key)])
    }

    /// Creates a store that signs with the first of several keys, and accepts all of them.
    ///
    /// A text contains the id of the key that it was signed with.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no key, a key has less than 32 bytes, or an id is empty, longer
    /// than 255 bytes or repeated.
    #[expect(clippy::missing_panics_doc, reason = "what the codec refuses was refused before")]
    pub fn ring<I, K>(keys: impl IntoIterator<Item = (I, K)>) -> Result<Self, KeyError>
    where
        I: Into<String>,
        K: Into<Vec<u8>>,
    {
        let keys: Vec<(String, Vec<u8>)> =
            keys.into_iter().map(|(id, key)| (id.into(), key.into())).collect();
        let mut ids = HashSet::new();
        for (id, key) in &keys {
            if id.is_empty() || id.len() > MAX_KEY_ID {
                return Err(KeyError::IllegalId { bytes: id.len(), max: MAX_KEY_ID });
            }
            if key.len() < MIN_KEY {
                return Err(KeyError::TooShort { id: id.clone(), bytes: key.len(), min: MIN_KEY });
            }
            if !ids.insert(id) {
                return Err(KeyError::DuplicateId { id: id.clone() });
            }
        }
        let Some((first, _)) = keys.first() else { return Err(KeyError::None) };
        let codec = RequestStateCodec::new_with_keyring(first.clone(), keys)
            .expect("the keys were checked");
        Ok(Self { codec, ttl: STATE_TTL, max_item_bytes: MAX_SIGNED_BYTES })
    }

    /// Creates a store that signs with a random key of this process, the same each time.
    ///
    /// A state does not survive a restart, and other processes do not accept it. This is the
    /// default of a composite layer.
    ///
    /// # Panics
    ///
    /// Panics if the system provides no random numbers.
    #[must_use]
    pub fn ephemeral() -> Self {
        static KEY: OnceLock<[u8; MIN_KEY]> = OnceLock::new();
        let key = KEY.get_or_init(|| {
            let mut key = [0; MIN_KEY];
            getrandom::fill(&mut key).expect("the system has random numbers");
            key
        });
        Self::ring([(EPHEMERAL_ID, *key)]).expect("the key is long enough")
    }

    /// Sets the time after which a state expires. Defaults to an hour.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the maximum length of the text of a state. Defaults to 64 KiB, for a state of some 48
    /// KiB.
    ///
    /// A run whose state is certain to be larger at a question is rejected before a step that may
    /// change something. A longer text is rejected without being parsed.
    #[must_use]
    pub const fn max_item_bytes(mut self, bytes: usize) -> Self {
        self.max_item_bytes = bytes;
        self
    }

    fn seal(&self, state: &[u8], binding: &[u8]) -> Result<String, PutError> {
        let max = self.max_item_bytes;
        let fits = |bytes| match bytes <= max {
            true => Ok(()),
            false => Err(PutError::TooLarge { bytes, max }),
        };
        // A state that is too large itself need not be signed.
        fits(state.len())?;
        let options = SealOptions::new().associated_data(binding).ttl(self.ttl);
        let text = self.codec.seal_with(state, &options);
        fits(text.len())?;
        Ok(text)
    }

    fn open(&self, text: &str, binding: &[u8]) -> Result<Vec<u8>, TakeError> {
        if text.len() > self.max_item_bytes {
            return Err(TakeError::Invalid("it is too long".into()));
        }
        self.codec.open_with(text, binding).map_err(|error| {
            TakeError::Invalid(match error {
                RequestStateError::IntegrityCheckFailed => {
                    "its signature does not fit: it was changed, or is of another call, another \
                     caller or another key of the same id"
                        .into()
                }
                RequestStateError::Expired => "it has expired".into(),
                RequestStateError::UnknownKeyId => "it was signed with an unknown key".into(),
                _ => "it is malformed".into(),
            })
        })
    }
}

impl Store for SignedStore {
    fn put<'a>(
        &'a self,
        value: Vec<u8>,
        owner: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(async move { self.seal(&value, owner) })
    }

    fn take<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        self.get(handle, owner, caller)
    }

    fn get<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        _: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(async move { self.open(handle, owner) })
    }

    fn max_bytes(&self) -> Option<usize> {
        // Four characters of base64 encode three bytes.
        let max = self.max_item_bytes;
        Some(max / 4 * 3 + max % 4)
    }
}

impl fmt::Debug for SignedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The codec does not show its keys either, and has no other fields of interest.
        f.debug_struct("SignedStore")
            .field("ttl", &self.ttl)
            .field("max_item_bytes", &self.max_item_bytes)
            .finish_non_exhaustive()
    }
}
