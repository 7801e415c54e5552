//! Limits the total size of the values of one caller in a Redis store.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Script, Value};

use super::{
    connection::{Away, Connection},
    keys::digest,
};
use crate::{random, store::WhenFull};

/// The memory that Redis needs for a value in addition to its size and its owner, in bytes.
const OVERHEAD: usize = 512;

static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("share.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("release.lua")));

/// The values of one caller in a Redis store, whose total size is limited.
///
/// The sizes of all values of the caller are in one sorted set. Each script therefore uses a single
/// key, as Redis clusters require. Adding a value removes the entries of expired values.
#[derive(Debug)]
pub(super) struct Share<'s> {
    connection: &'s Connection,
    key: String,
}

// === impl Share ===

impl<'s> Share<'s> {
    pub(super) fn new(connection: &'s Connection, prefix: &str, caller: &[u8]) -> Self {
        let key = format!("{prefix}:caller:{}", random::hex(&digest([caller])));
        Self { connection, key }
    }

    /// Returns the number of bytes of a value that count toward the caller's limit: its size, plus
    /// an overhead.
    pub(super) const fn size(value: usize) -> usize {
        value.saturating_add(OVERHEAD)
    }

    /// Reserves room for a value of the caller. Returns the IDs of other values that were evicted
    /// for it, which the caller of `reserve` must delete. Returns `None` if there is not enough
    /// room.
    pub(super) async fn reserve(
        &self,
        id: &str,
        size: usize,
        ttl: Duration,
        max: usize,
        when_full: WhenFull,
    ) -> Result<Option<Vec<String>>, Away> {
        let mut reserve = RESERVE.key(&self.key);
        let evict = if when_full == WhenFull::DropOldest { "evict" } else { "" };
        reserve.arg(member(id, size)).arg(ttl.as_millis() as u64).arg(max).arg(evict);
        let answer: Vec<Value> = self.connection.invoke(&reserve).await?;
        let mut answer = answer.into_iter();
        if answer.next() != Some(Value::Int(1)) {
            return Ok(None);
        }
        let evicted = answer.filter_map(|member| match member {
            Value::BulkString(member) => {
                let member = String::from_utf8(member).ok()?;
                Some(member.split(':').next()?.to_owned())
            }
            _ => None,
        });
        Ok(Some(evicted.collect()))
    }

    /// Makes a value count toward the caller's limit only until `after` has passed, or until it
    /// expires if this is earlier. If the request to Redis fails, the value counts until it
    /// expires.
    pub(super) async fn release(&self, id: &str, size: usize, after: Duration) {
        let mut release = RELEASE.key(&self.key);
        release.arg(member(id, size)).arg(after.as_millis() as u64);
        if let Err(error) = self.connection.invoke::<()>(&release).await {
            tracing::debug!(%error, "failed to release a part of a caller's quota, which is released when its item expires");
        }
    }
}

fn member(id: &str, size: usize) -> String {
    format!("{id}:{size}")
}
