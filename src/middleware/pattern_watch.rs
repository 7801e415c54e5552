//! Tracks which configured patterns have matched a listed item.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Maximum number of names kept for suggestions.
const MAX_WATCHED_NAMES: usize = 10_000;
/// Maximum number of cursors kept whose page has not been requested yet.
const MAX_CURSORS: usize = 1_000;
/// Maximum length of a name or cursor that is kept; configured names are never longer.
const MAX_WATCHED_TEXT: usize = 1_024;

/// Patterns to find in a list of names.
pub(crate) trait WatchedNames {
    /// Compares a listed name with the patterns.
    fn see(&mut self, name: &str);

    /// Returns `true` if all patterns have matched.
    fn is_found(&self) -> bool;
}

/// Watches the pages of lists, until all patterns have matched or a whole list was seen.
///
/// A page counts if it is the first, or if its cursor was returned by a page that counts, for
/// any client. So a late page alone does not count, and clients that list concurrently complete
/// each other's lists. After the watch is over, nothing is kept, and a page only costs the
/// check of a flag.
#[derive(Debug)]
pub(crate) struct PatternWatch<S> {
    is_over: AtomicBool,
    search: Mutex<Search<S>>,
}

/// A page that counts.
#[derive(Debug)]
pub(crate) struct Page {
    /// Whether the pages before it contain items.
    goes_on: bool,
}

/// The patterns that a completely seen list did not match.
#[derive(Debug)]
pub(crate) struct Missed<S> {
    /// The patterns, and which of them have matched.
    pub(crate) sought: S,
    /// The listed names.
    names: BTreeSet<String>,
}

#[derive(Debug)]
struct Search<S> {
    /// `None` when the watch is over.
    sought: Option<S>,
    names: BTreeSet<String>,
    /// The cursors of pages that count, and whether the pages before them contain items.
    cursors: HashMap<String, bool>,
}

// === impl PatternWatch ===

impl<S: WatchedNames> PatternWatch<S> {
    pub(crate) fn new(sought: S) -> Self {
        let is_over = AtomicBool::new(sought.is_found());
        let sought = Some(sought).filter(|sought| !sought.is_found());
        let search = Search { sought, names: BTreeSet::new(), cursors: HashMap::new() };
        Self { is_over, search: Mutex::new(search) }
    }

    /// Returns `true` if the watch is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the page that is requested with `cursor`, if it counts.
    pub(crate) fn page(&self, cursor: Option<&str>) -> Option<Page> {
        if self.is_over() {
            return None;
        }
        let goes_on = match cursor {
            None => false,
            Some(cursor) => *self.search().cursors.get(cursor)?,
        };
        Some(Page { goes_on })
    }

    /// Processes the names of a page with the next cursor `next`. When a whole list was seen,
    /// returns the patterns without a match, once.
    ///
    /// An empty list does not count.
    pub(crate) fn see(
        &self,
        page: &Page,
        next: Option<&str>,
        names: impl IntoIterator<Item = String>,
    ) -> Option<Missed<S>> {
        let search = &mut *self.search();
        let sought = search.sought.as_mut()?;
        let mut names = names.into_iter().peekable();
        let has_items = page.goes_on || names.peek().is_some();
        let names: Vec<String> = names.inspect(|name| sought.see(name)).collect();
        if sought.is_found() {
            self.end(search);
            return None;
        }
        let room = MAX_WATCHED_NAMES - search.names.len();
        let names = names.into_iter().filter(|name| name.len() <= MAX_WATCHED_TEXT);
        search.names.extend(names.take(room));
        match next {
            // The rest of the list cannot be followed.
            Some(next) if next.len() > MAX_WATCHED_TEXT => None,
            Some(next) => {
                // Abandoned lists must not prevent tracking of others.
                if search.cursors.len() == MAX_CURSORS {
                    search.cursors.clear();
                }
                search.cursors.insert(next.to_owned(), has_items);
                None
            }
            None if has_items => {
                let names = mem::take(&mut search.names);
                self.end(search).map(|sought| Missed { sought, names })
            }
            None => None,
        }
    }

    /// Processes a whole list.
    pub(crate) fn see_all<'n>(&self, names: impl Iterator<Item = &'n str>) -> Option<Missed<S>> {
        let page = self.page(None)?;
        self.see(&page, None, names.map(str::to_owned))
    }

    fn end(&self, search: &mut Search<S>) -> Option<S> {
        self.is_over.store(true, Ordering::Relaxed);
        search.names = BTreeSet::new();
        search.cursors = HashMap::new();
        search.sought.take()
    }

    fn search(&self) -> MutexGuard<'_, Search<S>> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Missed ===

impl<S> Missed<S> {
    /// Returns the listed names.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests;
