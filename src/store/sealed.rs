//! A store without data on the server: each handle contains the encrypted state of a run.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use base64::{Engine, encoded_len, engine::general_purpose::NO_PAD};
use chacha20poly1305::{AeadInOut, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::{
    PutError, TakeError,
    stateless::{Key, Keys, Limits, SEALED, SIGNED, stateless_store, unknown_key},
};

/// Separates handles of this format from handles of other programs and formats. Part of the derived
/// keys and of the associated data.
const LABEL: &[u8] = b"mcp-composite/sealed-state/1";
/// The length of a key of XChaCha20-Poly1305, in bytes.
const KEY: usize = size_of::<chacha20poly1305::Key>();
/// The length of the random nonce at the beginning of a sealed state, in bytes.
const NONCE: usize = size_of::<XNonce>();
/// The length of the authentication tag at the end of a sealed state, in bytes.
const TAG: usize = size_of::<Tag>();
/// The length of the expiry time and the length field, which are encrypted before each state, in
/// bytes.
const HEADER: usize = 2 * size_of::<u64>();
/// States are padded to a multiple of this number of bytes, to hide their exact length.
const BLOCK: usize = 256;

/// Encodes and decodes base64 with the vector instructions of the CPU, if it has them.
#[cfg(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon")))]
static BASE64: LazyLock<base64::engine::Simd> =
    LazyLock::new(|| base64::engine::Simd::url_safe(NO_PAD));
#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_feature = "neon"))))]
static BASE64: base64::engine::GeneralPurpose = base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// A store without data on the server. The handle, which the client keeps, contains the encrypted
/// state of the run.
///
/// Any process with the same key can resume a suspended run. Clients can neither read nor change
/// the state. They can see the ID of the key, and the size of the state, rounded up to a multiple
/// of 256 bytes.
///
/// A sealed state can be used any number of times until it expires. A client can therefore return
/// to a question and answer it differently. To allow only one answer, use a
/// [`MemoryStore`](super::MemoryStore).
///
/// A `SealedStore` with the [random key](Self::ephemeral) of the process is the default store of a
/// [`CompositeLayer`](crate::composite::CompositeLayer).
///
/// # Keys
///
/// The key of a `SealedStore` is any secret of at least 32 bytes, such as the output of `openssl
/// rand -base64 32`. Processes that resume each other's runs need the same key. A store with
/// several [keys](Self::ring) encrypts new states with its first key, and accepts states that were
/// encrypted with any of its keys. This allows replacing a key in three steps. Complete each step
/// in all processes before you begin the next step:
/// 1. Add the new key after the old key.
/// 2. Put the new key first.
/// 3. When all states that were encrypted with the old key have expired, remove the old key.
///
/// The `Debug` output of a `SealedStore` contains no key. The keys are overwritten in memory when
/// the last clone of the store is dropped.
///
/// # Encryption
///
/// The handle of a sealed state has the form `es1.<key ID>.<sealed state>`. The last two parts are
/// in base64. The sealed state consists of a random nonce, the encrypted expiry time and state, and
/// an authentication tag.
///
/// - *The cipher is XChaCha20-Poly1305.* Replicas choose nonces independently, so nonces must be
///   random. The nonces of this cipher have 24 bytes, so the number of states per key needs no
///   limit: after 2^80 states, the probability of a repeated nonce is below 2^-32. The nonces of
///   AES-256-GCM have 12 bytes, which limits a key to 2^32 states. AES-256-GCM-SIV tolerates
///   repeated nonces, but it is slow on CPUs without AES instructions.
/// - *HKDF-SHA256 derives the key of the cipher from the configured key.* A configured key may
///   therefore have any length and alphabet, and a [`SignedStore`](super::SignedStore) with the
///   same configured key uses another key.
/// - *The associated data contains the ID of the key and the owner of the state*, each preceded by
///   its length. The owner is a hash of the composite's definition, the arguments and the caller.
/// - *States are padded* to a multiple of 256 bytes, so that the length of a handle rarely depends
///   on short values, such as the name of a user. A client that can choose the length of a part of
///   the state can still find out the size of the rest.
/// - *States are not compressed.* The size of a compressed state depends on its content: a client
///   that can choose a part of the state could guess the rest, and a shorter handle would confirm
///   the guess.
///
/// # Examples
///
/// ```
/// use mcp_composite::store::{SealedStore, Store};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (old, new) = ("the old key, of at least 32 bytes", "the new key, of at least 32 bytes");
/// let before = SealedStore::ring([("2026-10", old), ("2026-11", new)])?;
/// let after = SealedStore::ring([("2026-11", new), ("2026-10", old)])?;
///
/// for (here, there) in [(&before, &after), (&after, &before)] {
///     let text = here.put(b"half done".to_vec(), b"", None).await?;
///     assert_eq!(there.take(&text, b"", None).await?, b"half done");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SealedStore {
    /// The first key encrypts new states. Every key can decrypt states. There is at least one key.
    keys: Arc<[CipherKey]>,
    limits: Limits,
}

/// A key with the ID by which handles refer to it.
struct CipherKey {
    id: String,
    /// The ID in base64, as in handles.
    encoded_id: String,
    /// Overwrites its key in memory when it is dropped.
    cipher: XChaCha20Poly1305,
}

stateless_store!(SealedStore);

// === impl SealedStore ===

impl SealedStore {
    fn with_keys(keys: Keys) -> Self {
        Self { keys: keys.into_iter().map(CipherKey::new).collect(), limits: Limits::default() }
    }

    fn seal(&self, state: &[u8], owner: &[u8]) -> Result<String, PutError> {
        let key = &self.keys[0];
        let encrypted = (HEADER + state.len()).next_multiple_of(BLOCK);
        let prefix = key.prefix();
        let encoded = encoded_len(NONCE + encrypted + TAG, false).unwrap_or(usize::MAX);
        self.limits.put(prefix.saturating_add(encoded))?;

        let mut nonce = XNonce::default();
        getrandom::fill(&mut nonce).map_err(|error| {
            PutError::Unavailable(format!("the system has no random numbers: {error}").into())
        })?;
        let mut sealed = Vec::with_capacity(NONCE + encrypted + TAG);
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&expiry(self.limits.ttl).to_be_bytes());
        sealed.extend_from_slice(&(state.len() as u64).to_be_bytes());
        sealed.extend_from_slice(state);
        sealed.resize(NONCE + encrypted, 0);
        let buffer = (&mut sealed[NONCE..]).into();
        let tag = key.cipher.encrypt_inout_detached(&nonce, &key.associated_data(owner), buffer);
        // The cipher encrypts up to 256 GiB.
        let tag = tag.map_err(|_| PutError::Unavailable("the state cannot be encrypted".into()))?;
        sealed.extend_from_slice(&tag);

        let mut text = String::with_capacity(prefix + encoded);
        text.extend([SEALED, ".", &*key.encoded_id, "."]);
        BASE64.encode_string(&sealed, &mut text);
        Ok(text)
    }

    fn open(&self, text: &str, owner: &[u8]) -> Result<Vec<u8>, TakeError> {
        self.limits.take(text)?;
        let mut parts = text.splitn(3, '.');
        match parts.next() {
            Some(SEALED) => (),
            Some(version) if SIGNED.contains(&version) => return Err(TakeError::SIGNED),
            _ => return Err(TakeError::MALFORMED),
        }
        let (Some(id), Some(sealed)) = (parts.next(), parts.next()) else {
            return Err(TakeError::MALFORMED);
        };
        let key = self.keys.iter().find(|key| key.encoded_id == id);
        let key = key.ok_or_else(|| unknown_key(text))?;
        let mut sealed = BASE64.decode(sealed).map_err(|_| TakeError::MALFORMED)?;
        let opened = key.decrypt(&mut sealed, owner)?;

        // The rest is authentic, so only this crate has written it.
        let (expiry, opened) = opened.split_first_chunk().ok_or(TakeError::MALFORMED)?;
        let (length, opened) = opened.split_first_chunk().ok_or(TakeError::MALFORMED)?;
        if now() >= u64::from_be_bytes(*expiry) {
            return Err(TakeError::EXPIRED);
        }
        let length = usize::try_from(u64::from_be_bytes(*length)).ok();
        let state = length.and_then(|length| opened.get(..length));
        state.map(<[u8]>::to_vec).ok_or(TakeError::MALFORMED)
    }

    /// Returns the maximum size of a state, in bytes. The handle of a larger state would be too
    /// long.
    fn max_state(&self) -> usize {
        let characters = self.limits.max_item_bytes.saturating_sub(self.keys[0].prefix());
        // In base64, four characters encode three bytes.
        let sealed = characters / 4 * 3 + characters % 4 * 3 / 4;
        let encrypted = sealed.saturating_sub(NONCE + TAG);
        (encrypted - encrypted % BLOCK).saturating_sub(HEADER)
    }
}

// === impl CipherKey ===

impl CipherKey {
    fn new(Key { id, secret }: Key) -> Self {
        let mut key = Zeroizing::new([0; KEY]);
        let derived = Hkdf::<Sha256>::new(None, &secret).expand(LABEL, &mut *key);
        derived.expect("HKDF-SHA256 derives up to 8160 bytes");
        let cipher = XChaCha20Poly1305::new((&*key).into());
        Self { encoded_id: BASE64.encode(&id), id, cipher }
    }

    /// Returns the length of `es1.<key ID>.`, with which handles of this key begin.
    const fn prefix(&self) -> usize {
        SEALED.len() + 1 + self.encoded_id.len() + 1
    }

    /// Returns the associated data for the encryption of a state: the ID of the key and the owner
    /// of the state. A state can be decrypted only with the same data. Each part is preceded by its
    /// length, so that different parts always result in different data.
    fn associated_data(&self, owner: &[u8]) -> Vec<u8> {
        let mut data = Vec::new();
        for part in [LABEL, self.id.as_bytes(), owner] {
            data.extend_from_slice(&(part.len() as u64).to_be_bytes());
            data.extend_from_slice(part);
        }
        data
    }

    /// Decrypts a sealed state in place. It consists of a nonce, the encrypted data and an
    /// authentication tag. Returns an error if the tag does not match.
    fn decrypt<'s>(&self, sealed: &'s mut [u8], owner: &[u8]) -> Result<&'s [u8], TakeError> {
        let (nonce, rest) = sealed.split_first_chunk_mut::<NONCE>().ok_or(TakeError::MALFORMED)?;
        let (data, tag) = rest.split_last_chunk_mut::<TAG>().ok_or(TakeError::MALFORMED)?;
        let (nonce, tag): (&XNonce, &Tag) = ((&*nonce).into(), (&*tag).into());
        let associated = self.associated_data(owner);
        self.cipher
            .decrypt_inout_detached(nonce, &associated, (&mut *data).into(), tag)
            .map_err(|_| TakeError::NOT_AUTHENTIC)?;
        Ok(data)
    }
}

/// Returns the current time in milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(since)
}

/// Returns the expiry time of a state that is sealed now, in milliseconds since 1970.
fn expiry(ttl: Duration) -> u64 {
    now().saturating_add(millis(ttl))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
