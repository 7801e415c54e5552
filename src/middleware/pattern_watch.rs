//! Tracks which configured patterns have matched a listed item. Reports the patterns that match no
//! item, because they are probably misspelled.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// The maximum number of listed names that are stored, as suggestions for warnings.
const MAX_WATCHED_NAMES: usize = 10_000;
/// The maximum number of cursors that are stored, to recognize the requests for the next pages.
const MAX_CURSORS: usize = 1_000;
/// The maximum length of a stored name or cursor, in bytes. Names in a configuration file are never
/// longer.
const MAX_WATCHED_TEXT: usize = 1_024;

/// A set of patterns. Each pattern is expected to match a listed name.
pub(crate) trait WatchedNames {
    /// Matches a listed name against all patterns, and records which patterns match it.
    fn see(&mut self, name: &str);

    /// Returns `true` if every pattern has matched a listed name.
    fn is_found(&self) -> bool;
}

/// Watches the pages of lists until all patterns have matched, or until a complete list was seen.
///
/// Watches a page if it is the first page of a list, or if a watched page returned its cursor to
/// any client. Clients that list concurrently therefore complete each other's lists. A later page
/// is ignored if the page before it was not seen. After the watch is over, no names are stored, and
/// each page costs only the check of a flag.
#[derive(Debug)]
pub(crate) struct PatternWatch<S> {
    is_over: AtomicBool,
    search: Mutex<Search<S>>,
}

/// A page of a list. Its names are to be matched against the patterns.
#[derive(Debug)]
pub(crate) struct Page {
    /// Whether the pages before this page contain any items.
    goes_on: bool,
}

/// The result of a watch that has seen a complete list, if some patterns have not matched.
#[derive(Debug)]
pub(crate) struct Missed<S> {
    /// The patterns. They record whether they have matched.
    pub(crate) sought: S,
    /// The names in the list, which serve as suggestions for warnings.
    names: BTreeSet<String>,
}

#[derive(Debug)]
struct Search<S> {
    /// The patterns. `None` after the watch is over.
    sought: Option<S>,
    names: BTreeSet<String>,
    /// The cursors of the pages that are to be watched. The value is `true` if the pages before
    /// that page contain any items.
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

    /// Returns `true` if the watch is over, because all patterns have matched or a complete list
    /// was seen.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the page that a request with this cursor lists. Returns `None` if the page is not
    /// watched.
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

    /// Matches the names of a page against the patterns. `next` is the cursor of the next page. It
    /// is `None` for the last page.
    ///
    /// The watch ends when all patterns have matched, or after the last page of a list. If some
    /// patterns have not matched by then, returns the patterns. Otherwise, returns `None`.
    ///
    /// An empty list does not end the watch.
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
            // The cursor is too long to be stored, so the rest of the list is not watched.
            Some(next) if next.len() > MAX_WATCHED_TEXT => None,
            Some(next) => {
                // The cursors of abandoned lists must not prevent other lists from being watched.
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

    /// Matches the names of a complete list against the patterns, like [`see`](Self::see).
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
    /// Returns the names in the list, which serve as suggestions for warnings.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests;
