//! Computes the size of a value as JSON without building the JSON text.

use std::io;

use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};

/// A writer that discards the written bytes and limits their number. Contains the number of bytes
/// that can still be written. Writing more returns an error.
#[derive(Debug)]
pub(crate) struct BoundedCounter(usize);

/// A limit on the total size in bytes of all messages that wait at the same time. A message
/// [reserves](Self::reserve) its size while it waits.
#[derive(Debug)]
pub(crate) struct ByteBudget(Semaphore);

/// Returns the length in bytes of the JSON text of a value, without building the text.
pub(crate) fn json_bytes<T: Serialize>(value: &T) -> usize {
    let mut room = BoundedCounter::new(usize::MAX);
    // Values of MCP types can always be serialized. If another value cannot be serialized, the
    // bytes before the error are counted.
    let _ = serde_json::to_writer(&mut room, value);
    usize::MAX - room.0
}

/// Records the number of bytes that were processed to measure the size of a value. Tests compare
/// the sum with a limit, which is more reliable than measuring time. Outside of tests, the function
/// does nothing.
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

    /// Subtracts the JSON size of a value from the bytes that can still be written. Returns `false`
    /// if the value is too large. In this case, serialization stops early.
    pub(crate) fn holds<T: Serialize>(&mut self, value: &T) -> bool {
        serde_json::to_writer(self, value).is_ok()
    }

    /// Returns the number of bytes that can still be written.
    pub(crate) const fn left(&self) -> usize {
        self.0
    }

    /// Subtracts `bytes` from the bytes that can still be written. Returns `None` if fewer bytes
    /// are left.
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

    /// Reserves `bytes` bytes until the returned permit is dropped. Returns `None` if too few bytes
    /// are left.
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

    /// Calls `work`, and returns the number of bytes that it has processed to measure the sizes of
    /// values.
    pub(crate) fn during<T>(work: impl FnOnce() -> T) -> usize {
        let before = BYTES.get();
        work();
        BYTES.get() - before
    }
}
