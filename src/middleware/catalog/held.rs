//! Tracks the total size of the tools that the catalogs of a layer contain.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// The total size of the tools in all catalogs of a layer, measured in bytes of JSON.
#[derive(Clone, Debug, Default)]
pub(super) struct Holding(Arc<AtomicUsize>);

/// The contribution of one catalog to the total size. Dropping this value subtracts the
/// contribution from the total.
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
