//! The JSON size of a value, computed without building a string.

use std::io;

use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A writer that only counts bytes. Writing fails if the total number of bytes would exceed a
/// limit.
#[derive(Debug)]
pub(crate) struct BoundedCounter(usize);

/// A limit on the total size of all messages that wait at the same time.
#[derive(Debug)]
pub(crate) struct ByteBudget(Semaphore);

/// Returns the size of a value as JSON, in bytes.
pub(crate) fn json_bytes<T: Serialize>(value: &T) -> usize {
    let mut room = BoundedCounter::new(usize::MAX);
    // Every MCP value can be serialized. Of other values, the bytes before the error are counted.
    let _ = serde_json::to_writer(&mut room, value);
    usize::MAX - room.0
}

/// Records that a number of bytes was read in order to measure a size.
///
/// Only tests count these bytes, to measure the work independently of time.
#[cfg(not(test))]
#[inline]
pub(crate) const fn record_inspected(_bytes: usize) {}

#[cfg(test)]
pub(crate) use looks::record_inspected;

// === impl BoundedCounter ===

impl BoundedCounter {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self(bytes)
    }

    /// Subtracts a value's JSON size from the number of bytes left. If the size exceeds this
    /// number, returns `false` without reading the value to its end.
    pub(crate) fn holds<T: Serialize>(&mut self, value: &T) -> bool {
        serde_json::to_writer(self, value).is_ok()
    }

    /// Returns the number of bytes left.
    pub(crate) const fn left(&self) -> usize {
        self.0
    }

    /// Subtracts bytes, or returns `None` if too few are left.
    pub(crate) fn take(&mut self, bytes: usize) -> Option<()> {
        self.0 = self.0.checked_sub(bytes)?;
        Some(())
    }
}

impl io::Write for BoundedCounter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        record_inspected(bytes.len());
        self.take(bytes.len()).ok_or(io::ErrorKind::WriteZero)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl ByteBudget ===

impl ByteBudget {
    pub(crate) const fn new(bytes: usize) -> Self {
        Self(Semaphore::const_new(bytes))
    }

    /// Reserves bytes until the permit is dropped. Returns `None` if too few are left.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<SemaphorePermit<'_>> {
        self.0.try_acquire_many(u32::try_from(bytes).ok()?).ok()
    }
}

#[cfg(test)]
pub(crate) mod looks {
    use std::cell::Cell;

    thread_local! {
        static BYTES: Cell<usize> = const { Cell::new(0) };
    }

    pub(crate) fn record_inspected(bytes: usize) {
        BYTES.set(BYTES.get() + bytes);
    }

    /// Returns the number of bytes inspected during `work`.
    pub(crate) fn during<T>(work: impl FnOnce() -> T) -> usize {
        let before = BYTES.get();
        work();
        BYTES.get() - before
    }
}
