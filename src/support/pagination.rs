//! Limits the size of paginated lists, such as the tools of a server.

use std::collections::HashSet;

use serde::Serialize;

use crate::json_size::BoundedCounter;

/// Maximum number of pages that are read of a paginated list, such as the result of `tools/list`.
pub(crate) const MAX_PAGES: usize = 1_000;
/// Maximum number of items that are read of a paginated list, such as the result of `tools/list`.
pub(crate) const MAX_ITEMS: usize = 100_000;
/// Maximum total size in bytes of all pages that are read of a paginated list, as JSON.
pub(crate) const MAX_LIST_BYTES: usize = 64 << 20;

/// Tracks the pages of a paginated list while the list is read. Detects lists that are too large or
/// never end.
#[derive(Debug)]
pub(crate) struct Pages {
    pages: usize,
    items: usize,
    cursors: HashSet<String>,
    room: BoundedCounter,
}

/// The reason why reading a paginated list was stopped before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoEnd {
    #[error("did not end after {MAX_PAGES} pages or {MAX_ITEMS} items")]
    Endless,
    #[error("is larger than {MAX_LIST_BYTES} bytes")]
    TooLarge,
    #[error("repeats a cursor")]
    Circular,
}

// === impl Pages ===

impl Pages {
    pub(crate) fn new() -> Self {
        Self {
            pages: 0,
            items: 0,
            cursors: HashSet::new(),
            room: BoundedCounter::new(MAX_LIST_BYTES),
        }
    }

    pub(crate) const fn bytes(&self) -> usize {
        MAX_LIST_BYTES - self.room.left()
    }

    /// Counts a page with these items. `next` is the cursor of the next page. Returns `next`, which
    /// is `None` if this page is the last one.
    ///
    /// # Errors
    ///
    /// Returns an error if the list has too many pages or items, if it is too large, or if the next
    /// cursor occurred before. A repeated cursor would repeat the same pages forever.
    pub(crate) fn turn<I: Serialize>(
        &mut self,
        items: &[I],
        next: Option<String>,
    ) -> Result<Option<String>, NoEnd> {
        if !self.room.holds(&items) {
            return Err(NoEnd::TooLarge);
        }
        self.pages += 1;
        self.items += items.len();
        if self.items > MAX_ITEMS {
            return Err(NoEnd::Endless);
        }
        let Some(next) = next else { return Ok(None) };
        self.room.take(next.len()).ok_or(NoEnd::TooLarge)?;
        if !self.cursors.insert(next.clone()) {
            return Err(NoEnd::Circular);
        }
        if self.pages == MAX_PAGES {
            return Err(NoEnd::Endless);
        }
        Ok(Some(next))
    }
}
