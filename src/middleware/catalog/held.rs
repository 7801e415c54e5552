//! Tracks the total size of the tools that the catalogs of a layer contain.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// A counter of the total size of the tools in several catalogs of a layer, in bytes of JSON.
/// Clones share the counter.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding(Arc<AtomicUsize>);

/// A guard that adds the size of one catalog's tools to the total size in a [`Holding`]. When the
/// guard is dropped, the size is subtracted again.
#[derive(Debug)]
pub(super) struct Held {
    bytes: usize,
    holding: Holding,
}

// === impl Holding ===

impl Holding {
    pub(super) fn hold(&self, bytes: usize) -> Held {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Held { bytes, holding: self.clone() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

// === impl Held ===

impl Drop for Held {
    fn drop(&mut self) {
        self.holding.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
