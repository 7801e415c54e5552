//! The interface of stores that several replicas share.

use std::{borrow::Cow, fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use thiserror::Error;

use crate::{random, tasks::limits::LEASE};

/// A store of tasks that several replicas share. See the [module docs](crate::tasks) for an
/// example.
///
/// The store keeps a *record* of each task, which consists of opaque bytes and a *token*. A write
/// names the token that it expects, so a replica cannot overwrite the changes of another replica.
/// While a replica runs a task, it holds a *lease* of the task, which it renews. If the lease
/// expires, another replica [claims](Self::claim) the task, which gives the record a new token.
///
/// A store deletes a record when its time to live has passed since its last write.
///
/// All methods may be called again with the same arguments if the first answer was lost, so they
/// must be idempotent.
pub trait TaskStore: fmt::Debug + Send + Sync {
    /// Creates or changes the record with this key.
    ///
    /// # Errors
    ///
    /// The future returns [`TaskStoreError::Lost`] in two cases: the write creates a record that
    /// already exists, or it changes a record that is missing or has an unexpected token. If the
    /// record already has the new token, the write succeeds, because it may be a repetition. Other
    /// errors mean that the record would exceed a limit, or that the store is unavailable.
    fn write<'a>(
        &'a self,
        key: &'a str,
        write: TaskWrite<'a>,
    ) -> BoxFuture<'a, Result<(), TaskStoreError>>;

    /// Returns a record without its checkpoint. Returns `None` if there is no such record.
    ///
    /// # Errors
    ///
    /// The future returns an error if the store is unavailable.
    fn get<'a>(&'a self, key: &'a str)
    -> BoxFuture<'a, Result<Option<StoredTask>, TaskStoreError>>;

    /// Returns the checkpoint of a record. Returns `None` if the record does not exist or has no
    /// checkpoint.
    ///
    /// # Errors
    ///
    /// The future returns an error if the store is unavailable.
    fn checkpoint<'a>(
        &'a self,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, TaskStoreError>>;

    /// Extends the leases of working tasks, so that they expire after `lease`. A lease of zero is a
    /// release: another replica can claim the task at once. `held` contains the key and the token
    /// of each task. Returns for each of them whether this replica still holds the lease.
    ///
    /// # Errors
    ///
    /// The future returns an error if the store is unavailable.
    fn renew<'a>(
        &'a self,
        held: &'a [(String, String)],
        lease: Duration,
    ) -> BoxFuture<'a, Result<Vec<bool>, TaskStoreError>>;

    /// Claims up to `max` tasks whose leases have expired. Gives each of them a new random token
    /// and a lease of this duration. If several replicas claim a task at the same time, only one of
    /// them receives it.
    ///
    /// # Errors
    ///
    /// The future returns an error if the store is unavailable.
    fn claim(
        &self,
        max: usize,
        lease: Duration,
    ) -> BoxFuture<'_, Result<Vec<StoredTask>, TaskStoreError>>;

    /// Returns the duration of a lease: the time after which another replica takes over the tasks
    /// of a process that has ended without a release. A replica renews its leases three times in
    /// this time. Defaults to 15 seconds.
    fn lease(&self) -> Duration {
        LEASE
    }
}

/// A write to a task's record: changes the record, or creates it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TaskWrite<'a> {
    /// The token that the record must have for the write to succeed. `None` creates a new record.
    pub expected: Option<&'a str>,
    /// The token that the record has after the write. It may be the expected one.
    pub token: &'a str,
    /// The phase of the task after the write.
    pub phase: TaskPhase,
    /// The caller whose unfinished tasks are limited. `None` if there is no limit per caller.
    pub caller: Option<&'a [u8]>,
    /// The call of the task. Set when the record is created, and `None` in later writes.
    pub call: Option<&'a [u8]>,
    /// The new state of the task. `None` leaves it as it is.
    pub state: Option<&'a [u8]>,
    /// The new checkpoint of the run. `None` leaves it as it is. The end of the task deletes it.
    pub checkpoint: Option<&'a [u8]>,
    /// The time to live of the record.
    pub ttl: Duration,
}

/// The phase of a task. A store uses the phase to expire leases, and to limit the number of
/// unfinished tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskPhase {
    /// A replica runs the task, with a lease of this duration.
    Working(Duration),
    /// The task waits for the user. No replica runs it.
    Waiting,
    /// The task has ended.
    Ended,
}

/// A task's record without its checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredTask {
    /// The key of the record.
    pub key: String,
    /// The token of the record.
    pub token: String,
    /// The call of the task, as opaque bytes.
    pub call: Vec<u8>,
    /// The state of the task, as opaque bytes.
    pub state: Vec<u8>,
}

/// The reason why a [`TaskStore`] rejects a request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TaskStoreError {
    /// The record is too large.
    #[error("the task is too large: expected at most {max} bytes")]
    TooLarge {
        /// The maximum size of a record in bytes.
        max: usize,
    },
    /// Too many tasks have not ended.
    #[error("too many tasks: {max} have not ended; retry later")]
    Unfinished {
        /// The maximum number of tasks that have not ended.
        max: usize,
    },
    /// The caller has too many tasks that have not ended.
    #[error("too many tasks of this caller: {max} have not ended; retry later")]
    CallerUnfinished {
        /// The maximum number of a caller's tasks that have not ended.
        max: usize,
    },
    /// The store contains too many tasks.
    #[error("too many tasks: there are {max}; retry later")]
    Full {
        /// The maximum number of tasks.
        max: usize,
    },
    /// The record does not exist, or another replica has changed it.
    #[error("the task was changed by another replica")]
    Lost,
    /// The store is unavailable. The string contains the reason, which is meant for logs, not for
    /// clients.
    #[error("the task store is unavailable")]
    Unavailable(Cow<'static, str>),
}

/// The future that a method of a store or an engine of tasks returns.
pub(crate) type StoreFuture<'a, T> = BoxFuture<'a, Result<T, TaskStoreError>>;

/// Returns a random token for a record.
///
/// # Errors
///
/// Returns an error if the system has no random numbers.
pub(crate) fn new_token() -> Result<String, TaskStoreError> {
    random::text::<16>().map_err(|error| {
        TaskStoreError::Unavailable(format!("the system has no random numbers: {error}").into())
    })
}

// === impl TaskWrite ===

impl<'a> TaskWrite<'a> {
    /// Creates a write that creates a record without data.
    #[must_use]
    pub const fn new(token: &'a str, phase: TaskPhase, ttl: Duration) -> Self {
        Self {
            expected: None,
            token,
            phase,
            caller: None,
            call: None,
            state: None,
            checkpoint: None,
            ttl,
        }
    }
}

// === impl TaskStoreError ===

impl TaskStoreError {
    /// Returns the reason for logs, which must not be sent to clients.
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Unavailable(reason) => reason,
            _ => "",
        }
    }
}

// === impl StoredTask ===

impl StoredTask {
    /// Creates a record from its parts.
    #[must_use]
    pub const fn new(key: String, token: String, call: Vec<u8>, state: Vec<u8>) -> Self {
        Self { key, token, call, state }
    }
}

impl<T: TaskStore + ?Sized> TaskStore for Arc<T> {
    fn write<'a>(&'a self, key: &'a str, write: TaskWrite<'a>) -> StoreFuture<'a, ()> {
        (**self).write(key, write)
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<StoredTask>> {
        (**self).get(key)
    }

    fn checkpoint<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<Vec<u8>>> {
        (**self).checkpoint(key)
    }

    fn renew<'a>(
        &'a self,
        held: &'a [(String, String)],
        lease: Duration,
    ) -> StoreFuture<'a, Vec<bool>> {
        (**self).renew(held, lease)
    }

    fn claim(&self, max: usize, lease: Duration) -> StoreFuture<'_, Vec<StoredTask>> {
        (**self).claim(max, lease)
    }

    fn lease(&self) -> Duration {
        (**self).lease()
    }
}
