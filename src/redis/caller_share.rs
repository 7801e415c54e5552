//! The limit of the total size of a caller's items.

use std::{sync::LazyLock, time::Duration};

use ::redis::{Script, Value};
use futures::FutureExt;

use super::{
    connection::{Away, Connection},
    keys::digest,
};
use crate::{random, store::WhenFull};

/// The size of an item in the server besides its value and its owner.
const OVERHEAD: usize = 512;

static RESERVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("share.lua")));
static RELEASE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("release.lua")));

/// The items of one caller, whose total size is limited.
///
/// They are counted in one sorted set, so the scripts do not depend on how a cluster distributes
/// keys. The server removes items that expire from it with the next reservation.
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

    /// The size of an item with a stored value of this many bytes.
    pub(super) const fn size(value: usize) -> usize {
        value.saturating_add(OVERHEAD)
    }

    /// Reserves room for an item, and returns the ids of items that no longer count and must be
    /// deleted; `None` if there is no room.
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
        let answer = self.connection.ask(|mut server| {
            let reserve = &reserve;
            async move { reserve.invoke_async::<Vec<Value>>(&mut server).await }.boxed()
        });
        let mut answer = answer.await?.into_iter();
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

    /// Makes an item count no longer than this time from now. If this fails, it counts until it
    /// expires.
    pub(super) async fn release(&self, id: &str, size: usize, after: Duration) {
        let mut release = RELEASE.key(&self.key);
        release.arg(member(id, size)).arg(after.as_millis() as u64);
        let released = self.connection.ask(|mut server| {
            let release = &release;
            async move { release.invoke_async::<()>(&mut server).await }.boxed()
        });
        if let Err(error) = released.await {
            tracing::debug!(%error, "the share of a caller is given back when its item expires");
        }
    }
}

fn member(id: &str, size: usize) -> String {
    format!("{id}:{size}")
}
