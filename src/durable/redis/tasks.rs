//! Tasks in Redis that several replicas share.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use ::redis::Script;
use futures::FutureExt;

use super::{
    connection::{Away, Connection},
    keys::digest,
};
use crate::{
    random,
    tasks::{
        StoreFuture, StoredTask, TaskPhase, TaskStore, TaskStoreError, TaskWrite,
        limits::{LEASE, MAX_CALLER_UNFINISHED, MAX_RECORD_BYTES, MAX_TASKS, MAX_UNFINISHED},
        new_token,
    },
};

static WRITE: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tasks/write.lua")));
static EXPIRED: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tasks/expired.lua")));
static CLAIM: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tasks/claim.lua")));
static RENEW: LazyLock<Script> = LazyLock::new(|| Script::new(include_str!("tasks/renew.lua")));

/// A store of [tasks](crate::tasks) in Redis that several replicas share.
///
/// Each change of a task is one script, with the clock of the Redis server. The replica that runs a
/// task holds a [lease](Self::lease). If the replica ends, another one continues the task when the
/// lease expires.
///
/// The keys in Redis begin with `{PREFIX:task}:`, so that a cluster keeps all tasks on one server.
/// The keys of a task expire with the task. Keys contain the names of callers only as SHA-256
/// digests, and the IDs of tasks only as halves of such digests. The records of tasks contain
/// arguments, results and the names of callers. They are stored unencrypted, so that all users with
/// access to the server can read them.
#[derive(Clone, Debug)]
pub struct RedisTasks {
    connection: Connection,
    /// The prefix of all Redis keys. It contains a hash tag, which keeps all keys on one server.
    prefix: Arc<str>,
    lease: Duration,
}

// === impl RedisTasks ===

impl RedisTasks {
    pub(super) fn new(connection: Connection, prefix: &str) -> Self {
        Self { connection, prefix: format!("{{{prefix}:task}}").into(), lease: LEASE }
    }

    /// Sets the duration of a lease. After this time, another replica takes over the tasks of a
    /// process that has ended without releasing them. Defaults to 15 seconds.
    #[must_use]
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    fn key(&self, name: &str) -> String {
        format!("{}:{name}", self.prefix)
    }

    fn record(&self, key: &str) -> String {
        self.key(&format!("record:{key}"))
    }

    async fn put(&self, key: &str, write: &TaskWrite<'_>) -> Result<(), TaskStoreError> {
        let (phase, lease) = match write.phase {
            TaskPhase::Working(lease) => ("working", lease),
            TaskPhase::Waiting => ("waiting", Duration::ZERO),
            TaskPhase::Ended => ("ended", Duration::ZERO),
        };
        let mut put = WRITE.key(self.record(key));
        put.key(self.key("working")).key(self.key("unfinished")).key(self.key("ended"));
        if let Some(caller) = write.caller {
            put.key(self.key(&format!("caller:{}", random::hex(&digest([caller])))));
        }
        put.arg(key).arg(write.expected.unwrap_or_default()).arg(write.token).arg(phase);
        put.arg(ms(lease)).arg(ms(write.ttl.max(Duration::from_millis(1))));
        put.arg(MAX_RECORD_BYTES).arg(MAX_UNFINISHED).arg(MAX_TASKS).arg(MAX_CALLER_UNFINISHED);
        let fields =
            [("call", write.call), ("state", write.state), ("checkpoint", write.checkpoint)];
        for (field, value) in fields {
            if let Some(value) = value {
                put.arg(field).arg(value);
            }
        }
        let answer: String = self.connection.invoke(&put).await?;
        match answer.as_str() {
            "ok" => Ok(()),
            "lost" => Err(TaskStoreError::Lost),
            "large" => Err(TaskStoreError::TooLarge { max: MAX_RECORD_BYTES }),
            "unfinished" => Err(TaskStoreError::Unfinished { max: MAX_UNFINISHED }),
            "full" => Err(TaskStoreError::Full { max: MAX_TASKS }),
            "caller" => Err(TaskStoreError::CallerUnfinished { max: MAX_CALLER_UNFINISHED }),
            _ => Err(TaskStoreError::Unavailable("unexpected answer of the server".into())),
        }
    }
}

impl TaskStore for RedisTasks {
    fn write<'a>(&'a self, key: &'a str, write: TaskWrite<'a>) -> StoreFuture<'a, ()> {
        async move { self.put(key, &write).await }.boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<StoredTask>> {
        Box::pin(async move {
            let mut get = ::redis::cmd("HMGET");
            get.arg(self.record(key)).arg(&["token", "call", "state"]);
            let found: [Option<Vec<u8>>; 3] = self.connection.query(&get).await?;
            let [Some(token), Some(call), Some(state)] = found else { return Ok(None) };
            let token = String::from_utf8(token).unwrap_or_default();
            Ok(Some(StoredTask::new(key.to_owned(), token, call, state)))
        })
    }

    fn checkpoint<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let mut get = ::redis::cmd("HGET");
            get.arg(self.record(key)).arg("checkpoint");
            Ok(self.connection.query(&get).await?)
        })
    }

    fn renew<'a>(
        &'a self,
        held: &'a [(String, String)],
        lease: Duration,
    ) -> StoreFuture<'a, Vec<bool>> {
        Box::pin(async move {
            // One request renews all leases.
            let mut renewals = ::redis::pipe();
            renewals.load_script(&RENEW).ignore();
            for (key, token) in held {
                let mut renewal = RENEW.key(self.record(key));
                renewal.key(self.key("working")).arg(key).arg(token).arg(ms(lease));
                renewals.invoke_script(&renewal);
            }
            let reply = self.connection.ask(|mut server| {
                let renewals = &renewals;
                async move { renewals.query_async(&mut server).await }.boxed()
            });
            Ok(reply.await?)
        })
    }

    fn claim(&self, max: usize, lease: Duration) -> StoreFuture<'_, Vec<StoredTask>> {
        Box::pin(async move {
            let mut expired = EXPIRED.key(self.key("working"));
            let expired: Vec<String> = self.connection.invoke(expired.arg(max)).await?;
            let mut claimed = Vec::new();
            // Claims the tasks one by one, because each script names its keys.
            for key in expired {
                let token = new_token()?;
                let mut claim = CLAIM.key(self.record(&key));
                claim.key(self.key("working")).arg(&key).arg(&token).arg(ms(lease));
                let answer: Vec<Option<Vec<u8>>> = self.connection.invoke(&claim).await?;
                if let Ok([Some(call), Some(state)]) = <[_; 2]>::try_from(answer) {
                    claimed.push(StoredTask::new(key, token, call, state));
                }
            }
            Ok(claimed)
        })
    }

    fn lease(&self) -> Duration {
        self.lease
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl From<Away> for TaskStoreError {
    fn from(away: Away) -> Self {
        Self::Unavailable(away.to_string().into())
    }
}
