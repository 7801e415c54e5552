//! An expiring store with random handles in Redis.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use ::redis::{Script, Value};
use futures::FutureExt;

use super::{
    caller_share::{Share, WhenFull},
    connection::{Away, Connection},
    keys::digest,
};
use crate::{
    random,
    state::{PutError, TakeError},
};

/// Number of random bytes in a handle.
const HANDLE: usize = 32;
/// Number of bytes before each value that identify its owner.
const OWNER: usize = 32;
/// Number of random bytes that identify a take: with their prefix, they are as long as a digest.
const TAKING: usize = 13;
/// How long the server keeps a value after it was taken, in case the reply was lost.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Longer than any server runs.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

static GIVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("kept.lua")));

/// Values of owners, stored under random handles.
#[derive(Clone, Debug)]
pub(super) struct RedisExpiringStore {
    pub(super) connection: Connection,
    /// Prefix of the keys.
    pub(super) prefix: Arc<str>,
    pub(super) ttl: Duration,
    pub(super) max_bytes: usize,
    /// The maximum size of the values of one caller; `None` if there is none.
    pub(super) max_caller_bytes: Option<usize>,
    pub(super) when_full: WhenFull,
}

/// How often a value can be retrieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    Once,
    Many,
}

// === impl RedisExpiringStore ===

impl RedisExpiringStore {
    /// Keeps a value for an owner, and counts it against the share of a caller if there is one.
    pub(super) async fn put(
        &self,
        value: Vec<u8>,
        owner: &[u8],
        caller: Option<&[u8]>,
    ) -> Result<String, PutError> {
        let (bytes, max) = (value.len(), self.max_bytes);
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
        let asked = self.connection.ask(|mut server| {
            let set = &set;
            async move { set.exec_async(&mut server).await }.boxed()
        });
        let set = asked.await;
        if let (Err(_), Some((share, _))) = (&set, &share) {
            share.release(&id, size, Duration::ZERO).await;
        }
        set.map_err(|away| PutError::Unavailable(away.to_string().into()))?;
        Ok(handle)
    }

    /// Reserves part of a caller's share, and deletes the values that had to make room.
    async fn reserve(
        &self,
        share: &Share<'_>,
        id: &str,
        size: usize,
        ttl: Duration,
        max: usize,
    ) -> Result<(), PutError> {
        let full = || PutError::CallerFull { bytes: size, max };
        let unavailable = |away: Away| PutError::Unavailable(away.to_string().into());
        // No eviction makes room for it.
        if size > max {
            return Err(full());
        }
        let reserved = share.reserve(id, size, ttl, max, self.when_full).await;
        let evicted = reserved.map_err(unavailable)?.ok_or_else(full)?;
        // One by one, since a cluster can keep them on different servers.
        for evicted in evicted {
            let delete = ::redis::cmd("DEL").arg(self.key(&evicted)).to_owned();
            let asked = self.connection.ask(|mut server| {
                let delete = &delete;
                async move { delete.exec_async(&mut server).await }.boxed()
            });
            asked.await.map_err(unavailable)?;
        }
        Ok(())
    }

    /// The share of a caller and its maximum, if there is one.
    fn share(&self, caller: Option<&[u8]>) -> Option<(Share<'_>, usize)> {
        let (caller, max) = caller.zip(self.max_caller_bytes)?;
        Some((Share::new(&self.connection, &self.prefix, caller), max))
    }

    pub(super) async fn give(
        &self,
        handle: &str,
        owner: &[u8],
        caller: Option<&[u8]>,
        times: Times,
    ) -> Result<Vec<u8>, TakeError> {
        let invalid = |reason: &'static str| Err(TakeError::Invalid(reason.into()));
        // Rejected without a request to the server.
        if handle.len() != 2 * HANDLE {
            return invalid("it is no handle");
        }
        let taking = match times {
            Times::Once => random::text::<TAKING>()
                .map(|taking| format!("taken:{taking}"))
                .map_err(|error| TakeError::Unavailable(no_random_numbers(&error).into()))?,
            Times::Many => String::new(),
        };
        let id = id(handle);
        let mut give = GIVE.key(self.key(&id));
        let most = OWNER.saturating_add(self.max_bytes);
        give.arg(&digest([owner])[..]).arg(taking).arg(most).arg(REMEMBERED.as_millis() as u64);
        let asked = self.connection.ask(|mut server| {
            let give = &give;
            async move { give.invoke_async::<Vec<Value>>(&mut server).await }.boxed()
        });
        let answer = asked.await.map_err(|away| TakeError::Unavailable(away.to_string().into()))?;
        match <[Value; 2]>::try_from(answer) {
            Ok([_, Value::BulkString(value)]) => {
                if let (Times::Once, Some((share, _))) = (times, self.share(caller)) {
                    let size = Share::size(OWNER.saturating_add(value.len()));
                    share.release(&id, size, REMEMBERED).await;
                }
                Ok(value)
            }
            Ok(_) => Err(TakeError::Unavailable("the server gave no value".into())),
            Err(answer) if answer == [Value::Int(1)] => {
                invalid("it is of another call or of another caller")
            }
            Err(_) => invalid("it is unknown: it was taken, has expired, or never was"),
        }
    }

    /// The key of the value with this id.
    fn key(&self, id: &str) -> String {
        format!("{}:{id}", self.prefix)
    }
}

/// The id of a value in the server, from which its handle cannot be computed.
fn id(handle: &str) -> String {
    random::hex(&digest([handle.as_bytes()]))
}

fn no_random_numbers(error: &getrandom::Error) -> String {
    format!("no random numbers: {error}")
}
