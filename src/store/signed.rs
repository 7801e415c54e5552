//! A store that keeps no data on the server: each handle contains the signed state of a run.

use std::{collections::HashSet, fmt, sync::OnceLock, time::Duration};

use futures::future::BoxFuture;
use rmcp::model::{RequestStateCodec, RequestStateError, SealOptions};

use super::{KeyError, PutError, Store, TakeError};

/// The minimum length of a signing key in bytes.
pub(crate) const MIN_KEY: usize = RequestStateCodec::MIN_KEY_LENGTH;
/// The maximum length of a key ID in bytes.
pub(crate) const MAX_KEY_ID: usize = 255;
/// The default lifetime of the state of a run.
pub(crate) const STATE_TTL: Duration = Duration::from_secs(60 * 60);
/// The default maximum length of a handle in bytes.
const MAX_SIGNED_BYTES: usize = 64 * 1024;

/// The key ID in a store that was created with a single key.
const DEFAULT_ID: &str = "default";
/// The ID of the random key of this process.
const EPHEMERAL_ID: &str = "ephemeral";

/// A store that keeps no data on the server. The handle, which the client keeps, contains the state
/// of the run and a signature that prevents changes.
///
/// A handle is a string that contains the state in base64, the expiry time, and a signature
/// (HMAC-SHA256, created by rmcp's [`RequestStateCodec`]). So any process that has the key can
/// resume the run.
///
/// A state is signed but not encrypted: *a client can read it*, including the results of all tools
/// that were called so far. A state can be used any number of times until it expires, so a client
/// can return to a question and answer it differently. To prevent both, use a
/// [`MemoryStore`](super::MemoryStore).
///
/// # Keys
///
/// A key is any secret of at least 32 bytes, such as the output of `openssl rand -base64 32`.
/// Processes that resume each other's runs need the same key. A store with several
/// [keys](Self::ring) signs new states with its first key, and accepts states that were signed with
/// any of its keys. This allows replacing a key in three steps. Complete each step in all processes
/// before you begin the next step:
///
/// 1. add the new key after the old key;
/// 2. put the new key first;
/// 3. when all states that were signed with the old key have expired, remove the old key.
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
    /// Creates a store with a single key, whose ID is `default`.
    ///
    /// # Errors
    ///
    /// Returns an error if the key is shorter than 32 bytes.
    pub fn new(key: impl Into<Vec<u8>>) -> Result<Self, KeyError> {
        Self::ring([(DEFAULT_ID, key)])
    }

    /// Creates a store with several keys, each with an ID. The first key signs new states. The
    /// store accepts states that were signed with any of the keys.
    ///
    /// Each handle contains the ID of the key that signed it.
    ///
    /// # Errors
    ///
    /// Returns an error if there are no keys, if a key is shorter than 32 bytes, or if an ID is
    /// empty, longer than 255 bytes, or used twice.
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

    /// Creates a store with a random key. Within a process, all stores that are created by this
    /// method share the key.
    ///
    /// States become invalid when the process ends, and other processes do not accept them. A
    /// composite layer uses this store by default.
    ///
    /// # Panics
    ///
    /// Panics if the operating system provides no random numbers.
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

    /// Sets the lifetime of a suspended run's state. Defaults to an hour.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the maximum length of a handle in bytes. Defaults to 64 KiB, which is enough for a
    /// state of about 48 KiB.
    ///
    /// If the state of a run is certain to exceed this limit at a later question, the composite
    /// rejects the run before it calls a tool that may have side effects. If a client sends a
    /// longer handle, it is rejected without being parsed.
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
        // Rejects a state that exceeds the limit even without a signature, before it is signed.
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
                    "its signature is invalid: it was modified, or belongs to another call, caller \
                     or key of the same id"
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
        // In base64, four characters encode three bytes.
        let max = self.max_item_bytes;
        Some(max / 4 * 3 + max % 4)
    }
}

impl fmt::Debug for SignedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omits the codec, whose `Debug` output does not contain the keys either.
        f.debug_struct("SignedStore")
            .field("ttl", &self.ttl)
            .field("max_item_bytes", &self.max_item_bytes)
            .finish_non_exhaustive()
    }
}
