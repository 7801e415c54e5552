//! A store in Redis whose values have random handles and expiry times.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use ::redis::{Script, Value};
use futures::future::BoxFuture;

use super::{
    caller_share::Share,
    connection::{Away, Connection},
    keys::digest,
};
use crate::{
    random,
    store::{PutError, Store, TakeError, WhenFull},
};

/// The number of random bytes in a handle.
const HANDLE: usize = 32;
/// The length of the digest at the beginning of each stored value, in bytes. It identifies the
/// owner of the value.
const OWNER: usize = 32;
/// The number of random bytes in the ID of a request that takes a value. `taken:` and the ID in
/// hexadecimal digits are as long as the digest of the owner, which they replace when the value is
/// taken.
const TAKING: usize = 13;
/// The time for which Redis keeps a value after it was taken. If the response was lost, the same
/// request can be sent again during this time.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The maximum lifetime of values, longer than the lifetime of any server.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

static GIVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("kept.lua")));

/// A store in Redis that several replicas share. It contains the states of suspended runs, or the
/// full versions of truncated results.
///
/// The client receives a random handle for each value, and cannot read the value itself. Any
/// replica can resume a run, but a state can be taken only once, so that no question is answered
/// twice. If the response of the Redis server is lost, the replica can take the state again within
/// a minute. A result can be retrieved any number of times until it expires. All users with access
/// to the Redis server can read all values.
///
/// The keys in Redis begin with `PREFIX:state:` or `PREFIX:result:`. The `maxmemory` setting of
/// Redis limits the total size of the stored values. A full server rejects new values.
#[derive(Clone, Debug)]
pub struct RedisStore {
    pub(super) connection: Connection,
    /// The prefix of the Redis keys with the kind of values, such as `mcp-composite:state`.
    pub(super) prefix: Arc<str>,
    pub(super) ttl: Duration,
    pub(super) max_item_bytes: usize,
    /// The maximum total size of one caller's values, in bytes. `None` means unlimited.
    pub(super) max_caller_bytes: Option<usize>,
    pub(super) when_full: WhenFull,
}

/// Determines how often a value can be retrieved: once, like the state of a run, or many times,
/// like a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    Once,
    Many,
}

// === impl RedisStore ===

impl RedisStore {
    /// Sets the lifetime of a stored value. Defaults to an hour for the states of runs, and to 10
    /// minutes for results.
    #[must_use]
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets the maximum size of a value in bytes. Defaults to 4 MiB for the states of runs, and to
    /// 16 MiB for results.
    #[must_use]
    pub const fn max_item_bytes(mut self, bytes: usize) -> Self {
        self.max_item_bytes = bytes;
        self
    }

    /// Sets the maximum total size in bytes of one caller's values, including an overhead of 512
    /// bytes for each value. Defaults to 16 MiB for the states of runs. By default, results have no
    /// maximum.
    ///
    /// A new state that would exceed the limit is rejected. A new result that would exceed the
    /// limit evicts the caller's oldest results. A state counts until it expires, or until one
    /// minute after it was taken. The limit applies to states only if the composite layer has a
    /// [`caller`](crate::composite::CompositeLayer::caller) function. All requests for which this
    /// function returns `None` count as requests of one caller.
    #[must_use]
    pub const fn max_caller_bytes(mut self, bytes: usize) -> Self {
        self.max_caller_bytes = Some(bytes);
        self
    }

    /// Stores a value with its owner, and returns its handle. If the size of each caller's values
    /// is limited, first reserves room for the value.
    async fn keep(
        &self,
        value: Vec<u8>,
        owner: &[u8],
        caller: Option<&[u8]>,
    ) -> Result<String, PutError> {
        let (bytes, max) = (value.len(), self.max_item_bytes);
        if bytes > max {
            return Err(PutError::TooLarge { bytes, max });
        }
        let handle = random::text::<HANDLE>()
            .map_err(|error| PutError::Unavailable(no_random_numbers(&error).into()))?;
        let mut kept = digest([owner]).to_vec();
        kept.extend(value);
        let id = id(&handle);
        let size = Share::size(kept.len());
        let ttl = self.ttl.clamp(Duration::from_millis(1), A_LIFETIME);
        let share = self.share(caller);
        if let Some((share, max)) = &share {
            self.reserve(share, &id, size, ttl, *max).await?;
        }
        let mut set = ::redis::cmd("SET");
        set.arg(self.key(&id)).arg(kept).arg("PX").arg(ttl.as_millis() as u64);
        let set: Result<(), Away> = self.connection.query(&set).await;
        if let (Err(_), Some((share, _))) = (&set, &share) {
            share.release(&id, size, Duration::ZERO).await;
        }
        set?;
        Ok(handle)
    }

    /// Reserves room for a value of a caller, and deletes the values that were evicted for it.
    async fn reserve(
        &self,
        share: &Share<'_>,
        id: &str,
        size: usize,
        ttl: Duration,
        max: usize,
    ) -> Result<(), PutError> {
        let full = || PutError::CallerFull { bytes: size, max };
        // The value exceeds the whole share, so evicting other values would not help.
        if size > max {
            return Err(full());
        }
        let reserved = share.reserve(id, size, ttl, max, self.when_full).await;
        let evicted = reserved?.ok_or_else(full)?;
        // Deletes the values one by one, because a cluster may store them on different servers.
        for evicted in evicted {
            self.connection.query::<()>(::redis::cmd("DEL").arg(self.key(&evicted))).await?;
        }
        Ok(())
    }

    /// Returns the values of a caller and their maximum total size, in bytes. Returns `None` if
    /// `caller` is `None`, or if the size of each caller's values is unlimited.
    fn share(&self, caller: Option<&[u8]>) -> Option<(Share<'_>, usize)> {
        let (caller, max) = caller.zip(self.max_caller_bytes)?;
        Some((Share::new(&self.connection, &self.prefix, caller), max))
    }

    async fn give(
        &self,
        handle: &str,
        owner: &[u8],
        caller: Option<&[u8]>,
        times: Times,
    ) -> Result<Vec<u8>, TakeError> {
        // Rejects a string that cannot be a handle, without a request to the server.
        if handle.len() != 2 * HANDLE {
            return Err(TakeError::NO_HANDLE);
        }
        let taking = match times {
            Times::Once => random::text::<TAKING>()
                .map(|taking| format!("taken:{taking}"))
                .map_err(|error| TakeError::Unavailable(no_random_numbers(&error).into()))?,
            Times::Many => String::new(),
        };
        let id = id(handle);
        let mut give = GIVE.key(self.key(&id));
        let most = OWNER.saturating_add(self.max_item_bytes);
        give.arg(&digest([owner])[..]).arg(taking).arg(most).arg(REMEMBERED.as_millis() as u64);
        let answer: Vec<Value> = self.connection.invoke(&give).await?;
        match <[Value; 2]>::try_from(answer) {
            Ok([_, Value::BulkString(value)]) => {
                if let (Times::Once, Some((share, _))) = (times, self.share(caller)) {
                    let size = Share::size(OWNER.saturating_add(value.len()));
                    share.release(&id, size, REMEMBERED).await;
                }
                Ok(value)
            }
            Ok(_) => Err(TakeError::Unavailable("the server gave no value".into())),
            Err(answer) if answer == [Value::Int(1)] => Err(TakeError::FOREIGN),
            Err(_) => Err(TakeError::UNKNOWN),
        }
    }

    /// Returns the Redis key of the value with this ID.
    fn key(&self, id: &str) -> String {
        format!("{}:{id}", self.prefix)
    }
}

impl Store for RedisStore {
    fn put<'a>(
        &'a self,
        value: Vec<u8>,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<String, PutError>> {
        Box::pin(self.keep(value, owner, caller))
    }

    fn take<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(self.give(handle, owner, caller, Times::Once))
    }

    fn get<'a>(
        &'a self,
        handle: &'a str,
        owner: &'a [u8],
        caller: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Vec<u8>, TakeError>> {
        Box::pin(self.give(handle, owner, caller, Times::Many))
    }

    fn max_bytes(&self) -> Option<usize> {
        Some(self.max_item_bytes)
    }
}

impl From<Away> for PutError {
    fn from(away: Away) -> Self {
        Self::Unavailable(away.to_string().into())
    }
}

impl From<Away> for TakeError {
    fn from(away: Away) -> Self {
        Self::Unavailable(away.to_string().into())
    }
}

/// Returns the ID of a value in Redis, which is a digest of its handle. The handle cannot be
/// computed from the ID.
fn id(handle: &str) -> String {
    random::hex(&digest([handle.as_bytes()]))
}

fn no_random_numbers(error: &getrandom::Error) -> String {
    format!("the system has no random numbers: {error}")
}
