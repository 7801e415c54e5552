//! A cache of tool results in Redis, which several replicas share.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::Instant;

use super::connection::{Away, Connection};
use crate::{
    cache::{CacheKey, CacheStore},
    mutex::lock,
};

/// The maximum size of a result in Redis, in bytes. Larger results are cached only in the memory of
/// the process.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// The time for which the cache sends no requests to the server after one has failed. Otherwise,
/// every call would wait for the timeout of the connection.
const PAUSE: Duration = Duration::from_secs(5);

/// A cache of tool results in Redis that several replicas share.
///
/// The keys in Redis begin with `PREFIX:cache:`, and depend on the tool's definition, its arguments
/// and the caller. The results are stored as unencrypted JSON, and are deleted when they expire.
/// Results of more than 4 MiB are not stored.
///
/// While the Redis server is unavailable, no cached results are used. After a failed request, the
/// cache sends no requests to the server for five seconds.
#[derive(Clone, Debug)]
pub struct RedisCache {
    pub(super) connection: Connection,
    /// The prefix of all Redis keys, without a colon at its end.
    pub(super) prefix: Arc<str>,
    /// The end of the pause after a failed request. `None` while there is no pause.
    pub(super) away: Arc<Mutex<Option<Instant>>>,
}

// === impl RedisCache ===

impl RedisCache {
    fn key(&self, key: &CacheKey) -> String {
        format!("{}:cache:{key}", self.prefix)
    }

    fn is_away(&self) -> bool {
        let mut away = lock(&self.away);
        if away.is_some_and(|until| Instant::now() >= until) {
            *away = None;
        }
        away.is_some()
    }

    /// Starts a pause after a failed request, and logs that the server is unavailable. Does nothing
    /// during a pause.
    fn note(&self, why: &Away) {
        let mut away = lock(&self.away);
        if away.is_none() {
            tracing::warn!(%why, "Redis has no cached results: it is unavailable");
            *away = Instant::now().checked_add(PAUSE);
        }
    }

    async fn find(&self, key: &CacheKey) -> Option<(Vec<u8>, Duration)> {
        if self.is_away() {
            return None;
        }
        let key = self.key(key);
        let mut find = ::redis::pipe();
        find.get(&key).pttl(&key);
        let reply = self.connection.ask(|mut server| {
            let find = &find;
            async move { find.query_async::<(Option<Vec<u8>>, i64)>(&mut server).await }.boxed()
        });
        match reply.await {
            Ok((Some(value), left)) => {
                // A negative number is a value that has just expired, or that never expires.
                let left = u64::try_from(left).ok().filter(|&left| left > 0)?;
                Some((value, Duration::from_millis(left)))
            }
            Ok((None, _)) => None,
            Err(why) => {
                self.note(&why);
                None
            }
        }
    }

    async fn keep(&self, key: &CacheKey, result: Vec<u8>, ttl: Duration) {
        if result.len() > MAX_BYTES || self.is_away() {
            return;
        }
        let ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut set = ::redis::cmd("SET");
        set.arg(self.key(key)).arg(result).arg("PX").arg(ttl);
        if let Err(why) = self.connection.query::<()>(&set).await {
            self.note(&why);
        }
    }
}

impl CacheStore for RedisCache {
    fn get<'a>(&'a self, key: &'a CacheKey) -> BoxFuture<'a, Option<(Vec<u8>, Duration)>> {
        self.find(key).boxed()
    }

    fn put<'a>(&'a self, key: &'a CacheKey, result: Vec<u8>, ttl: Duration) -> BoxFuture<'a, ()> {
        self.keep(key, result, ttl).boxed()
    }
}
