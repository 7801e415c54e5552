//! Stores that share cached results between processes.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use rmcp::model::{CallToolResult, JsonObject};
use serde_json::Value;

use super::arguments::canonical;
use crate::{
    fingerprint::{Fingerprint, Fingerprinter},
    message::Reply,
};

/// A store that shares cached results between processes, such as the replicas of a gateway.
///
/// A failure of the store must not fail a tool call, so the methods return no errors. While a store
/// is unavailable, it behaves as if it were empty.
pub trait CacheStore: Send + Sync + fmt::Debug {
    /// Returns the stored result with this key and the time after which it expires. Returns `None`
    /// if there is none.
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<(Vec<u8>, Duration)>>;

    /// Stores a result for the duration `ttl`. Replaces an earlier result with this key.
    fn put<'a>(&'a self, key: &'a CacheKey, result: Vec<u8>, ttl: Duration) -> BoxFuture<'a, ()>;
}

/// The key of a result in a [`CacheStore`]: a digest of the tool's definition, the arguments of the
/// call and, unless all callers share results, the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey(Fingerprint);

/// Called after a lookup in a [`CacheStore`], with `true` if the store had a result. Records a
/// cache hit or a cache miss.
type OnRead = Box<dyn Fn(bool) + Send + Sync>;

/// The entry for one tool call in a [`CacheStore`]. The store may not contain it yet.
pub(super) struct StoredEntry {
    pub(super) store: Arc<dyn CacheStore>,
    pub(super) key: CacheKey,
    pub(super) ttl: Duration,
    /// `false` if the client bypasses the cache. The result is then written to the store, but not
    /// read from it.
    pub(super) reads: bool,
    pub(super) on_read: OnRead,
}

// === impl CacheKey ===

impl CacheKey {
    /// Returns the key of a call. `caller` is `None` for an unidentified caller, and if all callers
    /// share results.
    pub(super) fn new(
        definition: &Fingerprint,
        caller: Option<&str>,
        arguments: Option<&JsonObject>,
    ) -> Self {
        let arguments = Value::Object(arguments.map(canonical).unwrap_or_default());
        let caller = caller.map_or(Value::Null, Value::from);
        let key = Fingerprinter::default().and_fingerprint(definition).and(&caller);
        Self(key.and(&arguments).finish())
    }
}

impl fmt::Display for CacheKey {
    /// Formats the key as hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

// === impl StoredEntry ===

impl StoredEntry {
    /// Returns the stored result and the time after which it expires.
    pub(super) async fn get(&self) -> Option<(Reply, Duration)> {
        let found = if self.reads { self.store.get(&self.key).await } else { None };
        let found = found.and_then(|(result, left)| {
            let result: CallToolResult = serde_json::from_slice(&result)
                .inspect_err(|_| tracing::warn!("a cache store returned no tool result"))
                .ok()?;
            Some((result.into(), left.min(self.ttl)))
        });
        (self.on_read)(found.is_some());
        found
    }

    pub(super) async fn put(&self, reply: &Reply) {
        let result = reply.tool_result().map(serde_json::to_vec);
        if let Some(Ok(result)) = result {
            self.store.put(&self.key, result, self.ttl).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_differ_by_definition_caller_and_arguments() {
        let [one, two] = ["one", "two"].map(|name| Fingerprint::of(&json!(name)));
        let key = |definition: &Fingerprint, caller: Option<&str>, arguments: Value| {
            CacheKey::new(definition, caller, arguments.as_object())
        };
        let same = key(&one, Some("alice"), json!({ "a": 1, "b": [2.0] }));
        assert_eq!(same, key(&one, Some("alice"), json!({ "b": [2], "a": 1.0 })));
        for other in [
            key(&two, Some("alice"), json!({ "a": 1, "b": [2] })),
            key(&one, Some("bob"), json!({ "a": 1, "b": [2] })),
            key(&one, None, json!({ "a": 1, "b": [2] })),
            key(&one, Some("alice"), json!({ "a": "1", "b": [2] })),
            key(&one, Some("alice"), json!({ "a": 1, "b": [2.5] })),
        ] {
            assert_ne!(same, other);
        }
        assert_eq!(key(&one, None, json!({})), key(&one, None, json!(null)));
    }
}
