//! How large something is as JSON, found out without building a string.

use std::io;

use serde::Serialize;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Counts what is written to it, and fails when there is no room for more.
#[derive(Debug)]
pub(crate) struct BoundedCounter(usize);

/// A limit of the bytes that several waiting messages have together.
#[derive(Debug)]
pub(crate) struct ByteBudget(Semaphore);

/// How many bytes something has as JSON.
pub(crate) fn json_bytes<T: Serialize>(value: &T) -> usize {
    let mut room = BoundedCounter::new(usize::MAX);
    // What cannot be written has no bytes; nothing of MCP is like that.
    let _ = serde_json::to_writer(&mut room, value);
    usize::MAX - room.0
}

/// Says that so many bytes were looked at to find out what they take.
///
/// Only tests count them: how long something takes is no matter of chance there.
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

    /// Whether something has room, as JSON; what has none is not read to its end.
    pub(crate) fn holds<T: Serialize>(&mut self, value: &T) -> bool {
        serde_json::to_writer(self, value).is_ok()
    }

    /// Returns the number of bytes for which there is room.
    pub(crate) const fn left(&self) -> usize {
        self.0
    }

    /// Takes so many bytes, if there are.
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

    /// How many bytes are looked at meanwhile.
    pub(crate) fn during<T>(work: impl FnOnce() -> T) -> usize {
        let before = BYTES.get();
        work();
        BYTES.get() - before
    }
}
