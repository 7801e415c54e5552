//! A store of tasks in memory.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use futures::future::{FutureExt, ready};
use tokio::time::Instant;

use super::store::{
    StoreFuture, StoredTask, TaskPhase, TaskStore, TaskStoreError, TaskWrite, new_token,
};
use crate::{
    mutex::lock,
    tasks::limits::{
        MAX_CALLER_UNFINISHED, MAX_RECORD_BYTES, MAX_TASK_BYTES, MAX_TASKS, MAX_UNFINISHED,
    },
};

/// A store of tasks in the memory of this process, for several stacks in one process. Clones share
/// the same tasks.
///
/// A stack without a [`TaskStore`] also keeps its tasks in memory. Use this store in tests of code
/// that runs with a shared store.
#[derive(Clone, Default)]
pub struct MemoryTaskStore(Arc<Mutex<HashMap<String, Record>>>);

struct Record {
    token: String,
    phase: Phase,
    caller: Option<Vec<u8>>,
    call: Vec<u8>,
    state: Vec<u8>,
    checkpoint: Vec<u8>,
    expiry: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The lease of the replica that runs the task expires at this time.
    Working(Instant),
    Waiting,
    Ended,
}

// === impl MemoryTaskStore ===

impl MemoryTaskStore {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the expired records, and locks the others.
    fn records(&self) -> MutexGuard<'_, HashMap<String, Record>> {
        let now = Instant::now();
        let mut records = lock(&self.0);
        records.retain(|_, record| record.expiry > now);
        records
    }

    fn apply(&self, key: &str, write: &TaskWrite<'_>) -> Result<(), TaskStoreError> {
        let mut records = self.records();
        let total: usize = records.values().map(Record::bytes).sum();
        let Some(expected) = write.expected else {
            match records.get(key) {
                // The request is repeated if its response was lost.
                Some(record) if record.token == write.token => return Ok(()),
                Some(_) => return Err(TaskStoreError::Lost),
                None => (),
            }
            check_numbers(&records, write.caller)?;
            let record = Record::new(write);
            record.check_size(total)?;
            records.insert(key.to_owned(), record);
            return Ok(());
        };
        let record = records.get_mut(key).ok_or(TaskStoreError::Lost)?;
        if record.token != expected && record.token != write.token {
            return Err(TaskStoreError::Lost);
        }
        let changed = record.changed(write);
        changed.check_size(total - record.bytes())?;
        *record = changed;
        Ok(())
    }

    fn renewed(&self, key: &str, token: &str, lease: Duration) -> bool {
        match self.records().get_mut(key) {
            Some(Record { token: held, phase: Phase::Working(expiry), .. }) if held == token => {
                *expiry = Instant::now() + lease;
                true
            }
            _ => false,
        }
    }

    fn claimed(&self, max: usize, lease: Duration) -> Result<Vec<StoredTask>, TaskStoreError> {
        let now = Instant::now();
        let mut records = self.records();
        let has_expired = |record: &Record| matches!(record.phase, Phase::Working(at) if at <= now);
        let expired = records.iter_mut().filter(|(_, record)| has_expired(record)).take(max);
        let claimed = expired.map(|(key, record)| {
            record.token = new_token()?;
            record.phase = Phase::Working(now + lease);
            Ok(record.stored(key))
        });
        claimed.collect()
    }
}

impl TaskStore for MemoryTaskStore {
    fn write<'a>(&'a self, key: &'a str, write: TaskWrite<'a>) -> StoreFuture<'a, ()> {
        ready(self.apply(key, &write)).boxed()
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<StoredTask>> {
        ready(Ok(self.records().get(key).map(|record| record.stored(key)))).boxed()
    }

    fn checkpoint<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Option<Vec<u8>>> {
        let checkpoint = self.records().get(key).map(|record| record.checkpoint.clone());
        ready(Ok(checkpoint.filter(|checkpoint| !checkpoint.is_empty()))).boxed()
    }

    fn renew<'a>(
        &'a self,
        held: &'a [(String, String)],
        lease: Duration,
    ) -> StoreFuture<'a, Vec<bool>> {
        let renewed = held.iter().map(|(key, token)| self.renewed(key, token, lease));
        ready(Ok(renewed.collect())).boxed()
    }

    fn claim(&self, max: usize, lease: Duration) -> StoreFuture<'_, Vec<StoredTask>> {
        ready(self.claimed(max, lease)).boxed()
    }
}

impl fmt::Debug for MemoryTaskStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryTaskStore").field("tasks", &self.records().len()).finish()
    }
}

/// Returns an error if a limit on the number of tasks prevents another task of this caller.
fn check_numbers(
    records: &HashMap<String, Record>,
    caller: Option<&[u8]>,
) -> Result<(), TaskStoreError> {
    let unfinished = || records.values().filter(|record| record.phase != Phase::Ended);
    let of_caller = || unfinished().filter(|record| record.caller.as_deref() == caller).count();
    if unfinished().count() >= MAX_UNFINISHED {
        Err(TaskStoreError::Unfinished { max: MAX_UNFINISHED })
    } else if records.len() >= MAX_TASKS {
        Err(TaskStoreError::Full { max: MAX_TASKS })
    } else if caller.is_some() && of_caller() >= MAX_CALLER_UNFINISHED {
        Err(TaskStoreError::CallerUnfinished { max: MAX_CALLER_UNFINISHED })
    } else {
        Ok(())
    }
}

// === impl Record ===

impl Record {
    fn new(write: &TaskWrite<'_>) -> Self {
        Self {
            token: write.token.to_owned(),
            phase: Phase::new(write.phase),
            caller: write.caller.map(<[u8]>::to_vec),
            call: write.call.unwrap_or_default().to_vec(),
            state: write.state.unwrap_or_default().to_vec(),
            checkpoint: write.checkpoint.unwrap_or_default().to_vec(),
            expiry: Instant::now() + write.ttl,
        }
    }

    /// Returns the record as it is after the write.
    fn changed(&self, write: &TaskWrite<'_>) -> Self {
        let checkpoint = match write.phase {
            TaskPhase::Ended => &[],
            _ => write.checkpoint.unwrap_or(&self.checkpoint),
        };
        let caller = self.caller.as_deref();
        Self::new(&TaskWrite {
            caller,
            call: Some(&self.call),
            state: Some(write.state.unwrap_or(&self.state)),
            checkpoint: Some(checkpoint),
            ..*write
        })
    }

    fn bytes(&self) -> usize {
        self.call.len() + self.state.len() + self.checkpoint.len()
    }

    /// Returns an error if the record is too large, or if all records together would be. `others`
    /// is the total size of all other records.
    fn check_size(&self, others: usize) -> Result<(), TaskStoreError> {
        let max = MAX_RECORD_BYTES.min(MAX_TASK_BYTES.saturating_sub(others));
        if self.bytes() > max { Err(TaskStoreError::TooLarge { max }) } else { Ok(()) }
    }

    fn stored(&self, key: &str) -> StoredTask {
        let [call, state] = [&self.call, &self.state].map(Clone::clone);
        StoredTask::new(key.to_owned(), self.token.clone(), call, state)
    }
}

// === impl Phase ===

impl Phase {
    fn new(phase: TaskPhase) -> Self {
        match phase {
            TaskPhase::Working(lease) => Self::Working(Instant::now() + lease),
            TaskPhase::Waiting => Self::Waiting,
            TaskPhase::Ended => Self::Ended,
        }
    }
}
