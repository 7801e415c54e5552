use std::{collections::HashSet, fmt, sync::OnceLock, time::Duration};

use futures::future::BoxFuture;
use rmcp::model::{RequestStateCodec, RequestStateError, SealOptions};

use super::{KeyError, PutError, StateStore, TakeError};

/// How many bytes a key has, at least.
pub(crate) const MIN_KEY: usize = RequestStateCodec::MIN_KEY_LENGTH;
/// How many bytes the id of a key has, at most.
pub(crate) const MAX_ID: usize = 255;
/// How long a state may wait, unless it is said otherwise.
pub(crate) const TTL: Duration = Duration::from_secs(60 * 60);
/// How long a text may be, unless it is said otherwise.
const MAX_STATE_BYTES: usize = 64 * 1024;

/// The id of a key that has none of its own.
const DEFAULT_ID: &str = "default";
/// The id of the key that only this process has.
const EPHEMERAL_ID: &str = "ephemeral";

/// States that clients keep themselves, signed, so that nobody can change them.
///
/// The text is the state in base64 with its time and its signature (HMAC-SHA256, by
/// rmcp's [`RequestStateCodec`]), so any process that has the key can take it, and
/// none has to remember anything.
///
/// It is signed and not encrypted: *a client can read it*, and with it what the
/// tools answered that were called so far. It can also be used more than once until
/// it expires, so a client can go back to a question and answer it in another way.
/// Where that must not be, use a [`StoredState`](super::StoredState).
///
/// # Keys
///
/// A key is any secret of at least 32 bytes, the same in each process that is to
/// take the states of the others; `openssl rand -base64 32` makes one. With several
/// [keys](Self::ring) the first signs, and all are good for taking. So a key is
/// replaced in three steps, each in all processes before the next:
///
/// 1. add the new one behind the old one;
/// 2. put the new one first;
/// 3. when what the old one signed has expired, leave the old one out.
///
/// # Examples
///
/// ```
/// use mcp_composite::state::{SignedState, StateStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (old, new) = ("the old key, of at least 32 bytes", "the new key, of at least 32 bytes");
/// let before = SignedState::ring([("2026-10", old), ("2026-11", new)])?;
/// let after = SignedState::ring([("2026-11", new), ("2026-10", old)])?;
///
/// for (here, there) in [(&before, &after), (&after, &before)] {
///     let text = here.put(b"half done".to_vec(), b"").await?;
///     assert_eq!(there.take(&text, b"").await?, b"half done");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SignedState {
    codec: RequestStateCodec,
    ttl: Duration,
    max_state_bytes: usize,
}

// === impl SignedState ===

impl SignedState {
    /// Signs with one key, which has the id `default`.
    ///
    /// # Errors
    ///
    /// Returns an error if the key has less than 32 bytes.
    pub fn new(key: impl Into<Vec<u8>>) -> Result<Self, KeyError> {
        Self::ring([(DEFAULT_ID, key)])
    }

    /// Signs with the first of several keys, and takes what any of them signed.
    ///
    /// A text says with which key it was signed, by its id.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no key, one has less than 32 bytes, or an id is
    /// empty, longer than 255 bytes or there twice.
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
            if id.is_empty() || id.len() > MAX_ID {
                return Err(KeyError::IllegalId { bytes: id.len(), max: MAX_ID });
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
        Ok(Self { codec, ttl: TTL, max_state_bytes: MAX_STATE_BYTES })
    }

    /// Signs with a random key that only this process has, the same each time.
    ///
    /// So a state does not survive a restart, and is of no use in another process.
    /// It is what a composite layer has, unless it is given another.
    ///
    /// # Panics
    ///
    /// Panics if the system has no random numbers.
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

    /// Sets how long a state may wait for a person; an hour by default.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how long the text of a state may be; 64 KiB by default, which is a state
    /// of some 48 KiB.
    ///
    /// A run whose state is certain to be larger at a question is refused before a step
    /// that may change something. A longer text is not even looked at.
    #[must_use]
    pub const fn max_state_bytes(mut self, bytes: usize) -> Self {
        self.max_state_bytes = bytes;
        self
    }

    fn seal(&self, state: &[u8], binding: &[u8]) -> Result<String, PutError> {
        let max = self.max_state_bytes;
        let fits = |bytes| match bytes <= max {
            true => Ok(()),
            false => Err(PutError::TooLarge { bytes, max }),
        };
        // What is too large as it is need not be signed to be measured.
        fits(state.len())?;
        let options = SealOptions::new().associated_data(binding).ttl(self.ttl);
        let text = self.codec.seal_with(state, &options);
        fits(text.len())?;
        Ok(text)
    }

    fn open(&self, text: &str, binding: &[u8]) -> Result<Vec<u8>, TakeError> {
        if text.len() > self.max_state_bytes {
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

impl StateStore for SignedState {
    fn put<'a>(
        &'a self,
        state: Vec<u8>,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(async move { self.seal(&state, binding) })
    }

    fn take<'a>(
        &'a self,
        text: &'a str,
        binding: &'a [u8],
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(async move { self.open(text, binding) })
    }

    fn max_bytes(&self) -> Option<usize> {
        // Four characters of base64 encode three bytes.
        let max = self.max_state_bytes;
        Some(max / 4 * 3 + max % 4)
    }
}

impl fmt::Debug for SignedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The codec does not show its keys either, and is of no use without them.
        f.debug_struct("SignedState")
            .field("ttl", &self.ttl)
            .field("max_state_bytes", &self.max_state_bytes)
            .finish_non_exhaustive()
    }
}
