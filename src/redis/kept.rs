use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use ::redis::{Script, Value};
use futures::FutureExt;

use super::{connection::Connection, keys::digest};
use crate::{
    random,
    state::{PutError, TakeError},
};

/// How many random bytes a handle has.
const HANDLE: usize = 32;
/// How many bytes stand before what is kept, and tell whose it is.
const OWNER: usize = 32;
/// How many random bytes tell one who takes something from another: with what stands
/// before them, they are as long as a digest.
const TAKING: usize = 13;
/// Longer than any server.
const A_LIFETIME: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

static GIVE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("kept.lua")));

/// Values that belong to somebody, under handles that nobody can guess.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) connection: Connection,
    /// How their keys begin.
    pub(super) prefix: Arc<str>,
    pub(super) ttl: Duration,
    pub(super) max_bytes: usize,
}

/// How often a value is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Times {
    Once,
    Many,
}

// === impl Kept ===

impl Kept {
    pub(super) async fn put(&self, value: Vec<u8>, owner: &[u8]) -> Result<String, PutError> {
        let (bytes, max) = (value.len(), self.max_bytes);
        if bytes > max {
            return Err(PutError::TooLarge { bytes, max });
        }
        let handle = random::text::<HANDLE>()
            .map_err(|error| PutError::Unavailable(no_random_numbers(&error).into()))?;
        let mut kept = digest([owner]).to_vec();
        kept.extend(value);
        let ttl = self.ttl.clamp(Duration::from_millis(1), A_LIFETIME).as_millis();
        let mut set = ::redis::cmd("SET");
        set.arg(self.key(&handle)).arg(kept).arg("PX").arg(ttl as u64);
        let asked = self.connection.ask(|mut server| {
            let set = &set;
            async move { set.exec_async(&mut server).await }.boxed()
        });
        asked.await.map_err(|away| PutError::Unavailable(away.to_string().into()))?;
        Ok(handle)
    }

    pub(super) async fn give(
        &self,
        handle: &str,
        owner: &[u8],
        times: Times,
    ) -> Result<Vec<u8>, TakeError> {
        let invalid = |reason: &'static str| Err(TakeError::Invalid(reason.into()));
        // Nobody is asked, however long it is.
        if handle.len() != 2 * HANDLE {
            return invalid("it is no handle");
        }
        let taking = match times {
            Times::Once => random::text::<TAKING>()
                .map(|taking| format!("taken:{taking}"))
                .map_err(|error| TakeError::Unavailable(no_random_numbers(&error).into()))?,
            Times::Many => String::new(),
        };
        let mut give = GIVE.key(self.key(handle));
        let most = OWNER.saturating_add(self.max_bytes);
        give.arg(&digest([owner])[..]).arg(taking).arg(most);
        let asked = self.connection.ask(|mut server| {
            let give = &give;
            async move { give.invoke_async::<Vec<Value>>(&mut server).await }.boxed()
        });
        let answer = asked.await.map_err(|away| TakeError::Unavailable(away.to_string().into()))?;
        match <[Value; 2]>::try_from(answer) {
            Ok([_, Value::BulkString(value)]) => Ok(value),
            Ok(_) => Err(TakeError::Unavailable("the server gave no value".into())),
            Err(answer) if answer == [Value::Int(1)] => {
                invalid("it is of another call or of another caller")
            }
            Err(_) => invalid("it is unknown: it was taken, has expired, or never was"),
        }
    }

    /// Under what it is kept. Who reads keys does not know the handle.
    fn key(&self, handle: &str) -> String {
        format!("{}:{}", self.prefix, random::hex(&digest([handle.as_bytes()])))
    }
}

fn no_random_numbers(error: &getrandom::Error) -> String {
    format!("no random numbers: {error}")
}
