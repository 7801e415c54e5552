//! The keys that sign tokens: a JSON Web Key Set, as defined in [RFC 7517].
//!
//! [RFC 7517]: https://www.rfc-editor.org/rfc/rfc7517

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use mcp_composite::config::JwksSource;
use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

/// The time that a server has to send its key set.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time after reading the key set for which an unknown key does not cause another reading.
const PAUSE: Duration = Duration::from_secs(30);
/// The maximum size of a key set in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The maximum number of keys. Further keys are ignored.
const MAX_KEYS: usize = 64;

/// The keys of an authorization server, which are read again if a token has an unknown key.
pub(super) struct KeySet {
    source: JwksSource,
    client: reqwest::Client,
    keys: RwLock<Arc<[Arc<Key>]>>,
    /// The time of the last reading. Locked while the key set is read.
    read: Mutex<Instant>,
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
        let client = reqwest::Client::builder()
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .map_err(|error| format!("there is no HTTP client: {error}"))?;
        let keys = read(&client, &source).await?;
        Ok(Self { source, client, keys: RwLock::new(keys), read: Mutex::new(Instant::now()) })
    }

    /// Returns the keys that may have signed a token with this key id and algorithm. If there are
    /// none, reads the key set again, but not too often.
    pub(super) async fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<Arc<Key>> {
        let found = self.known(id, algorithm);
        if !found.is_empty() {
            return found;
        }
        let mut read = self.read.lock().await;
        if read.elapsed() >= PAUSE {
            *read = Instant::now();
            self.update().await;
        }
        drop(read);
        self.known(id, algorithm)
    }

    /// Reads the key set again. If that fails, the known keys stay in use.
    pub(super) async fn refresh(&self) {
        let mut read = self.read.lock().await;
        *read = Instant::now();
        self.update().await;
    }

    async fn update(&self) {
        match read(&self.client, &self.source).await {
            Ok(keys) => *self.keys.write().unwrap_or_else(PoisonError::into_inner) = keys,
            Err(error) => tracing::warn!("{error}; the known keys stay in use"),
        }
    }

    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<Arc<Key>> {
        let keys = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().filter(|key| key.may_have_signed(id, algorithm)).cloned().collect()
    }
}

/// Reads the keys of a key set.
async fn read(client: &reqwest::Client, source: &JwksSource) -> Result<Arc<[Arc<Key>]>, String> {
    let text = match source {
        JwksSource::Url(url) => fetch(client, url).await,
        JwksSource::File(path) => tokio::fs::read(path).await.map_err(|error| error.to_string()),
        _ => Err("its location is of an unknown kind".to_owned()),
    };
    let keys = text.and_then(|text| parse(&text));
    keys.map_err(|error| match source {
        JwksSource::File(path) => format!("`jwks`: cannot read {}: {error}", path.display()),
        _ => format!("`jwks`: cannot fetch the key set of the authorization server: {error}"),
    })
}

async fn fetch(client: &reqwest::Client, url: &str) -> Result<Vec<u8>, String> {
    // Its URL may contain a secret.
    let failed = |error: reqwest::Error| sources(&error.without_url());
    let mut response = client.get(url).send().await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(format!("the server answered with the status {}", response.status()));
    }
    let mut text = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if text.len() + chunk.len() > MAX_BYTES {
            return Err(format!("the answer is larger than {MAX_BYTES} bytes"));
        }
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
    let set: Value = serde_json::from_slice(text).map_err(|error| format!("no JSON: {error}"))?;
    let keys = set["keys"].as_array().ok_or("no key set: expected an object with `keys`")?;
    let keys: Arc<[_]> = keys.iter().take(MAX_KEYS).filter_map(Key::new).map(Arc::new).collect();
    if keys.is_empty() {
        return Err("no public key for signatures with RSA, ECDSA or EdDSA".to_owned());
    }
    Ok(keys)
}

// === impl Key ===

impl Key {
    pub(super) const fn decoding(&self) -> &DecodingKey {
        &self.decoding
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
        // A symmetric key is never accepted: a server that publishes one gives away its signature.
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
    async fn unknown_key_is_looked_up_once_per_pause() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        write(&file, "one");
        let keys = KeySet::new(JwksSource::File(file.clone())).await.unwrap();
        let has = async |id| !keys.find(Some(id), Algorithm::EdDSA).await.is_empty();
        assert!(has("one").await && !has("two").await);

        write(&file, "two");
        assert!(!has("two").await);
        tokio::time::advance(PAUSE).await;
        assert!(has("two").await && !has("one").await);

        // A key set that cannot be read leaves the known keys in use.
        fs::write(&file, "{").unwrap();
        tokio::time::advance(PAUSE).await;
        assert!(!has("three").await && has("two").await);
        keys.refresh().await;
        assert!(has("two").await);
        write(&file, "three");
        keys.refresh().await;
        assert!(has("three").await && !has("two").await);
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
