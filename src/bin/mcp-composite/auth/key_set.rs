//! The keys that sign tokens: a JSON Web Key Set, as defined in [RFC 7517].
//!
//! [RFC 7517]: https://www.rfc-editor.org/rfc/rfc7517

use std::{convert::Infallible, sync::Arc, time::Duration};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use mcp_composite::config::JwksSource;
use serde_json::Value;
use tokio::{
    io::AsyncReadExt,
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

/// The time in which a key set must be read.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which a key set is read.
const REFRESH: Duration = Duration::from_secs(5 * 60);
/// The minimum time between two readings that tokens with unknown keys cause.
const PAUSE: Duration = Duration::from_secs(30);
/// The time after which keys are no longer used if the key set cannot be read.
const MAX_AGE: Duration = Duration::from_secs(24 * 60 * 60);
/// The maximum size of a key set in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The maximum number of keys. Further keys are ignored.
const MAX_KEYS: usize = 64;

/// The keys of an authorization server.
pub(super) struct KeySet {
    source: JwksSource,
    client: reqwest::Client,
    known: watch::Sender<Known>,
    /// Notified when a token has an unknown key.
    wanted: Notify,
}

/// The keys that were read last.
struct Known {
    keys: Arc<[Arc<Key>]>,
    /// The time of the last reading.
    read: Instant,
    /// The time of the last successful reading.
    succeeded: Instant,
}

/// A public key.
pub(super) struct Key {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

// === impl KeySet ===

impl KeySet {
    /// Reads a key set.
    ///
    /// # Errors
    ///
    /// Returns an error if the key set cannot be read, or has no usable key.
    pub(super) async fn new(source: JwksSource) -> Result<Self, String> {
        // A redirect could lead to a server that the operator does not trust.
        let mut client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        if matches!(&source, JwksSource::Url(url) if url.starts_with("http:")) {
            // The connection is not encrypted, so it must not leave this machine.
            client = client.no_proxy();
        }
        let client = client.build().map_err(|error| format!("there is no HTTP client: {error}"))?;
        let keys = read(&client, &source).await?;
        if keys.is_empty() {
            let reason = "there is no public key for signatures with RSA, ECDSA or EdDSA";
            return Err(described(&source, reason));
        }
        let now = Instant::now();
        let known = watch::Sender::new(Known { keys, read: now, succeeded: now });
        Ok(Self { source, client, known, wanted: Notify::new() })
    }

    /// Reads the key set at intervals, and when a token has an unknown key.
    pub(super) async fn keep_fresh(&self) -> Infallible {
        loop {
            tokio::select! {
                () = sleep(REFRESH) => (),
                () = self.wanted.notified() => if self.was_just_read() { continue },
            }
            self.refresh().await;
        }
    }

    /// Reads the key set. If that fails, the known keys stay in use until they are too old.
    pub(super) async fn refresh(&self) {
        let keys = read(&self.client, &self.source).await;
        let now = Instant::now();
        self.known.send_modify(|known| {
            known.read = now;
            match keys {
                Ok(keys) => {
                    if keys.is_empty() {
                        tracing::warn!("the key set of the authorization server has no usable key");
                    }
                    (known.keys, known.succeeded) = (keys, now);
                }
                Err(error) if now - known.succeeded > MAX_AGE => {
                    tracing::error!("{error}; the known keys are too old and no longer used");
                    known.keys = Arc::default();
                }
                Err(error) => tracing::warn!("{error}; the known keys stay in use"),
            }
        });
    }

    /// Returns the keys that may have signed a token with this key id and algorithm.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<Arc<Key>> {
        let known = self.known.borrow();
        known.keys.iter().filter(|key| key.may_have_signed(id, algorithm)).cloned().collect()
    }

    /// Waits until the key set was read again, because a token has an unknown key. Returns `false`
    /// without waiting if the key set was just read.
    ///
    /// [`keep_fresh`](Self::keep_fresh) reads it, and not the caller, since the client of the
    /// caller may close its connection at any time.
    pub(super) async fn reread(&self) -> bool {
        let mut known = self.known.subscribe();
        if self.was_just_read() {
            return false;
        }
        self.wanted.notify_one();
        matches!(timeout(2 * TIMEOUT, known.changed()).await, Ok(Ok(())))
    }

    fn was_just_read(&self) -> bool {
        self.known.borrow().read.elapsed() < PAUSE
    }
}

/// Reads the keys of a key set.
async fn read(client: &reqwest::Client, source: &JwksSource) -> Result<Arc<[Arc<Key>]>, String> {
    let text = async {
        match source {
            JwksSource::Url(url) => fetch(client, url).await,
            JwksSource::File(path) => {
                let file = tokio::fs::File::open(path).await.map_err(|error| error.to_string())?;
                let mut text = Vec::new();
                let read = file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text).await;
                read.map_err(|error| error.to_string())?;
                Ok(text)
            }
            _ => Err("its location is of an unknown kind".to_owned()),
        }
    };
    let text = timeout(TIMEOUT, text).await.unwrap_or_else(|_| {
        Err(format!("it could not be read within {} seconds", TIMEOUT.as_secs()))
    });
    text.and_then(|text| parse(&text)).map_err(|error| described(source, &error))
}

/// Returns the message for a key set that cannot be used.
fn described(source: &JwksSource, reason: &str) -> String {
    match source {
        JwksSource::File(path) => format!("`jwks`: cannot read {}: {reason}", path.display()),
        _ => format!("`jwks`: cannot fetch the key set of the authorization server: {reason}"),
    }
}

async fn fetch(client: &reqwest::Client, url: &str) -> Result<Vec<u8>, String> {
    // Its URL may contain a secret.
    let failed = |error: reqwest::Error| sources(&error.without_url());
    let mut response = client.get(url).send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(format!("the server answered with the status {}", response.status()));
    }
    let mut text = Vec::new();
    while text.len() <= MAX_BYTES
        && let Some(chunk) = response.chunk().await.map_err(failed)?
    {
        text.extend_from_slice(&chunk);
    }
    Ok(text)
}

/// Returns the text of an error with those of its causes.
fn sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns the usable keys of a key set. Keys of unknown types are ignored, as RFC 7517 requires.
fn parse(text: &[u8]) -> Result<Arc<[Arc<Key>]>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("it is larger than {MAX_BYTES} bytes"));
    }
    let set: Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
    let keys = set["keys"].as_array().ok_or("not a key set: expected an object with `keys`")?;
    if keys.len() > MAX_KEYS {
        tracing::warn!("the key set has {} keys, of which only {MAX_KEYS} are used", keys.len());
    }
    Ok(keys.iter().take(MAX_KEYS).filter_map(Key::new).map(Arc::new).collect())
}

// === impl Key ===

impl Key {
    pub(super) const fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }

    /// Returns `true` if the key has this id.
    pub(super) fn is(&self, id: Option<&str>) -> bool {
        id.is_some() && self.id.as_deref() == id
    }

    /// Parses a key. Returns `None` if the key is not for signatures, or if its type is unknown.
    fn new(key: &Value) -> Option<Self> {
        let key: Jwk = serde_json::from_value(key.clone()).ok()?;
        let common = &key.common;
        let is_for_signatures =
            matches!(common.public_key_use, None | Some(PublicKeyUse::Signature)) && {
                common.key_operations.as_ref()
            }
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        // Symmetric keys are never accepted: everybody who reads the key set could sign tokens.
        let family: &[Algorithm] = match &key.algorithm {
            AlgorithmParameters::RSA(_) => &[
                Algorithm::RS256,
                Algorithm::RS384,
                Algorithm::RS512,
                Algorithm::PS256,
                Algorithm::PS384,
                Algorithm::PS512,
            ],
            AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
                EllipticCurve::P256 => &[Algorithm::ES256],
                EllipticCurve::P384 => &[Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
                &[Algorithm::EdDSA]
            }
            _ => return None,
        };
        let declared = common.key_algorithm.map(|algorithm| algorithm.to_string());
        let is_declared = |algorithm: &&Algorithm| {
            declared.as_ref().is_none_or(|declared| *declared == format!("{algorithm:?}"))
        };
        let algorithms: Vec<_> = family.iter().filter(is_declared).copied().collect();
        let decoding = DecodingKey::from_jwk(&key).ok()?;
        (is_for_signatures && !algorithms.is_empty()).then(|| Self {
            id: common.key_id.clone(),
            algorithms,
            decoding,
        })
    }

    /// Returns `true` if a token with this key id and algorithm may be signed by this key.
    fn may_have_signed(&self, id: Option<&str>, algorithm: Algorithm) -> bool {
        let is_named = id.is_none() || self.id.is_none() || self.id.as_deref() == id;
        is_named && self.algorithms.contains(&algorithm)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use serde_json::json;

    use super::*;

    /// Writes a key set with one key of this id, replacing the previous one.
    fn write(file: &Path, id: &str) {
        // The public key of RFC 8037, appendix A.2.
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": x });
        fs::write(file, json!({ "keys": [key] }).to_string()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_key_causes_one_reading_per_pause() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        write(&file, "one");
        let keys = KeySet::new(JwksSource::File(file.clone())).await.unwrap();
        let has = |id| !keys.find(Some(id), Algorithm::EdDSA).is_empty();
        let test = async {
            assert!(has("one") && !has("two") && !keys.reread().await);

            write(&file, "two");
            tokio::time::advance(PAUSE).await;
            // A client that closes its connection stops no reading.
            assert!(timeout(Duration::ZERO, keys.reread()).await.is_err());
            assert!(keys.reread().await && !keys.reread().await);
            assert!(has("two") && !has("one"));

            // A key set that cannot be read leaves the known keys in use, but not for long.
            fs::write(&file, "{").unwrap();
            tokio::time::advance(PAUSE).await;
            assert!(keys.reread().await && has("two"));
            sleep(MAX_AGE - REFRESH).await;
            assert!(has("two"));
            sleep(2 * REFRESH).await;
            assert!(!has("two"));

            // An empty key set revokes all keys.
            write(&file, "three");
            sleep(2 * REFRESH).await;
            assert!(has("three"));
            fs::write(&file, r#"{ "keys": [] }"#).unwrap();
            sleep(2 * REFRESH).await;
            assert!(!has("three"));
        };
        tokio::select! {
            () = test => (),
            never = keys.keep_fresh() => match never {},
        }
    }

    #[test]
    fn key_of_another_purpose_or_type_is_ignored() {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let of = |key: Value| Key::new(&key).map(|key| key.algorithms);
        let ed = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        assert_eq!(of(ed.clone()), Some(vec![Algorithm::EdDSA]));
        for (member, value) in [
            ("use", json!("enc")),
            ("key_ops", json!(["sign"])),
            ("alg", json!("RS256")),
            ("crv", json!("X25519")),
            ("x", json!(1)),
            ("kty", json!("other")),
        ] {
            let mut key = ed.clone();
            key[member] = value;
            assert_eq!(of(key.clone()), None, "{key}");
        }
        assert_eq!(of(json!({ "kty": "oct", "k": "c2VjcmV0" })), None);
        let rsa = json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB", "alg": "PS256" });
        assert_eq!(of(rsa), Some(vec![Algorithm::PS256]));
    }
}
